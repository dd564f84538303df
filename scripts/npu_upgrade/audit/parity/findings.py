"""How gaps between the GPU and the NPU side are told."""

from __future__ import annotations

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.parity.gaps import Gap
from npu_upgrade.ground.tables import shortened
from npu_upgrade.program.facts import CLASS, FUNCTION, MODEL, Fact

_SHOWN = 4
PORT = "port it (upgrade.py port), or waive it with the reason"


def fact_text(fact: Fact) -> str:
    """A fact in words: ``self.f()``, ``self.model.f``, the function ``f()``."""
    if fact.kind == MODEL:
        return f"model.{fact.name}" + ("()" if fact.call else "")
    if fact.kind in (FUNCTION, CLASS):
        return f"{fact.name}()"
    return f"self.{fact.name}()"


def facts_text(facts: tuple[Fact, ...]) -> str:
    return shortened(list(dict.fromkeys(map(fact_text, facts))), _SHOWN)


def lacking(gap: Gap, kind: str, what: str, why: str, like: str) -> Finding:
    """The finding for a fact of a GPU method that the NPU counterpart lacks."""
    npu, fact = gap.npu or gap.where, gap.lacking[0]
    owner = npu.owner if npu and npu.owner.project == gap.pair.npu.project else gap.pair.npu
    here = side(npu) if npu and npu.owner is owner else side(owner)
    return Finding(
        kind=kind,
        owner=owner.name,
        subject=f"{fact.name} in {gap.gpu.name}",
        what=what,
        here=here,
        there=side(gap.gpu, fact.node.lineno, f"{gap.gpu.qualname}: {fact_text(fact)}"),
        incident="P",
        why=why,
        todo=PORT,
        like=like,
    )
