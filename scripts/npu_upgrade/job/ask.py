"""What is open in a job and needs an answer, and where it stands in the files.

Reads the plan, the files, the list of hunks to port and the findings of the gates. Decides nothing and
writes nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from npu_upgrade.code.module import Unit, parse_module
from npu_upgrade.evidence.chain import Record
from npu_upgrade.evidence.runs import RESULT
from npu_upgrade.evidence.subject import file_digest
from npu_upgrade.ground.command import Command, upgrade
from npu_upgrade.ground.files import read_object, rows_of
from npu_upgrade.ground.tables import cut
from npu_upgrade.job.conflicts import OpenConflict, conflicts_in, ids, open_conflicts
from npu_upgrade.job.job import ALL, SAFE, Job, naming, ruling
from npu_upgrade.job.journal import Answer
from npu_upgrade.job.plan_file import Plan, load_plan
from npu_upgrade.job.port_ledger import Ledger
from npu_upgrade.lineage.items import Change
from npu_upgrade.merge.guards import GUARD, proposes_edit
from npu_upgrade.merge.overridden import OVERRIDDEN
from npu_upgrade.merge.pinned import PIN

CONFLICT, ITEM, LOOK, PORT, FINDING = "conflict", "item", "look", "port", "finding"
KINDS = (CONFLICT, ITEM, LOOK, PORT, FINDING)
EDITED = "edited"  # the kind of item that asks why something was written by hand
Options = tuple[str, ...]
WITH: Options = ("--with", "FILE")
ACCEPT: Options = ("--accept", "--note", "WHY")
WAIVE: Options = ("--waive", "--note", "WHY")
LEAVE: Options = ("--leave", "--note", "WHY")
BY_HAND: Options = ("--by-hand", "--note", "WHERE")
_UNFIT = 3  # the tier of hunks that cannot be taken as they are
_FEW = 2  # hunks that a finding names
_WHY = 160  # characters of the reasons why a hunk is of a lower tier, or a run failed
_CAUSE = 600  # characters of why a run failed: a compiler's errors have pages
CORRECTED: Options = ("--accept", "--note", "corrected by hand: WHAT")


class Ask(Struct, frozen=True):
    """One open thing: what it is about, where, its texts, and how it can be answered.

    ``stage`` is its kind; ``texts`` are by role (base, ours, theirs, text); ``how`` the options of resolve
    that fit; ``evidence`` the record of the gate that found it; ``finding`` the key of the audit's finding
    that it is, which counts no more once it is waived; ``edit`` the kind of edit that accepting it makes, and
    ``changes`` its lines, ``imports`` what the file gets with them. Asks of one ``group`` are answered
    together: those of a method, and hunks that need each other.
    """

    stage: str
    id: str
    what: str
    path: str = ""
    unit: str = ""
    first: int = 0
    last: int = 0
    texts: dict[str, str] = {}
    how: tuple[Options, ...] = ()
    conflict: OpenConflict | None = None
    evidence: str = ""
    feature: str = ""
    finding: str = ""
    edit: str = ""
    changes: tuple[Change, ...] = ()
    imports: tuple[str, ...] = ()

    @property
    def group(self) -> tuple[str, str, str]:
        return (self.stage, self.path, self.feature or self.unit or self.id)

    @property
    def is_run(self) -> bool:
        """Whether it is about an emulated run that failed."""
        return self.stage == FINDING and self.id.startswith("emulate-")

    @property
    def asks_why(self) -> bool:
        """Whether it asks why something was written by hand."""
        return self.id.startswith(f"{EDITED}-")

    @property
    def owner(self) -> str:
        """The class of the method that it is about, or is in; empty where no method is known."""
        return self.unit.partition(".")[0] if "." in self.unit else ""

    def command(self, naming: Sequence[str]) -> Command:
        """The likeliest answer, ready to run but for FILE and WHY: of a conflict, lines of one's own."""
        how = WITH if self.stage == CONFLICT else self.how[0]
        return upgrade("resolve", self.id, *how, *naming)

    def as_json(self) -> dict[str, Any]:
        """For agents: everything but the position in the list; ``answer`` are the options of resolve."""
        place = {"path": self.path, "unit": self.unit, "first_line": self.first, "last_line": self.last}
        return {
            "stage": self.stage,
            "id": self.id,
            "what": self.what,
            "place": {key: value for key, value in place.items() if value},
            **self.texts,
            **({"finding": self.finding} if self.finding not in ("", self.id) else {}),
            "answer": [shlex.join(how) for how in self.how],
        }


def asks(job: Job, plan: Plan, records: Sequence[Record]) -> list[Ask]:
    """All that is open, in the order in which it is best answered; what was left out is not among it."""
    answers, skipped = job.journal.answers(), job.skipped
    conflicts = open_conflicts(job.root, plan)
    found = [_conflict(one) for one in conflicts]
    left = [item for item in plan.items_in("open") if item.get("kind") != "conflict"]
    found += [_item(item, job.root) for item in left if item["id"] not in ids(conflicts)]
    found += _hunks(job, answers)
    found += _findings(job, plan, answers, records)
    found += _failed_runs(job, plan, answers, records)
    return [ask for ask in found if ask.stage not in skipped]


def _conflict(one: OpenConflict) -> Ask:
    roles = [role for role in ("base", "ours", "theirs") if role in one.marked.labels]
    texts = {role: getattr(one.marked, role) for role in roles}
    how = (*(("--take", role) for role in reversed(roles)), WITH)
    what = f"{one.path}:{one.first}: conflict in {one.method}: {one.reason}"
    return Ask(CONFLICT, one.id, what, one.path, one.method, one.first, one.last, texts, how, one)


def _item(item: dict[str, Any], root: Path) -> Ask:
    title, path = str(item.get("title") or item["id"]), str(item.get("path") or "")
    changes = tuple(Change(**one) for one in item.get("changes", ()))
    if item.get("kind") in (PIN, GUARD):
        edits = changes if item["kind"] == PIN else proposes_edit(str(item.get("detail")))
        edit = str(item["kind"]) if edits else ""
        how = (("--accept",), BY_HAND, WAIVE) if edit else (CORRECTED, WAIVE)
        texts = {"text": str(item.get("detail") or "")}
        return Ask(LOOK, item["id"], title, path, texts=texts, how=how, edit=edit, changes=changes)
    # the title begins with the method or the class it is about, after the path
    named = re.match(r"([A-Za-z_]\w*)(\.[\w@]+)?(?=: | )", title.removeprefix(f"{path}: "))
    path = path if path.endswith(".py") else ""
    unit = named[0] if named and named[2] else f"{named[1]}." if named else ""
    if unit.endswith("."):
        there = units_at(root, path)
        function = unit[:-1] if unit[:-1] in there else ""
        unit = unit if any(name.startswith(unit) for name in there) else function
    finding = str(item.get("finding") or "")
    how = (WAIVE,) if finding else (ACCEPT, WAIVE)
    if path and unit:  # what is gone raises: a correction comes before a reason to leave it
        how = (WITH, *how) if finding else (*how, WITH)
    edit = OVERRIDDEN if changes and path and (root / path).is_file() else ""
    if edit:  # what upstream changed in the overridden method, put into this one
        how = (("--accept",), BY_HAND, WAIVE, WITH)
    if item.get("kind") in ("unresolved-name", "missing-name"):
        how = (*how, ("--import", "from MODULE import NAME"))
    kind, texts = ITEM if item.get("blocking") else LOOK, {"text": str(item.get("detail") or "")}
    imports = tuple(item.get("imports", ()))
    span = _span(root, path, unit)
    return Ask(
        kind,
        item["id"],
        title,
        path,
        unit,
        *span,
        texts,
        how,
        finding=finding,
        edit=edit,
        changes=changes,
        imports=imports,
    )


def _hunks(job: Job, answers: list[Answer]) -> Iterator[Ask]:
    """The hunks that nobody decided on yet, where a person wants to be asked for each."""
    if job.scope != ALL:
        return
    survey = port_survey(job.folder)
    decided = {entry.id for entry in answers} | {one["id"] for one in survey.get("refused", [])}
    features = _features(survey.get("hunks", []))
    for hunk in survey.get("hunks", []):
        if hunk["id"] not in decided:
            path, unit = hunk["path"], hunk["unit"]
            why = cut("; ".join(hunk.get("reasons", ())), _WHY)
            tier = f"tier {hunk['tier']}{f': {why}' if why else ''}"
            what = f"the GPU side gained this in {unit} and the NPU side lacks it ({tier})"
            needs = ", ".join(hunk.get("needs", ()))
            texts = {"text": hunk.get("text") or ""} | ({"needs": needs} if needs else {})
            how = (("--accept",), BY_HAND, LEAVE, WAIVE)
            feature = features[hunk["id"]]
            span = _span(job.root, path, unit)
            yield Ask(PORT, hunk["id"], what, path, unit, *span, texts, how, feature=feature)


def _features(hunks: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The hunks of one method, and those that need each other, by the first hunk of them all."""
    found: dict[str, str] = {}
    for hunk in hunks:
        near = [one for one in hunks if one["unit"] == hunk["unit"] or one["id"] in hunk.get("needs", ())]
        joined = {found.setdefault(one["id"], one["id"]) for one in near}
        first = min(joined)
        found = {id_: first if name in joined else name for id_, name in found.items()}
    return found


def hunks_to_take(job: Job) -> list[str]:
    """The hunks that were accepted, or that fit and were not answered otherwise, and are not taken yet.

    What was taken and is lacking again, an edit removed; only who names it takes it a second time.
    """
    survey = port_survey(job.folder)
    done = {one["id"] for one in survey.get("refused", [])} | {*hunks_removed(survey)}
    tiers = {hunk["id"]: hunk["tier"] for hunk in survey.get("hunks", []) if hunk["id"] not in done}
    answers = {entry.id: entry.how for entry in job.journal.answers()}
    unasked = "accept" if job.scope == SAFE else ""
    wanted = {name: answers.get(name, unasked if tier == 1 else "") for name, tier in tiers.items()}
    return [name for name, how in wanted.items() if how == "accept"]


def hunks_removed(survey: Mapping[str, Any]) -> list[str]:
    """The hunks of a list that were taken for this job and are lacking again."""
    return [hunk["id"] for hunk in survey.get("hunks", []) if hunk["id"] in survey.get("ported", {})]


def port_survey(folder: Path) -> dict[str, Any]:
    """What the last `port` of the job in a folder listed; empty before it ran."""
    survey = read_object(folder / "port.json")
    needed = {"hunks": {"id", "tier", "path", "unit"}, "refused": {"id"}}
    needed["drafts"] = {"path", "unit", "hunks", "conflicts"}
    for name, keys in needed.items() if survey else ():
        survey[name] = [row for row in rows_of(survey, name) if keys <= set(row)]
    return survey


def _findings(job: Job, plan: Plan, answers: list[Answer], records: Sequence[Record]) -> Iterator[Ask]:
    """The new findings of the newest audit, while nothing but answers changed the files since."""
    newest = failed_last(records, "audit")
    since = [entry for entry in answers if newest and entry.evidence == newest.id]
    if newest is None or not _only_answers(job.root, plan, newest, since):
        return
    decided = {entry.id for entry in since}
    survey = port_survey(job.folder)
    edited = {name for entry in since if entry.after for name in entry.units}
    for finding in read_object(job.folder / "audit.json").get("findings", []):
        if finding.get("state") == "NEW" and finding["key"] not in decided:
            ask = _finding(finding, job, newest.id, survey)
            if not ask.unit or ask.unit not in edited:
                yield ask


def _finding(finding: dict[str, Any], job: Job, evidence: str, survey: Mapping[str, Any]) -> Ask:
    root = job.root
    here, there = finding["here"], finding.get("there") or {}
    path = here["path"] if here.get("project") == job.project else ""
    unit = unit_of_finding(root, path, int(here.get("line") or 0), finding["owner"])
    lines = [finding["what"], f"why: {finding['why']}", f"do: {finding['todo']}"]
    brought = _brought_by(finding, path, survey)
    fits = [one["id"] for one in brought if one["tier"] < _UNFIT]
    if fits:
        taking = upgrade("port", "--apply", *fits, *naming(job)).short
        lines.append(f"or: {taking} takes it from the GPU side")
    for one in brought:
        if one["id"] not in fits:
            reason = next(iter(one.get("reasons") or []), "it has no place")
            if one.get("callers"):
                taking = upgrade("port", "--apply", one["id"], "--callers-by-hand", *naming(job)).short
                lines.append(f"or: {taking} takes it, and names what you have to change with it: {reason}")
            else:
                lines.append(f"the GPU side has it in {one['id']}, to be written by hand: {reason}")
    gains = gains_of(job, unit)
    if str(finding["check"]).startswith("parity") and gains.exists():
        near = gains.relative_to(job.workspace)
        lines.append(f"gpu: all that the GPU side changed in {unit.rpartition('.')[2]} is in {near}")
        for group, conflicts in combined(survey, {(path, unit)}).items():
            putting = upgrade("port", "--group", group, "--conflicts", *naming(job)).short
            lines.append(f"or: {putting} puts it into the file, with {conflicts} conflicts to decide")
    for name, one in (("here", here), ("there", there)):
        if one:
            place = f"{one.get('project')} {one.get('path')}:{one.get('line')}"
            lines.append(f"{name}: {place}: {one.get('text')}")
    how = (CORRECTED, WAIVE) if path else (WAIVE,)
    how = (WITH, *how) if path and (job.folder / "merged" / path).exists() else how
    what = f"{here['path']}:{here.get('line')}: {finding['check']}: {finding['what']}"
    texts = {"text": "\n".join(lines)}
    first, last = _span(root, path, unit)
    key = finding["key"]
    return Ask(FINDING, key, what, path, unit, first, last, texts, how, evidence=evidence, finding=key)


def _brought_by(finding: dict[str, Any], path: str, survey: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The open hunks of the file that bring what a comparison with the GPU side misses."""
    if not str(finding["check"]).startswith("parity"):
        return []
    words = re.findall(r"[A-Za-z_]\w{5,}", str(finding["subject"]))
    brought = re.compile(rf"^\+.*\b(?:{'|'.join(words)})\b", re.MULTILINE)
    hunks = (one for one in survey.get("hunks", []) if words and one["path"] == path)
    found = [one for one in hunks if brought.search(str(one.get("text")))]
    return found if len(found) <= _FEW else []


_NAME = re.compile(r"\b_?[a-z0-9]+(?:_[a-z0-9]+)+\b")
_OF_CLASS = re.compile(r"\b[A-Z]\w*\.\w+")  # a method as the place of something
_ON_SELF = re.compile(r"\bself\.([A-Za-z_]\w*)")


def names_in(text: str) -> set[str]:
    """The names in a text that have more than one word, so that each is one thing's."""
    return set(_NAME.findall(text))


def _added(hunk: Mapping[str, Any]) -> str:
    """The lines that a hunk brings."""
    return "\n".join(re.findall(r"^\+.*", str(hunk.get("text")), re.MULTILINE))


def named_by(ask: Ask) -> set[str]:
    """What a finding names beside its place."""
    return names_in(_OF_CLASS.sub("", ask.what.removeprefix(ask.path))) - {ask.unit.rpartition(".")[2]}


def methods_behind(survey: Mapping[str, Any], asks: Iterable[Ask]) -> dict[str, str]:
    """The hunks of methods of the GPU side that what findings miss calls, directly or not: id -> method.

    They are new, or change one that the NPU side has. Findings name them, and hunks of the methods with the
    findings that bring what these name and do not fit. What is written for torch.cuda is not among them, nor
    what only that calls.
    """
    places: dict[tuple[str, str], set[str]] = {}
    for ask in asks:
        if ask.stage == FINDING:
            places.setdefault((ask.path, ask.unit), set()).update(named_by(ask))
    hunks = survey.get("hunks", [])
    methods: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in hunks:
        takes = not one.get("unresolved") and (one["tier"] < _UNFIT or one.get("callers"))
        if takes and not _of_cuda(one) and (one["path"], one["unit"]) not in places:
            methods.setdefault((one["path"], one["unit"].rpartition(".")[2]), []).append(one)
    found: dict[str, str] = {}
    unfit = [(one, places.get((one["path"], one["unit"]))) for one in hunks if one["tier"] >= _UNFIT]
    near = [one for one, named in unfit if named and named & names_in(_added(one))]
    todo = [(path, word) for (path, _), named in places.items() for word in named]
    todo += [(one["path"], word) for one in near for word in _ON_SELF.findall(_added(one))]
    while todo:
        place = todo.pop()
        for method in methods.pop(place, []):
            found[method["id"]] = place[1]
            todo += ((place[0], word) for word in _ON_SELF.findall(_added(method)))
    return dict(sorted(found.items(), key=lambda one: one[1]))


def combined(
    survey: Mapping[str, Any], places: Collection[tuple[str, str]], named: AbstractSet[str] = frozenset()
) -> dict[str, int]:
    """The methods at these places (path, unit), and those that would ask for something ``named``, that can
    be put in as a whole; by the names that port takes, each with the number of conflicts left in it."""
    found: dict[str, int] = {}
    for draft, left in _drafted(survey):
        asks_for = (not named.isdisjoint(_ON_SELF.findall(_added(one))) for one in left)
        if (draft["path"], draft["unit"]) in places or any(asks_for):
            found[str(left[0].get("group"))] = draft["conflicts"]
    return found


def _drafted(survey: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The methods that can be put in as a whole, with their hunks that were not taken by themselves."""
    hunks = {hunk["id"]: hunk for hunk in survey.get("hunks", [])}
    for draft in survey.get("drafts", []):
        if left := [hunks[id_] for id_ in draft["hunks"] if id_ in hunks]:
            yield draft, left


BASES = ": parity-bases: "  # in a finding about base classes of the GPU side


def bases_behind(survey: Mapping[str, Any], asks: Iterable[Ask]) -> list[dict[str, Any]]:
    """The hunks that bring the base classes which findings miss, and the changes that belong to them."""
    missed = [(ask.path, ask.what) for ask in asks if BASES in ask.what]
    hunks = survey.get("hunks", [])
    bases = [
        one
        for one in hunks
        if one.get("kind") == "base"
        and any(path == one["path"] and str(one.get("text")).split()[-1] in what for path, what in missed)
    ]
    found = {one["id"] for one in bases}
    needed = found.union(*(one.get("needs", ()) for one in bases))
    return [
        one
        for one in hunks
        if one["id"] in needed or (one.get("kind") == "change" and not found.isdisjoint(one.get("needs", ())))
    ]


def called_and_new(survey: Mapping[str, Any], groups: Collection[str]) -> list[str]:
    """The methods that the NPU side lacks and that these groups would call, put in as a whole.

    Each by the name that port takes, with its lines. What only torch.cuda can do is not among them.
    """
    found: dict[str, int] = {}
    for draft, left in _drafted(survey):
        if str(left[0].get("group")) not in groups:
            continue
        called = {word for one in left for word in _ON_SELF.findall(_added(one))}
        for one in survey.get("hunks", []):
            new = one.get("kind") == "method" and one["path"] == draft["path"] and one.get("group")
            if new and one["unit"].rpartition(".")[2] in called and not _of_cuda(one):
                found[str(one["group"])] = int(one.get("lines", 0))
    return [f"{name} ({lines} line{'s' if lines > 1 else ''})" for name, lines in found.items()]


def _of_cuda(hunk: Mapping[str, Any]) -> bool:
    return any("torch.cuda" in reason for reason in hunk.get("reasons") or ())


def taken_with(
    survey: Mapping[str, Any], asks: Iterable[Ask], methods: AbstractSet[str], groups: Collection[str]
) -> list[Ask]:
    """Those of the findings that go when these methods, and these groups as a whole, are put in.

    They miss one of the methods, or are about a method that a group is of.
    """
    named = {hunk["id"]: str(hunk.get("group")) for hunk in survey.get("hunks", [])}
    whole = [one for one in survey.get("drafts", []) if {named.get(id_) for id_ in one["hunks"]} & {*groups}]
    places = {(one["path"], one["unit"]) for one in whole}
    return [one for one in asks if (one.path, one.unit) in places or named_by(one) & methods]


GAINS = "gains"  # the folder of a job with a file for each method that lacks several hunks of the GPU side


def gains_of(job: Job, unit: str) -> Path:
    """The file of a method."""
    return job.folder / GAINS / f"{unit}.diff"


def unasked_hunk(job: Job, id_: str) -> Ask | None:
    """A hunk that the ledger knows and nobody asks about: what `port` takes by itself, or a lower tier."""
    entry = Ledger(job.workspace).entries.get(id_)
    if entry is None:
        return None
    how = (BY_HAND, LEAVE, WAIVE)
    return Ask(PORT, id_, f"a hunk of {entry.unit}", unit=entry.unit, texts={"text": entry.new}, how=how)


def edited_finding(job: Job, key: str) -> Ask | None:
    """A finding of the last audit, in files that were edited since: what was done about it still holds."""
    newest = failed_last(job.records(), "audit")
    for finding in read_object(job.folder / "audit.json").get("findings", []) if newest else ():
        if newest and finding.get("state") == "NEW" and finding["key"] == key:
            return replace(_finding(finding, job, newest.id, port_survey(job.folder)), how=(CORRECTED, WAIVE))
    return None


def closed_by_edit(job: Job, plan: Plan, id_: str) -> Ask | None:
    """What was asked about and an edit of the files has closed, and no answer; None for anything else.

    ``unit`` is the method that a conflict was in. A conflict that is asked about no more was closed, whether
    plan has looked since or not.
    """
    if job.journal.answer(id_):
        return None
    failed = failed_last(job.records(), "emulate")
    runs = failed.data.get("failing", []) if failed else []
    if id_ in {_run_id(*run.partition(" ")[::2]) for run in runs}:
        return Ask(FINDING, id_, "a run that failed", evidence=failed.id if failed else "")
    if (of_port := port_survey(job.folder).get("conflicts", {}).get(id_)) and id_ not in ids(
        open_conflicts(job.root, plan)
    ):
        return Ask(CONFLICT, id_, "a conflict of port", of_port["path"], of_port["unit"])
    if unit := _closed_finding(job, id_):
        return Ask(FINDING, id_, "a finding", unit=unit)
    item = next((one for one in plan.items if one["id"] == id_), {})
    if item.get("kind") == CONFLICT:
        known = {one["id"] for one in plan.items}
        if any(one.path == item["path"] and one.id not in known for one in open_conflicts(job.root, plan)):
            return None  # it may be the one whose sides were edited
        merged = job.folder / "merged" / item["path"]
        text = merged.read_text("utf-8") if merged.exists() else ""
        was = next((one for one in conflicts_in(text, item["path"], {}) if one.id == id_), None)
        return Ask(CONFLICT, id_, str(item["title"]), item["path"], was.method if was else "")
    return Ask(ITEM, id_, str(item["title"]), item["path"]) if item.get("state") == "done" else None


def _closed_finding(job: Job, key: str) -> str:
    """The method of what an audit of this job found and the newest does not; empty for anything else."""
    audits = [record.data for record in job.records() if record.gate == "audit"]
    if not audits or key in audits[-1].get("failing", []):
        return ""
    return next((units[key] for one in audits if key in (units := one.get("failing_units", {}))), "")


def _run_id(tier: str | None, scenario: str | None) -> str:
    return "-".join(filter(None, ("emulate", tier, scenario)))


def _failed_runs(job: Job, plan: Plan, answers: list[Answer], records: Sequence[Record]) -> Iterator[Ask]:
    """The runs that failed in the newest emulated run, the first for each reason, while the files are as it
    judged them."""
    newest = failed_last(records, "emulate")
    if newest is None or not _only_answers(job.root, plan, newest, []):
        return
    answered = {entry.id for entry in answers if entry.evidence == newest.id}
    told = set[tuple[str, str]]()
    for run in read_object(job.store.runs / str(newest.run) / RESULT).get("runs", []):
        name = _run_id(run.get("tier"), run.get("scenario"))
        if run.get("state") != "FAIL" or name in answered:
            continue
        reason = str(run.get("why")), str(run.get("where"))
        if reason in told:
            continue
        told.add(reason)
        at, log = run.get("where"), job.store.runs / str(newest.run) / f"{name.removeprefix('emulate-')}.log"
        lines = [
            cut(str(run.get("why")), _CAUSE),
            *([f"where: {at}"] if at else []),
            *map(str, run.get("traceback", [])),
        ]
        lines += [f"log: {log}"] if log.exists() else []
        lines += [ruling()] if len(told) == 1 else []
        why = cut(str(run.get("why")), _WHY)
        what = f"{run.get('tier')} {run.get('scenario', '')} fails on the emulated NPU: {why}"
        # a method of a runner can be given as the answer; any other file is edited
        named = [kind for kind, its in plan.runners.items() if str(at).startswith(its["path"])]
        how = (*((*WITH, "--in", kind) for kind in (named if at else ["RUNNER"])), CORRECTED)
        yield Ask(FINDING, name, what, texts={"text": "\n".join(lines)}, how=how, evidence=newest.id)


def failed_besides(job: Job) -> list[str]:
    """The runs that failed before the files were edited, besides those that somebody answered.

    The run goes on behind a failure that is being corrected, and may have found others since.
    """
    newest = failed_last(job.records(), "emulate")
    if newest is None or _only_answers(job.root, load_plan(job), newest, []):
        return []
    answered = {entry.id for entry in job.journal.answers() if entry.at >= newest.started}
    runs = read_object(job.store.runs / str(newest.run) / RESULT).get("runs", [])
    return [
        f"{run.get('tier')} {run.get('scenario')}: {cut(str(run.get('why')), _WHY)}"
        for run in runs
        if run.get("state") == "FAIL" and _run_id(run.get("tier"), run.get("scenario")) not in answered
    ]


def failed_last(records: Sequence[Record], gate: str) -> Record | None:
    """The newest record of a gate, when it is a FAIL."""
    newest = next((record for record in reversed(records) if record.gate == gate), None)
    return newest if newest and newest.verdict == "FAIL" else None


def _only_answers(root: Path, plan: Plan, record: Record, since: list[Answer]) -> bool:
    """Whether the files are as the gate judged them, and no more of them, but for what was answered since."""
    expected = record.subject.files | {entry.path: entry.after for entry in since if entry.after}
    return {*plan.files} <= {*expected, *(entry.path for entry in since)} and all(
        file_digest(root / path) == digest for path, digest in expected.items()
    )


def units_at(root: Path, path: str) -> Mapping[str, Unit]:
    """The methods and functions of a file as it stands; none where it cannot be read."""
    try:
        return parse_module((root / path).read_text("utf-8")).units if path else {}
    except (OSError, SyntaxError, ValueError):
        return {}


def _span(root: Path, path: str, unit: str) -> tuple[int, int]:
    """The 1-based lines of a method as it stands, (0, 0) where it cannot be told."""
    found = units_at(root, path).get(unit) if unit else None
    return (found.start + 1, found.end) if found else (0, 0)


def unit_of_finding(root: Path, path: str, line: int, owner: str) -> str:
    """The method that a finding is in, or its class with a dot behind it."""
    return _unit_at(root, path, line) or f"{owner}."


def _unit_at(root: Path, path: str, line: int) -> str:
    units = units_at(root, path).values()
    return next((unit.qualname for unit in units if unit.start < line <= unit.end), "")
