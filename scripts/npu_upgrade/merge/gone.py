"""What the merged files read, call or import that is gone in the target, asked of the audit's checks.

Every statement of a merged file counts, whoever it is from. What was lacking before as well is the audit's to
tell, but for an import that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import msgspec

from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.run import KeptFindings, in_order, run_checks
from npu_upgrade.audit.triples import vllm_of
from npu_upgrade.audit.world import Triple, World
from npu_upgrade.code.conflict_text import Answer, answers
from npu_upgrade.ground.beside import beside
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.items import Item, item_id
from npu_upgrade.program.program import File
from npu_upgrade.sources.content import code_digest
from npu_upgrade.sources.tree import SourceTree, open_source, overlay

GONE = "gone-name"
_DEADLY = "imports"
_CHECKS = (("attributes",), ("calls", _DEADLY, "signatures"))  # each in a process, of about one length


@dataclass
class _Runners(World):
    """A world of which only some files are looked at."""

    paths: frozenset[str] = field(default=frozenset(), kw_only=True)

    @property
    def looks_beside(self) -> bool:
        return False

    @cached_property
    def worker_files(self) -> list[File]:
        return [file for path in sorted(self.paths) if (file := self.program.file(path))]

    @cached_property
    def files(self) -> list[File]:
        return self.worker_files


def vllm_tree(ascend: SourceTree) -> SourceTree | None:
    """The vllm that a vllm-ascend belongs with, None where it cannot be told or had."""
    try:
        spec = vllm_of(ascend)
        return open_source(spec) if spec else None
    except UpgradeError as error:
        say(f"note: without the vllm of {ascend.spec}: {error.what}")
        return None


def look_for_gone(
    triple: Triple, merged: Mapping[str, str], ours: Mapping[str, str], base: SourceTree | None
) -> Callable[[], list[Item]]:
    """Begin to look; calling what is returned waits for the items, a blocking one for each thing gone.

    ``triple`` is what the merged files are to run on, ``merged`` their texts, conflicts and all, ``ours``
    those before the merge, which ran on ``base``. A conflict is looked at when it is decided.
    """
    after = {path: answers(text, path)[0] for path, text in merged.items()}

    def work(checks: Sequence[str]) -> bytes:
        here = _runners(triple, {path: answer.text for path, answer in after.items()})
        found = [finding for finding in _look(here, checks) if decided(finding, after)]
        known: set[str] = set()
        if found:
            was = base or triple.ascend
            before = _runners(Triple(triple.omni, was, vllm_tree(was) or triple.vllm), ours)
            known = {finding.key for finding in _look(before, sorted({one.check for one in found}))}
        # without an import nothing runs, and nothing of the rest is seen before the audit asks
        return msgspec.json.encode([one for one in found if one.key not in known or one.check == _DEADLY])

    waiting = [beside(partial(work, checks)) for checks in _CHECKS]

    def items() -> list[Item]:
        found = [one for part in waiting for one in msgspec.json.decode(part(), type=list[Finding])]
        return [gone_item(finding) for finding in in_order(found)]

    return items


def look_with_vllm(
    omni: SourceTree,
    merged: Mapping[str, str],
    ours: Mapping[str, str],
    target: SourceTree,
    base: SourceTree | None,
) -> Callable[[], list[Item]]:
    """:func:`look_for_gone` with the vllm of the target; nothing is found where that cannot be had."""
    vllm = vllm_tree(target)
    return look_for_gone(Triple(omni, target, vllm), merged, ours, base) if vllm else list


def _look(world: _Runners, names: Sequence[str]) -> list[Finding]:
    """What checks find there; it is kept, for what ran before the merge is the same after every answer."""
    known = KeptFindings(world)
    only = sha256(repr(sorted(world.paths)) + code_digest("merge"))[:8]
    found: list[Finding] = []
    for name in names:
        found += known.once(f"{name}-{only}", partial(run_checks, world, [name]))
    return in_order(found)


def _runners(triple: Triple, texts: Mapping[str, str]) -> _Runners:
    assert triple.omni
    omni = overlay(triple.omni, dict(texts))
    return _Runners(Triple(omni, triple.ascend, triple.vllm), paths=frozenset(texts))


def decided(finding: Finding, after: Mapping[str, Answer]) -> bool:
    """Whether a finding is in a merged file, and in none of its conflicts."""
    answer = after.get(finding.here.path)
    return answer is not None and answer.rows[max(0, finding.here.line - 1)] not in answer.disputed


def gone_item(finding: Finding) -> Item:
    """A finding as what is left to do."""
    detail = f"here: {finding.here}\nthere: {finding.there or '-'}\n{finding.why}; {finding.todo}"
    title = f"{finding.here.path}: {finding.what}"
    id_, path = item_id(GONE, finding.key), finding.here.path
    return Item(id_, GONE, title, detail, path, True, finding=finding.key)
