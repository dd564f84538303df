"""Report what is new upstream since the last look, and what the downstream has to react to.

In a clone it looks at the commits that touch a unit we copied, override, patch or vendored; on the package
index, at the releases. It merges each copy from the version it was taken from and audits the result; the
downstream is not changed. Commits that touch nothing of ours are not mentioned. One file below .npu-upgrade
keeps what was seen, so the next run reports only what is new; the first run starts at the copied version.
FAIL means that something new needs manual work.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.commands.arguments import REPEATED, option
from npu_upgrade.commands.job_arguments import add_workspace_argument, merging
from npu_upgrade.commands.watch_log import explained
from npu_upgrade.commands.watch_request import check_asked, open_request
from npu_upgrade.delivery.publish import keep_issue
from npu_upgrade.ground.command import Command
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.files import write_atomic
from npu_upgrade.ground.paths import workspace_root
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import first_of, table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.stages import find_workspace
from npu_upgrade.lineage.history import whole_path
from npu_upgrade.lineage.project import distribution
from npu_upgrade.report.watch import render_watch
from npu_upgrade.sources.spec import parse_spec
from npu_upgrade.watch.importing import importing
from npu_upgrade.watch.issue import News, markdown, marker, title
from npu_upgrade.watch.judge import Judge
from npu_upgrade.watch.line import source_of
from npu_upgrade.watch.look import Look, first_unclean, look, mergeable, seen_after
from npu_upgrade.watch.open import open_asked, open_judge
from npu_upgrade.watch.records import Entry, Seen, State, read_state, write_state

EXAMPLES = """--omni dir:. --ascend git:../vllm-ascend@main
--omni pypi:vllm-omni==0.30.0
--omni dir:. --ascend git:../vllm-ascend@main --since 2026-07-01 --issue
--omni dir:. --ascend git:../vllm-ascend@main --open-pr
--omni dir:. --ascend git:../vllm-ascend@main --bisect NPUARModelRunner.execute_model
--downstream dir:. --upstream git:../vllm@main
--log serve.log"""
_SHOWN, _TITLES = 12, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    option(which, "--omni SPEC", "the vllm-omni that watches vllm-ascend")
    option(which, "--downstream SPEC", "any project that builds on others")
    option(
        parser,
        "--ascend SPEC",
        "with --omni: git:PATH[@REF] for its commits, pypi:vllm-ascend for its releases (the default)",
        default="pypi:vllm-ascend",
    )
    option(
        parser,
        "--upstream SPEC",
        "with --downstream: what is watched, then what else it builds on; with --omni: the vllm",
        **REPEATED,
    )
    option(
        parser,
        "--since POINT",
        "start at this commit, release or YYYY-MM-DD (default: what was seen last)",
    )
    option(parser, "--tier", "run the emulated import too (minutes)", choices=("import",))
    option(
        parser,
        "--bisect UNIT",
        "name the first step where a copied unit does not merge by itself (without --tier)",
    )
    option(
        parser,
        "--log FILE",
        "name the upstream change that caused a log's error, and the edit; alone: as last watched here",
        type=Path,
    )
    option(parser, "--page FILE", "the HTML page (default: in .npu-upgrade)", type=Path)
    option(
        parser,
        "--issue OWNER/NAME",
        "keep one issue up to date with gh; without gh its text goes to a file",
        nargs="?",
        const="",
    )
    option(
        parser,
        "--open-pr",
        "when nothing is open: commit the upgrade, signed off, on a branch; open its pull request by gh",
    )
    add_workspace_argument(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS when nothing new needs a hand, FAIL when it does, INCONCLUSIVE when it is to be looked at."""
    if args.bisect and args.tier:
        raise BadInput(
            "--bisect looks at the merge of one unit, --tier imports all of them",
            expected="one of the two",
            try_=f"--since POINT --tier {args.tier} names the step that breaks the import; or --bisect alone",
        )
    workspace = _workspace(args)
    repo = check_asked(args.omni) if args.open_pr else None
    state = read_state(workspace)
    if args.log:
        given = args.omni or args.downstream or args.upstream
        return explained(args.log, state, _specs(args) if given else None)
    downstream, upstreams = _specs(args)
    source = source_of(upstreams[0])
    before = state.upstreams.get(source)
    asked = open_asked(downstream, upstreams)
    if args.bisect:
        return _bisected(open_judge(asked, args.since), args.bisect)
    judge = open_judge(asked, args.since or (before.point if before else None))
    say(f"looking at {len(judge.line.steps)} steps after {judge.line.start.label}")
    found = look(judge, importing(judge) if args.tier else None)
    seen = state.upstreams[source] = seen_after(judge, found, before)
    seen.asked = tuple(map(whole_path, (downstream, *upstreams)))
    follow = _next(seen, asked.downstream.requested, args)
    names = (judge.ours.side.project.name, distribution(asked.package))
    news = News(found.entries, found.steps, _since(judge, args.since, before), before is None)
    page = (args.page or workspace_root(workspace) / "watch.html").absolute()
    write_atomic(page, render_watch(names, seen, news, follow))
    body = markdown(names, seen, news, follow)
    text = workspace_root(workspace) / "watch.md"
    write_atomic(text, body)
    write_state(workspace, state)
    result = _result(judge, found, seen, follow)
    result.data |= {"page": str(page), "issue_text": str(text)}
    if args.issue is not None:
        result.data["issue"] = _issue(workspace, args.issue, names, body, text)
    if repo:
        request = open_request(repo, workspace, judge, seen)
        result.data["pull_request"] = msgspec.to_builtins(request)
        result.summary += f"; {request.said}"
    result.brief = (result.brief or {}) | {key: result.data[key] for key in _PLACES if key in result.data}
    return result


_PLACES = ("page", "issue_text", "issue", "pull_request")


def _workspace(args: argparse.Namespace) -> Path:
    """The folder for the state: the one named, else that of the checkout, else the one at hand."""
    if args.workspace:
        return args.workspace
    spec = args.omni or args.downstream
    parsed = parse_spec(spec) if spec else None
    folder = Path(parsed.path).expanduser() if parsed and parsed.path else None
    if folder and (folder / ".git").exists():
        return folder.absolute()
    return find_workspace(Path.cwd())


def _specs(args: argparse.Namespace) -> tuple[str, list[str]]:
    if args.omni:
        return args.omni, [args.ascend, *args.upstream]
    if args.downstream and args.upstream:
        return args.downstream, args.upstream
    raise BadInput(
        "nothing to watch: " + ("--downstream without --upstream" if args.downstream else "no downstream"),
        expected="a downstream, and the upstream that it watches",
        try_="--omni dir:., or --downstream SPEC --upstream SPEC",
    )


def _since(judge: Judge, asked: str | None, before: Seen | None) -> str:
    """Where the look began, in words."""
    label = judge.line.start.label
    if asked:
        return label
    return f"the look before ({label})" if before else f"the version that was copied ({label})"


def _next(seen: Seen, downstream: str, args: argparse.Namespace) -> Command | None:
    """The upgrade to what was looked at last, where something came since the copies were taken."""
    if not args.omni or not seen.entries:
        return None
    return merging(downstream, seen.spec)


def _result(judge: Judge, found: Look, seen: Seen, follow: Command | None) -> Result:
    broken, flagged, green = (found.count(state) for state in (State.BROKEN, State.FLAGGED, State.GREEN))
    left = seen.still_open()
    summary = (
        f"{found.steps} steps after {judge.line.start.label} up to {seen.label}: "
        f"{len(found.entries)} touch ours, {broken} broken, {flagged} flagged, {green} green; "
        f"{sum(len(items) for _, items in left)} items are open"
    )
    if not judge.can_audit:
        summary += "; not audited"
    verdict = Verdict.FAIL if broken else Verdict.INCONCLUSIVE if flagged else Verdict.PASS
    new = [_entry(entry) for entry in found.entries]
    data = {
        "from": judge.line.start.spec,
        "to": seen.spec,
        "steps": found.steps,
        "counts": {"broken": broken, "flagged": flagged, "green": green},
        "audited": judge.can_audit,
        "new": new,
        "open": [_entry(entry) | {"items": [item.title for item in items]} for entry, items in left],
    }
    told = [one for one in found.entries if one.state is not State.GREEN]
    brief = {"counts": data["counts"], "new": [_short(entry) for entry in told[-_SHOWN:]]}
    if more := len(told) - _SHOWN:
        brief |= {"older": more} if more > 0 else {}
    rows = [
        (one.state.value, one.label, one.date[:10], one.subject[:60], ", ".join(_units(one))[:80])
        for one in found.entries
    ]
    text = table(("", "upstream", "date", "what", "our units"), rows) if rows else ""
    return Result(verdict, summary, data, text, follow, brief)


def _entry(entry: Entry) -> dict[str, Any]:
    data = msgspec.to_builtins(entry)
    units, items = data.pop("touches"), data.pop("items")
    told = [{key: item[key] for key in ("id", "kind", "title")} for item in items]
    return data | {"units": units, "items": told}


def _short(entry: Entry) -> dict[str, Any]:
    return {
        "upstream": f"{entry.label} {entry.date[:10]} {entry.subject[:80]}",
        "state": entry.state.value,
        "units": _units(entry)[:_SHOWN],
        "items": first_of([item.title for item in entry.items], _TITLES),
    }


def _units(entry: Entry) -> list[str]:
    return list(dict.fromkeys(touch.unit for touch in entry.touches))


def _issue(workspace: Path, repository: str, names: tuple[str, str], body: str, text: Path) -> str:
    """The address of the issue, or how to write it by hand."""
    try:
        return keep_issue(workspace, repository, marker(*names), title(*names), body)
    except Blocked as error:
        say(f"note: issue not written: {error.what}")
        command = f"gh issue create --title '{title(*names)}' --body-file {text}"
        return f"not written ({error.what}); by hand: {command}"


def _bisected(judge: Judge, name: str) -> Result:
    """The first step at which a unit does not merge by itself."""
    ties = [tie for tie in judge.ours.ties if mergeable(tie)]
    known = sorted({tie.unit.name for tie in ties})
    chosen = [tie for tie in ties if name in (tie.unit.name, f"{tie.unit.path}:{tie.unit.name}")]
    if len(chosen) != 1:
        raise BadInput(
            f"{name} is {'several copied units' if chosen else 'no copied unit'}",
            expected=f"one of {', '.join(known)}",
            try_=f"--bisect {chosen[0].unit.path}:{name}"
            if chosen
            else f"--bisect {known[0]}"
            if known
            else "lineage",
        )
    found = first_unclean(judge, chosen[0])
    span = f"{len(judge.line.steps)} steps after {judge.line.start.label}"
    if found is None:
        return Result(Verdict.PASS, f"{name} merges by itself over {span}", {"unit": name, "first": None})
    step, items = found
    data = {
        "unit": name,
        "first": {"label": step.label, "spec": step.spec, "date": step.date and step.date.isoformat()},
        "subject": step.subject,
        "items": [{"id": item.id, "title": item.title, "detail": item.detail} for item in items],
    }
    summary = f"{name} stops merging by itself at {step.label}: {step.subject}"
    return Result(Verdict.FAIL, summary, data, "\n\n".join(f"{item.title}\n{item.detail}" for item in items))
