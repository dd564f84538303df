"""Copied methods that were not brought up to the given vllm-ascend although upstream changed them.

What counts is what merging would change: text that omni has dropped or replaced on purpose
does not make a copy stale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from npu_upgrade.audit.copies import Copy
from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.world import World
from npu_upgrade.code.statements import END, Statement, split_statements
from npu_upgrade.code.uses import defines, reads
from npu_upgrade.threeway.align import align
from npu_upgrade.threeway.method import merge_method
from npu_upgrade.threeway.pieces import resolved

ABOUT = "copied methods that upstream has changed since, and that were not synced"

_MOST = 5
_SILENT = ("logger.", "assert ", "'", '"')


def check(world: World) -> Iterator[Finding]:
    for copy in world.copies:
        if copy.target is None:
            continue
        missed = _missed(copy, split_statements(copy.target.source))
        if missed:
            yield _finding(copy, copy.target.start + 1, missed)


def _missed(copy: Copy, target: Sequence[Statement]) -> list[Statement]:
    """The statements of upstream's that a merge would bring in, log lines and the like left out."""
    merged = resolved(merge_method(copy.base, copy.ours, target).pieces, "theirs")
    old = copy.origin.union(statement.key for statement in copy.ours)
    have = {number for _, number in align(copy.ours, merged)}
    wanted = {statement.key for statement in target}
    return [
        statement
        for number, statement in enumerate(merged)
        if number not in have
        and statement.key != END
        and statement.key in wanted - old
        and not statement.key.startswith(_SILENT)
    ]


def _finding(copy: Copy, line: int, missed: Sequence[Statement]) -> Finding:
    names = _names(copy, missed)
    told = f", among it {', '.join(names[:_MOST])}" if names else ""
    return Finding(
        kind="not-synced",
        owner=copy.unit.owner,
        subject=copy.unit.name,
        what=f"{copy.unit.qualname} was copied from {copy.version} and lacks {len(missed)} statements "
        f"that {copy.upstream_name} has got since{told}",
        here=Side("vllm-omni", copy.path, copy.unit.start + 1, f"copied from vllm-ascend {copy.version}"),
        there=Side("vllm-ascend", copy.upstream_path, line, f"{len(missed)} statements are newer"),
        incident="V",
        why="the copy hides upstream's method, so its fixes and new arguments do not take effect on the NPU",
        todo="merge upstream's changes into the copy: upgrade.py merge",
        like="vllm-omni #1114",
    )


def _names(copy: Copy, missed: Sequence[Statement]) -> list[str]:
    """Names in the new statements that the copy does not have anywhere."""
    known = copy.unit.source
    keys = [statement.key for statement in missed]
    found = sorted(reads(keys) | defines(keys))
    return [name for name in found if name not in known]
