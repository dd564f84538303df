"""Let the model draw its tokens, as vllm-omni's runners do.

The model's ``sample`` gets what its head gave, with a grammar's mask and nothing else done to it, and
vLLM's own SamplingMetadata: penalties, biases and masks are the model's to apply, as vLLM's Sampler does when
the model calls it. Where the model declines vLLM draws from the same logits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from vllm.v1.sample.logits_processor import MinTokensLogitsProcessor
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.sampler import Sampler

from omni_runners.core.requests import Requests
from omni_runners.core.sampling_batch import SamplingBatch
from omni_runners.errors import InterfaceError


class ModelSampler:
    """The ``sample`` of one model."""

    def __init__(self, model: Any, requests: Requests) -> None:
        self._model, self._requests = model, requests
        self._wants_extra = bool(getattr(model, "model_sampler_wants_extra_args", False))

    def draw(self, logits: torch.Tensor, metadata: SamplingMetadata, names: list[str]) -> Any:
        """One token for each of ``names``, from logits (requests, vocabulary).

        The model's SamplerOutput with log-probabilities where they were asked for, or None when it declines.
        A model that fails ends these requests with its error, and vLLM draws in its place.
        """
        before = None if metadata.max_num_logprobs is None else logits.clone()
        given = (
            {"per_req_extra_args": [self._requests.extra(one) for one in names]} if self._wants_extra else {}
        )
        try:
            output = self._checked(self._model.sample(logits, metadata, **given), len(logits))
        except Exception as error:
            self._requests.fail(names, f"{type(self._model).__name__}.sample: {error}")
            return None
        if output is not None and output.logprobs_tensors is None and before is not None:
            drawn = output.sampled_token_ids.reshape(-1).long()
            scores = Sampler.compute_logprobs(before)
            output.logprobs_tensors = Sampler.gather_logprobs(scores, metadata.max_num_logprobs, drawn)
        return output

    def _checked(self, output: Any, rows: int) -> Any:
        ids = getattr(output, "sampled_token_ids", None)
        if output is not None and (ids is None or tuple(ids.shape) != (rows, 1)):
            shape = "no sampled_token_ids" if ids is None else f"sampled_token_ids {tuple(ids.shape)}"
            raise InterfaceError(
                f"returned {shape} for {rows} rows of logits",
                expected=f"a SamplerOutput whose sampled_token_ids are ({rows}, 1), or None to decline",
                try_="one token per row, also for requests whose prompt is not complete",
            )
        return output


class DrawsOnV2:
    """In front of a V2 runner: its model draws, where ``_omni_sampler`` says that it wants to."""

    _omni_requests: Requests
    _omni_sampler: ModelSampler | None = None
    _omni_sampling: SamplingBatch | None = None

    def sample(self, hidden_states: Any, input_batch: Any, *args: Any, **options: Any) -> Any:
        """Let the model draw where it wants to; never with speculative tokens."""
        if not self._omni_sampler or input_batch.num_draft_tokens:
            return super().sample(hidden_states, input_batch, *args, **options)
        if self._omni_sampling is None:
            parts = (self.vllm_config, self.device, self.req_states, self._omni_requests)
            self._omni_sampling = SamplingBatch(*parts)
        with drawing_v2(self.sampler, self._omni_sampler, self._omni_sampling) as chosen:
            found = super().sample(hidden_states, input_batch, *args, **options)
        require_drawn(chosen, self.sampler)
        if chosen[0] is not None:
            found[0].logprobs_tensors = chosen[0].logprobs_tensors
        return found


def fit(metadata: SamplingMetadata, width: int) -> SamplingMetadata:
    """The metadata for logits (rows, ``width``) of a head that may be narrower than the vocabulary.

    Token ids beyond it, a tokenizer's end token or the padding of prompts, are in no column of the logits.
    """
    for processor in metadata.logitsprocs.non_argmax_invariant:
        if isinstance(processor, MinTokensLogitsProcessor) and processor.min_toks:
            rows, ids = processor.logits_slice
            processor.logits_slice = (rows[ids < width], ids[ids < width])
    if metadata.prompt_token_ids is None:
        return metadata
    # vLLM's penalties count the column after the last one for nothing
    return replace(metadata, prompt_token_ids=metadata.prompt_token_ids.clamp(max=width))


@contextmanager
def drawing_v2(sampler: Any, mine: ModelSampler, batch: SamplingBatch) -> Iterator[list[Any]]:
    """While this lasts the model draws in place of V2's ``sampler``.

    Yields a list that gets the model's SamplerOutput, or None when it declined.
    """
    stock, signature, chosen = sampler.sample, inspect.signature(sampler.sample), []

    def sample(logits: torch.Tensor, *args: Any, **options: Any) -> Any:
        rows = signature.bind(logits, *args, **options).arguments["idx_mapping_np"]
        names, metadata = batch.metadata(rows)
        chosen.append(mine.draw(logits, fit(metadata, logits.shape[-1]), names))
        if chosen[0] is None:
            return stock(logits, *args, **options)
        return chosen[0].sampled_token_ids.reshape(-1).long(), logits

    with replaced(sampler, "sample", sample):
        yield chosen


def require_drawn(chosen: list[Any], sampler: Any) -> None:
    """Raises :class:`InterfaceError` when the sampler has drawn without asking the model."""
    if not chosen:
        raise InterfaceError(
            f"the model's sampler was not asked: {type(sampler).__name__} does not draw in its method sample",
            expected="a sampler of vLLM or one that inherits its call",
            try_="upgrade.py hooks, to see which releases have the hook",
        )


@contextmanager
def replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Shadow a method of ``owner``'s class on this one object, and uncover it again."""
    setattr(owner, name, function)
    try:
        yield
    finally:
        delattr(owner, name)
