"""Methods of vllm-ascend that the GPU side's, before them in the MRO, hide."""

from __future__ import annotations

from collections.abc import Iterator

from npu_upgrade.audit.attributes.runners import nearest_common
from npu_upgrade.audit.attributes.shadows import Shadow, shadows
from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import signature
from npu_upgrade.program.program import Method
from npu_upgrade.program.version_guards import version_of

NAME = "shadowing"
ABOUT = "methods of vllm-ascend that never run because a GPU-side class precedes it in the MRO"
_SHOWN = 4


def check(world: World) -> Iterator[Finding]:
    vllm = version_of(world.triple.vllm.version)
    found: dict[tuple[Method, Method], list[Shadow]] = {}
    for cls in world.concrete if world.of_omni else ():
        for shadow in shadows(cls, world, vllm):
            found.setdefault((shadow.over, shadow.under), []).append(shadow)
    for several in found.values():
        yield _finding(several, world)


def _finding(found: list[Shadow], world: World) -> Finding:
    shadow = found[0]
    under = shadow.under
    return Finding(
        check=NAME,
        kind="shadow-misfit" if shadow.misfit else "shadowed",
        owner=nearest_common([one.cls for one in found], world).name,
        subject=under.name,
        what=_what(shadow),
        here=_side(shadow.by),
        there=_side(under),
        incident="S",
        why="what vllm-ascend does there for NPUs is silently left out"
        if not shadow.misfit
        else "the call raises TypeError",
        todo=f"override {under.name} in the NPU class: vllm-ascend's logic with omni's",
        like="vllm-omni #505",
    )


def _what(shadow: Shadow) -> str:
    over, under = shadow.over, shadow.under
    if shadow.misfit:
        return f"{over.qualname} stands before {under.qualname} and does not fit its calls: {shadow.misfit}"
    more = f" and {len(shadow.lost) - _SHOWN} more" if len(shadow.lost) > _SHOWN else ""
    way = "" if shadow.by is over else f"{shadow.by.qualname} goes on to it past vllm-ascend's; "
    return (
        f"{way}{over.qualname} hides {under.qualname} and does not pass on to it; "
        f"lost: {', '.join(shadow.lost[:_SHOWN])}{more}"
    )


def _side(method: Method) -> Side:
    return Side(method.owner.project, method.owner.file.path, method.node.lineno, signature(method.node))
