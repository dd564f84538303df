"""What comes next, told with what came before it: the command, or the questions themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.audit import triples
from npu_upgrade.audit.checks.unreached import stands_there
from npu_upgrade.audit.judge import LAG
from npu_upgrade.audit.world import Triple
from npu_upgrade.commands.job_arguments import leading_on
from npu_upgrade.commands.next_text import MORE, against_base, as_asked, notes_of, options
from npu_upgrade.ground import locks
from npu_upgrade.ground.command import Command, upgrade, within_another
from npu_upgrade.ground.errors import Blocked, UpgradeError
from npu_upgrade.ground.files import read_object, rows_of, sha256, write_atomic
from npu_upgrade.ground.paths import from_here
from npu_upgrade.ground.tables import cut
from npu_upgrade.ground.verdict import Result
from npu_upgrade.job import upgrade as upgrades
from npu_upgrade.job.ask import (
    BASES,
    CONFLICT,
    CORRECTED,
    FINDING,
    ITEM,
    LOOK,
    PORT,
    Ask,
    bases_behind,
    called_and_new,
    combined,
    methods_behind,
    named_by,
    port_survey,
    taken_with,
)
from npu_upgrade.job.job import Job
from npu_upgrade.job.stages import State, Step, Walk, next_step
from npu_upgrade.lineage.downstream import omni_side, read_runner
from npu_upgrade.merge.callees import unlike_upstream
from npu_upgrade.merge.nowhere import nowhere
from npu_upgrade.merge.untaken import untaken
from npu_upgrade.port.moved_on import moved_on
from npu_upgrade.sources.tree import SourceTree, open_source

_SHOWN = "shown.json"
_REPLACED = re.compile(r"replace: \{[^}]*\}")
_NUMBER = re.compile(r"\d+")
_OF_GRAPHS = re.compile(r"ACL graph|graph captur", re.IGNORECASE)
_GRAPHS_FAIL = "graphs fail by these one after the other, and the old pair too: correct them together"
_GRAPHS_MAY_FAIL = (
    "released runners have these too, and where graphs are replayed a run fails by one after the other: "
    "correct them with your first edit"
)
_LAGS = "the old pair has these too, but what the merge brought may need them: look whether it does"
_WHAT, _FLAG, _FLAGS = 240, 160, 8  # characters of a failed run and of a flag, and so many flags
_FORM = (
    "FILE: YAML list of {id: ID or [IDs], answer, note, text}; text of `with`: the lines that replace a "
    "conflict, or whole methods, at any indentation; `imports: [LINE]` adds some; "
    "ours or theirs, and `with` about a method, take `replace: {BEFORE: AFTER}` for small changes; an "
    "ask without `answer` takes those of the one before"
)


@dataclass(frozen=True)
class Asked:
    """The questions of a step that there is room for, as programs, agents and people get them."""

    summary: str
    command: Command | None
    data: dict[str, Any]
    text: str
    brief: dict[str, Any] = field(default_factory=dict)


def asked(walk: Walk, step: Step, *, again: bool) -> Asked:
    """The questions of a step: those of a method or feature, and those of the same kind after them.

    What was shown before is named only, but where all is to be shown ``again``.
    """
    assert step.stage
    kind = step.asks[0].stage
    every = in_order(step.stage.asks)
    if kind == ITEM:  # what is to be looked at is about the same merge: asked in the same round
        every += [one for stage in walk.stages for one in stage.asks if one.stage == LOOK]
    if kind == FINDING:  # why the same methods were written by hand
        every += [one for one in step.stage.asks if one.stage == LOOK]
    first, later = _first(walk, every)
    now = [one for one in every if one not in later] or every  # what is taken with that is asked after it
    shown_once = _shown(walk.folder)
    known = set[str]() if again else shown_once
    fresh = [one for one in now if _as_shown(one) not in known]
    page, lines = _page(every)
    new, shown = as_asked(fresh, walk.answered, lines) if fresh else ([], [])
    asks = [one for one in now if one in new or one not in fresh]
    later = [one for one in later if one not in asks]
    whole = [_whole(ask) for ask in asks]
    data: dict[str, Any] = {"ask": whole[0]} | ({"with_it": whole[1:]} if whole[1:] else {})
    brief: dict[str, Any] = {"asks": shown} if shown else {}
    before = [ask.id for ask in asks if ask not in new]
    brief |= {"asked_before": before} if before else {}
    text = "\n\n".join([*(_text(_whole(one)) for one in new), *(f"{one}: asked before" for one in before)])
    command = step.command
    if whole[1:]:
        data["answers_file"] = _template(asks)
        text += f"\n\nall answers in one file:\n{data['answers_file']}"
        command = upgrade("resolve", "--from", "FILE", *walk.naming)
        if new and len(walk.journal.answers()) < 2:  # told once, where several are asked together
            brief["answers"] = _FORM
    run = preparing(walk) if any(map(_may_edit, step.stage.asks)) else meanwhile(walk)
    if run:
        data["meanwhile"] = brief["meanwhile"] = str(run)
    others, shown_now = _others(walk, step, asks), [*map(_as_shown, new)]
    if any(one.is_run and _OF_GRAPHS.search(" ".join(one.texts.values())) for one in new):
        others |= _unlike_upstream(walk, _GRAPHS_FAIL)
    elif kind in (ITEM, LOOK) and _GRAPHS_MAY_FAIL not in known:  # before a run fails by it
        said = " ".join(one.what for one in new)  # a flag may have the same replacement
        others |= _unlike_upstream(walk, _GRAPHS_MAY_FAIL, said)
        shown_now.append(_GRAPHS_MAY_FAIL)
    if kind == FINDING and _LAGS not in known:
        others |= _lags_in_merged(walk)
        shown_now.append(_LAGS)
    write_atomic(walk.folder / _SHOWN, msgspec.json.encode(sorted(shown_once.union(shown_now))))
    data |= others
    brief |= others
    if first:
        data["first"] = brief["first"] = first
    if later:
        data["after_first"] = brief["after_first"] = (
            f"{len(later)} question{'s' if later[1:] else ''} about what `first` takes"
        )
    path = walk.folder / "questions.md"
    path.unlink(missing_ok=True)  # of what was asked before
    if every[len(asks) :] or any(MORE in str(one) for one in shown):
        write_atomic(path, page)
        data["all_questions"] = brief["all_questions"] = str(from_here(path))
    kinds = dict.fromkeys(one.stage for one in every)
    if later := {name: number for name, number in walk.left.items() if name not in kinds}:
        data["asked_later"] = brief["asked_later"] = later
    # asking is no verdict on the gate that found what is asked
    failed = f"{step.stage.name} is FAIL: " if step.stage.verdict == "FAIL" else ""
    many = sum(walk.left[name] for name in kinds)
    of = ", ".join(f"{walk.left[name]} {name}" for name in kinds)
    summary = f"{failed}{len(new)} of {many} question{'s' if many > 1 else ''} ({of})"
    summary += f", {len(before)} asked before (`next` shows them again)" if before else ""
    return Asked(summary, command, data, text, brief)


def _first(walk: Walk, every: Sequence[Ask]) -> tuple[list[str], list[Ask]]:
    """What findings about the GPU side ask for together, and the findings that go with it.

    It is the methods it calls, and those that call them.
    """
    survey = port_survey(walk.folder)
    methods = methods_behind(survey, every)
    missing = [one for one in every if one.stage == FINDING and ": parity-" in one.what]
    named = {*methods.values()}.union(*map(named_by, missing))
    of_bases = bases_behind(survey, missing)
    places = {(one.path, one.unit) for one in missing} | {(one["path"], one["unit"]) for one in of_bases}
    whole = combined(survey, places, named)
    names, ids = _by_name(survey, methods if len(methods) > 1 else {})
    names = sorted({*names, *(str(one.get("group") or one["id"]) for one in of_bases)}.difference(whole))
    options = [*(["--group", *names, *whole] if names or whole else []), *(["--apply", *ids] if ids else [])]
    if not options:
        return [], []
    options += [word for word, on in (("--callers-by-hand", names or ids), ("--conflicts", whole)) if on]
    what = f"{sum(whole.values())} conflicts to decide by `resolve`" if whole else "the callers are yours"
    told = [f"this takes what the findings miss, {what}"]
    if names or ids:
        told[0] += "; leave out of the names what is not for the NPU, as what only torch.cuda can do"
        told[0] += ", and then take its calls out of the methods that come whole" if whole else ""
    new = [one for one in called_and_new(survey, whole) if one.partition(" ")[0] not in names]
    if new:
        told += [f"add to the names what NPU needs of the new methods that these call: {', '.join(new)}"]
    taken = {*methods.values()} if names or ids else set[str]()
    later = taken_with(survey, missing, taken, whole.keys())
    later += [one for one in missing if of_bases and BASES in one.what and one not in later]
    return [*told, upgrade("port", *options, *walk.naming).short], later


def _by_name(survey: Mapping[str, Any], methods: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The methods to take hunks of, where they have no other ones, and the ids of the rest."""
    ids: dict[str, list[str]] = {}
    for hunk in survey.get("hunks", []):
        ids.setdefault(str(hunk.get("group") or hunk["id"]), []).append(hunk["id"])
    whole = [name for name, its in ids.items() if methods.keys() >= {*its}]
    named = {one for name in whole for one in ids[name]}
    return whole, [one for one in methods if one not in named]


def _others(walk: Walk, step: Step, asks: Sequence[Ask]) -> dict[str, list[str]]:
    """What is better known now: gone names in conflicts and what the GPU side does there today, later flags
    of their methods, failed runs."""
    left = [one for stage in walk.stages if stage is not step.stage for one in stage.asks]
    units = {(one.path, one.unit) for one in asks if one.stage == CONFLICT}
    flags = [one for one in left if one.stage == LOOK and (one.path, one.unit) in units]
    failed = [one for one in left if one.is_run]
    inputs = walk.facts.get("inputs") or {}
    omni, target = (inputs.get(role) or {} for role in ("omni", "ascend"))
    conflicts = [one.conflict for one in asks if one.conflict]
    sides = [text for one in conflicts for text in one.texts[1:]]
    places = [(one.path, one.method, one.texts) for one in conflicts]
    ports = omni and target and any(stage.name == PORT and stage.open for stage in walk.stages)
    found = {
        "nowhere_any_more": nowhere(str(target["spec"]), walk.root, sides) if sides and target else [],
        "gpu_side": moved_on(str(omni["spec"]), places, partial(_ran_as, inputs)) if ports else [],
        "not_taken": _not_taken(inputs, places) if omni and target and places else [],
        "flags_there": [f"{one.id}: {cut(one.what, _FLAG)}" for one in flags[:_FLAGS]],
        "failed_meanwhile": [cut(one.what, _WHAT) for one in failed],
    }
    return {name: said for name, said in found.items() if said}


def _lags_in_merged(walk: Walk) -> dict[str, list[str]]:
    """What nothing calls because of a method that the merge brought up to date, as in the old pair.

    The audit waits for nobody's answer there; what the merge brought may need it all the same.
    """
    merged = {str(name).rpartition(".")[2] for name in walk.facts.get("merged") or ()}
    findings = rows_of(read_object(walk.folder / "audit.json"), "findings")
    kinds = [(one, (one.get("check"), one.get("state"))) for one in findings]
    whats = [str(one.get("what")) for one, kind in kinds if kind == ("unreached", LAG)]
    lags = [cut(what, _WHAT) for what in whats if stands_there(what) in merged]
    return {"lag_in_merged": [_LAGS, *lags[:_FLAGS]]} if lags else {}


def _unlike_upstream(walk: Walk, told: str, said: str = "") -> dict[str, list[str]]:
    """Where the runners call otherwise than upstream's, which shows as graphs run; ``told`` before it.

    What was ``said`` is not among it.
    """
    inputs = walk.facts.get("inputs") or {}
    if not inputs.get("omni") or not inputs.get("ascend"):
        return {}
    try:
        trees = _triple(inputs)
        assert trees.omni
        side = omni_side(trees.omni)
        target = read_runner(trees.ascend, side.upstream.path)
        texts = {one.path: (walk.root / one.path).read_text("utf-8") for one in side.runners}
        copied = walk.facts.get("copies_of")
        before = read_runner(open_source(str(copied)), side.upstream.path) if copied else None
        found = unlike_upstream(texts, target, side.upstream, before)
        found = [one for one in found if not _is_said(one, said)]
    except (UpgradeError, OSError, ValueError):  # hints are no reason to ask nothing
        return {}
    return {"unlike_upstream": [told, *found]} if found else {}


def _is_said(one: str, said: str) -> bool:
    """Whether the text to replace, in a method, was said of that method."""
    unit, replaced = one.partition(" ")[0], _REPLACED.search(one)
    return replaced is not None and f"{unit}: " in said and replaced[0] in said


def _not_taken(
    inputs: Mapping[str, Mapping[str, Any]], places: Sequence[tuple[str, str, Sequence[str]]]
) -> list[str]:
    try:
        return untaken(_triple(inputs), places)
    except UpgradeError:  # a tree cannot be had: the check of the answer tells
        return []


def _ran_as(inputs: Mapping[str, Mapping[str, Any]]) -> SourceTree | None:
    """The tree of the old pair, None where it cannot be told."""
    old = triples.old_triple(_triple(inputs))
    return old.omni if old else None


def _triple(inputs: Mapping[str, Mapping[str, Any]]) -> Triple:
    """The downstream of a job as it was before the merge, its target, and the vllm of that."""
    omni = triples.open_project(str(inputs["omni"]["spec"]), "vllm-omni")
    return triples.open_triple(omni, str(inputs["ascend"]["spec"]), None)


def _may_edit(ask: Ask) -> bool:
    """Whether an answer to it may change the files, which ends a run in the background."""
    words = {how[0] for how in ask.how}
    return bool(words & {"--with", "--take", "--by-hand"} or CORRECTED in ask.how)


def meanwhile(walk: Walk, *, beside_gates: bool = False) -> Command | None:
    """The emulated run, in the background, where what is asked waits for an answer and the files for no more.

    What it shows is kept; an edit ends it, and leaves what the edit does not touch. ``beside_gates``: it
    begins with the plan, where that asked nothing and no port is to come, though a run of the files before
    an edit is at work, which ends then.
    """
    by_name = {stage.name: stage for stage in walk.stages}
    run, plan = by_name.get("emulate"), by_name.get("plan")
    if run is None or plan is None or run.state not in (State.TODO, State.STALE):
        return None
    ported = not any(stage.open for stage in walk.stages if stage.name == PORT)
    if plan.open and not (beside_gates and ported and not plan.asks):
        return None
    from npu_upgrade.gates.emulation.environment import check_machine  # dear to import, and seldom needed

    try:
        check_machine()
    except Blocked:
        return None
    with locks.alone_now(walk.folder / "emulate") as nobody:
        free = nobody or beside_gates
        return run.command.adding("--rest", "--background") if free and run.command else None


def preparing(walk: Walk) -> Command | None:
    """Making what the emulated run of an upgrade will need, in the background, where it is not there yet.

    An environment of some GB takes a minute or more, and edits of the files do not change it.
    """
    inputs = walk.facts.get("inputs") or {}
    run = next((stage for stage in walk.stages if stage.name == "emulate"), None)
    if run is None or run.state is not State.TODO or not walk.facts.get("repo") or inputs.get("whole"):
        return None
    from npu_upgrade.environments.store import is_ready
    from npu_upgrade.gates.emulation.environment import check_machine, environment_spec

    omni, ascend = (str(inputs[role]["spec"]) for role in ("omni", "ascend"))
    try:
        if not open_source(ascend).exists("requirements.txt"):
            return None  # it says of no torch what it needs
        check_machine()
        triple = _triple(inputs)
        spec = environment_spec(triple.omni, triple.ascend, triple.vllm)
        if is_ready(spec):
            return None
    except UpgradeError:
        return None
    with locks.alone_now(spec.folder) as nobody:  # else somebody makes it already
        make = upgrade("env", "make", "emulation", "--omni", omni, "--ascend", ascend)
        return make.adding("--background") if nobody else None


def in_order(asks: Sequence[Ask]) -> list[Ask]:
    """The questions of the first one's kind, those of its group before the others."""
    group, kind = asks[0].group, asks[0].stage
    return sorted((ask for ask in asks if ask.stage == kind), key=lambda ask: ask.group != group)


def ending(result: Result, job: Job, *, lists: bool = False) -> Result:
    """``result``, ended with what `next` would say of the job: its command, or what is asked now.

    Questions that were shown before are named and not shown again; nor are they in a text that ``lists`` what
    they are about.
    """
    walk = upgrades.walk(job)
    step = next_step(walk)
    result.next = leading_on(walk)
    if not step.asks or step.stop or within_another():
        return result
    found = asked(walk, step, again=False)
    result.next = found.command
    result.data |= found.data
    said = f"{found.summary}: upgrade.py next" if lists else found.text
    result.text = f"{result.text}\n\n{said}".strip()
    more = {"shown": found.summary} if found.brief.keys() & {"all_questions", "asked_before"} else {}
    result.brief = (result.brief or {}) | more | found.brief
    return result


def _shown(folder: Path) -> set[str]:
    """The questions that commands of this job have shown."""
    try:
        return set(msgspec.json.decode((folder / _SHOWN).read_bytes(), type=list[str]))
    except (OSError, msgspec.MsgspecError):
        return set()


def _as_shown(ask: Ask) -> str:
    """A question by its name and texts, wherever it stands; one about a run that failed, by that run."""
    texts = "\n".join(f"{role} {text}" for role, text in ask.texts.items())
    return f"{ask.id} {ask.evidence if ask.is_run else sha256(_NUMBER.sub('', texts))}"


def _whole(ask: Ask) -> dict[str, Any]:
    """A question with all its texts and the incidents that fit."""
    shown = {key: value for key, value in ask.as_json().items() if value or key in ("base", "ours", "theirs")}
    if notes := notes_of(ask):
        shown["went_wrong_before"] = [note.as_json() for note in notes]
    return shown


def _template(asks: Sequence[Ask]) -> str:
    """A file of answers to fill in, each with the first that fits; a text follows the answer `with`."""
    rows = []
    for ask in asks:
        words = [word for word in options(ask) if word != "import"]
        rows.append(f"- id: {ask.id}\n  answer: {words[0]}  # {', '.join(words)}\n  note: WHY")
    return "\n".join(rows)


def _page(asks: Sequence[Ask]) -> tuple[str, dict[str, str]]:
    """All questions in full, those with the same texts as one, nothing said twice; and the lines of each."""
    alike: dict[tuple[str, str], list[Ask]] = {}
    for ask in asks:
        alike.setdefault((_body(_whole(ask)), " | ".join(options(ask))), []).append(ask)
    said = set[str]()
    page: list[str] = []
    where = dict[str, str]()
    for (body, words), same in alike.items():
        head = f"## {', '.join(one.id for one in same)} ({words})"
        lines = [head, *(line for one in same for line in one.what.split("\n")), *body.split("\n")]
        where |= {one.id: f"{len(page) + 1}-{len(page) + len(lines)}" for one in same}
        page += [_AGAIN.sub(r"\1as above", line) if line in said else line for line in lines] + [""]
        said |= {line for line in lines if _AGAIN.match(line)}
    return "\n".join(page), where


_AGAIN = re.compile(r"(why: |do: |went wrong before, [^:]*: ).*")


def _body(shown: dict[str, Any]) -> str:
    """The texts of a question, and what went wrong before where it was alike."""
    texts = {name: str(shown[name]) for name in ("base", "ours", "theirs", "text") if name in shown}
    sides = texts if shown["id"].startswith("conflict") else against_base(texts)
    parts = [text if role == "text" else f"--- {role}\n{text.strip(chr(10))}" for role, text in sides.items()]
    return "\n".join([*parts, *_went_wrong(shown)])


def _went_wrong(shown: dict[str, Any]) -> list[str]:
    notes = shown.get("went_wrong_before", [])
    return [f"went wrong before, {note['incident']}: {note['note']}" for note in notes]


def _text(shown: dict[str, Any]) -> str:
    """A question for people."""
    parts = [shown["what"]]
    parts += [f"--- {n}\n{shown[n]}" for n in ("base", "ours", "theirs", "text") if n in shown]
    parts += _went_wrong(shown)
    answers = [f"resolve {shown['id']} {how}" for how in shown["answer"]]
    return "\n\n".join([*parts, "\n".join(["answers:", *answers])])
