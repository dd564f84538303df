"""What a deliverable still lacks, and the command that measures it."""

from __future__ import annotations

import importlib.util
import shlex
from dataclasses import dataclass

# what a gate cannot do without, where nobody said it
ASKED = {"accuracy": ("--tasks", "gsm8k", "--num-fewshot", "5")}


@dataclass(frozen=True)
class Gap:
    """``id`` is stable (``deliver --open`` names it), ``what`` one sentence, ``command`` what fills it."""

    id: str
    what: str
    command: str

    def as_json(self) -> dict[str, str]:
        return {"id": self.id, "what": self.what, "command": self.command}

    @property
    def marker(self) -> str:
        """The gap as it shows in an English document."""
        return f"**GAP ({self.id})**: {self.what}. It is filled by `{self.command}`."


def gate_command(gate: str, model: str) -> str:
    """The command that runs a gate on a model; of a gate that is not here, what imports its evidence."""
    there = importlib.util.find_spec(f"npu_upgrade.commands.{gate}")
    asked = ASKED.get(gate, ())
    return shlex.join(["adapt.py", *([gate, model, *asked] if there else ["evidence", "import", "PACK"])])
