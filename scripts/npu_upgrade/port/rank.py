"""Which hunks a maintainer will want: the tiers, and the order inside them.

The first tier holds what fits: it has a place, its names are there or come with it, and the
code around it is code that the NPU side took over from the GPU side before. See
docs/source/design/port.md.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from npu_upgrade.code.flow import conditions
from npu_upgrade.code.statements import END, nodes_of
from npu_upgrade.code.walk import last_name
from npu_upgrade.ground.beside import beside, from_both_ends
from npu_upgrade.ground.tables import cut
from npu_upgrade.lineage.dialect import is_device_bound
from npu_upgrade.port.apply import UnplaceableError, Work
from npu_upgrade.port.driven import TELLING, Upstream
from npu_upgrade.port.hunks import Hunk
from npu_upgrade.port.needs import Ranked, closure, find_needs, used_besides, uses
from npu_upgrade.port.npu_side import NpuSide, own_keys
from npu_upgrade.port.place import Placed, place
from npu_upgrade.port.safe import attributes_of
from npu_upgrade.port.sides import GpuSide
from npu_upgrade.threeway.align import weight

FOLLOWED = 0.3
"""From this share on, the NPU side counts as having taken over the code around a hunk."""

PASSED_OVER = "passed over before"
"""What a hunk is called that an earlier upgrade of the NPU side could have taken."""

_NEAR = 8  # statements of the GPU unit on each side of a hunk


def rank(
    hunks: Sequence[Hunk],
    npu: NpuSide,
    upstream: Upstream,
    before: GpuSide | None,
    new: GpuSide,
    wanted: Callable[[Hunk], bool] | None = None,
    *,
    together: bool = False,
) -> list[Ranked]:
    """The hunks, best first; ``before`` is the GPU side of which nothing is new any more, ``new`` theirs.

    With ``wanted`` only those and what they need, each by itself: not whether the rest of the tree agrees.
    Those that will be taken ``together`` need not be looked at alone where the tree agrees with all of them;
    whether it agrees with the second tier is looked at when that is listed again, after they were taken.
    """
    needs = find_needs(hunks, npu)
    chosen = [hunk.id for hunk in hunks if wanted is None or wanted(hunk)]
    found: dict[str, Ranked] = {}
    while ids := {*closure(chosen, needs)} - found.keys():  # a place may ask for more of them
        for hunk in hunks:
            if hunk.id in ids:
                found[hunk.id] = Ranked(hunk, needs=needs[hunk.id])
                _judge(found[hunk.id], hunks, npu, upstream, before)
                _lower_for_cuda(found[hunk.id], new)
    _follow_needs(found)
    if wanted is not None:
        return list(found.values())
    _wanted_methods(found, npu)
    work = Work(list(found.values()), npu, new)
    if _agree(found, work, together=together):
        _follow_needs(found)
        _wanted_methods(found, npu)
    keep_whole(found, npu)
    if not together:  # who takes the first tier lists the others after it
        _refuse(found, work)
    return sorted(found.values(), key=lambda r: (r.tier, -round(r.followed, 2)))


def _lower_for_cuda(ranked: Ranked, new: GpuSide) -> None:
    """Lower what calls methods that are for torch.cuda alone."""
    if idle := _calls(ranked.hunk) & new.idle_without_cuda:
        ranked.lower(3, f"calls {', '.join(sorted(idle))}, which does nothing without torch.cuda")
    if bound := _calls(ranked.hunk) & new.written_for_cuda:
        ranked.lower(3, f"calls {', '.join(sorted(bound))}, which is written for torch.cuda")


def keep_whole(found: dict[str, Ranked], npu: NpuSide) -> None:
    """What only parts that do not fit would use is none for the first tier: half of a feature is a defect.

    A hunk stays where it, or another one that fits, uses a part of what it brings. But what is switched on
    goes nowhere without what switches it off: a ``finally`` that speaks of a new local name has to fit for
    all that speaks of that name, and of the others that come with it.
    """
    brought = {id_: _brought(one.hunk, npu) for id_, one in found.items()}
    users = {
        id_: _users(one, brought[id_], found)
        for id_, one in found.items()
        if not _uses_itself(one.hunk, brought[id_])
    }
    ends = {id_: names for id_, one in found.items() if (names := _ended(one.hunk))}
    lowered = True
    while lowered:
        lowered = False
        for id_, using in users.items():
            apart = [user for user in using if _is_apart(user)]
            if apart and len(apart) == len(using):
                lowered |= _lower(found[id_], apart[0])
        for id_, names in ends.items():
            if _is_apart(found[id_]):
                for one in _all_of(names, found, brought):
                    lowered |= _lower(one, found[id_])
    _follow_needs(found)
    _wanted_methods(found, npu)


def _lower(one: Ranked, apart: Ranked) -> bool:
    """Whether a hunk of the first tier left it, as a part of the same feature does not fit."""
    if one.tier > 1:
        return False
    one.lower(2, f"half of a feature: {apart.hunk.id} is not of the first tier")
    return True


def _all_of(
    names: set[tuple[str, str]], found: dict[str, Ranked], brought: dict[str, set[tuple[str, str]]]
) -> list[Ranked]:
    """The hunks that speak of local names, where one brings these, and of those that come with them."""
    known = {name for name in names if any(name in one for one in brought.values())}
    while True:
        speaking = [id_ for id_, one in found.items() if any(_speaks_of(name, one.hunk) for name in known)]
        more = {name for id_ in speaking for name in brought[id_] if name[0]} - known
        if not more:
            return [found[id_] for id_ in speaking]
        known |= more


def _ended(hunk: Hunk) -> set[tuple[str, str]]:
    """The local names by their unit that the ``finally`` of a hunk speaks of."""
    found, within = set[str](), None
    for one in hunk.new if hunk.kind == "change" else ():
        if within is not None and one.indent > within:
            nodes = nodes_of(one.key)
            found |= {node.id for node in nodes if isinstance(node, ast.Name)}
        elif one.key == "finally:":
            within = one.indent
        elif one.key != END:
            within = None
    return {(hunk.group, name) for name in found}


def _users(one: Ranked, brought: set[tuple[str, str]], found: dict[str, Ranked]) -> list[Ranked]:
    """The other hunks that speak of what one brings."""
    others = (other for other in found.values() if other is not one)
    return [other for other in others if any(_speaks_of(name, other.hunk) for name in brought)]


def _is_apart(user: Ranked) -> bool:
    return user.tier > 1 and not user.held


def _uses_itself(hunk: Hunk, brought: set[tuple[str, str]]) -> bool:
    nodes = [node for key in hunk.added for node in nodes_of(key)]
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return any(word in (names if group else uses(hunk).reads) for group, word in brought)


def _brought(hunk: Hunk, npu: NpuSide) -> set[tuple[str, str]]:
    """The attributes and methods, and the local names by their unit, that a hunk is the first to give."""
    if hunk.kind == "base":
        return set()
    own = npu.attributes(hunk.runner)
    local = uses(hunk).locals - npu.reads_names(hunk.runner, hunk.unit) if hunk.kind == "change" else ()
    return {("", name) for name in uses(hunk).binds - own} | {(hunk.group, name) for name in local}


def _speaks_of(name: tuple[str, str], hunk: Hunk) -> bool:
    used, (group, word) = uses(hunk), name
    if group:
        return group == hunk.group and word in used.names | used.locals
    return word in used.reads | used.binds


def _judge(
    ranked: Ranked, hunks: Sequence[Hunk], npu: NpuSide, upstream: Upstream, before: GpuSide | None
) -> None:
    """What a hunk says by itself, with those of its unit that bring what it takes to be safe."""
    hunk = ranked.hunk
    if ranked.needs.unresolved:
        ranked.lower(3, f"uses what the NPU side does not have: {', '.join(ranked.needs.unresolved)}")
    if any(map(is_device_bound, hunk.added)):
        ranked.lower(3, "speaks of CUDA itself")
    if not hunk.added and (dropped := next((key for key in hunk.removed if npu.is_read_beyond(key)), "")):
        ranked.lower(3, f"only drops what vllm-ascend sets and reads: {cut(dropped, 80)}")
    if hunk.kind == "change" and hunk.diff:
        source = npu.modules[hunk.runner.kind].units[hunk.unit].source
        placed, carried = _place([hunk], [other for other in hunks if other.diff is hunk.diff], source)
        ranked.needs.hunks += [other.id for other in carried if other.id not in ranked.needs.hunks]
        ranked.followed, ranked.held = followed(hunk, npu, upstream), placed.held
        if placed.text is None:
            ranked.lower(3, placed.reason)
        elif ranked.followed < FOLLOWED:
            ranked.lower(2, "the NPU side does not follow the GPU side here")
    elif hunk.kind == "base" and (besides := sorted(used_besides(hunk, hunks, npu))):
        ranked.lower(2, f"half of a feature: the GPU side has long used {', '.join(besides)} of it too")
    elif hunk.kind == "method" and before and before.unit(hunk.runner.kind, hunk.unit):
        ranked.lower(3, f"{PASSED_OVER}: vllm-omni {before.tree.version or before.tree.spec} has it already")


def _calls(hunk: Hunk) -> set[str]:
    """The last names of what the statements that come call."""
    nodes = (node for key in hunk.added for node in nodes_of(key))
    return {last_name(node) for node in nodes if isinstance(node, ast.Call)}


def _place(hunks: list[Hunk], near: Sequence[Hunk], source: str) -> tuple[Placed, list[Hunk]]:
    """The first hunk in its place, with those of ``near`` that have to come with it."""
    diff = hunks[0].diff
    assert diff is not None, "only changes inside a unit have a place"
    placed = first = place(hunks, diff, source)
    while placed.unsafe:
        lacking = placed.unsafe
        left = [other for other in near if other not in hunks]
        more = [other for other in left if lacking.is_cured_by(other.added)]
        # else a condition above it may have to go
        more = more or [other for other in left if any(map(conditions, other.removed))]
        if not more:
            return first, []
        # one of them may do, and another one not fit
        ways = [[*hunks, one] for one in more] if len(more) > 1 else []
        tried = ((way, place(way, diff, source)) for way in ways)
        alone = next(((way, done) for way, done in tried if done.text is not None), None)
        hunks, placed = alone or ([*hunks, *more], place([*hunks, *more], diff, source))
    return (placed, hunks[1:]) if placed.text is not None and not first.held else (first, [])


def followed(hunk: Hunk, npu: NpuSide, upstream: Upstream) -> float:
    """The share of omni's own statements in and around a hunk that the NPU unit has, 0 to 1.

    Where a hunk replaces statements, those decide; else the ones around it, and the unit's.
    """
    assert hunk.diff is not None, "only changes inside a unit have surroundings"
    own = own_keys(hunk, npu)
    if hunk.removed:
        return sum(min(count, own[key]) for key, count in hunk.removed.items()) / hunk.removed.total()
    old = hunk.diff.old
    first, last = hunk.pieces[0].a0, hunk.pieces[-1].a1
    near = [*old[max(0, first - _NEAR) : first], *old[last : last + _NEAR]]
    share, around = (
        [s.key in own for s in part if weight(s.key) > TELLING and s.key not in upstream.before]
        for part in (old, near)
    )
    overall = sum(share) / len(share) if share else 1.0
    return (sum(around) + overall) / (len(around) + 1)


def _follow_needs(found: dict[str, Ranked]) -> None:
    """A hunk is worth no more than the worst of what it needs."""
    needs = {name: ranked.needs for name, ranked in found.items()}
    own = {name: ranked.tier for name, ranked in found.items()}
    for name, ranked in found.items():
        worst = max(closure([name], needs), key=lambda other: own[other])
        if own[worst] > own[name]:
            ranked.lower(own[worst], f"needs {worst}: {'; '.join(found[worst].reasons)}")


def _wanted_methods(found: dict[str, Ranked], npu: NpuSide) -> None:
    """A new method is wanted when it overrides something, or when a wanted hunk needs it."""
    needs = {name: ranked.needs for name, ranked in found.items()}
    wanted = [
        n for n, r in found.items() if r.tier == 1 and (r.hunk.kind != "method" or _overrides(r.hunk, npu))
    ]
    reached = set(closure(wanted, needs))
    for name, ranked in found.items():
        if ranked.tier == 1 and name not in reached:
            ranked.lower(2, "nothing of the first tier uses it")


def _overrides(hunk: Hunk, npu: NpuSide) -> bool:
    return bool(npu.provider(hunk.runner, hunk.unit.rpartition(".")[2]))


def _agree(found: dict[str, Ranked], work: Work, *, together: bool) -> bool:
    """Lower what the rest of the tree does not agree with, or let it need the hunks with which it does.

    Hunks of the first tier are looked at together; alone those that another hunk may have to come with.
    Tells whether anything changed.
    """
    top = work.fitting([n for n, ranked in found.items() if ranked.tier == 1 and not ranked.held], {})
    wrong = work.disagreeing(work.files(top), top)
    beside_it = [] if together else top
    _look_ahead([name for name in top if _is_doubtful(name, beside_it, wrong, found, work)], work)
    changed = False
    for name in top:
        if _is_doubtful(name, beside_it, wrong, found, work) and (broken := _broken([name], work)):
            changed = True
            _cure(found[name], broken, found, work)
    return changed


def _is_doubtful(
    name: str, top: Sequence[str], wrong: Mapping[str, str], found: Mapping[str, Ranked], work: Work
) -> bool:
    own = set(work.all_of([name]))
    others = (found[other].hunk for other in top if other not in own)
    return bool(wrong.keys() & own) or any(
        _are_coupled(found[name].hunk, other, work.npu) for other in others
    )


def _look_ahead(names: Sequence[str], work: Work) -> None:
    """Look at hunks one by one, in two processes; what is found is kept, and only read after this."""
    if len(names) < 2:  # nothing to share
        return
    with from_both_ends(names) as (front, back):
        waiting = beside(lambda: "".join(_broken([name], work) for name in back).encode())
        for name in front:
            _broken([name], work)
        waiting()


def _refuse(found: dict[str, Ranked], work: Work) -> None:
    """Lower of the second tier what could not be taken by who asks for it, so that nobody is offered it."""
    alone = [name for name, ranked in found.items() if ranked.tier == 2]
    refused: dict[str, str] = {}
    together = work.fitting(alone, refused)
    wrong = work.disagreeing(work.files(together), together)
    doubtful = [name for name in alone if name in refused or wrong.keys() & set(work.all_of([name]))]
    _look_ahead(doubtful, work)
    for name in doubtful:
        if broken := _broken([name], work):
            found[name].lower(3, broken)
            found[name].callers = _has_place(name, work)


def _broken(ids: list[str], work: Work) -> str:
    """Why some hunks do not fit by themselves; empty when they do."""
    try:
        return next(iter(work.disagreeing(work.files(ids), ids).values()), "")
    except UnplaceableError as reason:
        return str(reason)


def _has_place(name: str, work: Work) -> bool:
    try:
        work.files([name])
    except UnplaceableError:
        return False
    return True


def _cure(ranked: Ranked, broken: str, found: dict[str, Ranked], work: Work) -> None:
    """Let a hunk need those with which the tree agrees; else it does not fit."""
    own = set(work.all_of([ranked.hunk.id]))
    near = [one for name, one in found.items() if one.tier < 3 and name not in own]
    more = [one.hunk.id for one in near if _are_coupled(ranked.hunk, one.hunk, work.npu)]
    for others in [*([one] for one in more), more] if more else ():
        if not _broken([ranked.hunk.id, *others], work):
            ranked.needs.hunks += others
            return
    ranked.lower(3, broken)
    ranked.callers = _has_place(ranked.hunk.id, work)


def _are_coupled(one: Hunk, other: Hunk, npu: NpuSide) -> bool:
    return bool(relied_on(one, npu) & _words(other) or _words(one) & relied_on(other, npu))


def relied_on(hunk: Hunk, npu: NpuSide) -> set[str]:
    """The methods and attributes of which a hunk changes what code elsewhere relies on."""
    name = hunk.unit.rpartition(".")[2]
    if hunk.kind == "base":
        return {"__init__"}
    if hunk.kind == "method":
        return {name} if npu.provider(hunk.runner, name) else set()
    lines = {*hunk.added, *hunk.removed}
    told = any(key.startswith(("def ", "async def ", "@")) or _gives_several(key) for key in lines)
    return ({name} if told else set()).union(*(attributes_of(key, ast.Store) for key in lines))


def _gives_several(key: str) -> bool:
    """Whether a statement returns a tuple, or yields."""
    return any(
        isinstance(node, (ast.Yield, ast.YieldFrom)) or isinstance(getattr(node, "value", None), ast.Tuple)
        for node in nodes_of(key)
        if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom))
    )


def _words(hunk: Hunk) -> set[str]:
    """The method that a hunk is in, and the attributes that it speaks of."""
    nodes = (node for key in (*hunk.added, *hunk.removed) for node in nodes_of(key))
    return {hunk.unit.rpartition(".")[2]} | {node.attr for node in nodes if isinstance(node, ast.Attribute)}
