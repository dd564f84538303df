"""The scenarios: which stage, which tiny model, which engine options, which requests. Plain data, no imports.

A scenario starts one engine. Its probes are groups of requests, run one after another in that engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TIERS = ("import", "eager", "graph", "serve")

_SHORT = (7, 9, 11)
_LONG = tuple(range(100, 180))
_BATCH = (tuple(range(3, 20)), _SHORT, _LONG, (5,) * 33)


@dataclass(frozen=True)
class Probe:
    """One group of requests that run together.

    ``prompts`` are token ids; ``sampling`` are arguments of SamplingParams. ``check`` says how the result is
    judged: "tokens" (tokens and log-probabilities of a reference), "repeatable" (a seeded run twice, the
    second time beside other requests, gives the same tokens), "finishes" (each request finishes).
    """

    name: str
    prompts: tuple[tuple[int, ...], ...]
    sampling: dict[str, Any] = field(default_factory=dict)
    check: str = "tokens"


BATCH_1 = Probe("batch 1", (_SHORT,))
BATCH_4 = Probe("batch 4", _BATCH)
CHUNKED = Probe("chunked prefill", (tuple(range(20, 170)), tuple(range(200, 330)), _SHORT))
PENALTY = Probe("repetition penalty", _BATCH[:2], {"repetition_penalty": 1.7})
SEEDED = Probe("seeded sampling", (_SHORT, _BATCH[0]), {"temperature": 0.8, "seed": 17}, "repeatable")


@dataclass(frozen=True)
class Scenario:
    """One engine start in each of its ``tiers``.

    ``stage`` picks the driver (plain, ar, generation, …), ``model`` the tiny checkpoint, ``options`` are
    engine arguments, ``omni`` tells whether it needs vllm-omni, ``core`` whether it runs when nothing is
    chosen, ``vllm_reference`` whether its tokens are compared with vLLM's own on a CPU instead of the stage's
    reference in torch, ``seconds`` is the longest it may take.
    """

    name: str
    shows: str
    stage: str
    model: str
    probes: tuple[Probe, ...]
    tiers: tuple[str, ...] = ("eager", "graph")
    options: dict[str, Any] = field(default_factory=dict)
    omni: bool = True
    core: bool = False
    vllm_reference: bool = False
    seconds: int = 240


_AR_PROBES = (BATCH_1, BATCH_4, CHUNKED, PENALTY, SEEDED)

SCENARIOS = (
    Scenario("plain", "a text model on vllm-ascend alone", "plain", "dense", _AR_PROBES, omni=False, core=True, vllm_reference=True),
    Scenario("ar", "an AR stage with preprocess, postprocess and make_omni_output", "ar", "omni_ar", _AR_PROBES, core=True),
    Scenario(
        "generation", "a one-shot stage with code2wav-like output", "generation", "omni_generation",
        (Probe("batch 1", (_SHORT,), check="finishes"), Probe("batch 4", _BATCH, check="finishes")), core=True,
    ),
)  # fmt: skip


def scenario(name: str) -> Scenario:
    """The scenario called ``name``; raises ``KeyError``."""
    return {one.name: one for one in SCENARIOS}[name]
