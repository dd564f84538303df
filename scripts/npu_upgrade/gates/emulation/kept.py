"""Outcomes of single runs, kept by the content of what ran, and those of released pairs that come with us.

An outcome holds while all of these are as they were: the scenario, the emulator's files that it uses, the
operators it called, the Python environment, and the files of the three projects that its processes imported.
What only makes kernels faster does not count: tests hold its results to those of Triton's own interpreter.
Of a file whose execution is recorded, the bodies of functions that did not run do not count, nor of a run in
one process without graphs the blocks that it did not enter. Where a process may have died without a word of
what it imported and ran, a failure holds for the very same packages only.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from npu_upgrade.audit.world import Triple
from npu_upgrade.code.walk import walk
from npu_upgrade.evidence.judged import GENERATED
from npu_upgrade.evidence.observed import Exercised
from npu_upgrade.gates.emulation.catalogue import EMULATOR, SERVED, TIERS, devices
from npu_upgrade.gates.emulation.changed import changed_functions, executed_statements, without
from npu_upgrade.gates.emulation.environment import Environment
from npu_upgrade.gates.emulation.outcome import FAIL, PASS, Outcome
from npu_upgrade.gates.emulation.packages import STAMP
from npu_upgrade.gates.emulation.same_execution import same_execution
from npu_upgrade.ground.files import sha256, write_atomic
from npu_upgrade.ground.paths import cache_root

RELEASED = Path(__file__).with_name("released.json")
_WITHOUT_GRAPHS = TIERS[1]
_KEPT = 16  # outcomes of one run, of different contents
_CODE = EMULATOR / "npu_emulator"
_PLAIN = ("dry_run/__main__.py", "dry_run/plugin.py", "autoload.py", "build.py")
_APART = {
    _CODE / "dry_run" / "catalogue.py",  # the scenario itself counts in its place
    *(_CODE / "triton_kernels" / f"{name}.py" for name in ("speed", "together")),  # they change no result
}


class Ran(Struct, frozen=True):
    """One outcome and what it depends on.

    ``packages``: package -> folder name, which carries a hash of the content. ``loaded``: path in its tree ->
    hash of an imported file. ``executed``: path -> function -> numbers of the statements that ran, of the
    watched files. ``operators``: modules of references that were called.
    """

    outcome: Outcome
    version: str
    operators: tuple[str, ...]
    environment: str
    packages: dict[str, str]
    loaded: dict[str, str]
    executed: dict[str, dict[str, list[int]]]


def version(scenario: Any, operators: Iterable[str]) -> str:
    """A hash of a scenario and of the emulator's code that it uses; None is the import tier."""
    roots = [*_PLAIN, *(f"operators/{name}.py" for name in operators)]
    if scenario:
        roots += [
            f"dry_run/stages/{scenario.stage}.py",
            f"dry_run/models/{scenario.model.replace('.', '/')}.py",
        ]
    files = _closure(tuple(sorted(roots)))
    plain = scenario and replace(scenario, shows="", words=(), core=False)
    return sha256("\n".join([repr(plain), *(f"{path.name} {_digest(path)}" for path in files)]))[:16]


@functools.cache
def _closure(roots: tuple[str, ...]) -> list[Path]:
    """These files of the emulator, the native ones, and all that they import but references of operators."""
    todo = [_CODE / name for name in roots if (_CODE / name).exists()]
    found = {*todo, *_CODE.glob("native/*.cpp"), *_CODE.glob("triton_kernels/*.py")} - _APART
    todo = [path for path in found if path.suffix == ".py"]
    while todo:
        new = {path for path in _imported(todo.pop()) if path not in found and path not in _APART}
        found |= new
        todo += new
    return sorted(found)


@functools.cache
def _imported(path: Path) -> frozenset[Path]:
    """The files of the emulator that one of them imports."""
    names: list[str] = []
    for node in walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
        elif isinstance(node, ast.Import):
            names += [one.name for one in node.names]
    own = (EMULATOR / f"{name.replace('.', '/')}.py" for name in names if name.startswith(_CODE.name))
    return frozenset(place for place in own if place.exists())


@functools.cache
def _digest(path: Path) -> str:
    return sha256(path.read_bytes())


@functools.cache
def _homes() -> dict[str, str]:
    """Operator -> the module that has its reference."""
    found = {}
    for path in sorted(_CODE.glob("operators/*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "::" in node.value:
                found[node.value] = path.stem
    return found


def operators_of(calls: Iterable[str]) -> tuple[str, ...]:
    """The modules whose references were called."""
    return tuple(sorted({_homes()[name] for name in calls if name in _homes()}))


def record(
    outcome: Outcome, scenario: Any, environment: Environment, loaded: Iterable[str], calls: Iterable[str]
) -> Ran:
    """What is to be kept of a run that just ended; ``loaded`` are the imported files, on disk."""
    scattered = _scattered(outcome.tier, scenario)
    operators = tuple(sorted(set(_homes().values()))) if scattered else operators_of(calls)
    executed = {}
    for path, lines in outcome.lines.items():
        with contextlib.suppress(OSError, SyntaxError):  # the import tier says that it is not Python
            text = Path(path).read_text("utf-8")
            executed[environment.tree_path(path)] = executed_statements(text, lines)
    paths = {environment.tree_path(path) for path in loaded} | executed.keys()
    digests = {path: _content(environment, path, executed.get(path)) for path in sorted(paths)}
    digests |= {top: _beside(folder) for top, folder in environment.packages.items()}
    return Ran(
        replace(outcome, lines={}, log=""),
        version(scenario, operators),
        operators,
        environment.name,
        {top: folder.name for top, folder in environment.packages.items()},
        digests,
        executed,
    )


def _scattered(tier: str, scenario: Any) -> bool:
    """Whether a run has processes that another one started, which may end without a word of their calls."""
    return tier in SERVED or bool(scenario and devices([scenario]) > 1)


def _content(environment: Environment, path: str, ran: Mapping[str, list[int]] | None) -> str:
    """A hash of a file, and of one whose execution is recorded another one without what did not run."""
    whole = _whole(environment, path)
    return whole if ran is None else f"{whole} {_of_what_ran(environment, path, ran)}"


def _is_content(known: str, environment: Environment, path: str, ran: Mapping[str, list[int]] | None) -> bool:
    """Whether a file has this content still, or is other only in functions that did not run."""
    if known.partition(" ")[0] == _whole(environment, path):
        return True
    return ran is not None and known.rpartition(" ")[2] == _of_what_ran(environment, path, ran)


def _in_edited(ran: Ran, environment: Environment, path: str) -> dict[str, list[int]] | None:
    """What a run executes of a file that was edited since; None where the edit may be where it came."""
    texts = _then_and_now(ran, environment, path)
    is_loaded = partial(_was_loaded, ran, environment)
    return same_execution(*texts, ran.executed[path], is_loaded) if texts else None


def _then_and_now(ran: Ran, environment: Environment, path: str) -> tuple[str, str] | None:
    """A file as a run had it and as it is; None where either is not there any more."""
    top = path.partition("/")[0]
    folder = environment.packages[top]
    try:
        before = (folder.with_name(ran.packages[top]) / path).read_text("utf-8")
        return before, (folder / path).read_text("utf-8")
    except OSError:
        return None


def _was_loaded(ran: Ran, environment: Environment, statement: ast.Import | ast.ImportFrom) -> bool:
    """Whether an import loads nothing that a run had not loaded anyway."""
    names = [one.name for one in statement.names]
    modules = [statement.module or ""] if isinstance(statement, ast.ImportFrom) else names
    places = [module.replace(".", "/") for module in modules]
    if isinstance(statement, ast.ImportFrom):
        places += [at for name in names if _is_module(environment, at := f"{places[0]}/{name}")]
    return not getattr(statement, "level", 0) and all(
        place.partition("/")[0] in sys.stdlib_module_names
        or any(path in ran.loaded for path in _files_of(place))
        for place in places
    )


def _files_of(place: str) -> tuple[str, str]:
    return f"{place}.py", f"{place}/__init__.py"


def _is_module(environment: Environment, place: str) -> bool:
    top = place.partition("/")[0]
    return top in environment.packages and any(environment.path(one).exists() for one in _files_of(place))


def _whole(environment: Environment, path: str) -> str:
    with contextlib.suppress(OSError):
        return _digest(environment.path(path))[:16]  # packages stay as they are: they are named by content
    return ""


def _of_what_ran(environment: Environment, path: str, ran: Mapping[str, list[int]]) -> str:
    with contextlib.suppress(OSError, SyntaxError):
        text = environment.path(path).read_text("utf-8")
        return sha256(without(text, {name for name, numbers in ran.items() if name and not numbers}))[:16]
    return ""


@functools.cache
def _beside(folder: Path) -> str:
    """A hash of which files a package has, and of the content of those that are not Python."""
    lines = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != STAMP:
            content = "" if path.suffix == ".py" else sha256(path.read_bytes())
            lines.append(f"{path.relative_to(folder)} {content}")
    return sha256("\n".join(lines))[:16]


def exercised(ran: Ran) -> Exercised:
    """What a run built and executed."""
    one, classes = ran.outcome, {}
    for path, functions in ran.executed.items():
        names = {name.rpartition(".")[0] for name, statements in functions.items() if statements}
        if names - {""} and one.tier != "import":
            classes[path] = sorted(names - {""})
    return Exercised(one.tier, one.scenario, one.state, one.worker, one.runner, classes)


def _place(tier: str, name: str) -> Path:
    return cache_root() / "emulation" / "outcomes" / f"{tier}-{name}"


def keep(ran: Ran) -> Ran:
    """Keep an outcome beside those of other contents; the oldest go.

    Returns it, with why an earlier run of the same files failed where a server's answers come and go.
    """
    folder = _place(ran.outcome.tier, ran.outcome.scenario)
    same = sha256(repr((ran.version, ran.environment, sorted(ran.packages.items()))))[:16]
    path = folder / f"{same}.json"
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        before = msgspec.json.decode(path.read_bytes(), type=Ran)
        if ran.outcome.tier in SERVED and ran.outcome.state == PASS:
            failed = before.outcome.why if before.outcome.state == FAIL else before.outcome.failed_once
            ran = msgspec.structs.replace(ran, outcome=replace(ran.outcome, failed_once=failed))
    write_atomic(path, msgspec.json.encode(ran))
    for old in _newest_first(folder)[_KEPT:]:
        old.unlink(missing_ok=True)
    return ran


def all_kept(tier: str, name: str) -> Iterator[Ran]:
    """The kept outcomes of a run, of whatever content, the newest first."""
    for path in _newest_first(_place(tier, name)):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            yield msgspec.json.decode(path.read_bytes(), type=Ran)


def _newest_first(folder: Path) -> list[Path]:
    def age(path: Path) -> float:
        with contextlib.suppress(OSError):
            return -path.stat().st_mtime
        return 0.0

    return sorted(folder.glob("*.json"), key=age)


def found(tier: str, scenario: Any, environment: Environment) -> Ran | None:
    """The kept outcome of a run that holds for these packages, with what it executes of them."""
    name = scenario.name if scenario else tier
    return next((held for ran in all_kept(tier, name) if (held := _held(ran, scenario, environment))), None)


def _is_of(ran: Ran, scenario: Any, environment: Environment) -> bool:
    """Whether it is of this scenario, emulator and Python environment, whatever the packages have."""
    return (
        ran.environment == environment.name
        and ran.packages.keys() == environment.packages.keys()
        and ran.version == version(scenario, ran.operators)
    )


def _held(ran: Ran, scenario: Any, environment: Environment) -> Ran | None:
    if not _is_of(ran, scenario, environment):
        return None
    others = {top: at for top, at in environment.packages.items() if ran.packages[top] != at.name}
    scattered = _scattered(ran.outcome.tier, scenario)
    if others and ran.outcome.state == FAIL and scattered:
        return None
    if any(ran.loaded[top] != _beside(at) for top, at in others.items()):
        return None
    edited: dict[str, dict[str, list[int]]] = {}
    # with graphs, what is compiled leaves no lines
    by_line = ran.outcome.tier == _WITHOUT_GRAPHS and not scattered
    for path, digest in ran.loaded.items():
        if "/" not in path or path.partition("/")[0] not in others:
            continue
        if not _is_content(digest, environment, path, ran.executed.get(path)):
            now = _in_edited(ran, environment, path) if by_line and path in ran.executed else None
            if now is None:
                return None
            edited[path] = now
    return msgspec.structs.replace(ran, executed=ran.executed | edited) if edited else ran


def changed_since(tier: str, scenario: Any, environment: Environment, top: str) -> set[str] | None:
    """The functions that are otherwise in these packages than when a run last passed, new or gone.

    Those that were there and did not run are left out. None where no kept run passed beside the same other
    packages, or where a file that it used and that was not watched is another one in ``top``, the package
    that is edited.
    """
    for ran in all_kept(tier, scenario.name):
        others = ran.packages.keys() - {top}
        if (
            ran.outcome.state == PASS
            and _is_of(ran, scenario, environment)
            and all(ran.packages[name] == environment.packages[name].name for name in others)
        ):
            return _otherwise(ran, environment, top)
    return None


def _otherwise(ran: Ran, environment: Environment, top: str) -> set[str] | None:
    found: set[str] = set()
    for path, digest in ran.loaded.items():
        if path.startswith(f"{top}/") and digest.partition(" ")[0] != _whole(environment, path):
            texts = _then_and_now(ran, environment, path) if path in ran.executed else None
            if texts is None:
                return None
            silent = {name for name, numbers in ran.executed[path].items() if not numbers}
            found |= (changed_functions(*texts) | changed_functions(*reversed(texts))) - silent
    return found


class Known(Struct, frozen=True):
    """One outcome of a released pair, with the version that makes it stale and the references it called."""

    state: str
    seconds: float
    version: str
    operators: tuple[str, ...] = ()
    why: str = ""
    where: str = ""


class ReleasedPair(Struct, frozen=True):
    """``trees``: package -> hash of its Python files; ``runs``: "TIER SCENARIO" -> what it said."""

    trees: dict[str, str]
    runs: dict[str, Known]


class Released(Struct, frozen=True):
    """``pairs`` by name; ``executed``: function -> the runs that executed it in some pair, as numbers."""

    pairs: dict[str, ReleasedPair] = {}
    runs: list[str] = []
    executed: dict[str, str] = {}


@functools.cache
def released() -> Released:
    """What ``make bench-emulator`` wrote down of released pairs."""
    return msgspec.json.decode(RELEASED.read_bytes(), type=Released) if RELEASED.exists() else Released()


def trees_key(triple: Triple) -> dict[str, str]:
    """A hash of each package's Python files, which a checkout of a release shares with it."""
    found = {}
    for top, tree in triple.trees().items():
        paths = [path for path in tree.list(top) if path.endswith(".py") and not path.endswith(GENERATED)]
        contents = tree.contents(paths)
        found[top] = sha256("\n".join(f"{path} {sha256(contents[path])}" for path in paths))
    return found


def of_release(triple: Triple) -> ReleasedPair | None:
    """The released pair whose Python these trees are."""
    key = trees_key(triple)
    return next((pair for pair in released().pairs.values() if pair.trees == key), None)


def released_outcome(pair: ReleasedPair | None, tier: str, scenario: Any) -> Outcome | None:
    """The outcome of a run of a released pair, unless the scenario or the emulator changed since."""
    name = scenario.name if scenario else tier
    known = pair.runs.get(f"{tier} {name}") if pair else None
    if known is None or known.version != version(scenario, known.operators):
        return None
    return Outcome(tier, name, known.state, known.why, known.where, seconds=known.seconds)


def passed_in(tier: str, scenario: str) -> str:
    """The releases that pass a run as they are."""
    run = f"{tier} {scenario}"
    every = released().pairs.items()
    names = [name for name, pair in every if (known := pair.runs.get(run)) and known.state == PASS]
    return ", ".join(name.partition(" on ")[0] for name in names)


def executed_by() -> tuple[dict[str, set[str]], dict[str, float]]:
    """Function -> the runs ("TIER SCENARIO") known to execute it; run -> the most seconds it took.

    The seconds are those of released pairs: they, and so the order of runs, are the same in each call.
    """
    data = released()
    found = {name: {data.runs[int(one)] for one in runs.split()} for name, runs in data.executed.items()}
    seconds: dict[str, float] = {}
    for pair in data.pairs.values():
        for run, known in pair.runs.items():
            seconds[run] = max(known.seconds, seconds.get(run, 0.0))
    for folder in sorted((cache_root() / "emulation" / "outcomes").glob("*-*/")):
        tier, _, name = folder.name.partition("-")
        newest = next(all_kept(tier, name), None)
        for part in newest.executed.values() if newest else ():
            for function, statements in part.items():
                found.setdefault(function, set()).update([f"{tier} {name}"] if statements else [])
    return found, seconds
