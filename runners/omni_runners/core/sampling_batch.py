"""SamplingMetadata for a V2 runner, made by vLLM's own V1 batch, which is kept beside V2's."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch
from vllm.sampling_params import SamplingType
from vllm.v1.sample.logits_processor import build_logitsprocs
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

from omni_runners.core.requests import Requests

ONE_BLOCK = 16  # the batch's table of key-value blocks is not used


class SamplingBatch:
    """The requests of a V2 runner in the order of its logits.

    ``states`` is the runner's ``req_states``; the history of each request is read from the device in each
    step, which waits for it.
    """

    def __init__(self, config: Any, device: torch.device, states: Any, requests: Requests) -> None:
        self._device, self._states, self._requests = device, states, requests
        model, scheduler = config.model_config, config.scheduler_config
        options = {
            "max_num_reqs": scheduler.max_num_seqs,
            "max_model_len": model.max_model_len,
            "max_num_batched_tokens": scheduler.max_num_batched_tokens,
            "device": device,
            "pin_memory": False,
            "vocab_size": model.get_vocab_size(),
            "block_sizes": [ONE_BLOCK],
            "kernel_block_sizes": [ONE_BLOCK],
            "max_num_blocks_per_req": [1],
            "logitsprocs": build_logitsprocs(config, device, False, False, model.logits_processors or ()),
            "logitsprocs_need_output_token_ids": True,
        }
        known = inspect.signature(InputBatch).parameters
        self._batch = InputBatch(**{name: value for name, value in options.items() if name in known})
        self._held: dict[str, CachedRequestState] = {}

    def metadata(self, rows: Any) -> tuple[list[str], SamplingMetadata]:
        """The ids of the requests in ``rows`` of the runner's states (requests,), and what they ask for."""
        names = [self._states.index_to_req_id[row] for row in rows.tolist()]
        histories = dict(zip(names, self._histories(rows), strict=True))
        for one in names:
            held = self._held.get(one)
            if held is None or held.sampling_params is not self._requests[one].params:
                self._held[one] = self._state(one)
        self._held = {one: state for one, state in self._held.items() if one in self._requests}
        states = [self._held[one] for one in names]
        for state in states:
            state.output_token_ids[:] = histories[state.req_id]
        self._arrange(states)
        self._batch.refresh_metadata()
        # what is drawn within a prompt is thrown away, and must not move a request's generator on
        drawing = [index for index, one in enumerate(names) if self._requests[one].draws]
        generators = {index: one for index, one in self._batch.generators.items() if index in drawing}
        return names, replace(self._batch.sampling_metadata, generators=generators)

    def _arrange(self, states: list[CachedRequestState]) -> None:
        """Let the batch have these requests in this order."""
        lists = self._batch.req_output_token_ids
        if len(lists) == len(states) and all(
            one is state.output_token_ids for one, state in zip(lists, states, strict=True)
        ):
            return
        for one in list(self._batch.req_ids):
            self._batch.remove_request(one)
        for state in states:
            self._batch.add_request(state)
        self._batch.condense()

    def _histories(self, rows: Any) -> list[list[int]]:
        """The tokens that were drawn so far, of each row."""
        tokens, prompts = self._states.all_token_ids.gpu, self._states.prompt_len.np
        totals = self._states.total_len.gpu[torch.as_tensor(rows, device=self._device)].tolist()
        return [
            tokens[row, int(prompts[row]) : total].tolist()
            for row, total in zip(rows.tolist(), totals, strict=True)
        ]

    def _state(self, request_id: str) -> CachedRequestState:
        known = self._requests[request_id]
        if known.generator is None and known.params.sampling_type == SamplingType.RANDOM_SEED:
            known.generator = torch.Generator(device=self._device)
            known.generator.manual_seed(known.params.seed)
        return CachedRequestState(
            req_id=request_id,
            prompt_token_ids=known.prompt,
            mm_features=[],
            sampling_params=known.params,
            generator=known.generator,
            block_ids=([],),
            num_computed_tokens=known.computed,
            output_token_ids=[],
        )
