"""Let the model draw its tokens at the very place where vLLM's sampler would.

vLLM's samplers first do to the logits what the request asks for (allowed tokens, bad words, minimum tokens,
logit bias, penalties), then draw, then gather log-probabilities. Only the drawing is replaced, for one step:
the rest stays vLLM's, and where the model declines vLLM draws from the same logits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from omni_runners.errors import InterfaceError


class SamplingView(NamedTuple):
    """What a V2 runner tells the model's sampler; the fields are those of V1's SamplingMetadata.

    ``output_token_ids`` has the tokens so far of each row of the logits; the others are (rows,).
    """

    output_token_ids: list[list[int]]
    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor


@contextmanager
def drawing_v1(sampler: Any, model: Any) -> Iterator[list[Any]]:
    """While this lasts the model draws instead of V1's ``sampler``.

    Yields a list that gets the model's SamplerOutput, or None when it declined; it stays empty when the
    sampler never came to its drawing.
    """
    stock, chosen = sampler.sample, []

    def sample(logits: torch.Tensor, sampling_metadata: Any, *args: Any, **options: Any) -> Any:
        chosen.append(_checked(model, model.sample(logits, sampling_metadata), len(logits)))
        if chosen[0] is None:
            return stock(logits, sampling_metadata, *args, **options)
        return chosen[0].sampled_token_ids.reshape(-1), _processed(sampler, logits)

    with replaced(sampler, "sample", sample):
        yield chosen


@contextmanager
def drawing_v2(sampler: Any, model: Any, requests: Any) -> Iterator[list[Any]]:
    """The same for V2's ``sampler``, whose state is ``requests``; its draw is made and written over.

    Temperature belongs to the drawing and V2 applies it with the rest, so the logits are kept from before.
    """
    stock, states, chosen = sampler.sample, sampler.sampling_states, []
    scale, signature = states.apply_temperature, inspect.signature(sampler.sample)

    def sample(logits: torch.Tensor, *args: Any, **options: Any) -> Any:
        kept = [logits]

        def apply_temperature(processed: torch.Tensor, *more: Any, **others: Any) -> Any:
            kept[0] = processed.clone()
            return scale(processed, *more, **others)

        with replaced(states, "apply_temperature", apply_temperature):
            drawn, processed = stock(logits, *args, **options)
        rows = signature.bind(logits, *args, **options).arguments["idx_mapping_np"]
        view = _view(requests, states, rows, logits.device)
        chosen.append(_checked(model, model.sample(kept[0], view), len(logits)))
        if chosen[0] is not None:
            drawn.copy_(chosen[0].sampled_token_ids.reshape(-1))
        return drawn, processed

    with replaced(sampler, "sample", sample):
        yield chosen


def require_drawn(chosen: list[Any], sampler: Any) -> None:
    """Raises :class:`InterfaceError` when the sampler has drawn without asking the model."""
    if not chosen:
        raise InterfaceError(
            f"the model's sampler was not asked: {type(sampler).__name__} does not draw in its method sample",
            expected="a sampler of vLLM or one that inherits its forward",
            try_="upgrade.py hooks, to see which releases have the hook",
        )


def _view(requests: Any, states: Any, rows: Any, device: torch.device) -> SamplingView:
    """Read the history of each row from the device: one copy per request, and only for such models."""
    totals = requests.total_len.gpu[torch.as_tensor(rows, device=device)].tolist()
    tokens = requests.all_token_ids.gpu
    history = [
        tokens[row, int(requests.prompt_len.np[row]) : total].tolist()
        for row, total in zip(rows.tolist(), totals, strict=True)
    ]
    others = (torch.as_tensor(one.np[rows], device=device) for one in _drawing_states(states))
    return SamplingView(history, *others)


def _drawing_states(states: Any) -> tuple[Any, Any, Any]:
    return states.temperature, states.top_k, states.top_p


def _processed(sampler: Any, logits: torch.Tensor) -> torch.Tensor | None:
    """What V1's sampler returns beside its tokens, for log-probabilities of the processed logits."""
    mode = getattr(sampler, "logprobs_mode", "raw_logprobs")
    if not mode.startswith("processed"):
        return None
    return logits if mode == "processed_logits" else sampler.compute_logprobs(logits)


def _checked(model: Any, output: Any, rows: int) -> Any:
    ids = getattr(output, "sampled_token_ids", None)
    if output is not None and (ids is None or ids.numel() != rows):
        raise InterfaceError(
            f"{type(model).__name__}.sample returned {_shape(ids)} for {rows} rows of logits",
            expected=f"a SamplerOutput whose sampled_token_ids are ({rows}, 1), or None to decline",
            try_="one token per row, also for requests whose prompt is not complete",
        )
    return output


def _shape(ids: Any) -> str:
    return "no sampled_token_ids" if ids is None else f"sampled_token_ids {tuple(ids.shape)}"


@contextmanager
def replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Shadow a method of ``owner``'s class on this one object, and uncover it again."""
    setattr(owner, name, function)
    try:
        yield
    finally:
        delattr(owner, name)
