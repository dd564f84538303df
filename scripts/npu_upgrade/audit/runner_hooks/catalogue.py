"""The hooks: where each is defined and what the runners need of it. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

V1, V2 = "vllm/v1/worker/gpu_model_runner.py", "vllm/v1/worker/gpu/model_runner.py"
ASCEND_V1, ASCEND_V2 = "vllm_ascend/worker/model_runner_v1.py", "vllm_ascend/worker/v2/model_runner.py"
VLLM, ASCEND = "vllm", "vllm-ascend"
VERSIONS: dict[str, tuple[str, ...]] = {
    VLLM: (
        *("0.22.1", "0.23.0", "0.24.0", "0.25.1", "0.26.0", "0.27.1"),  # below releases of vllm-ascend
        *("0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0"),
    ),
    ASCEND: (
        *("0.22.1rc1", "0.23.0.post1", "0.24.0rc1", "0.25.1rc1", "0.26.0rc1", "0.27.1rc1"),
        *("0.28.0rc1", "0.29.0rc1", "0.30.0rc2"),
    ),
}


@dataclass(frozen=True)
class Hook:
    """One name in a class of a file.

    ``needs`` are parameters of a method that the runners give or read by name. ``kind`` is "method" or
    "attribute". ``inherited`` tells that a subclass's file need not define it.
    """

    project: str
    group: str
    path: str
    owner: str
    name: str
    needs: tuple[str, ...] = ()
    kind: str = "method"
    inherited: bool = False


def _methods(
    project: str, group: str, path: str, owner: str, needs: dict[str, str], inherited: bool = False
) -> list[Hook]:
    return [
        Hook(project, group, path, owner, name, tuple(wanted.split()), inherited=inherited)
        for name, wanted in needs.items()
    ]


def _attributes(project: str, group: str, path: str, owner: str, names: str) -> list[Hook]:
    return [Hook(project, group, path, owner, name, kind="attribute") for name in names.split()]


_RUNNER_V1 = {
    "load_model": "",
    "execute_model": "scheduler_output",
    "sample_tokens": "grammar_output",
    "_sample": "logits spec_decode_metadata",
    "_model_forward": "input_ids inputs_embeds",
    "get_model": "",
    "_dummy_sampler_run": "hidden_states",
}
_RUNNER_V2 = {
    "load_model": "",
    "execute_model": "scheduler_output",
    "sample_tokens": "grammar_output",
    "sample": "hidden_states input_batch grammar_output",
    "prepare_inputs": "scheduler_output",
}
_SAMPLE_V2 = "vllm/v1/worker/gpu/sample"
_BATCH_V1 = "vllm/v1/worker/gpu_input_batch.py"
_METHODS_OF_BATCH_V1 = {
    "add_request": "request",
    "remove_request": "req_id",
    "condense": "",
    "refresh_metadata": "",
    "update_async_output_token_ids": "",
}

HOOKS: tuple[Hook, ...] = (
    *_methods(VLLM, "V1 runner", V1, "GPUModelRunner", _RUNNER_V1),
    *_attributes(VLLM, "V1 runner", V1, "GPUModelRunner", "max_num_tokens input_batch execute_model_state"),
    *_attributes(VLLM, "V1 runner", V1, "ExecuteModelState", "hidden_states"),
    *_attributes(
        VLLM,
        "V1 runner",
        _BATCH_V1,
        "InputBatch",
        "logitsprocs_need_output_token_ids req_ids sampling_metadata vocab_size "
        "req_output_token_ids generators",
    ),
    *_methods(VLLM, "V1 runner", _BATCH_V1, "InputBatch", _METHODS_OF_BATCH_V1),
    *_methods(
        VLLM,
        "V1 runner",
        "vllm/v1/sample/sampler.py",
        "Sampler",
        {"compute_logprobs": "", "gather_logprobs": "num_logprobs token_ids"},
    ),
    *_attributes(
        VLLM,
        "V1 runner",
        "vllm/v1/sample/logits_processor/builtin.py",
        "MinTokensLogitsProcessor",
        "min_toks logits_slice",
    ),
    *_methods(VLLM, "V2 runner", V2, "GPUModelRunner", _RUNNER_V2),
    *_attributes(
        VLLM, "V2 runner", V2, "GPUModelRunner", "max_num_tokens req_states sampler execute_model_state"
    ),
    *_attributes(VLLM, "V2 runner", V2, "ExecuteModelState", "hidden_states input_batch"),
    *_attributes(
        VLLM,
        "V2 runner",
        "vllm/v1/worker/gpu/input_batch.py",
        "InputBatch",
        "req_ids query_start_loc_np num_draft_tokens",
    ),
    *_methods(VLLM, "V2 runner", f"{_SAMPLE_V2}/sampler.py", "Sampler", {"sample": "logits idx_mapping_np"}),
    *_attributes(VLLM, "V2 runner", f"{_SAMPLE_V2}/output.py", "SamplerOutput", "logprobs_tensors"),
    *_attributes(
        VLLM,
        "V2 runner",
        "vllm/v1/worker/gpu/states.py",
        "RequestState",
        "prompt_len total_len all_token_ids index_to_req_id",
    ),
    *_methods(VLLM, "worker", "vllm/v1/worker/gpu_worker.py", "Worker", {"init_device": ""}),
    *_methods(VLLM, "worker", "vllm/v1/worker/cpu_worker.py", "CPUWorker", {"init_device": ""}),
    *_methods(
        VLLM,
        "scheduler",
        "vllm/v1/core/sched/scheduler.py",
        "Scheduler",
        {
            "add_request": "request",
            "update_from_output": "scheduler_output model_runner_output",
            "finish_requests": "request_ids finished_status",
            "shutdown": "",
        },
    ),
    *_methods(VLLM, "scheduler", "vllm/config/scheduler.py", "SchedulerConfig", {"get_scheduler_cls": ""}),
    *_attributes(
        VLLM,
        "scheduler",
        "vllm/v1/core/sched/output.py",
        "NewRequestData",
        "req_id prompt_token_ids sampling_params num_computed_tokens",
    ),
    *_attributes(
        VLLM,
        "scheduler",
        "vllm/v1/core/sched/output.py",
        "CachedRequestData",
        "req_ids num_computed_tokens resumed_req_ids",
    ),
    *_attributes(
        VLLM,
        "scheduler",
        "vllm/v1/request.py",
        "Request",
        "skip_reading_prefix_cache max_tokens num_tokens client_index resumable",
    ),
    *_attributes(VLLM, "outputs", "vllm/v1/outputs.py", "ModelRunnerOutput", "pooler_output"),
    *_methods(VLLM, "outputs", "vllm/v1/outputs.py", "AsyncModelRunnerOutput", {"get_output": ""}),
    *_attributes(
        VLLM,
        "outputs",
        "vllm/v1/engine/__init__.py",
        "EngineCoreOutput",
        "kv_transfer_params stop_reason finish_reason",
    ),
    *_methods(ASCEND, "V1 runner", ASCEND_V1, "NPUModelRunner", _RUNNER_V1),
    *_attributes(ASCEND, "V1 runner", ASCEND_V1, "ExecuteModelState", "hidden_states"),
    *_methods(ASCEND, "V2 runner", ASCEND_V2, "NPUModelRunner", _RUNNER_V2, inherited=True),
    *_methods(ASCEND, "worker", "vllm_ascend/worker/worker.py", "NPUWorker", {"init_device": ""}),
)
