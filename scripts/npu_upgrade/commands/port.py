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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

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
from npu_upgrade.ground.tables import first_of
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.ask import GAINS, gains_of, port_survey
from npu_upgrade.job.job import Job, find_workspace, naming, open_job
from npu_upgrade.job.plan_file import load_plan
from npu_upgrade.job.port_ledger import DECIDED, GONE, OPEN, PORTED, Ledger
from npu_upgrade.job.upgrade import NO_PORT
from npu_upgrade.lineage.items import Item
from npu_upgrade.port.apply import Applied, apply
from npu_upgrade.port.draft import Draft, drafts, put
from npu_upgrade.port.needs import Ranked
from npu_upgrade.port.survey import Survey, survey
from npu_upgrade.sources.content import code_digest, content_of
from npu_upgrade.sources.spec import parse_spec
from npu_upgrade.sources.tree import open_source

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
        "with --group: put all that a method lacks into it, and leave what does not combine as conflicts",
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
    if not asking and (listed := _listed_before(args, ledger)):
        return _keep_for_job(args, listed.result(args))
    inputs = port_inputs.read(args)
    if inputs.since is None:
        result = _inconclusive(inputs)
        return _keep_for_job(args, result)
    known = ledger.hunks((OPEN, *DECIDED), inputs.npu.runners)
    found = survey(inputs.npu, inputs.since, inputs.new, inputs.upstream, known, ledger.decided)
    items = port_inputs.upstream_items(inputs)
    asked = _asked(args, found.left, ledger)
    _enter(ledger, found, items, inputs)
    whole = drafts(found.left, inputs.npu)
    if args.conflicts:
        return _with_conflicts(args, whole, inputs, place, ledger, job)
    agreed = not args.callers_by_hand
    done = apply(asked, found.left, inputs.npu, inputs.new, agreed=agreed) if asking else Applied()
    if folder := inputs.npu.tree.root:
        for path, text in done.files.items():
            done.files[path] = formatted(folder, path, inputs.npu.texts[path], text)
    if place is not None and done.files:
        place.check(inputs.npu.texts, done.files, ledger.written)
        place.write(done.files)
        ledger.wrote(place.hashes(done.files))
    for name in done.taken if place and not args.out else ():
        ledger.set(name, PORTED)
    ledger.save()
    result = _result(args, inputs, found, items, ledger, done, place, asked)
    result.data["drafts"] = [_as_data(one) for one in whole]
    if not asking:
        since = result.data["since"]
        named = result.data | {"since": since | {"inferred": False, "steps": []}}
        listed = _Listed(result.verdict.value, result.summary, named, result.text)
        keep(_kept_as(args, ledger, since["spec"], since["before"]), listed)
    return _keep_for_job(args, result, place)


def _as_data(one: Draft) -> dict[str, Any]:
    """How a method can be put in as a whole."""
    return {"path": one.path, "unit": one.unit, "hunks": list(one.ids), "conflicts": one.conflicts}


def _with_conflicts(
    args: argparse.Namespace,
    whole: Sequence[Draft],
    inputs: Inputs,
    place: Place | None,
    ledger: Ledger,
    job: Job | None,
) -> Result:
    """Put the methods in as a whole; what does not combine is a conflict of the job, to be decided as one."""
    known = {one.group: one for one in whole}
    _refuse_unknown(args.group, known, "method that can be combined at all")
    chosen = [known[name] for name in args.group]
    files = put(chosen, inputs.npu)
    assert place is not None, "a usage without --group was refused"
    place.check(inputs.npu.texts, files, ledger.written)
    place.write(files)
    ledger.wrote(place.hashes(files))
    ledger.save()
    count = sum(one.conflicts for one in chosen)
    summary = f"{len(chosen)} methods as the GPU side has them, {count} conflicts in them to be decided"
    told = [_as_data(one) | {"decided": list(one.decided)} for one in chosen]
    data = {"methods": told, "files": [str(place.path(path)) for path in files]}
    decided = [f"{name}: {why}" for name in args.group for why in known[name].decided]
    brief = {"decided": first_of(decided, _DECIDED)} if decided else {}
    result = Result(Verdict.PASS, summary, data, "\n".join(decided), brief=brief)
    return ending(result, job) if job and not args.out else result


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
    if args.conflicts and (not args.group or args.apply or args.top):
        raise BadInput(
            "--conflicts puts whole methods in, and is told which by --group",
            expected="--group NAME --conflicts, without --apply and --top",
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


def _asked(args: argparse.Namespace, left: list[Ranked], ledger: Ledger) -> list[str]:
    """The ids to take, in the order of rank; :class:`BadInput` for names that are not there."""
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
    return [
        name
        for name, entry in known.items()
        if name in args.apply
        or (name not in ledger.decided and (entry.hunk.group in args.group or (args.top and entry.tier == 1)))
    ]


def _refuse_unknown(names: list[str], known: Any, what: str) -> None:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.4)
            raise BadInput(
                f"no {what} {name}",
                expected=f"a {what} of the list",
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
) -> Result:
    gone = {*done.taken, *ledger.decided}
    left = [entry for entry in found.left if entry.hunk.id not in gone]
    upstream = [item for item in items if item.id not in ledger.decided]
    top = sum(entry.tier == 1 for entry in left)
    since = inputs.since.side.tree if inputs.since else None
    before = inputs.since.before.tree if inputs.since and inputs.since.before else None
    label = since and (since.version or since.spec)
    summary = f"{top} hunks open in the first tier, {len(left) - top} in the others, since vllm-omni {label}"
    if len(left) > top:
        summary += " (--format text lists them, with the reasons)"
    if place is not None:
        summary = f"{len(done.taken)} hunks taken, {len(done.refused)} refused; {summary}"
        summary = f"{len(done.by_hand)} places to change by hand; {summary}" if done.by_hand else summary
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
        "counts": {f"tier {tier}": sum(entry.tier == tier for entry in left) for tier in (1, 2, 3)}
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
        "hunks": [
            hunk_data(entry, ledger.note(entry.hunk.id), entry.hunk.id in found.carried) for entry in left
        ],
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


def _keep_for_job(args: argparse.Namespace, result: Result, place: Place | None = None) -> Result:
    """Leave the list with the job whose checkout it is of, so that `next` can go through it."""
    spec = parse_spec(args.omni)
    if args.out:
        return result
    job = _job_of(Path(spec.path).expanduser(), args.workspace, args.job) if spec.kind == "dir" else None
    if job:
        names = ("versions", "since", "counts", "taken", "refused", "hunks", "drafts")
        told = {name: result.data[name] for name in names if name in result.data}
        before = read_object(job.folder / "port.json").get("ported", {})
        told["ported"] = before | result.data.get("ported", {})
        with contextlib.suppress(UpgradeError):  # a job without a plan has nothing to deliver
            told["tree"] = load_plan(job).subject(job.root).tree
        write_json(
            job.folder / "port.json", {"verdict": result.verdict.value, "summary": result.summary} | told
        )
        _write_by_method(job, told.get("hunks", []))
    job = job or (_job_of(place.folder) if place else None)
    return ending(result, job, lists=True) if job else result


def _write_by_method(job: Job, hunks: Sequence[Mapping[str, Any]]) -> None:
    """A file for each method with several hunks, which are best read as the one change that they are."""
    shutil.rmtree(job.folder / GAINS, ignore_errors=True)
    told: dict[str, list[str]] = {}
    for one in hunks:
        text = f"{one['id']} ({'; '.join(one['reasons']) or 'fits'})\n{one['text'].rstrip()}\n"
        told.setdefault(one["unit"], []).append(text)
    for unit, texts in told.items():
        if texts[1:]:
            write_atomic(gains_of(job, unit), "\n".join(texts))


def _job_of(folder: Path, workspace: Path | None = None, name: str | None = None) -> Job | None:
    """The job of that name, else the current one, when it is about the checkout ``folder``."""
    with contextlib.suppress(UpgradeError):
        job = open_job(workspace or find_workspace(folder), name)
        if job.repo and Path(job.repo).resolve() == folder.resolve():
            return job
    return None
