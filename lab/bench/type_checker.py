"""Whether a type checker could replace the audit's checks: ty over the old and the new triple of each case.

What ty says of the audited files of the new triple and not of the old one is a finding. Diagnostics are
compared by rule, file, enclosing unit and message, never by line. Ends with 1 where no choice of rules
holds what the audit's own checks hold: every counted case of the five kinds found, all negatives silent.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median

from bench.audit import RELEASES, specs_of
from bench.incidents import Case, Trees, load_cases
from npu_upgrade.audit.run import run_checks
from npu_upgrade.audit.triples import old_triple
from npu_upgrade.audit.world import ASCEND, Triple, World
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.sources.tree import SourceTree

KINDS = ("attributes", "signatures", "calls", "imports", "arity")
GROUPS = ("counted", "held-out", "negative", "other")
# Rules about what is there and how it is called; the others are about types.
_STRUCTURAL = re.compile(
    r"missing-attribute|missing-argument|unknown-argument|too-many-positional-arguments|import-not-found|"
    r"unresolved-reference|incompatible-method-override|lost-keyword-for-regular-parameter|not-callable|"
    r"parameter-already-assigned|no-matching-overload"
)
_UNPACKED = re.compile(r"(Not enough|Too many) values to unpack|tuple of length")
_CHOICE = re.compile(rb"^else:\n +from ", re.MULTILINE)
_HEAD = re.compile(r"(?:error|warning|info)\[(?P<rule>[\w-]+)\]: (?P<text>.*)")
_PLACE = re.compile(r"\s*--> (?P<path>.*):(?P<line>\d+):\d+$")
_DETAIL = re.compile(r"\s*(?:\|[ |_]*\^+|info:(?! +(?:\d+\.|Searched|make sure))) (?P<text>.*)")
# torch and the like are not there: that says nothing of the three projects.
_OUTSIDE = re.compile(r"Cannot resolve imported module `(?!vllm(?:_ascend|_omni)?\b)")
_CODE = re.compile(r"\s*\d+ \| [ |/]*(?P<text>.*)")
_LOCATION = re.compile(r"(?<![\w`])/\S+|\b[Ll]ines? \d+|:\d+(?::\d+)?\b")


@dataclass(frozen=True, order=True)
class Diagnostic:
    """One thing that ty says, as far as it is the same in another version of the trees.

    ``code`` are the source lines it is about: no part of what is compared, but often the only place
    that names what is meant ("Object of type `bool` is not callable").
    """

    rule: str
    path: str
    unit: str
    text: str
    code: str = field(compare=False)

    def __str__(self) -> str:
        return f"{self.rule} {self.path} {self.unit}: {self.text}"


Rules = dict[str, Callable[[Diagnostic], bool]]  # a choice of rules by its name


@dataclass
class Checker:
    """Runs ty over triples, written below ``folder``; what it said of released triples is kept.

    ``python`` is the environment ty resolves other packages in. ``settled``: see :func:`settle`.
    """

    folder: Path
    ty: str
    python: str
    settled: bool
    trees: Trees = field(default_factory=Trees)
    kept: dict[str, frozenset[Diagnostic]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def new(self, case: Case) -> frozenset[Diagnostic]:
        """What ty says of the case and not of its old triple (of a standing defect: all it says)."""
        said = self.said(self.trees.triple(case.specs, case.edits))
        return said - self.said(self.trees.triple(case.old)) if case.old else said

    def said(self, triple: Triple) -> frozenset[Diagnostic]:
        """All diagnostics of the audited files of a triple, by every rule of ty."""
        key = " ".join(tree.spec for tree in triple.trees().values())
        if key not in self.kept:
            audited = "vllm_omni/platforms/npu" if triple.omni else ASCEND
            roots = {package: self._written(tree, package) for package, tree in triple.trees().items()}
            paths = json.dumps([str(root) for root in roots.values()])
            settings = f'environment = {{ root = {paths}, python-version = "3.12" }}\n'
            (self.folder / "ty.toml").write_text(settings)
            top = roots[audited.partition("/")[0]]
            self.kept[key] = frozenset(_read(self._output(top / audited), self.folder, top))
            for package, tree in triple.trees().items():
                if "+edited" in tree.spec:
                    shutil.rmtree(roots[package])
        return self.kept[key]

    def _written(self, tree: SourceTree, package: str) -> Path:
        root = self.folder / sha256(tree.spec)[:12]
        if not root.exists():
            for path, data in tree.contents([p for p in tree.list(package) if p.endswith(".py")]).items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(settle(data) if self.settled else data)
        return root

    def _output(self, folder: Path) -> str:
        command = [self.ty, "check", str(folder), "--project", str(self.folder), "--python", self.python]
        command += ["--warn", "all", "--exit-zero", "--no-progress", "--color=never", "--output-format=full"]
        begun = time.monotonic()
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        self.seconds.append(time.monotonic() - begun)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
        return done.stdout


def settle(data: bytes) -> bytes:
    """The file with each choice between imports at its top made: the last branch.

    Of ``if is_310p(): from … import A as Base`` and ``else: from … import B as Base`` a checker makes
    a union, and nothing is known of a class whose base is a union.
    """
    if not _CHOICE.search(data):
        return data
    lines = data.decode().splitlines(keepends=True)
    for node in ast.parse(data).body:
        statements = [*node.body, *node.orelse] if isinstance(node, ast.If) and node.orelse else [node]
        if isinstance(node, ast.If) and all(isinstance(each, ast.ImportFrom) for each in statements):
            begin, end = node.lineno - 1, node.orelse[0].lineno - 1
            lines[begin:end] = ["if True:\n", *["\n"] * (end - begin - 1)]
    return "".join(lines).encode()


def _read(output: str, folder: Path, top: Path) -> Iterator[Diagnostic]:
    """The diagnostics of ty's full output, with the captions and notes that tell the details."""
    for block in re.split(r"\n\n(?=\w+\[)", output):
        head, *lines = block.splitlines()
        if not (said := _HEAD.match(head)) or _OUTSIDE.match(said["text"]):
            continue
        place = _PLACE.match(lines[0])
        if place is None:
            raise SystemExit(f"ty's output has another form: no place below\n{block}")
        file, line = folder / place["path"], int(place["line"])
        unit = ".".join(name for name, first, last in _units(file.read_bytes()) if first <= line <= last)
        details = [found["text"] for line in lines if (found := _DETAIL.match(line))]
        text = _LOCATION.sub("…", " · ".join([said["text"], *details]))
        own = block.partition(":::")[0].splitlines()  # what follows is another place
        code = " ".join(found["text"] for line in own if (found := _CODE.match(line)))
        yield Diagnostic(said["rule"], file.relative_to(top).as_posix(), unit, text, code)


@cache
def _units(source: bytes) -> list[tuple[str, int, int]]:
    """The classes and functions of a file with their first and last line, the outer ones first."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    return sorted(((n.name, n.lineno, n.end_lineno or 0) for n in found), key=lambda unit: unit[1])


def choices(ty: str) -> Rules:
    """The choices of rules that are tried."""
    rules = json.loads(subprocess.check_output([ty, "explain", "rule", "--output-format", "json"]))
    default = {rule["name"] for rule in rules if rule["default_level"] != "ignore"}
    return {
        "default": lambda said: said.rule in default,
        "all": lambda said: True,
        "structural": lambda said: bool(_STRUCTURAL.fullmatch(said.rule) or _UNPACKED.search(said.text)),
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="+", metavar="ID", help="run these cases and print what is new")
    parser.add_argument("--as-is", action="store_true", help="leave the choices between imports in the files")
    parser.add_argument("--python", metavar="DIR", help="an environment with torch (default: an empty one)")
    args = parser.parse_args(argv)
    ty = str(Path(sys.executable).with_name("ty"))
    rules = choices(ty)
    cases = [case for case in load_cases() if not args.case or case.id in args.case]
    with tempfile.TemporaryDirectory() as folder:
        python = args.python or f"{folder}/empty"
        if not args.python:
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", python], check=True)
        checker = Checker(Path(folder).resolve(), ty, python, not args.as_is)
        outcomes = [_outcome(case, checker.new(case)) for case in cases]
        print(_case_table(outcomes, rules))
        if args.case:
            return 0
        # Before our own checks: a child counts the memory of the process that starts it, and this one grows.
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        cost = {"seconds": f"{median(checker.seconds):.2f}", "memory_mib": f"{memory:.0f}"}
        releases = _releases(checker, rules)
    return _conclude(outcomes, rules, releases, cost)


@dataclass(frozen=True)
class Outcome:
    """What is new in a case; ``fit`` is the expected finding, or what a negative case should not have."""

    case: Case
    new: list[Diagnostic]
    fit: list[Diagnostic]

    @property
    def kind(self) -> str:
        """The check that is expected to report the case: where it can be, one of the five."""
        checks = self.case.expect.checks if self.case.expect else ("",)
        return next((name for name in checks if name in KINDS), checks[0])

    @property
    def group(self) -> str:
        """``other`` cases are not of the five kinds, or of none that source shows."""
        if self.case.group == "negative":
            return "negative"
        if self.kind in KINDS and (self.case.counted or self.case.held_out):
            return "held-out" if self.case.held_out else "counted"
        return "other"

    def passed(self, counts: Callable[[Diagnostic], bool]) -> bool:
        """Whether it is found, or the negative case silent, by a choice of rules."""
        return any(map(counts, self.fit)) != (self.group == "negative")


def _outcome(case: Case, new: frozenset[Diagnostic]) -> Outcome:
    wanted = case.wanted
    fit = sorted(new)
    if wanted or case.group != "negative":
        places = [(f"{said.text} {said.code}", f"{said.unit} {said.path}") for said in fit]
        fit = [said for said, place in zip(fit, places, strict=True) if wanted and wanted.names(*place)]
    outcome = Outcome(case, sorted(new), fit)
    say(f"{case.id} ({outcome.group}): {len(outcome.fit)} of {len(new)} new")
    for said in (outcome.fit or outcome.new)[:8]:
        say(f"    {said}")
    return outcome


def _case_table(outcomes: Sequence[Outcome], rules: Rules) -> str:
    rows = []
    for outcome in sorted(outcomes, key=lambda outcome: (outcome.group, outcome.kind, outcome.case.id)):
        words = ("NOISY", "silent") if outcome.group == "negative" else ("missed", "found")
        cells = [f"{words[outcome.passed(c)]} {sum(map(c, outcome.new))}" for c in rules.values()]
        rows.append([outcome.case.id, outcome.group, outcome.kind, *cells])
    return table(("case, and all that is new", "group", "check", *rules), rows)


def _releases(checker: Checker, rules: Rules) -> list[list[str]]:
    """Release by release, what is new beside the release before: all of it would fail a gate."""
    rows = []
    for release in RELEASES:
        triple = checker.trees.triple(specs_of(release))
        before = old_triple(triple)
        assert before is not None
        new = checker.said(triple) - checker.said(before)
        known = {finding.key for finding in run_checks(World(before), KINDS)}
        ours = {finding.key for finding in run_checks(World(triple, World(before)), KINDS)} - known
        rows.append([release, *(str(sum(map(counts, new))) for counts in rules.values()), str(len(ours))])
        for said in sorted(filter(rules["structural"], new)):
            say(f"new in {release}: {said}")
    return rows


def _conclude(
    outcomes: Sequence[Outcome], rules: Rules, releases: list[list[str]], cost: dict[str, str]
) -> int:
    """Prints the tallies and the last line; 0 when a choice of rules holds all that ours hold."""
    groups = {name: [o for o in outcomes if name in (o.kind, o.group)] for name in (*KINDS, *GROUPS)}
    right = {g: {r: sum(o.passed(rules[r]) for o in own) for r in rules} for g, own in groups.items()}
    rows = [[g, *(f"{n} of {len(groups[g])}" for n in counts.values())] for g, counts in right.items()]
    print("\n" + table(("found, or silent", *rules), rows))
    print("\n" + table(("new in the release", *rules, "our five checks"), releases))
    best = max(rules, key=lambda r: (right["negative"][r] + right["counted"][r], r == "structural"))
    figures = {g.replace("-", "_"): f"{right[g][best]}/{len(groups[g])}" for g in GROUPS}
    figures["new_in_releases"] = "/".join(row[[*rules].index(best) + 1] for row in releases)
    figures["ours_new_in_releases"] = "/".join(row[-1] for row in releases)
    line = " ".join(f"{name}={figure}" for name, figure in (figures | cost).items())
    print(f"\nbench-type-checker: rules={best} {line}")
    return 0 if all(right[g][best] == len(groups[g]) for g in ("counted", "negative")) else 1


if __name__ == "__main__":
    sys.exit(main())
