"""What a merge proposes beside the copies, pins and conditions on the version, against what was done by hand.

For a step N to N+1 of a project on vLLM, a line is a pin when N+1 has it with the number of the new vLLM and
no more as it was. Found are those with an edit, missed those without; noise is an edit of a line that N+1
has as it was. A condition that the new vLLM settles is judged by where the lines of its two branches are in
N+1: one branch is left (and which), both are kept below a condition on the new number, or it was rewritten,
which is not judged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.version import Version

from bench.shared import Tally
from npu_upgrade.audit.triples import vllm_of
from npu_upgrade.code.walk import walk
from npu_upgrade.commands.merge_inputs import pins_of
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.merge.guards import Upstream, constants_of, python_of, settling, without_settled
from npu_upgrade.program.version_guards import composed, guards_in, settled
from npu_upgrade.sources.tree import SourceTree, open_source

_NUMBER = re.compile(r"\d+(?:\.\w+)+|\b[0-9a-f]{12,40}\b")
_HALF = 0.5
NEW, OLD, BOTH, LEFT = "new branch", "old branch", "both, with the new number", "as it was"


@dataclass
class Beside(Tally):
    """The counts of one step; ``cases`` names what fell short."""

    found: int = 0
    missed: int = 0
    noise: int = 0
    unjudged: int = 0
    right: int = 0
    wrong: int = 0
    undone: int = 0
    rewritten: int = 0
    cases: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Choice:
    """A condition that is settled: the lines of the branch that cannot run any more, and of the other one."""

    line: int
    dead: frozenset[str]
    live: frozenset[str]


def replay_pins(before: str, after: str) -> Beside:
    """Compare the proposals for release ``before`` of vllm-ascend with release ``after``."""
    say(f"pins and conditions of vllm-ascend {before} -> {after}")
    own, human = (open_source(f"pypi:vllm-ascend=={version}") for version in (before, after))
    was, spec = vllm_of(own), vllm_of(human)
    assert was
    assert spec, "a release of vllm-ascend names its vLLM"
    old, new = open_source(was), open_source(spec)
    upstream = settling(old, new)
    assert upstream, "a release has a number"
    result, edits = Beside(), dict[str, set[str]]()
    for one in pins_of(own, old, new, upstream):
        edits.setdefault(one.path, set()).add(one.change.old)
    _pins(result, own, human, edits, str(upstream.now))
    _guards(result, own, human, upstream)
    return result


def _pins(
    result: Beside, own: SourceTree, human: SourceTree, edits: dict[str, set[str]], version: str
) -> None:
    then = re.compile(rf"(?<![\w.])v?{re.escape(version)}(?!\w|\.\w)")
    made_of_it = ("PKG-INFO", ".py")  # of a release only, the page again
    paths = [path for path in own.list() if not path.endswith(made_of_it) and human.exists(path)]
    texts = human.contents(paths)
    for path, data in own.contents(paths).items():
        lines, theirs = ({*text.decode("utf-8", "replace").split("\n")} for text in (data, texts[path]))
        brought = {_NUMBER.sub("N", line) for line in theirs - lines if then.search(line)}
        pins = {line for line in lines - theirs if _NUMBER.search(line) and _NUMBER.sub("N", line) in brought}
        made = edits.get(path, set())
        result.found += len(pins & made)
        result.missed += len(pins - made)
        result.noise += len(made & theirs)
        result.unjudged += len(made - pins - theirs)
        result.cases += [f"{path}: missed: {line.strip()[:90]}" for line in sorted(pins - made)]
        result.cases += [f"{path}: noise: {line.strip()[:90]}" for line in sorted(made & theirs)]


def _guards(result: Beside, own: SourceTree, human: SourceTree, upstream: Upstream) -> None:
    files = python_of(own)
    constants = constants_of(files, upstream)
    for path, text in files.items():
        choices = list(_choices(text, upstream.now))
        theirs = human.read(path) if choices and human.exists(path) else ""
        found = without_settled(path, text, upstream, constants) if choices else None
        for one in choices:
            tool = _became(one, found.text if found else text, upstream.now)
            person = _became(one, theirs, upstream.now) if theirs else ""
            if person in ("", LEFT):
                result.rewritten += 1
                continue
            result.right += tool == person
            result.undone += tool == LEFT
            result.wrong += tool not in (person, LEFT)
            if tool != person:
                result.cases.append(f"{path}:{one.line}: {tool or 'neither'}; by hand: {person}")


def _choices(text: str, now: Version) -> Iterator[Choice]:
    if "version" not in text.lower():
        return
    for node in walk(ast.parse(text)):
        if isinstance(node, (ast.If, ast.IfExp)):
            outcome = composed(node.test, lambda one: settled(one, now))
            if outcome is not None:
                body, other = _lines(node.body), _lines(node.orelse)
                dead, live = (other, body) if outcome else (body, other)
                yield Choice(node.lineno, dead - live, live - dead)


def _lines(part: ast.expr | Sequence[ast.stmt]) -> frozenset[str]:
    if isinstance(part, ast.expr):
        return frozenset([ast.unparse(part)])
    return frozenset(line.strip() for one in part for line in ast.unparse(one).split("\n"))


def _became(one: Choice, text: str, now: Version) -> str:
    """What a text has of a condition; empty where it was rewritten."""
    tree = ast.parse(text)
    whole = ast.unparse(tree)
    old, new = _has(one.dead, whole), _has(one.live, whole)
    guards = [
        node for node in walk(tree) if isinstance(node, (ast.If, ast.IfExp)) and [*guards_in(node.test)]
    ]
    about = [node for node in guards if _has(one.dead or one.live, ast.unparse(node))]
    numbers = {guard.version for node in about for guard in guards_in(node.test)}
    if about and (old or not one.dead) and (new or not one.live):
        return BOTH if now in numbers else LEFT
    if not one.live:
        return OLD if old else NEW
    if not one.dead:
        return NEW if new else ""
    return "" if old is new else NEW if new else OLD


def _has(lines: frozenset[str], text: str) -> bool:
    return bool(lines) and sum(line in text for line in lines) >= _HALF * len(lines)


def summary(steps: Iterable[Beside]) -> dict[str, int]:
    """The figures of the last line."""
    whole = Beside()
    for one in steps:
        whole.add(one)
    names = (
        "pins_found",
        "pins_missed",
        "pins_noise",
        "conditions_right",
        "conditions_wrong",
        "conditions_undone",
    )
    counts = (whole.found, whole.missed, whole.noise, whole.right, whole.wrong, whole.undone)
    return dict(zip(names, counts, strict=True))


def report(steps: Mapping[str, Beside], cases: bool) -> str:
    head = ("step", "pins", "missed", "noise", "unjudged", "conditions", "wrong", "not done", "rewritten")
    rows = [
        tuple(
            map(str, (name, s.found, s.missed, s.noise, s.unjudged, s.right, s.wrong, s.undone, s.rewritten))
        )
        for name, s in steps.items()
    ]
    text = table(head, rows)
    return text + "".join(f"\n{name} {case}" for name, s in steps.items() for case in s.cases if cases)
