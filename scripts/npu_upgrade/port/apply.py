"""Takes chosen hunks into the NPU runner files: their places, the imports they need, the guards."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from npu_upgrade.code.import_edit import Edit, edit_imports
from npu_upgrade.code.module import Unit, add_base, insert_lines, parse_module, replace_units, split_lines
from npu_upgrade.code.names import undefined_names
from npu_upgrade.code.statements import render
from npu_upgrade.lineage.downstream import Runner
from npu_upgrade.lineage.imports import derive_imports
from npu_upgrade.port.agreement import agreement_of, places
from npu_upgrade.port.hunks import Hunk
from npu_upgrade.port.needs import Ranked, closure, uses
from npu_upgrade.port.npu_side import NpuSide
from npu_upgrade.port.place import Placed, place
from npu_upgrade.port.sides import GpuSide
from npu_upgrade.port.unit_diff import UnitDiff

_HOW = "--callers-by-hand takes it all the same"


@dataclass
class Applied:
    """The changed files by path, what was taken (needed hunks too), what was refused and why.

    ``imports`` are the imports that were added or dropped, each with its file; ``by_hand`` is what of the
    tree does not agree with them yet, where somebody looked.
    """

    files: dict[str, str] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    imports: list[str] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)


class UnplaceableError(Exception):
    """Some hunks do not fit together into the runner files."""


def apply(
    asked: Sequence[str],
    ranked: Sequence[Ranked],
    npu: NpuSide,
    new: GpuSide,
    *,
    agreed: bool = True,
    beside: Collection[str] = (),
) -> Applied:
    """Take the hunks with these ids, and what they need, into the runner files of ``npu``.

    A hunk is taken with all that it needs, or refused; as many of the asked ones as fit
    together are taken, the earlier ones first. Without ``agreed`` the rest of the tree may be left to be
    changed by hand. What comes ``beside`` them, with a method that is put in as a whole, has no place here
    unless it is asked for. Nothing is written here.
    """
    work = Work(ranked, npu, new, beside)
    refused: dict[str, str] = {}
    chosen = work.fitting(list(dict.fromkeys(asked)), refused)
    texts, imports = work.with_imports(chosen)
    while lost := work.unfit(texts, chosen, agreed=agreed):
        for name in [name for name in chosen if lost.keys() & set(work.all_of([name]))] or chosen:
            refused[name] = "; ".join(sorted(set(lost.values())))
            chosen.remove(name)
        texts, imports = work.with_imports(chosen)
    files = {path: text for path, text in texts.items() if text != npu.texts[path]}
    return Applied(files, work.all_of(chosen), refused, imports)


class Work:
    """Puts sets of hunks into the runner files."""

    def __init__(
        self, ranked: Sequence[Ranked], npu: NpuSide, new: GpuSide, beside: Collection[str] = ()
    ) -> None:
        self.npu, self.new = npu, new
        self.ranked = {entry.hunk.id: entry for entry in ranked}
        self.needs = {
            name: replace(entry.needs, hunks=[one for one in entry.needs.hunks if one not in beside])
            for name, entry in self.ranked.items()
        }
        self.units: dict[tuple[str, ...], str] = {}

    def all_of(self, ids: Sequence[str]) -> list[str]:
        """The hunks and all that they need."""
        return closure(ids, self.needs)

    def fitting(self, ids: list[str], refused: dict[str, str]) -> list[str]:
        """The hunks that fit together: all, or taken one by one; the others go to ``refused``."""
        try:
            self.files(ids)
            return ids
        except UnplaceableError:
            pass
        kept: list[str] = []
        for name in ids:
            try:
                self.files([*kept, name])
                kept.append(name)
            except UnplaceableError as reason:
                refused[name] = str(reason)
        return kept

    def files(self, ids: Sequence[str]) -> dict[str, str]:
        """The files with the hunks in them, under the imports they had."""
        hunks = [self._usable(name) for name in self.all_of(ids)]
        texts = dict(self.npu.texts)
        for runner in self.npu.runners:
            mine = [hunk for hunk in hunks if hunk.runner == runner]
            if mine:
                texts[runner.path] = self._file(runner, mine)
        return texts

    def _usable(self, name: str) -> Hunk:
        entry = self.ranked[name]
        if entry.needs.unresolved:
            raise UnplaceableError(
                f"{name} uses what the NPU side does not have: {', '.join(entry.needs.unresolved)}"
            )
        return entry.hunk

    def _file(self, runner: Runner, hunks: Sequence[Hunk]) -> str:
        module = self.npu.modules[runner.kind]
        units = {hunk.unit: "" for hunk in hunks if hunk.kind == "change"}
        for name in units:
            units[name] = self._unit([h for h in hunks if h.unit == name], module.units[name].source)
        source = replace_units(module, units)
        order = list(self.new.modules[runner.kind].units)
        methods = [hunk for hunk in hunks if hunk.kind == "method"]
        for hunk in sorted(methods, key=lambda h: order.index(h.unit) if h.unit in order else len(order)):
            source = add_method(source, hunk, order)
        for hunk in hunks:
            base = hunk.kind == "base"
            source = add_base(source, hunk.runner.class_name, hunk.new[0].key) if base else source
        try:
            parse_module(source)
        except SyntaxError as error:
            raise UnplaceableError(
                f"{runner.path} would not be Python: line {error.lineno}: {error.msg}"
            ) from error
        return source

    def _unit(self, hunks: Sequence[Hunk], source: str) -> str:
        """A unit with its hunks, those of one difference together."""
        key = tuple(hunk.id for hunk in hunks)
        if key not in self.units:
            for diff in {id(hunk.diff): hunk.diff for hunk in hunks}.values():
                assert diff is not None, "a change has the difference it belongs to"
                mine = [hunk for hunk in hunks if hunk.diff is diff]
                placed = place(mine, diff, source)
                if placed.unsafe and len(mine) > 1:
                    placed = next(_one_last(mine, diff, source), placed)
                if placed.text is None:
                    raise UnplaceableError(placed.reason)
                source = placed.text
            self.units[key] = source
        return self.units[key]

    def with_imports(self, ids: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        """The files with hunks that fit, and the imports they got."""
        npu, texts = self.npu, self.files(ids)
        said: list[str] = []
        plans = derive_imports(texts, npu.texts, npu.upstream_file, npu.gpu_texts, npu.ascend, npu.tree)
        for path, plan in plans.items():
            if texts[path] == npu.texts[path]:
                continue
            # Imports that were stale before are no business of a port.
            texts[path] = edit_imports(
                texts[path], Edit(plan.added, plan.dropped, (), path.partition("/")[0])
            )
            said += [f"{path}: + {item.statement()}" for item in plan.added]
            said += [f"{path}: - {item.statement()}" for item in plan.dropped]
        return texts, said

    def unfit(self, texts: Mapping[str, str], ids: Sequence[str], *, agreed: bool) -> dict[str, str]:
        """The hunks that read what nothing defines, else those that the tree has to be ``agreed`` with."""
        if (lost := self._undefined(texts, ids)) or not agreed:
            return lost
        return {name: f"{why} ({_HOW})" for name, why in self.disagreeing(texts, ids).items()}

    def disagreeing(self, texts: Mapping[str, str], ids: Sequence[str]) -> dict[str, str]:
        """The hunks that the rest of the tree does not agree with, each with the reason."""
        found: dict[str, str] = {}
        hunks = [self.ranked[name].hunk for name in self.all_of(ids)]
        for broken in agreement_of(self.npu).broken(texts):
            where = places(broken, texts)
            mine = [hunk for hunk in hunks if (hunk.runner.path, hunk.unit) in where] or hunks
            found |= {hunk.id: broken.what for hunk in mine}
        return found

    def _undefined(self, texts: Mapping[str, str], ids: Sequence[str]) -> dict[str, str]:
        """The hunks that read a name which nothing defines, each with the reason."""
        found: dict[str, str] = {}
        hunks = [self.ranked[name].hunk for name in self.all_of(ids)]
        for path, text in texts.items():
            lost = undefined_names(text) - undefined_names(self.npu.texts[path])
            mine = [hunk for hunk in hunks if hunk.runner.path == path]
            users = [hunk for hunk in mine if uses(hunk).names & lost] or mine
            reason = f"nothing defines {', '.join(sorted(lost))}"
            found |= {hunk.id: reason for hunk in users} if lost else {}
        return found


def _one_last(hunks: Sequence[Hunk], diff: UnitDiff, source: str) -> Iterator[Placed]:
    """The ways to place all hunks but one, and then that one, which may stand somewhere else."""
    for last in hunks:
        first = place([hunk for hunk in hunks if hunk is not last], diff, source)
        placed = place([last], diff, first.text) if first.text is not None else first
        if placed.text is not None:
            yield placed


def add_method(source: str, hunk: Hunk, order: Sequence[str]) -> str:
    """``source`` with the method of a hunk, behind the method that it follows on the GPU side.

    ``order`` are the qualified names of the GPU file. All other lines stay as they are.
    """
    module = parse_module(source)
    node = module.class_def(hunk.runner.class_name)
    assert node is not None, "a runner file holds its runner's class"
    earlier = order[: order.index(hunk.unit)] if hunk.unit in order else []
    before = next(
        (module.units[name] for name in reversed(earlier) if name in module.units and "." in name), None
    )
    methods = sorted(module.methods(hunk.runner.class_name).values(), key=lambda unit: unit.start)
    text = render(hunk.new).lstrip("\n").split("\n")
    if before is None and methods:
        return insert_lines(source, _above_comments(split_lines(source), methods[0]), [*text, ""])
    return insert_lines(source, before.end if before else node.end_lineno or node.lineno, ["", *text])


def _above_comments(lines: Sequence[str], unit: Unit) -> int:
    at = unit.start
    while at and lines[at - 1].lstrip().startswith("#"):
        at -= 1
    return at
