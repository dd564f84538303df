"""The gate ``plan``: the merged files as they are now, and what is left of the plan."""

from __future__ import annotations

import ast
import json
import re
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from npu_upgrade.code.conflict_text import OURS, answers, marker_rows
from npu_upgrade.code.module import parse_module
from npu_upgrade.code.names import undefined_names
from npu_upgrade.code.statements import END, Statement, split_statements, statements_of
from npu_upgrade.evidence.store import Outcome
from npu_upgrade.evidence.surroundings import utc_now
from npu_upgrade.ground.collector import no_collector
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.files import json_text, read_object, sha256, write_together
from npu_upgrade.ground.paths import workspace_root
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job.answer_checks import unkept
from npu_upgrade.job.ask import EDITED, LOOK, names_in, port_survey
from npu_upgrade.job.conflicts import OpenConflict, conflicts_in, ids, open_conflicts
from npu_upgrade.job.job import Job, naming
from npu_upgrade.job.journal import Answer
from npu_upgrade.job.plan_file import load_plan, plan_path
from npu_upgrade.job.port_ledger import Ledger as PortLedger
from npu_upgrade.lineage.dialect import translate
from npu_upgrade.lineage.downstream import omni_side
from npu_upgrade.lineage.items import Item, item_id
from npu_upgrade.merge.answers import Answers, learn
from npu_upgrade.merge.gone import GONE, look_with_vllm
from npu_upgrade.merge.plan import close_rewritten, close_unused, counts, plan_markdown
from npu_upgrade.sources.tree import SourceTree, open_source

MOST_FAILING = 200


@dataclass(frozen=True)
class Checked:
    """``plan`` is brought up to date; ``evidence`` the record of the verdict; ``learned`` answers.

    ``explained`` are the items of methods that were written by hand for the reason that was given.
    """

    verdict: Verdict
    summary: str
    path: Path
    plan: dict[str, Any]
    problems: list[dict[str, str]]
    learned: int
    evidence: str
    explained: list[dict[str, Any]]

    @property
    def open_items(self) -> list[dict[str, Any]]:
        return [item for item in self.plan["items"] if item["state"] == "open"]


def _texts(folder: Path, plan: Mapping[str, Any]) -> dict[str, str]:
    """The files of a plan as they are in a folder, those that can be read."""
    places = {entry["path"]: folder / entry["path"] for entry in plan["files"]}
    return {path: place.read_text("utf-8") for path, place in places.items() if place.exists()}


T = TypeVar("T")
_NONE: Mapping[str, str] = {}


def check(
    job: Job,
    states: Mapping[str, str] = _NONE,
    notes: Mapping[str, str] = _NONE,
    reasons: Sequence[tuple[str, str]] = (),
) -> Checked:
    """Check the files of a job as they are and record it; items get their new ``states`` and notes, by id.

    ``reasons`` are why the files were edited by hand since the last check, each with the method it was said
    of (empty: none): nobody is asked about it then.
    """
    begun, started = time.monotonic(), utc_now()
    path, loaded, root = plan_path(job), load_plan(job), job.root
    plan: dict[str, Any] = json.loads(path.read_text("utf-8"))
    for item in plan["items"]:
        if item["id"] in states:
            item |= {"state": states[item["id"]], "note": notes.get(item["id"], "")}
    # an answer runs this too, and is not what runs it again
    again = upgrade("plan", *naming(job))
    job.begin("plan", again.argv)
    learned = learn_answers(job, root, plan)
    before = dict(loaded.hashes)
    # an edit may have corrected it while its answer stood
    reopened = any(one["kind"] == GONE and states.get(one["id"]) == "open" for one in plan["items"])
    texts = _texts(root, plan)
    close_rewritten(plan, _texts(job.folder / "merged", plan), texts)
    close_unused(plan, texts)
    problems = _look(job, root, plan, open_conflicts(root, loaded))
    explained: list[dict[str, Any]] = []
    if (
        job.of_omni
        and not problems
        and (reopened or before != {entry["path"]: entry["sha256_now"] for entry in plan["files"]})
    ):
        with no_collector(last=True):
            gone = _look_for_gone(job, root, plan)
            explained = _ask_about_edits(job, root, plan, reasons)
            gone()
    write_together({path: json_text(plan), path.with_suffix(".md"): plan_markdown(plan)})
    found = counts(plan)
    verdict = Verdict.FAIL if problems or found["blocking items"] else Verdict.PASS
    summary = (
        f"{plan['conflicts_open']} conflicts left, {found['blocking items']} items to resolve, "
        f"{len(problems)} files with problems, {found['items to look at']} items to look at"
    )
    subject = loaded.subject(root)
    outcome = Outcome(
        gate="plan",
        label="static",
        verdict=verdict,
        subject=subject,
        job=job.of(subject.tree),
        pins={role: pin for role, pin in plan["versions"].items() if pin},
        command=["upgrade.py", "plan", "--job", job.id],
        started=started,
        seconds=time.monotonic() - begun,
        summary=summary,
        data={"problems": problems, "counts": found, "failing": _failing(plan, problems)[:MOST_FAILING]},
    )
    record = job.store.record(outcome)
    job.finish("plan", verdict, summary, evidence=record.id)
    return Checked(verdict, summary, path, plan, problems, learned, record.id, explained)


def downstream(job: Job) -> SourceTree:
    """The tree that a job upgrades: its checkout, else the release."""
    return open_source(f"dir:{job.repo}" if job.repo else job.inputs.omni.spec)


def before_merge(job: Job, path: str) -> str:
    """A file as it was before the merge, empty where the merge did not touch it."""
    place = job.folder / "before" / path
    return place.read_text("utf-8") if place.exists() else ""


def remembered(job: Job) -> Answers:
    """The answers to conflicts that the workspace remembers."""
    return Answers(workspace_root(job.workspace) / "answers")


def learn_answers(job: Job, root: Path, plan: dict[str, Any]) -> int:
    """Remember the answers to conflicts that were resolved since the merge; how many.

    An answer whose place cannot be told is not learned, and a line on stderr says so.
    """
    count = 0
    for entry in plan["files"]:
        before, now = job.folder / "merged" / entry["path"], root / entry["path"]
        if before.exists() and now.exists():
            versions = {role: pin["spec"] for role, pin in plan["versions"].items() if pin}
            where = {"path": entry["path"], "job": job.id, "versions": versions}
            for found in learn(before.read_text("utf-8"), now.read_text("utf-8"), remembered(job), where):
                count += found.learned
                line = f"{entry['path']}:{found.line}: {found.reason}"
                if not found.learned and line not in plan.setdefault("not_remembered", []):
                    plan["not_remembered"].append(line)
                    say(f"note: not remembered: {line}")
    return count


def _failing(plan: dict[str, Any], problems: list[dict[str, str]]) -> list[str]:
    """What keeps the plan from passing, one name each."""
    blocking = [item["id"] for item in plan["items"] if item["blocking"] and item["state"] == "open"]
    said = [f"{one['path']}: {one['problem']}" for one in problems if "conflict marker" not in one["problem"]]
    return blocking + said


def _look(job: Job, root: Path, plan: dict[str, Any], conflicts: list[OpenConflict]) -> list[dict[str, str]]:
    """What is wrong with the files as they are now; brings the plan's conflicts up to date."""
    problems: list[dict[str, str]] = []
    left: dict[str, int] = {}
    for entry in plan["files"]:
        path = root / entry["path"]
        text = path.read_text("utf-8") if path.exists() else ""
        left[entry["path"]] = list(marker_rows(text).values()).count(OURS)
        entry["sha256_now"] = sha256(path.read_bytes() if path.exists() else b"")
        problem = "is missing" if not path.exists() else _problem(text, before_merge(job, entry["path"]))
        if problem:
            problems.append({"path": entry["path"], "problem": problem})
    plan["conflicts_open"] = sum(left.values())
    known = {item["id"] for item in plan["items"]}
    # one whose sides were edited by hand has another id: then all of that file's stay open
    edited = {one.path for one in conflicts if one.id not in known}
    edited |= {name for name, number in left.items() if number != sum(one.path == name for one in conflicts)}
    for item in plan["items"]:
        if item["kind"] == "conflict":
            still = item["id"] in ids(conflicts) or item["path"] in edited
            item["state"] = "open" if still else "done"
    return problems


def _audit_tells(job: Job, plan: Mapping[str, Any]) -> bool:
    """Whether what is gone is the audit's to tell: it has the same checks, and has been reached.

    Nothing is delivered without its PASS for these very files. What plan asked itself it also closes.
    """
    asked = any(item["kind"] == GONE and item["state"] == "open" for item in plan["items"])
    return not asked and any(record.gate == "audit" for record in job.records())


def _look_for_gone(job: Job, root: Path, plan: dict[str, Any]) -> Callable[[], None]:
    """Begin to look; calling what is returned waits, and brings the items of what is gone in the target up to
    date with files that were edited.
    """
    if _audit_tells(job, plan):
        return lambda: None
    texts, ours = {}, {}
    for entry in plan["files"]:
        before = job.folder / "before" / entry["path"]
        if before.exists() and entry["sha256_merged"]:
            texts[entry["path"]] = (root / entry["path"]).read_text("utf-8")
            ours[entry["path"]] = before.read_text("utf-8")
    ascend, base = (plan["versions"].get(role) for role in ("ascend", "base"))

    def begun() -> Callable[[], list[Item]]:
        was = open_source(base["spec"]) if base else None
        return look_with_vllm(downstream(job), texts, ours, open_source(ascend["spec"]), was)

    found = _or_note(begun)
    return lambda: _bring_up_to_date(plan, _or_note(found)) if found else None


def _or_note(work: Callable[[], T]) -> T | None:
    try:
        return work()
    except UpgradeError as error:
        say(f"note: what is gone in the target was not looked for: {error.what}")
        return None


def _bring_up_to_date(plan: dict[str, Any], found: Sequence[Item] | None) -> None:
    if found is None:
        return
    new = {item.id: item.as_json() for item in found}
    for item in plan["items"]:
        if item["kind"] == GONE and item["id"] not in new and item["state"] == "open":
            item["state"] = "done"
        elif item["id"] in new and item["state"] == "done":
            item["state"] = "open"
    plan["items"] += [item for key, item in new.items() if key not in {one["id"] for one in plan["items"]}]


def edited_unit(item: Mapping[str, Any]) -> str:
    """The method that an item of an edit is about."""
    return str(item["title"]).removeprefix(f"{item['path']}: ").partition(":")[0]


def _reason(unit: str, reasons: Sequence[tuple[str, str]], edited: Mapping[str, str]) -> str:
    """What was said of a method: in answer to a finding there, or by its name. Else, marked as such, what was
    said of who calls it and was edited, too, of its class, or anything. ``edited`` has the sources of the
    methods that were edited.
    """

    def own(unit: str) -> list[str]:
        named = _word(unit)
        at = [note for of, note in reasons if of == unit]
        return at or [note for _, note in reasons if named.search(note)]

    owner, named = f"{unit.partition('.')[0]}.", _word(unit)
    if said := own(unit):
        return "; ".join(dict.fromkeys(said))
    names = names_in(edited.get(unit, ""))
    words = {word for name in names for word in name.lower().split("_") if len(word) >= _LONG_WORD}

    def nearness(note: str) -> int:
        return len(words.intersection(_LETTERS.findall(note.lower())))

    of_class = [note for of, note in reasons if of.startswith(owner)]
    notes = of_class or [note for _, note in reasons]
    most = max(map(nearness, notes), default=0)
    callers = [
        other
        for other, source in edited.items()
        if other != unit and named.search(source) and not _calls_its_own(other, unit, edited)
    ]
    for caller in sorted(callers, key=lambda one: not one.startswith(owner)):
        said = own(caller)
        # what has always called it may have been edited for another reason
        if said and (not most or any(map(nearness, said))):
            return f"for {caller.rpartition('.')[2]}: {'; '.join(dict.fromkeys(said))}"
    about = [note for note in notes if nearness(note) == most]
    # what names something else is about something else
    here = [note for note in about if names.intersection(code := _CODE.findall(note)) or not code]
    return f"came with: {'; '.join(dict.fromkeys(here or about))}"


def _calls_its_own(caller: str, unit: str, edited: Mapping[str, str]) -> bool:
    """Whether another class has an edited method of that name itself, which its callers are about."""
    owner, own = caller.partition(".")[0], unit.partition(".")[0]
    return owner != own and f"{owner}.{unit.rpartition('.')[2]}" in edited


def _word(unit: str) -> re.Pattern[str]:
    return re.compile(rf"\b{re.escape(unit.rpartition('.')[2])}\b")


def _ask_about_edits(
    job: Job, root: Path, plan: dict[str, Any], reasons: Sequence[tuple[str, str]]
) -> list[dict[str, Any]]:
    """Ask why a method was written by hand, where no answer says so; nothing of it is without a reason then.

    What the merge wrote, the target has or the GPU side has needs none. Returns the items that are new and
    that ``reasons`` answer.
    """
    answered = job.journal.answers()
    why = (one for one in answered if one.note and not _is_of_the_merge(one))
    told = {(one.path, unit) for one in why for unit in (one.unit, *one.units)}
    asked = {(one.path, unit) for one in answered for unit in (one.unit, *one.units)}
    given = {one.key for entry in answered for one in _statements(entry.text)}
    own: dict[tuple[str, str], list[Statement]] = {}
    sources: dict[str, str] = {}
    for entry in plan["files"]:
        path, merged = entry["path"], job.folder / "merged" / entry["path"]
        if not merged.exists():
            continue
        then = merged.read_text("utf-8")
        # a conflict that was resolved in the file is answered by that
        told |= {(path, one.method) for one in conflicts_in(then, path, {})} - asked
        texts = [before_merge(job, path), *(one.text for one in answers(then, path))]
        known = {END, *given, *(one.key for text in texts for one in split_statements(text))}
        for name, unit in parse_module((root / path).read_text("utf-8")).units.items():
            fresh = [one for one in split_statements(unit.source) if one.key not in known]
            if fresh:
                own[path, name], sources[name] = fresh, unit.source
    gpu, target = _other_sides(job, plan) if own else (set[str](), set[str]())
    after = gpu - target - (_taken(job) if own else set())
    telling = {name: [one.key for one in fresh if _tells(one)] for (_, name), fresh in own.items()}
    plan["after_gpu"] = sorted(
        name
        for name, keys in telling.items()
        if sum(key in after for key in keys) > sum(key in target for key in keys)
    )
    found = {}
    for (path, name), fresh in own.items():
        if (path, name) in told:
            continue
        new = [one for one in fresh if one.key not in gpu | target and not one.key.startswith(_PLAIN)]
        if lines := [one.code for one in new]:
            id_ = item_id(EDITED, f"{path}: {name}")
            title = f"{path}: {name}: was written by hand since the merge; say why"
            found[id_] = Item(id_, EDITED, title, "\n".join(lines), path).as_json()
    # what was answered stays as long as the method is of one's own hand: the commit says why
    still = {item_id(EDITED, f"{path}: {name}") for path, name in own}
    told_why = {one["id"] for one in plan["items"] if one["state"] == "done"} & still
    plan["items"] = [
        one for one in plan["items"] if one["kind"] != EDITED or one["id"] in found.keys() | told_why
    ]
    there = {one["id"] for one in plan["items"]}
    new_items = [one for key, one in found.items() if key not in there]
    for one in new_items:
        unit = edited_unit(one)
        if reasons:
            note = _reason(unit, reasons, sources)
        else:
            note = _as_a_check_asked(job, plan, one, own[one["path"], unit])
        one |= {"state": "done", "note": note} if note else {}
    plan["items"] += new_items
    return [one for one in new_items if one["state"] == "done"]


def _is_of_the_merge(entry: Answer) -> bool:
    """Whether an answer only says that what the merge wrote was read: that is no reason of an edit."""
    return entry.stage == LOOK and entry.how == "accept" and not entry.id.startswith(EDITED)


def _as_a_check_asked(
    job: Job, plan: Mapping[str, Any], item: Mapping[str, Any], fresh: Sequence[Statement]
) -> str:
    """What the last audit found new, or the merge found gone, about a name in what was written by hand; empty
    where neither is about one.

    The method's own name tells something where the method itself is new.
    """
    is_new = any(one.key.startswith(("def ", "async def ")) for one in fresh)
    own = names_in(edited_unit(item))
    written = set[str]().union(*(names_in(one.key) for one in fresh)) - (set() if is_new else own)
    findings = read_object(job.folder / "audit.json").get("findings", [])
    new = (one for one in findings if one.get("state") == "NEW")
    # a subject ends with the method that it is in
    asked = [one["what"] for one in new if written & names_in(one["subject"].partition(" in ")[0])]
    gone = (
        str(one["title"]).removeprefix(f"{one['path']}: ") for one in plan["items"] if one["kind"] == GONE
    )
    asked += [title for title in gone if (written - own) & names_in(title)]
    more = f"; and {len(asked) - 1} more of the same names" if asked[1:] else ""
    return f"a check asked for it: {asked[0]}{more}" if asked else ""


def _tells(statement: Statement) -> bool:
    """Whether a statement is long enough to have come from somewhere."""
    return len(statement.key) >= _TELLING and not statement.key.startswith(_PLAIN)


def _taken(job: Job) -> set[str]:
    """The statements of the hunks that `port` took."""
    entries, ids_ = PortLedger(job.workspace).entries, port_survey(job.folder).get("ported", {})
    texts = [textwrap.dedent(entries[id_].new) for id_ in ids_ if id_ in entries]
    return {one.key for text in texts for said in (text, _translated(text)) for one in _statements(said)}


def _translated(text: str) -> str:
    """GPU source in the words of the NPU side; as it is where it is no whole piece of a program."""
    try:
        return translate(text)
    except SyntaxError:
        return text


def _statements(text: str) -> list[Statement]:
    try:
        return statements_of(text)
    except SyntaxError:  # of an answer that is no piece of a program
        return []


_LONG_WORD = 5  # letters of one that tells what something is about
_CODE = re.compile(r"\w*[a-z]_[a-z]\w*")
_LETTERS = re.compile(r"[a-z]+")
_TELLING = 30  # characters
_PLAIN = ("import ", "from ", '"', "'")
"""An import of several names is another statement with each set of them; a docstring does nothing."""


def _other_sides(job: Job, plan: dict[str, Any]) -> tuple[set[str], set[str]]:
    """The statements of the GPU side's runners, in the words of both sides, and those of the target's."""
    try:
        omni, target = downstream(job), open_source(plan["versions"]["ascend"]["spec"])
        side = omni_side(omni)
        paths = [one.gpu_path for one in side.runners if one.gpu_path and omni.exists(one.gpu_path)]
        texts = [omni.read(path) for path in paths]
        texts += [translate(text, side.class_names) for text in texts]
        upstream = target.read(side.upstream.path) if target.exists(side.upstream.path) else ""
        gpu = {one.key for text in texts for one in split_statements(text)}
        return gpu, {one.key for one in split_statements(upstream)}
    except (UpgradeError, SyntaxError) as error:
        say(f"note: what was written by hand was not compared with the other sides: {error}")
        return set(), set()


def _problem(text: str, first: str = "") -> str:
    """What is wrong with a merged file, empty when nothing is; ``first`` is the file before the merge."""
    if marks := marker_rows(text):
        return f"{len(marks)} lines of conflict markers"
    try:
        ast.parse(text)
    except SyntaxError as error:
        return f"does not parse: line {error.lineno}: {error.msg}"
    undefined = sorted(undefined_names(text))
    if undefined:
        return f"undefined names: {', '.join(undefined)}"
    return "; ".join(unkept(first, text)) if first else ""
