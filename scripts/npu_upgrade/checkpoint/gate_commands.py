"""The command that runs a gate on a model."""

from __future__ import annotations

from npu_upgrade.ground.command import Command, adapt

_OF_EXAMPLES = 2048  # tokens of a context that five examples of gsm8k, a question and the answer fit into


def asked(gate: str, max_len: int = 0) -> tuple[str, ...]:
    """The arguments that a gate needs, where nobody chose others, of a model whose context has ``max_len``
    tokens (0: unknown).
    """
    examples = "0" if 0 < max_len < _OF_EXAMPLES else "5"
    needed = {"accuracy": ("--tasks", "gsm8k", "--num-fewshot", examples), "capacity": ("--fill",)}
    return needed.get(gate, ())


def gate_command(gate: str, model: str, *more: str, max_len: int = 0) -> Command:
    """The gate on ``model``, with the arguments it cannot do without, and others."""
    needed = asked(gate, max_len)
    return adapt(gate, model, *needed, *(word for word in more if word not in needed))
