"""What a step of upstream leaves to a person: the merge of each copy it touches, and the audit.

A copy is merged from the version that it was copied from to the text at the step, so that what came before is
not told again. The audit looks at the merged downstream. Outcomes are kept by the content of what was judged.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.run import check_names, run_checks
from npu_upgrade.audit.world import ASCEND, NO_TREE, Triple, World
from npu_upgrade.code.conflict_text import Answer, answers
from npu_upgrade.code.module import parse_module
from npu_upgrade.code.statements import line_numbers, nodes_of, split_statements
from npu_upgrade.ground.collector import collected
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.kept import keep, kept
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.downstream import Upstream
from npu_upgrade.lineage.history import History, Version, open_history
from npu_upgrade.lineage.items import Item
from npu_upgrade.lineage.records import Bases, MethodLineage
from npu_upgrade.merge.gone import decided, gone_item
from npu_upgrade.merge.runners import MethodOutcome, merge_runners, merge_unit, own_names
from npu_upgrade.program.program import Program
from npu_upgrade.sources.content import code_digest
from npu_upgrade.sources.tree import SourceTree, overlay
from npu_upgrade.threeway.method import Context, merge_method
from npu_upgrade.watch.flags import items_of
from npu_upgrade.watch.line import Line, Step
from npu_upgrade.watch.ties import Ours, Tie

_ASIDE = ("cuda-names", "markers", "parity", "stale-copies", "versions")
"""How the checks are called that tell nothing of what a step of upstream's does."""

_LABELS = ("ours", "base", "theirs")
_ROOMS = ("audit", "program", "lineage", "threeway", "code", "sources", "merge", "watch")
Problems = dict[str, Item]


class Judge:
    """Judges the steps of one line against one downstream; ``vllm`` is what both are to run on, if known."""

    def __init__(self, ours: Ours, line: Line, spec: str, vllm: SourceTree | None) -> None:
        self.ours, self.line, self.spec, self.vllm = ours, line, spec, vllm
        self._beneath = Program({"vllm": vllm}) if vllm else None
        self._audited: dict[Path, Problems] = {}
        self._bases: dict[Tie, tuple[History, Version | None]] = {}

    def merged(self, tie: Tie, text: str | None, step: Step) -> tuple[Item, ...]:
        """What the merge of one copy up to a step leaves to a person."""
        return self.kept_as(
            ["merge", self.ours.digest, tie.unit.path, tie.unit.name, tie.unit.base, text],
            lambda: items_of(self.outcome(tie, text, step)),
        )

    def left_behind(self, tie: Tie) -> bool:
        """Whether a copy was passed over when ours were last brought up: upstream had changed it by then."""
        runners, day = self.ours.runners, self.ours.taken
        if day is None or (runners and runners.method(tie.unit.path, tie.unit.name)):
            return False
        history, base = self._base(tie)
        if base is None or base.date is None:
            return False
        later = [one for one in history.versions if one.date and base.date < one.date <= day]
        return bool(later) and history.keys(later[-1], tie.name) != history.keys(base, tie.name)

    def audited(self, step: Step, among: Problems | None = None) -> Problems:
        """What the audit finds in the merged downstream on a step, by id; nothing where it knows none.

        ``among``: only what the checks find that found these, which takes a part of the time.
        """
        if not self.can_audit:
            return {}
        what = ["audit", self.ours.digest, self.line.content(step), self.copied_at.spec, self.vllm_spec]
        names = [name for name in check_names() if not name.startswith(_ASIDE)]
        place = self._place([*what, names])
        if among is not None and place not in self._audited and not place.exists():
            names = sorted({item.finding.rpartition("-")[0] for item in among.values()} & set(names))
            place = self._place([*what, names])
        if place not in self._audited:
            found = self.kept_as([*what, names], lambda: tuple(self._audit(step, names)))
            self._audited[place] = {item.id: item for item in found}
        return self._audited[place]

    @property
    def can_audit(self) -> bool:
        """Whether the audit knows the project, and what it is to run on."""
        if self._is_ascend:
            return self.ours.package == "vllm"
        return (
            self.ours.side.project.package == "vllm_omni" and self.ours.package == ASCEND and bool(self.vllm)
        )

    @property
    def _is_ascend(self) -> bool:
        return self.ours.side.project.package == ASCEND

    def kept_as(self, what: Sequence[object], judge: Callable[[], tuple[Item, ...]]) -> tuple[Item, ...]:
        """The kept outcome of the same content, else what ``judge`` says, which is then kept."""
        place = self._place(what)
        found = kept(place, tuple[Item, ...])
        return found if found is not None else keep(place, judge())

    @staticmethod
    def _place(what: Sequence[object]) -> Path:
        """Where an outcome is kept."""
        key = sha256(json.dumps([*what, code_digest(*_ROOMS)]))[:32]
        return cache_root() / "watch" / f"{key}.json"

    @property
    def vllm_spec(self) -> str:
        """What both run on, empty where it is not known."""
        return self.vllm.spec if self.vllm else ""

    def outcome(self, tie: Tie, text: str | None, step: Step) -> MethodOutcome:
        """The merge of one copy onto upstream's text at a step, None where it is gone."""
        path, name = tie.unit.path, tie.unit.name
        module = parse_module(self.ours.side.tree.read(path))
        unit, runners = module.units[name], self.ours.runners
        context = Context(None, own_names(module, path))
        entry = runners.method(path, name) if runners else None
        if entry and entry.copied and runners:
            return merge_unit(entry, unit, text, Bases(runners, target=self._version(step)), context)
        entry = MethodLineage("", path, name, tie.name, True, True, tie.unit.statements)
        base = self._base_text(tie)
        if base is None or text is None:
            return MethodOutcome(entry, "unchanged" if text else "gone", tie.unit.base)
        base_now, ours, theirs = map(split_statements, (base, unit.source, text))
        merged = merge_method(base_now, ours, theirs, context)
        return MethodOutcome(entry, "auto", tie.unit.base, merged, text, base)

    def _base_text(self, tie: Tie) -> str | None:
        history, version = self._base(tie)
        return history.unit(version, tie.name) if version else None

    def _base(self, tie: Tie) -> tuple[History, Version | None]:
        """The history of a copy which is in no runner, and the version it was taken from."""
        if tie not in self._bases:
            history = open_history(self.spec, Upstream(tie.path, ""))
            version = next((one for one in history.versions if one.label == tie.unit.base), None)
            self._bases[tie] = history, version
        return self._bases[tie]

    def _version(self, step: Step) -> Version | None:
        """The version of the runner's file at a step: newer ones are not known yet."""
        assert self.ours.runners
        day = step.date or datetime.now(UTC)
        known = [one for one in self.ours.runners.history.versions if not one.date or one.date <= day]
        return known[-1] if known else None

    def _audit(self, step: Step, names: Sequence[str]) -> list[Item]:
        say(f"auditing {step.label}")
        collected()  # the world of the step before: a hundred megabytes that lead to each other
        target = self.line.tree(step)
        texts = {} if self._is_ascend else self.merged_runners(step)
        tree = overlay(self.ours.side.tree, {path: answer.text for path, answer in texts.items()})
        world = World(self._triple(tree, target), self._old, self._beneath)
        found = [one for one in run_checks(world, names) if one.incident]
        theirs = self._upstream_says(target)
        return [
            gone_item(one)
            for one in found
            if (one.here.path not in texts or decided(one, texts)) and not self._theirs(one, texts, theirs)
        ]

    def _theirs(self, finding: Finding, texts: Mapping[str, Answer], theirs: frozenset[str]) -> bool:
        """Whether upstream says itself what does not hold, and not with words of our NPU side.

        The step is for a newer vllm, upstream is at odds with itself, or our GPU side has yet to follow.
        """
        there, here = finding.there, finding.here
        if there is None or there.path in self.ours.side.paths:
            return False
        if here.path not in texts:
            beneath = self._beneath and self._beneath.judges(there.path.partition("/")[0])
            return bool(beneath) and here.path.startswith(f"{self.ours.package}/")
        said = {text for first, last, text in _said(texts[here.path].text) if first <= here.line <= last}
        return bool((said | {here.text}) & theirs)

    def _upstream_says(self, target: SourceTree) -> frozenset[str]:
        """What upstream's runner says."""
        path = self.ours.side.upstream.path
        found = _said(target.read(path)) if target.exists(path) else ()
        return frozenset(text for _, _, text in found)

    def merged_runners(self, step: Step) -> dict[str, Answer]:
        """The runner files merged onto a step, one way to resolve what conflicts are left in them."""
        runners = self.ours.runners
        if runners is None:
            return {}
        bases, target = Bases(runners, target=self._version(step)), self.line.tree(step)
        try:
            upstream = self.ours.side.upstream
            merged = merge_runners(self.ours.side.tree, target, upstream, bases, labels=_LABELS)
        except BadInput as error:  # upstream's runner is gone: the audit tells what that breaks
            say(f"note: the runners are not merged onto {step.label}: {error.what}")
            return {}
        return {path: answers(text, path)[0] for path, text in merged.files.items()}

    @cached_property
    def copied_at(self) -> Step:
        """What ours were copied from, with which everything fitted: the same for every look."""
        base = self.ours.runners.base if self.ours.runners else None
        return Step(base.label, base.spec, base.date, "") if base else self.line.start

    @cached_property
    def _old(self) -> World:
        before = self.line.tree(self.copied_at)
        return World(self._triple(self.ours.side.tree, before), None, self._beneath)

    def triple_at(self, step: Step) -> Triple:
        """The downstream as it stands, on upstream at a step."""
        return self._triple(self.ours.side.tree, self.line.tree(step))

    def _triple(self, tree: SourceTree, upstream: SourceTree) -> Triple:
        if self._is_ascend:
            return Triple(None, tree, upstream)
        return Triple(tree, upstream, self.vllm or NO_TREE)


def _said(source: str) -> Iterator[tuple[int, int, str]]:
    """The statements of a file with their first and last lines; imports name by name."""
    statements = split_statements(source)
    for one, (first, last) in zip(statements, line_numbers(statements, 0), strict=True):
        names = [node for node in nodes_of(one.key) if isinstance(node, ast.ImportFrom)]
        said = [f"from {node.module} import {name.name}" for node in names for name in node.names]
        yield from ((first, last, text) for text in said or [one.key])
