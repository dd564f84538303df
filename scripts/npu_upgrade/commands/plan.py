"""Check the merged files as they are now, and say what is left of the plan.

Run it after merging and again after every edit: it counts conflicts that are left, parses
the files, looks for undefined names, learns the answers to resolved conflicts, and records
the verdict as static evidence for exactly these files. --done and --waive close items.
"""

from __future__ import annotations

import argparse
import ast
import json
import shlex
import time
from pathlib import Path
from typing import Any

from npu_upgrade.code.names import undefined_names
from npu_upgrade.commands.job_arguments import add_job_arguments, named_job
from npu_upgrade.evidence import ledger
from npu_upgrade.evidence.surroundings import utc_now
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import json_text, sha256, write_together
from npu_upgrade.ground.paths import workspace_root
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.conflicts import OpenConflict, ids, open_conflicts
from npu_upgrade.job.job import Job, naming
from npu_upgrade.job.plan_file import load_plan
from npu_upgrade.merge.answers import Answers, learn
from npu_upgrade.merge.plan import counts, method_rows, plan_markdown

HELP = "check the merged files and say what is left"
EXAMPLES = """  upgrade.py plan
  upgrade.py plan --done flag-both-added-1a2b3c4d --note "order checked"
  upgrade.py plan --waive unresolved-name-1a2b3c4d --note "defined by a plugin" """

MOST_FAILING = 200
_MARKS = ("<<<<<<< ", "||||||| ", ">>>>>>> ")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_arguments(parser)
    parser.add_argument("--done", nargs="+", default=[], metavar="ITEM", help="items that were dealt with")
    parser.add_argument(
        "--waive", nargs="+", default=[], metavar="ITEM", help="items that need nothing (with --note)"
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="why, for the record")


def run(args: argparse.Namespace) -> Result:
    """PASS when no conflict, no blocking item and no broken file is left; else FAIL."""
    if args.waive and not args.note:
        raise BadInput("--waive without --note", expected="a reason for the record", try_="--note TEXT")
    closed = dict.fromkeys(args.done, "done") | dict.fromkeys(args.waive, "waived")
    return judge(named_job(args), closed, args.note)


def judge(job: Job, closed: dict[str, str], note: str) -> Result:
    """Check the files of a job as they are and record it; ``closed`` are items with their new state."""
    begun, started = time.monotonic(), utc_now()
    path = Path(job.out or job.folder) / "plan.json"
    loaded = load_plan(job)
    plan: dict[str, Any] = json.loads(path.read_text("utf-8"))
    _close(plan, closed, note)
    # an answer runs this too, and is not what runs it again
    job.begin("plan", shlex.split(_again(job)))
    root = Path(job.repo or job.out or job.folder)
    learned = _learn(job, root, plan)
    problems = _check(root, plan, open_conflicts(root, loaded))
    write_together({path: json_text(plan), path.with_suffix(".md"): plan_markdown(plan)})
    found = counts(plan)
    verdict = Verdict.FAIL if problems or found["blocking items"] else Verdict.PASS
    summary = (
        f"{plan['conflicts_open']} conflicts left, {found['blocking items']} items to resolve, "
        f"{len(problems)} files with problems, {found['items to look at']} items to look at"
    )
    record = ledger.record(
        job,
        gate="plan",
        label="static",
        verdict=verdict,
        subject=loaded.subject(root),
        pins={role: pin for role, pin in plan["versions"].items() if pin},
        command=["upgrade.py", "plan", "--job", job.id],
        started=started,
        seconds=round(time.monotonic() - begun, 3),
        summary=summary,
        data={"problems": problems, "counts": found, "failing": _failing(plan, problems)[:MOST_FAILING]},
    )
    job.finish("plan", verdict, summary, {"evidence": record.id})
    data = {"job": job.id, "plan": str(path), "evidence": record.id, "counts": found} | {
        "conflicts_open": plan["conflicts_open"],
        "problems": problems,
        "learned": learned,
        "items": [_brief(item) for item in plan["items"] if item["state"] == "open"],
    }
    return Result(verdict, summary, data, _text(plan, problems, path), _next(job, verdict))


def _close(plan: dict[str, Any], closed: dict[str, str], note: str) -> None:
    """Note what a person said about items; raises :class:`BadInput` for ids that are not in the plan."""
    known = {item["id"]: item for item in plan["items"]}
    for name, state in closed.items():
        if name not in known:
            raise BadInput(
                f"no item {name} in the plan",
                expected="the id of an item",
                try_="upgrade.py plan lists the open ones; plan.json has all",
            )
        known[name] |= {"state": state, "note": note}


def _learn(job: Job, root: Path, plan: dict[str, Any]) -> int:
    """Remember the answers to conflicts that were resolved since the merge; how many.

    An answer whose place cannot be told is not learned, and said to be so.
    """
    answers = Answers(workspace_root(job.workspace) / "answers")
    count = 0
    for entry in plan["files"]:
        before, now = job.folder / "merged" / entry["path"], root / entry["path"]
        if before.exists() and now.exists():
            versions = {role: pin["spec"] for role, pin in plan["versions"].items() if pin}
            where = {"path": entry["path"], "job": job.id, "versions": versions}
            for found in learn(before.read_text("utf-8"), now.read_text("utf-8"), answers, where):
                count += found.learned
                if not found.learned:
                    say(f"not remembered: {entry['path']}:{found.line}: {found.reason}")
    return count


def _failing(plan: dict[str, Any], problems: list[dict[str, str]]) -> list[str]:
    """What keeps the plan from passing, one name each."""
    blocking = [item["id"] for item in plan["items"] if item["blocking"] and item["state"] == "open"]
    said = [f"{one['path']}: {one['problem']}" for one in problems if "conflict marker" not in one["problem"]]
    return blocking + said


def _check(root: Path, plan: dict[str, Any], conflicts: list[OpenConflict]) -> list[dict[str, str]]:
    """Look at the files as they are now; brings the plan's conflicts up to date."""
    problems: list[dict[str, str]] = []
    left: dict[str, int] = {}
    for entry in plan["files"]:
        path = root / entry["path"]
        text = path.read_text("utf-8") if path.exists() else ""
        left[entry["path"]] = text.count(f"\n{_MARKS[0]}")
        entry["sha256_now"] = sha256(path.read_bytes() if path.exists() else b"")
        problem = "is missing" if not path.exists() else _problem(text)
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


def _problem(text: str) -> str:
    """What is wrong with a merged file, empty when nothing is."""
    marks = sum(line.startswith(_MARKS) or line == "=======" for line in text.split("\n"))
    if marks:
        return f"{marks} lines of conflict markers"
    try:
        ast.parse(text)
    except SyntaxError as error:
        return f"does not parse: line {error.lineno}: {error.msg}"
    undefined = sorted(undefined_names(text))
    return f"undefined names: {', '.join(undefined)}" if undefined else ""


def _brief(item: dict[str, Any]) -> dict[str, Any]:
    return {key: item[key] for key in ("id", "kind", "title", "path", "blocking")}


def _text(plan: dict[str, Any], problems: list[dict[str, str]], path: Path) -> str:
    head = ("method", "outcome", "base", "statements", "flags", "conflicts")
    lines = [table(head, method_rows(plan)), ""]
    lines += [f"problem: {problem['path']}: {problem['problem']}" for problem in problems]
    opened = [item for item in plan["items"] if item["state"] == "open"]
    for heading, blocking in (("to resolve", True), ("to look at", False)):
        lines += [f"{heading}: {i['id']}  {i['title']}" for i in opened if i["blocking"] is blocking]
    return "\n".join([*lines, "", f"details: {path.with_suffix('.md')}"])


def _again(job: Job) -> str:
    return shlex.join(["upgrade.py", "plan", *naming(job)])


def _next(job: Job, verdict: Verdict) -> str:
    if verdict is not Verdict.PASS:
        return _again(job)
    return shlex.join(["upgrade.py", "audit", *naming(job)])
