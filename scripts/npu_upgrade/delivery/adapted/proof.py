"""Whether the evidence of a model allows its delivery, for exactly the code that is delivered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npu_upgrade.checkpoint.gate_commands import gate_command
from npu_upgrade.evidence.runs import REAL, Run
from npu_upgrade.ground.errors import BadInput


@dataclass(frozen=True)
class Proof:
    """``standing``: the newest run of every gate and label; ``validation``: what the trailer says."""

    standing: list[Run]
    validation: str

    @property
    def pending(self) -> bool:
        return self.validation == "pending"


def check_proof(runs: Sequence[Run], current: Sequence[Run], model: str, *, pending_npu: bool) -> Proof:
    """The proof that ``current`` gives, those of ``runs`` that judged the code that is delivered.

    Raises :class:`BadInput` for evidence that is missing, failed, of other code, of dummy weights only, or
    of a CPU only when that was not agreed to.
    """
    again = gate_command("serve", model)
    if not current:
        named = ", ".join(sorted({f"{run.gate} ({run.label})" for run in runs}))
        raise BadInput(
            f"the evidence is of other code than what is delivered: {named}",
            expected="a run of the serve gate on the packages of --vllm and --ascend as they are now",
            try_=f"{again}, with the interpreter that imports them from there",
        )
    standing = list({(run.gate, run.label): run for run in current}.values())
    failed = next((run for run in standing if run.verdict == "FAIL"), None)
    if failed:
        raise BadInput(
            f"gate {failed.gate} ({failed.label}) failed for this code: {failed.record.summary}",
            expected="no gate whose newest verdict is FAIL",
            try_=f"adapt.py evidence show {failed.id}; correct it and run the gate again",
        )
    passed = {run.label: run for run in standing if run.gate == "serve" and run.verdict == "PASS"}
    real = next((passed[label] for label in REAL if label in passed), None)
    if real is None:
        seen = ", ".join(sorted(passed)) or "no serve gate passed"
        raise BadInput(
            f"there is no proof with real weights for this code ({seen})",
            expected="a PASS of the serve gate with real weights: dummy weights never sign off",
            try_=f"{again} --load-format real",
        )
    if real.label != "NPU real" and not pending_npu:
        raise BadInput(
            "real weights were served on a CPU only",
            expected="a PASS of the serve gate with real weights on an NPU",
            try_=f"{again} on the machine with the NPU (adapt.py evidence pack and import carry it here), or "
            "--pending-npu: the commit then says that it is pending",
        )
    return Proof(standing, real.record.id if real.label == "NPU real" else "pending")
