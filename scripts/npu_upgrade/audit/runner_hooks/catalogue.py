"""The hooks: where each is defined and what the runners need of it. Plain data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

V1, V2 = "vllm/v1/worker/gpu_model_runner.py", "vllm/v1/worker/gpu/model_runner.py"
ASCEND_V1, ASCEND_V2 = "vllm_ascend/worker/model_runner_v1.py", "vllm_ascend/worker/v2/model_runner.py"
VLLM, ASCEND, OMNI = "vllm", "vllm-ascend", "vllm-omni"
VERSIONS: dict[str, tuple[str, ...]] = {
    VLLM: (
        *("0.22.1", "0.23.0", "0.24.0", "0.25.1", "0.26.0", "0.27.1"),  # below releases of vllm-ascend
        *("0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0"),
    ),
    ASCEND: (
        *("0.22.1rc1", "0.23.0.post1", "0.24.0rc1", "0.25.1rc1", "0.26.0rc1", "0.27.1rc1"),
        *("0.28.0rc1", "0.29.0rc1", "0.30.0rc2"),
    ),
    OMNI: ("0.30.0", "0.32.0rc1"),  # whose stages can have our workers
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
_STAGES_V1 = {  # of vllm-omni, by file and class
    ("worker/gpu_model_runner.py", "OmniGPUModelRunner"): {
        "_update_streaming_input_additional_info": "new_req_data req_id",
        "_decode_and_store_request_payloads": "scheduler_output",
        "_build_model_kwargs_extra": "",
        "_preprocess": "scheduler_output num_input_tokens",
        "extract_multimodal_outputs": "hidden_states",
    },
    ("worker/gpu_ar_model_runner.py", "GPUARModelRunner"): {
        "_build_omni_model_runner_output_from_snapshot": "scheduler_output hidden_states multimodal_outputs "
        "req_ids_output_copy num_scheduled_tokens_np query_start_loc_cpu prefix_cache_step_id",
        "_merge_model_kv_transfer_metadata": "finished_reqs",
        "_sample": "logits spec_decode_metadata",
    },
    ("worker/gpu_generation_model_runner.py", "GPUGenerationModelRunner"): {
        "_update_request_states": "scheduler_output",
        "sample_tokens": "grammar_output",
    },
    ("core/prefix_cache/runner_mixin.py", "PrefixCacheRunnerMixin"): {
        "_prefix_cache_step_begin": "scheduler_output",
        "_prefix_cache_save_step": "hidden_states multimodal_outputs num_tokens_unpadded num_tokens_padded",
    },
    ("platforms/npu/platform.py", "NPUOmniPlatform"): {
        "get_omni_ar_worker_cls": "",
        "get_omni_generation_worker_cls": "",
    },
}
_STAGES_V2 = {
    ("worker_v2/omni_model_runner.py", "OmniGPUModelRunner"): {
        "_prepare_native_data_plane": "scheduler_output",
        "_sync_native_data_plane_payloads": "scheduler_output",
        "_attach_native_data_plane_signals": "output",
        "_add_legacy_forward_inputs": "model_inputs input_batch",
        "_dispatch_mtp_batch_descriptor": "num_mtp_reqs",
    },
    ("worker_v2/omni_ar_model_runner.py", "OmniARModelRunner"): {
        "_handle_kv_transfer_pre": "scheduler_output",
        "sample_tokens": "grammar_output",
    },
    ("worker_v2/model_states/omni_model_state.py", "OmniModelState"): {
        "prepare_inputs": "input_batch req_states",
        "run_preprocess": "input_batch model_inputs",
        "run_postprocess": "hidden_states input_batch",
    },
}
_METHODS_OF_BATCH_V1 = {
    "add_request": "request",
    "remove_request": "req_id",
    "condense": "",
    "refresh_metadata": "",
    "update_async_output_token_ids": "",
}
_INIT = {"init_device": ""}
_SCHEDULER = {
    "add_request": "request",
    "update_from_output": "scheduler_output model_runner_output",
    "finish_requests": "request_ids finished_status",
    "shutdown": "",
}
_GPU, _SAMPLE_V2 = "vllm/v1/worker/gpu", "vllm/v1/worker/gpu/sample"
_RUNNER, _STATE = "GPUModelRunner", "ExecuteModelState"

# Of a class: its methods with the parameters that are needed, and its attributes.
_CLASSES: tuple[tuple[str, str, str, str, dict[str, str], str], ...] = (
    (
        *(VLLM, "V1 runner", V1, _RUNNER, _RUNNER_V1),
        "max_num_tokens input_batch query_start_loc execute_model_state",
    ),
    (VLLM, "V1 runner", V1, _STATE, {}, "hidden_states"),
    (
        VLLM,
        "V1 runner",
        f"{_GPU}_input_batch.py",
        "InputBatch",
        _METHODS_OF_BATCH_V1,
        "logitsprocs_need_output_token_ids req_ids num_reqs sampling_metadata vocab_size "
        "req_output_token_ids generators",
    ),
    (
        *(VLLM, "V1 runner", "vllm/v1/sample/sampler.py", "Sampler"),
        *({"compute_logprobs": "", "gather_logprobs": "num_logprobs token_ids"}, ""),
    ),
    (
        *(VLLM, "V1 runner", "vllm/v1/sample/logits_processor/builtin.py", "MinTokensLogitsProcessor"),
        *({}, "min_toks logits_slice"),
    ),
    (VLLM, "V2 runner", V2, _RUNNER, _RUNNER_V2, "max_num_tokens req_states sampler execute_model_state"),
    (VLLM, "V2 runner", V2, _STATE, {}, "hidden_states input_batch"),
    (
        VLLM,
        "V2 runner",
        f"{_GPU}/input_batch.py",
        "InputBatch",
        {},
        "req_ids input_ids positions query_start_loc query_start_loc_np num_draft_tokens",
    ),
    (VLLM, "V2 runner", f"{_SAMPLE_V2}/sampler.py", "Sampler", {"sample": "logits idx_mapping_np"}, ""),
    (VLLM, "V2 runner", f"{_SAMPLE_V2}/output.py", "SamplerOutput", {}, "logprobs_tensors"),
    (
        *(VLLM, "V2 runner", f"{_GPU}/states.py", "RequestState"),
        *({}, "prompt_len total_len all_token_ids index_to_req_id"),
    ),
    (VLLM, "worker", f"{_GPU}_worker.py", "Worker", _INIT, ""),
    (VLLM, "worker", "vllm/v1/worker/cpu_worker.py", "CPUWorker", _INIT, ""),
    (VLLM, "scheduler", "vllm/v1/core/sched/scheduler.py", "Scheduler", _SCHEDULER, ""),
    (VLLM, "scheduler", "vllm/config/scheduler.py", "SchedulerConfig", {"get_scheduler_cls": ""}, ""),
    (
        *(VLLM, "scheduler", "vllm/v1/core/sched/output.py", "NewRequestData"),
        *({}, "req_id prompt_token_ids sampling_params num_computed_tokens"),
    ),
    (
        *(VLLM, "scheduler", "vllm/v1/core/sched/output.py", "CachedRequestData"),
        *({}, "req_ids num_computed_tokens resumed_req_ids"),
    ),
    (
        VLLM,
        "scheduler",
        "vllm/v1/request.py",
        "Request",
        {},
        "skip_reading_prefix_cache max_tokens num_tokens client_index resumable",
    ),
    (VLLM, "outputs", "vllm/v1/outputs.py", "ModelRunnerOutput", {}, "pooler_output"),
    (VLLM, "outputs", "vllm/v1/outputs.py", "AsyncModelRunnerOutput", {"get_output": ""}, ""),
    (
        *(VLLM, "outputs", "vllm/v1/engine/__init__.py", "EngineCoreOutput"),
        *({}, "kv_transfer_params stop_reason finish_reason"),
    ),
    (ASCEND, "V1 runner", ASCEND_V1, "NPUModelRunner", _RUNNER_V1, ""),
    (ASCEND, "V1 runner", ASCEND_V1, _STATE, {}, "hidden_states"),
    (ASCEND, "V2 runner", ASCEND_V2, "NPUModelRunner", _RUNNER_V2, ""),
    (ASCEND, "worker", "vllm_ascend/worker/worker.py", "NPUWorker", _INIT, ""),
    *(
        (OMNI, f"stages, {group}", f"vllm_omni/{path}", owner, needs, "")
        for group, stages in (("V1", _STAGES_V1), ("V2", _STAGES_V2))
        for (path, owner), needs in stages.items()
    ),
)
# Their files need not define what they take from vLLM's class.
_INHERITING = {(ASCEND_V2, "NPUModelRunner")}


def _hooks() -> Iterator[Hook]:
    for project, group, path, owner, methods, attributes in _CLASSES:
        place, inherited = (project, group, path, owner), (path, owner) in _INHERITING
        for name, wanted in methods.items():
            yield Hook(*place, name, tuple(wanted.split()), inherited=inherited)
        yield from (Hook(*place, name, kind="attribute") for name in attributes.split())


HOOKS = tuple(_hooks())
