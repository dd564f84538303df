"""Which classes of an upgrade ran: built from exactly the delivered files, on hardware or the emulated NPU.

A run says what its engine built and loaded (:mod:`npu_upgrade.evidence.observed`); nothing is believed of
what was asked for. A run of another class, or of another content of a delivered file, validates nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import msgspec

from npu_upgrade.code.signatures import Function
from npu_upgrade.evidence.chain import Record
from npu_upgrade.evidence.observed import Class, Exercised, Observed, observed_in
from npu_upgrade.evidence.store import DRY_RUN, NPU_REAL
from npu_upgrade.evidence.subject import Subject, file_digest
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.files import sha256
from npu_upgrade.job.changes import base_of, edited, top_folders
from npu_upgrade.job.job import Job
from npu_upgrade.job.plan_file import Plan
from npu_upgrade.lineage.project import is_aside
from npu_upgrade.sources.checkout import Checkout, open_checkout, text_at
from npu_upgrade.sources.tree import open_source

PENDING = "pending"


@dataclass(frozen=True)
class Part:
    """A class that the upgrade changed, or (without ``cls``) a file with changes outside of its classes.

    ``functions``: the changed ones in it, by qualified name. ``is_runner``: an engine has to build it; of
    any other part it is enough that a changed function of it was called. ``unseen``: why no run can show it.
    """

    path: str
    cls: str = ""
    functions: frozenset[str] = frozenset()
    is_runner: bool = False
    unseen: str = ""

    @property
    def name(self) -> str:
        return self.cls or self.path


@dataclass(frozen=True)
class Validation:
    """``by``: the record of a run on an NPU that validates a part; ``emulated``: the tiers that executed it
    on the emulated NPU, which validates nothing; ``why``: what the newest run on an NPU lacked of a part."""

    parts: Sequence[Part] = ()
    by: Mapping[Part, str] = field(default_factory=dict)
    emulated: Mapping[Part, Sequence[str]] = field(default_factory=dict)
    why: Mapping[Part, str] = field(default_factory=dict)

    @property
    def pending(self) -> list[Part]:
        return [part for part in self.parts if part not in self.by]

    @property
    def trailer(self) -> str:
        """What the commit says: each part with its record, or that it is pending."""
        if not self.by:
            return PENDING
        return "; ".join(f"{part.name} {self.by.get(part, PENDING)}" for part in self.parts)

    @property
    def said(self) -> str:
        """The same for people."""
        if not self.by:
            why = next(iter(self.why.values()), "")
            return "validation on NPU hardware is pending" + (f" ({why})" if why else "")
        done = ", ".join(part.name for part in self.parts if part in self.by)
        left = "; ".join(
            f"{part.name} is pending{f' ({self.why[part]})' if part in self.why else ''}"
            for part in self.pending
        )
        return f"validated on NPU hardware: {done}" + (f"; {left}" if left else "")

    @property
    def emulated_lines(self) -> list[str]:
        """What the emulated NPU executed, a line for each part."""
        return [f"emulated: {part.name} executed in {', '.join(on)}" for part, on in self.emulated.items()]


def validate(
    job: Job, plan: Plan, subject: Subject, records: Sequence[Record], repo: Path | None = None
) -> Validation:
    """What the job's ``records`` say of the parts that its files change; nothing without a checkout.

    ``repo`` is the checkout, where that is not the job's own.
    """
    root = repo or (Path(job.repo) if job.repo else None)
    if root is None:
        return Validation()
    try:
        delivered = _Delivered(
            open_checkout(root), job.marker, subject, job.inputs.ascend.spec, job.upstream.replace("-", "_")
        )
        parts = list(_parts(delivered, plan))
    except UpgradeError:  # whoever delivers there is told why git cannot
        return Validation()
    by: dict[Part, str] = {}
    unfinished = [f"run {one} was not finished" for one in job.store.incomplete()]
    why: dict[Part, str] = dict.fromkeys(parts, unfinished[-1]) if unfinished else {}
    mine = [record for record in records if record.tree == subject.tree]
    on_npu = [one for one in mine if one.label == NPU_REAL and one.verdict == "PASS" and one.run]
    for record in on_npu:
        problems = [f"it is not as it was recorded: {one}" for one in job.store.problems(record)]
        for observed in observed_in(job.store.runs / str(record.run)) or [Observed("")]:
            objection = problems[0] if problems else _objection(observed, delivered)
            for part in parts:
                if lack := objection or lacking(part, observed, delivered):
                    why[part] = f"run {record.run}: {lack}"
                else:
                    by[part] = record.id
    why = {part: text for part, text in why.items() if part not in by}
    return Validation(parts, by, _emulated(job, mine, parts, delivered), why)


@dataclass(frozen=True)
class _Delivered:
    """The files of a checkout as the delivery will have them. ``upstream``: what they are for, by its spec
    and its ``package``."""

    checkout: Checkout
    marker: str
    subject: Subject
    upstream: str
    package: str

    @cached_property
    def base(self) -> str:
        return base_of(self.checkout, self.marker)

    @cached_property
    def left(self) -> set[str]:
        """What is edited beside the delivered files and stays out."""
        files = self.subject.files
        return set(edited(self.checkout, self.base, top_folders(files))) - set(files)

    def before(self, path: str) -> str | None:
        """A file's text before the upgrade; None for one that is new."""
        return text_at(self.checkout, self.base, path)

    def digest(self, name: str) -> str | None:
        """The hash of the file that an engine calls ``name``; None for one that the checkout has not."""
        path = next((path for path in self.subject.files if _fits(path, name)), name)
        if path in self.subject.files:
            return self.subject.files[path]
        file = self.checkout.root / path
        if not file.is_file():
            return None
        if path not in self.left:
            return file_digest(file)
        text = self.before(path)
        return sha256(text.encode("utf-8", "surrogateescape")) if text is not None else ""

    def other_upstream(self, loaded: Sequence[tuple[str, str]]) -> str:
        """Why the files of upstream's among ``loaded`` (path, hash) are not its own; empty when they are.

        What a build writes beside the sources is in no release.
        """
        theirs = sorted({one for one in loaded if one[0].startswith(f"{self.package}/")})
        if not theirs:
            return ""
        try:
            tree = open_source(self.upstream)
            known = {name: sha256(tree.read(name).encode()) for name, _ in theirs if tree.exists(name)}
        except UpgradeError as error:
            return f"{self.upstream} cannot be read, so nothing says that it ran: {error.what}"
        other = next((name for name, digest in theirs if known.get(name, digest) != digest), "")
        if known and not other:
            return ""
        return f"it ran another {other or f'{self.package}/'} than {self.upstream} has"

    def has(self, name: str, sha256: str) -> bool:
        """Whether that content of a file is what is delivered, as far as it is delivered here."""
        return self.digest(name) in (None, sha256)


def _objection(observed: Observed, delivered: _Delivered) -> str:
    """Why a run validates no part at all; empty when it may."""
    if not observed.processes:
        return "it does not tell what its engine built"
    if observed.devices != {"npu"}:
        return f"its tensors lived on {', '.join(sorted(observed.devices)) or 'no device that is told'}"
    if observed.dummy:
        return "it loaded dummy weights"
    root = delivered.checkout.root.resolve()
    laid = [one for one in observed.pythonpath if not Path(one).resolve().is_relative_to(root)]
    if laid:
        return f"PYTHONPATH laid {', '.join(laid)} over the installation"
    loaded = [(name, one.sha256) for process in observed.processes for name, one in process.files.items()]
    other = next((name for name, digest in loaded if not delivered.has(name, digest)), "")
    return f"it ran another {other} than is delivered" if other else delivered.other_upstream(loaded)


def _parts(delivered: _Delivered, plan: Plan) -> Iterator[Part]:
    """The changed parts of the delivered files, in the order of files and classes.

    Of files that are no Python, those of a package that are no text for readers.
    """
    runners = {(one["path"], one["class"]) for one in plan.runners.values()}
    for path in sorted(delivered.subject.files):
        file = delivered.checkout.root / path
        if is_aside(path):
            continue
        before, is_code = delivered.before(path), path.endswith(".py")
        if not (is_code or _is_of_package(file, delivered.checkout.root)):
            continue
        if not file.is_file():
            if before is not None:
                yield Part(path, unseen="no run shows that nothing needs it, and it is deleted")
        elif not is_code:
            yield Part(path, unseen="no run tells whether it was read")
        else:
            for part in changed_parts(path, before or "", file.read_text("utf-8", "replace")):
                yield replace(part, is_runner=(path, part.cls) in runners)


def _is_of_package(file: Path, root: Path) -> bool:
    folders = file.parents[: len(file.relative_to(root).parts) - 1]
    return file.suffix not in (".md", ".rst") and any((one / "__init__.py").is_file() for one in folders)


def changed_parts(path: str, before: str, now: str) -> list[Part]:
    """The classes of a file whose code changed, and the file itself for changes outside of classes.

    Imports and constants beside a class that changed are its own; comments are no change. A file that does
    not parse is one part.
    """
    try:
        old, new = _classes(before), _classes(now)
    except (SyntaxError, ValueError):
        return [Part(path)]
    found = [
        Part(path, name, frozenset(_changed(old.get(name), node, f"{name}.")))
        for name, node in new.items()
        if name and (name not in old or ast.dump(old[name]) != ast.dump(node))
    ]
    rest = frozenset(_changed(old[""], new[""], ""))
    if rest or (not found and ast.dump(old[""]) != ast.dump(new[""])):
        found.append(Part(path, functions=rest))
    return found


def _classes(text: str) -> dict[str, ast.ClassDef | ast.Module]:
    """The top-level classes of a text by name, and under the empty name the module without them."""
    tree = ast.parse(text)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    rest = ast.Module([node for node in tree.body if not isinstance(node, ast.ClassDef)], [])
    return {**classes, "": rest}


def _changed(
    old: ast.ClassDef | ast.Module | None, new: ast.ClassDef | ast.Module, prefix: str
) -> Iterator[str]:
    known = {ast.dump(node) for node in old.body} if old else set()
    for node in new.body:
        if isinstance(node, Function) and ast.dump(node) not in known:
            yield prefix + node.name


def lacking(part: Part, observed: Observed, delivered: _Delivered) -> str:
    """What a run of the delivered files lacks to validate a part, empty when it does."""
    if part.unseen:
        return part.unseen
    built = [one for process in observed.processes for one in process.built]
    mine = [one for one in built if any(_is(part, cls) for cls in one.classes)]
    ran = [one for one in mine if one.steps > 0]
    if any(all(delivered.has(cls.path, cls.sha256) for cls in one.classes) for one in ran):
        return ""
    if ran:
        return f"{part.name} was built from another file than is delivered"
    if part.is_runner:
        return f"{part.name} executed no step" if mine else f"no {part.name} was built"
    every = [one for process in observed.processes for one in process.files.items()]
    loaded = [ran.functions for name, ran in every if _fits(part.path, name)]
    called = {name for functions in loaded for name in functions}
    if not loaded:
        return f"{part.path} was not loaded"
    missed = part.functions and not part.functions & called
    return f"no changed function of {part.name} was called" if missed else ""


def _is(part: Part, cls: Class) -> bool:
    return _fits(part.path, cls.path) and cls.name.rpartition(".")[2] == part.cls


def _fits(path: str, name: str) -> bool:
    """Whether a path of the repository is the file that an engine calls ``name``."""
    return path == name or path.endswith(f"/{name}")


def _emulated(
    job: Job, records: Sequence[Record], parts: Sequence[Part], delivered: _Delivered
) -> dict[Part, list[str]]:
    """The tiers in which the emulated NPU executed a part: of the newest run of its gate, and ``serve`` where
    a server did that passed and is as it was recorded."""
    newest = next((one for one in reversed(records) if one.gate == "emulate"), None)
    ran = msgspec.convert(newest.data.get("ran", []), list[Exercised]) if newest else []
    passed = [
        (one.tier, path, one.classes[path]) for one in ran if one.state == "PASS" for path in one.classes
    ]
    runs = (one for one in records if (one.gate, one.label, one.verdict) == ("serve", DRY_RUN, "PASS"))
    whole = (one for one in runs if one.run and not job.store.problems(one))
    served = [seen for one in whole for seen in observed_in(job.store.runs / str(one.run))]
    found = {}
    for part in parts:
        tiers = [tier for tier, path, names in passed if part.cls in names and _fits(part.path, path)]
        tiers += ["serve"] if any(not lacking(part, seen, delivered) for seen in served) else []
        found[part] = list(dict.fromkeys(tiers))
    return {part: tiers for part, tiers in found.items() if tiers}
