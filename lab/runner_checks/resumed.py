"""Checks of a generation engine with a request whose input comes in parts: vLLM's streaming input."""

from __future__ import annotations

import torch
from safetensors.torch import load_file
from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind

from omni_runners import client
from runner_checks.broken import left
from runner_checks.generation import SCHEDULERS as SCHEDULERS
from runner_checks.generation import WORKER as WORKER

NAME = "in-parts"
PROMPTS = ([7, 9, 11], [5] * 4, [3, 200])
MOST_STEPS = 20


def a_forward_for_each_part(engine, folder):
    """With what came with it, as a stage gets chunks from the one before."""
    core, parts, request_id = engine.llm_engine, client.Parts(), None
    embeddings = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    for prompt in PROMPTS:
        request = _part(core, prompt)
        if request_id is None:
            core.input_processor.assign_request_id(request)
            request_id = request.request_id
        request.request_id, request.external_req_id = request_id, NAME
        core.output_processor.add_request(request, None, None, 0)
        core.engine_core.add_request(request)
        output = next((one for _ in range(MOST_STEPS) for one in core.step()), None)
        if output is None:
            return f"no output for {prompt} in {MOST_STEPS} steps"
        tensors = parts.take(output)
        if not torch.allclose(tensors["wave"], embeddings[prompt].float() * 3):
            return f"the waveform of {prompt} is another one: {tuple(tensors['wave'].shape)}"
        if tensors["length"].tolist() != [len(prompt)]:
            return f"lengths {tensors['length'].tolist()} of {len(prompt)} tokens"
    core.abort_request([NAME])
    core.step()
    return left(engine)


def _part(core, prompt):
    extra = {"omni_payload": "parts", "omni_info": {"chunk": len(prompt)}}
    params = SamplingParams(max_tokens=1, output_kind=RequestOutputKind.DELTA, extra_args=extra)
    return core.input_processor.process_inputs(
        NAME,
        {"prompt_token_ids": prompt},
        params,
        supported_tasks=core.get_supported_tasks(),
        resumable=True,
    )


CHECKS = {a_forward_for_each_part.__name__: a_forward_for_each_part}
