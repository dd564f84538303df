"""The command that runs a gate on a model."""

from __future__ import annotations

from npu_upgrade.ground.command import Command, adapt

# the arguments that a gate needs, where nobody chose others
ASKED = {"accuracy": ("--tasks", "gsm8k", "--num-fewshot", "5"), "capacity": ("--fill",)}


def gate_command(gate: str, model: str, *more: str) -> Command:
    """The gate on ``model``, with the arguments it cannot do without, and others."""
    asked = ASKED.get(gate, ())
    return adapt(gate, model, *asked, *(word for word in more if word not in asked))
