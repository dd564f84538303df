"""What a model may define, and what its runner does with it.

An AR model is any text generation model of vLLM. All of these are optional:

``make_omni_output(hidden_states, model_intermediate_buffer=infos, request_token_spans=spans)``
    returns an :class:`OmniOutput` for the step's rows; ``infos`` is one dictionary per request.
``forward``
    may return an :class:`OmniOutput` itself instead of a tensor.
``has_preprocess = True`` and ``preprocess(input_ids, input_embeds, **info)``
    returns ``(input_ids, input_embeds, update)`` for one request's rows before the forward.
``preprocess_decode_batch(input_ids, req_infos)``
    is called in its place for requests that decode one token each and stand together; returns
    ``(input_ids, input_embeds, updates)`` with one row and one update for each, and before the updates the
    two inputs of ``talker_mtp`` where there is one.
``supports_omni_decode_step_metadata = True`` and ``update_decode_step_metadata(input_ids, positions, ...)``
    is told of each step before its forward, or the graph in its place, runs. With
    ``supports_omni_query_start_loc`` it gets the requests' first rows, and so does ``forward``.
``has_postprocess = True`` and ``postprocess(hidden_states, multimodal_outputs=..., **info)``
    returns an update of the request's info after the forward.
``talker_mtp(input_ids, input_embeds, last_talker_hidden, text_step)``
    returns ``(input_embeds, codes)`` for the requests that decode in this step; ``preprocess`` puts
    ``mtp_inputs = (last_talker_hidden, text_step)`` into its update for each of them.
``prefer_model_sampler = True`` and ``sample(logits, sampling_metadata)``
    gets what the model's head gave and vLLM's SamplingMetadata; returns vLLM's SamplerOutput, or None to let
    vLLM's sampler draw. With ``model_sampler_wants_extra_args`` it gets ``per_req_extra_args`` as well.

A generation model has one entry instead: the first of ``sample``, ``forward``, ``diffuse`` it defines; a
``sample`` that draws tokens is none.

Tensors in an info are on the host, but those that ``gpu_resident_buffer_keys`` names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from omni_runners.errors import InterfaceError

ENTRIES = ("sample", "forward", "diffuse")
OMNI_MARKS = (
    *("have_multimodal_outputs", "enable_update_additional_information", "make_omni_output"),
    *("has_preprocess", "has_postprocess", "calls_generation_entry"),
)


class OmniOutput(NamedTuple):
    """What an omni model gives for one step.

    ``text_hidden_states`` is (rows, hidden size). A value of ``multimodal_outputs`` is a tensor with one
    row per token, a list with one tensor, or None, per request, or a dictionary of such values. Another
    project's class with these two attributes is taken as well.
    """

    text_hidden_states: torch.Tensor
    multimodal_outputs: dict[str, Any] | None = None


def is_omni_output(output: Any) -> bool:
    """Whether ``output`` has the attributes of an :class:`OmniOutput`."""
    return hasattr(output, "text_hidden_states") and hasattr(output, "multimodal_outputs")


def is_omni_model(model: Any) -> bool:
    """Whether the model is written for omni runners, so that its forward takes what they give."""
    return any(hasattr(model, name) for name in OMNI_MARKS)


def taken(call: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Of ``options`` those that a method of the model takes."""
    parameters = inspect.signature(call).parameters
    return {name: one for name, one in options.items() if name in parameters or takes_any(parameters)}


def takes_any(parameters: Mapping[str, inspect.Parameter]) -> bool:
    """Whether there is a ``**`` among parameters."""
    return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())


def prefers_own_sampler(model: Any) -> bool:
    """Whether the model wants to draw its tokens itself. Raises :class:`InterfaceError`."""
    if not getattr(model, "prefer_model_sampler", False):
        return False
    if not callable(getattr(model, "sample", None)):
        raise InterfaceError(
            f"{_name(type(model))} sets prefer_model_sampler and has no method sample",
            expected="sample(logits, sampling_metadata) that returns a SamplerOutput or None",
            try_="define it, or remove prefer_model_sampler",
        )
    return True


def generation_entry(model_class: type) -> str:
    """The method that a generation model is run by. Raises :class:`InterfaceError`.

    Only what is defined below ``nn.Module`` counts, not a ``sample`` that draws tokens, and not the
    ``forward`` of :class:`omni_runners.models.GenerationModel`, which calls the entry.
    """
    own = [one for one in model_class.__mro__ if issubclass(one, nn.Module) and one is not nn.Module]
    own = [one for one in own if "calls_generation_entry" not in vars(one)]
    for name in ENTRIES:
        found = next((vars(one)[name] for one in own if name in vars(one)), None)
        if found is not None and not (name == "sample" and _draws_tokens(model_class, found)):
            return name
    if getattr(model_class, "prefer_model_sampler", False):
        raise InterfaceError(
            f"{_name(model_class)} sets prefer_model_sampler: it draws tokens, so it is an AR model",
            expected=f"a generation model with one of {', '.join(ENTRIES)}",
            try_="an AR worker, such as omni_runners.gpu.ARGPUWorker",
        )
    raise InterfaceError(
        f"{_name(model_class)} has no entry: none of its classes below nn.Module defines one",
        expected=f"one of the methods {', '.join(ENTRIES)} (looked for in this order)",
        try_="define one of them on the model's class",
    )


def _draws_tokens(model_class: type, sample: Any) -> bool:
    """As many of vllm-omni's models define it, also for stages that draw nothing."""
    prefers = getattr(model_class, "prefer_model_sampler", False)
    return prefers or "sampling_metadata" in inspect.signature(sample).parameters


def _name(model_class: type) -> str:
    return f"{model_class.__module__}.{model_class.__qualname__}"
