"""List what the GPU runners gained and the NPU runners lack, and take the hunks you request.

The release whose GPU side the NPU runners correspond to is inferred (--since names another).
What the GPU side gained after it is listed by rank, without what only follows vLLM; the first tier
is what fits. The default sources are the job's. --apply, --group and --top take hunks, with the
hunks and imports they need; `resolve` answers one. Open, ported, hand-written and waived hunks stay
in .npu-upgrade/port.json for the next upgrade. PASS: open hunks are listed, or all requested ones
were taken; FAIL: a requested hunk was refused (the rest were taken); INCONCLUSIVE: the NPU runners
match no release.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.code.conflict_text import answers
from npu_upgrade.code.formatting import formatted
from npu_upgrade.commands import port_inputs
from npu_upgrade.commands.arguments import option
from npu_upgrade.commands.asking import ending
from npu_upgrade.commands.job_arguments import add_job_arguments, named_job
from npu_upgrade.commands.port_inputs import Inputs
from npu_upgrade.commands.port_places import Place, find_place
from npu_upgrade.commands.port_text import brief_data, hunk_data, survey_text
from npu_upgrade.ground.collector import no_collector
from npu_upgrade.ground.command import Command, upgrade
from npu_upgrade.ground.errors import BadInput, UpgradeError
from npu_upgrade.ground.files import read_object, sha256, write_atomic, write_json
from npu_upgrade.ground.kept import keep, kept
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.tables import cut, first_of
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.ask import GAINS, gains_of, port_survey
from npu_upgrade.job.conflicts import conflicts_in
from npu_upgrade.job.job import Job, find_workspace, naming, open_job
from npu_upgrade.job.plan_file import load_plan
from npu_upgrade.job.port_ledger import DECIDED, GONE, OPEN, PORTED, Ledger
from npu_upgrade.job.upgrade import NO_PORT
from npu_upgrade.lineage.items import Item
from npu_upgrade.port.agreement import agreement_of
from npu_upgrade.port.apply import Applied, apply
from npu_upgrade.port.draft import Draft, drafts, put
from npu_upgrade.port.hunks import Hunk
from npu_upgrade.port.marked import marked
from npu_upgrade.port.needs import Ranked
from npu_upgrade.port.survey import Survey, survey
from npu_upgrade.sources.content import code_digest, content_of
from npu_upgrade.sources.spec import parse_spec
from npu_upgrade.sources.tree import open_source

_LISTS = "--format text"
_FIRST = 80  # characters of a hunk by which it is found in the whole change
_DECIDED = 8  # decisions of a merge that are shown

EXAMPLES = """--top
--omni dir:. --ascend pypi:vllm-ascend==0.24.0rc1
--omni dir:. --ascend pypi:vllm-ascend==0.24.0rc1 --apply port-1a2b3c4d
--omni dir:. --ascend pypi:vllm-ascend==0.24.0rc1 --group ar.sample_tokens
--omni pypi:vllm-omni==0.20.0 --ascend pypi:vllm-ascend==0.20.2rc1 --top --out out"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "--omni SPEC", "the vllm-omni with the NPU runners (default: the job's checkout)")
    option(parser, "--ascend SPEC", "the vllm-ascend they are for (default: the job's)")
    option(parser, "--gpu SPEC", "the vllm-omni with the GPU side to port from (default: that of --omni)")
    option(parser, "--vllm SPEC", "the vllm of that GPU side (default: by its number)")
    option(
        parser,
        "--since SPEC",
        "the vllm-omni whose GPU side the NPU runners correspond to (default auto: inferred)",
        default="auto",
    )
    option(parser, "--apply ID...", "take these hunks", default=[])
    option(parser, "--group NAME...", "take all of a method, e.g. ar.sample_tokens", default=[])
    option(parser, "--top", "take all of the first tier")
    option(parser, "--callers-by-hand", "take them although other code does not fit to them yet: it is named")
    option(
        parser,
        "--conflicts",
        "with --group: where what a method lacks does not fit, put all of it in, and leave what does not"
        " combine as conflicts",
    )
    option(parser, "--out DIR", "write the files below DIR, not into the checkout", type=Path)
    add_job_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """See the epilog of the help for the verdicts."""
    with no_collector(last=True):
        return _run(args)


def _run(args: argparse.Namespace) -> Result:
    _check_usage(args)
    args.before = None  # the release before --since, where the job knows it
    job = _take_from_job(args)
    if job and not job.of_omni:
        return Result(
            Verdict.PASS, f"nothing to do: {NO_PORT}", {"job": job.id}, next=upgrade("next", *naming(job))
        )
    asking = bool(args.apply or args.group or args.top)
    place = find_place(args.omni, args.out) if asking else None
    ledger = Ledger(
        args.workspace or (place.folder if place and not args.out else find_workspace(Path.cwd()))
    )
    if not asking and (before := _listed_before(args, ledger)):
        return _keep_for_job(args, before.result(args))
    inputs = port_inputs.read(args)
    if inputs.since is None:
        result = _inconclusive(inputs)
        return _keep_for_job(args, result)
    known = ledger.hunks((OPEN, *DECIDED), inputs.npu.runners)
    listed = _listed_for_job(args, job)
    wanted = partial(_is_named, args) if listed else None
    sides = (inputs.npu, inputs.since, inputs.new, inputs.upstream)
    found = survey(*sides, known, ledger.decided, wanted, together=args.top)
    items = [] if listed else port_inputs.upstream_items(inputs)
    whole = drafts(found.left, inputs.npu, inputs.upstream, fitting=bool(listed))
    chosen = _chosen(args, whole, found.left)
    asked = _asked(args, found.left, ledger, chosen)
    _enter(ledger, found, items, inputs)
    done, chosen = _taken(args, found, inputs, asked, chosen)
    if place is not None and done.files:
        place.check(inputs.npu.texts, done.files, ledger.written)
        place.write(done.files)
        ledger.wrote(place.hashes(done.files))
    for name in done.taken if place and not args.out else ():
        ledger.set(name, PORTED)
    ledger.save()
    result = _result(args, inputs, found, items, ledger, done, place, asked, listed.get("hunks"))
    result.data["drafts"] = listed["drafts"] if listed else list(map(_as_data, whole))
    result.data["changes"] = _changes(result.data["hunks"], inputs)
    if chosen:
        _tell_conflicts(result, chosen, done.files, only=not asked)
    if not asking:
        since = result.data["since"]
        named = result.data | {"since": since | {"inferred": False, "steps": []}}
        shown = _Listed(result.verdict.value, result.summary, named, result.text)
        keep(_kept_as(args, ledger, since["spec"], since["before"]), shown)
    return _keep_for_job(args, result, place, anew=not listed and not chosen)


def _taken(
    args: argparse.Namespace, found: Survey, inputs: Inputs, asked: Sequence[str], chosen: list[Draft]
) -> tuple[Applied, list[Draft]]:
    """The runner files with the hunks that are ``asked`` for, then with the ``chosen`` methods in them.

    Nothing is written here. The methods are told as they were put in.
    """
    npu, agreed = inputs.npu, not args.callers_by_hand
    beside = {id_ for one in chosen for id_ in one.ids}
    done = apply(asked, found.left, npu, inputs.new, agreed=agreed, beside=beside) if asked else Applied()
    done.files |= marked(npu, done.files)
    if folder := npu.tree.root:
        for path, text in done.files.items():
            done.files[path] = formatted(folder, path, npu.texts[path], text)
    if chosen and done.files:
        groups = {one.group for one in chosen}
        left = [entry for entry in found.left if entry.hunk.group in groups]
        npu = npu.with_texts(done.files)
        names_methods = any(entry.hunk.kind == "method" for entry in found.left if entry.hunk.id in asked)
        chosen = drafts(left, npu, inputs.upstream, fitting=True, complete=names_methods)
    done.files |= put(chosen, npu)
    if asked and not agreed:  # of conflicts what the NPU side has, until they are decided
        texts = {path: answers(text, path)[0].text for path, text in done.files.items()}
        broken = agreement_of(inputs.npu).broken(dict(inputs.npu.texts) | texts)
        done.by_hand = [one.what for one in broken]
    return done, chosen


def _listed_for_job(args: argparse.Namespace, job: Job | None) -> dict[str, Any]:
    """What the job's list has, where all hunks to take are named and of it, and callers are not looked at.

    Only those are judged anew then, which takes a fraction of the time.
    """
    if job is None or args.top or not (args.callers_by_hand or args.conflicts):
        return {}
    listed = port_survey(job.folder)
    known = {str(hunk.get(key)) for hunk in listed.get("hunks", []) for key in ("id", "group")}
    return listed if known >= {*args.apply, *args.group} else {}


def _is_named(args: argparse.Namespace, hunk: Hunk) -> bool:
    return hunk.id in args.apply or hunk.group in args.group


def _as_data(one: Draft) -> dict[str, Any]:
    """How a method can be put in as a whole."""
    return {"path": one.path, "unit": one.unit, "hunks": list(one.ids), "conflicts": one.conflicts}


def _chosen(args: argparse.Namespace, whole: Sequence[Draft], left: Sequence[Ranked]) -> list[Draft]:
    """The methods to put in as a whole: those of --group of which not all fits, with --conflicts."""
    chosen = [one for one in whole if args.conflicts and one.group in args.group]
    if args.conflicts and not chosen and not any(entry.hunk.group in args.group for entry in left):
        raise BadInput(
            f"nothing of {', '.join(args.group)} is left to be combined",
            expected="a method of which hunks do not fit",
            try_=f"--group {whole[0].group} --conflicts" if whole else "upgrade.py port without it lists all",
        )
    return chosen


def _tell_conflicts(result: Result, chosen: Sequence[Draft], files: Mapping[str, str], *, only: bool) -> None:
    """What was put in whole; what does not combine is a conflict of the job, to be decided as one.

    Their hunks are open no more, and not known to be taken before the conflicts are decided.
    """
    count = sum(one.conflicts for one in chosen)
    summary = f"{len(chosen)} methods as the GPU side has them, {count} conflicts in them to be decided"
    result.summary = summary if only else f"{summary}; {result.summary}"
    mine = {name for one in chosen for name in one.ids}
    result.data["hunks"] = [one for one in result.data["hunks"] if one["id"] not in mine]
    result.data["drafts"] = [one for one in result.data["drafts"] if not mine & {*one["hunks"]}]
    left = [one for path, text in files.items() for one in conflicts_in(text, path, {})]
    result.data["conflicts"] = {one.id: {"path": one.path, "unit": one.method} for one in left}
    result.data["left"] = {path: sha256(text) for path, text in files.items()}
    result.data["methods"] = [_as_data(one) | {"decided": list(one.decided)} for one in chosen]
    decided = [f"{one.group}: {why}" for one in chosen for why in one.decided]
    result.text = "\n".join(filter(None, [*decided, result.text]))
    if decided:
        result.brief = (result.brief or {}) | {"decided": first_of(decided, _DECIDED)}


class _Listed(msgspec.Struct):
    """A list of the same trees and the same decisions, as it is told where its release is named."""

    verdict: str
    summary: str
    data: dict[str, Any]
    text: str

    def result(self, args: argparse.Namespace) -> Result:
        command = _next(args, self.data["counts"]["tier 1"], None)
        return Result(
            Verdict(self.verdict), self.summary, self.data, self.text, command, brief_data(self.data)
        )


def _listed_before(args: argparse.Namespace, ledger: Ledger) -> _Listed | None:
    """The list that begins with the named release; where none is named it has to be inferred first."""
    if args.since == "auto":
        return None
    return kept(_kept_as(args, ledger, args.since, args.before), _Listed)


def _kept_as(args: argparse.Namespace, ledger: Ledger, since: str, before: str | None) -> Path:
    """Where the list is kept that begins with a release, by all that it depends on."""
    specs = [args.omni, args.gpu or args.omni, args.ascend, since, *filter(None, (args.vllm, before))]
    content = [content_of(open_source(spec)) for spec in specs]
    rooms = ("port", "commands", "audit", "lineage", "merge", "threeway", "program", "code", "sources")
    decided = ledger.path.read_text("utf-8") if ledger.path.exists() else ""
    words = [content, specs, str(ledger.path), decided, code_digest(*rooms)]
    return cache_root() / "port" / f"{sha256(msgspec.json.encode(words))[:24]}.json"


def _check_usage(args: argparse.Namespace) -> None:
    asking = args.apply or args.group or args.top
    if args.callers_by_hand and not asking:
        raise BadInput(
            "--callers-by-hand without anything to take",
            expected="--apply ID or --group NAME",
            try_="--apply ID",
        )
    if args.conflicts and not args.group:
        raise BadInput(
            "--conflicts puts whole methods in, and is told which by --group",
            expected="--group NAME --conflicts",
            try_="--group ar.sample_tokens --conflicts",
        )
    if args.out and not asking:
        raise BadInput(
            "--out without anything to take", expected="--apply ID, --group NAME or --top", try_="--top"
        )


def _take_from_job(args: argparse.Namespace) -> Job | None:
    """The job whose sources are taken, where none are named."""
    if args.omni and args.ascend:
        return None
    if args.omni or args.ascend:
        raise BadInput(
            "--omni or --ascend alone",
            expected="both, or neither to use the job's",
            try_="--omni SPEC --ascend SPEC",
        )
    job = named_job(args)
    if job.of_omni and not job.repo:
        raise BadInput(
            f"the job {job.id} was not applied to a checkout",
            expected="a merge with --apply, or sources",
            try_="--omni SPEC --ascend SPEC --out DIR",
        )
    args.omni, args.ascend, args.workspace = f"dir:{job.repo}", job.inputs.ascend.spec, job.workspace
    if args.since == "auto":  # what was taken since would be read as the state that the runners had
        known = port_survey(job.folder).get("since") or {}
        args.since, args.before = known.get("spec") or "auto", known.get("before")
    return job


def _asked(args: argparse.Namespace, left: list[Ranked], ledger: Ledger, whole: Sequence[Draft]) -> list[str]:
    """The ids to take, in the order of rank, without groups that are put in ``whole``; :class:`BadInput`
    for names that are not there."""
    known = {entry.hunk.id: entry for entry in left}
    _refuse_unknown(args.apply, [*known, *ledger.entries], "hunk")
    done = [name for name in args.apply if name not in known]
    if done:
        raise BadInput(
            f"{done[0]} is not open: {ledger.state(done[0])}",
            expected="the id of a hunk that the NPU side lacks",
            try_="upgrade.py port lists them",
        )
    _refuse_unknown(args.group, {entry.hunk.group for entry in left}, "group")
    groups = {*args.group} - {one.group for one in whole}
    return [
        name
        for name, entry in known.items()
        if name in args.apply
        or (name not in ledger.decided and (entry.hunk.group in groups or (args.top and entry.tier == 1)))
    ]


def _refuse_unknown(names: list[str], known: Any, what: str) -> None:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.4)
            raise BadInput(
                f"no {what} {name}",
                expected=f"a {what} of the list; what is in none is written by hand",
                try_=near[0] if near else "upgrade.py port without it lists all",
            )


def _enter(ledger: Ledger, found: Survey, items: list[Item], inputs: Inputs) -> None:
    """Bring the ledger up to date with what was found."""
    since = inputs.since.side.tree if inputs.since else None
    versions = {"since": since and since.spec, "gpu": inputs.new.tree.spec}
    for entry in found.left:
        ledger.see(entry.hunk, OPEN, versions)
    for hunk in found.ported:
        ledger.see(hunk, PORTED, versions)
    for name in found.gone:
        ledger.set(name, GONE)
    for item in items:
        ledger.see_item(item.id, item.title)


def _inconclusive(inputs: Inputs) -> Result:
    summary = "the NPU runners match no release's GPU side: name one with --since"
    text = "\n".join(f"{s.version}: {s.shown} of {s.changed} changes show" for s in inputs.steps)
    data = {"versions": inputs.versions(), "steps": _steps(inputs)}
    return Result(Verdict.INCONCLUSIVE, summary, data, text, None)


def _result(
    args: argparse.Namespace,
    inputs: Inputs,
    found: Survey,
    items: list[Item],
    ledger: Ledger,
    done: Applied,
    place: Place | None,
    asked: Sequence[str],
    listed: Sequence[dict[str, Any]] | None,
) -> Result:
    """``listed`` are the rows of the list that the hunks were named from, None where the list is new."""
    gone = {*done.taken, *ledger.decided}
    left = [entry for entry in found.left if entry.hunk.id not in gone and listed is None]
    carried = found.carried
    new = [hunk_data(entry, ledger.note(entry.hunk.id), entry.hunk.id in carried) for entry in left]
    rows = new if listed is None else [row for row in listed if row["id"] not in gone]
    upstream = [item for item in items if item.id not in ledger.decided]
    tiers = Counter(row["tier"] for row in rows)
    top = tiers[1]
    since = inputs.since.side.tree if inputs.since else None
    before = inputs.since.before.tree if inputs.since and inputs.since.before else None
    label = since and (since.version or since.spec)
    summary = f"{top} hunks open in the first tier, {len(rows) - top} in the others, since vllm-omni {label}"
    if len(rows) > top:
        summary += f" ({_LISTS} lists them, with the reasons)"
    if place is not None:
        taken = f"{len(done.taken)} hunks taken, {len(done.refused)} refused"
        taken = f"to change by hand: {len(done.by_hand)}; {taken}" if done.by_hand else taken
        summary = f"{taken}; {summary}" if listed is None else taken
    by_id = {entry.hunk.id: entry for entry in found.left}
    along = [name for name in done.taken if name not in asked]
    if along:
        summary = summary.replace(" hunks taken", f" hunks taken, {len(along)} as others need them", 1)
    data = {
        "versions": inputs.versions(),
        "since": {
            "spec": since and since.spec,
            "before": before and before.spec,
            "inferred": args.since == "auto",
            "steps": _steps(inputs),
        },
        "counts": {f"tier {tier}": tiers[tier] for tier in (1, 2, 3)}
        | {"ported": len(found.ported), "carried": len(found.carried), "upstream": len(upstream)},
        "taken": done.taken,
        "along": [_along(by_id[name], done, by_id) for name in along],
        "ported": {name: by_id[name].hunk.group for name in done.taken},
        "refused": [
            {"id": name, "reason": reason, "text": by_id[name].hunk.text}
            for name, reason in done.refused.items()
        ],
        "imports": done.imports,
        "by_hand": done.by_hand,
        "files": [str(place.path(path)) for path in done.files] if place else [],
        "ledger": str(ledger.path),
        "hunks": rows,
        "upstream": [item.as_json() for item in upstream],
    }
    verdict = Verdict.FAIL if done.refused else Verdict.PASS
    text = survey_text(left, upstream, done)
    return Result(verdict, summary, data, text, _next(args, top, place), brief_data(data))


def _along(entry: Ranked, done: Applied, by_id: Mapping[str, Ranked]) -> dict[str, Any]:
    """A hunk that nobody asked for: which of those taken need it, and why it is not of the first tier."""
    name = entry.hunk.id
    needed_by = [one for one in done.taken if name in by_id[one].needs.hunks]
    return {"id": name, "group": entry.hunk.group, "needed_by": needed_by, "reasons": entry.reasons}


def _steps(inputs: Inputs) -> list[dict[str, Any]]:
    return [{"version": s.version, "changed": s.changed, "shown": s.shown} for s in inputs.steps]


def _next(args: argparse.Namespace, top: int, place: Place | None) -> Command | None:
    """Taking the first tier; after taking something, what is left."""
    specs = ["--omni", args.omni, "--ascend", args.ascend]
    for name in ("gpu", "vllm", "since", "workspace"):
        value = getattr(args, name)
        specs += [f"--{name}", str(value)] if value and value != "auto" else []
    if place is not None and not args.out:
        return upgrade("port", "--omni", f"dir:{place.folder}", *specs[2:])
    if place is None and top:
        out = ["--out", "port-out"] if args.omni.strip().startswith("pypi:") else []
        return upgrade("port", *specs, "--top", *out)
    return None


def _changes(hunks: Sequence[Mapping[str, Any]], inputs: Inputs) -> dict[str, str]:
    """What the GPU side changed in each method with hunks that are left, in the words of the NPU side."""
    found: dict[str, str] = {}
    sides = (inputs.since.side, inputs.new) if inputs.since else ()
    for one in hunks if sides else ():
        kind = str(one["group"]).partition(".")[0]
        units = [side.unit(kind, one["unit"]) for side in sides]
        old, new = (unit.source.split("\n") if unit else [] for unit in units)
        if old and new and one["unit"] not in found:
            found[one["unit"]] = "\n".join(difflib.unified_diff(old, new, "since", "now", n=2, lineterm=""))
    return found


def _keep_for_job(
    args: argparse.Namespace, result: Result, place: Place | None = None, *, anew: bool = True
) -> Result:
    """Leave the list with the job whose checkout it is of, so that `next` can go through it.

    ``anew`` tells that it is of the files as they are; else it will be made once more before the delivery.
    """
    spec = parse_spec(args.omni)
    if args.out:
        return result
    job = _job_of(Path(spec.path).expanduser(), args.workspace, args.job) if spec.kind == "dir" else None
    if job:
        listed = job.folder / GAINS / "all.txt"
        result.summary = result.summary.replace(_LISTS, str(listed.relative_to(job.workspace)))
        names = ("versions", "since", "counts", "taken", "refused", "hunks", "drafts", "left")
        told = {name: result.data[name] for name in names if name in result.data}
        before = read_object(job.folder / "port.json")
        for name in ("ported", "conflicts"):  # of all that were taken for this job
            told[name] = before.get(name, {}) | result.data.get(name, {})
        told["tree"] = before.get("tree")
        with contextlib.suppress(UpgradeError):  # a job without a plan has nothing to deliver
            if anew:
                told["tree"] = load_plan(job).subject(job.root).tree
        write_json(
            job.folder / "port.json", {"verdict": result.verdict.value, "summary": result.summary} | told
        )
        if anew or not listed.exists():  # else what the GPU side changed is as it was listed
            _write_by_method(job, told.get("hunks", []), result.data.get("changes", {}))
            write_atomic(listed, result.text)
    job = job or (_job_of(place.folder) if place else None)
    return ending(result, job, lists=True) if job else result


def _write_by_method(job: Job, hunks: Sequence[Mapping[str, Any]], changes: Mapping[str, str]) -> None:
    """A file for each method with hunks that are left: their names and the one change that they are of; the
    hunks in full where several are of a method that is new.
    """
    shutil.rmtree(job.folder / GAINS, ignore_errors=True)
    told: dict[str, list[tuple[str, str]]] = {}
    for one in hunks:
        head = f"{one['id']} ({'; '.join(one['reasons']) or 'fits'})"
        told.setdefault(one["unit"], []).append((head, one["text"].rstrip()))
    for unit, parts in told.items():
        if unit in changes:
            heads = [f"{head}: {cut(text.partition(chr(10))[0], _FIRST)}" for head, text in parts]
            write_atomic(gains_of(job, unit), "\n".join([*heads, "", changes[unit], ""]))
        elif parts[1:]:
            write_atomic(gains_of(job, unit), "\n".join(f"{head}\n{text}\n" for head, text in parts))


def _job_of(folder: Path, workspace: Path | None = None, name: str | None = None) -> Job | None:
    """The job of that name, else the current one, when it is about the checkout ``folder``."""
    with contextlib.suppress(UpgradeError):
        job = open_job(workspace or find_workspace(folder), name)
        if job.repo and Path(job.repo).resolve() == folder.resolve():
            return job
    return None
