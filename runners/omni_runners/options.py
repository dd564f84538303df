"""What a request asks for: read from ``SamplingParams.extra_args`` (``vllm_xargs`` over HTTP)."""

from __future__ import annotations

import re
from typing import Any

PAYLOAD = "omni_payload"  # true, false or "parts"; also the reserved key of the response
INFO = "omni_info"  # a dictionary handed to the model with this request
GLOBAL_ID = "global_request_id"  # one name for a request in all stages

TALKER_SEED = "tts_local_seed"  # of what a talker draws beside its tokens; vllm-omni's name

RESPONSE = "response"  # the reference is in kv_transfer_params of the response
CHOICE = "choice"  # ... and in stop_reason of each choice: a stream, or one of several choices
PARTS = "parts"  # what is new comes with each output, for who reads RequestOutputs: another stage

_OFF = {"", "0", "0.0", "false", "no", "off", "none"}
# vLLM names the choices of a request with n > 1 "0_ID", "1_ID", … (v1/engine/parallel_sampling.py)
_ONE_OF_SEVERAL = re.compile(r"\d+_")


def delivery(request_id: str, sampling_params: Any) -> str | None:
    """How the request's tensors reach the client: ``RESPONSE``, ``CHOICE``, ``PARTS``, or None: not at all.

    Without a word a request gets them where the response has a place for them. A stream, and a request for
    several choices, has none, and gets them only when it asks.
    """
    if sampling_params is None:  # a pooling request
        return None
    asked = extra(sampling_params).get(PAYLOAD)
    if asked is not None and str(asked).lower() in _OFF:
        return None
    kind = getattr(sampling_params.output_kind, "name", "")
    if asked == PARTS and kind != "FINAL_ONLY" and not _ONE_OF_SEVERAL.match(request_id):
        return PARTS
    if kind == "DELTA" or _ONE_OF_SEVERAL.match(request_id):
        return CHOICE if asked is not None else None
    return RESPONSE


def extra(sampling_params: Any) -> dict[str, Any]:
    """The request's extra arguments."""
    return getattr(sampling_params, "extra_args", None) or {}


def info(request_id: str, sampling_params: Any) -> dict[str, Any]:
    """What the model is told about a request at its start, with the global request id."""
    asked = extra(sampling_params)
    return {GLOBAL_ID: str(asked.get(GLOBAL_ID, request_id)), **(asked.get(INFO) or {})}
