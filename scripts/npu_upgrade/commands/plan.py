"""Check the merged files as they are now, and say what is left of the plan.

Run it after merging and again after every edit: it counts the conflicts that are left, parses the files,
looks for undefined names, learns the answers to resolved conflicts, and records the verdict as static
evidence for exactly these files. `resolve` closes items. --diff METHOD judges nothing: it shows what a merged
method has otherwise than the target (while conflicts are open: what upstream changed in it since the base),
comments and layout left out.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import textwrap

from npu_upgrade.code.conflict_text import marker_rows
from npu_upgrade.code.module import parse_module
from npu_upgrade.code.portable import unparse
from npu_upgrade.commands.arguments import option
from npu_upgrade.commands.asking import ending
from npu_upgrade.commands.job_arguments import add_job_arguments, named_job
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import read_object, rows_of
from npu_upgrade.ground.tables import shortened, table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.answer import keep_reasons
from npu_upgrade.job.check import Checked, check
from npu_upgrade.job.job import Job
from npu_upgrade.merge.plan import counts, method_rows

EXAMPLES = """
--job upgrade-omni-0.22.0-ascend-0.23.0 --workspace ~/work
--diff OmniNPUModelRunner._dummy_run"""

_MOST = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_arguments(parser)
    option(
        parser,
        "--diff METHOD",
        "only show what a merged method has otherwise than the target's; while "
        "conflicts are open, what upstream changed in it",
    )


def run(args: argparse.Namespace) -> Result:
    """PASS when no conflict, no blocking item and no broken file is left; else FAIL."""
    job = named_job(args)
    if args.diff:
        return _diff(job, args.diff)
    found = check(job)
    keep_reasons(job, found.explained)
    data = {
        "job": job.id,
        "plan": str(found.path),
        "evidence": found.evidence,
        "counts": counts(found.plan),
        "conflicts_open": found.plan["conflicts_open"],
        "problems": found.problems,
        "learned": found.learned,
        "items": [
            {key: item[key] for key in ("id", "kind", "title", "path", "blocking")}
            for item in found.open_items
        ],
    }
    brief = {"problems": found.problems[:_MOST]} if found.problems else {}
    return ending(Result(found.verdict, found.summary, data, _text(found), brief=brief), job)


def _text(found: Checked) -> str:
    head = ("method", "outcome", "base", "statements", "flags", "conflicts")
    lines = [table(head, method_rows(found.plan)), ""]
    lines += [f"problem: {problem['path']}: {problem['problem']}" for problem in found.problems]
    for heading, blocking in (("to resolve", True), ("to look at", False)):
        lines += [
            f"{heading}: {item['id']}  {item['title']}"
            for item in found.open_items
            if item["blocking"] is blocking
        ]
    return "\n".join([*lines, "", f"details: {found.path.with_suffix('.md')}"])


def _names(name: str, runner: str) -> tuple[str, str, str]:
    """What a merged method is called: in its file, by itself, and in what merge and port print."""
    method = name.rpartition(".")[2]
    return name, method, f"{runner}.{method}"


def _diff(job: Job, name: str) -> Result:
    """What the merged methods of that name have otherwise than the target's, as a unified diff.

    While there are conflicts in the file: what upstream changed since the base.
    """
    methods = rows_of(read_object(job.folder / "methods.json"), "methods")
    chosen = [one for one in methods if name in _names(one["name"], one.get("runner", ""))]
    if not chosen:
        raise BadInput(
            f"no merged method is called {name}",
            expected=f"one of: {shortened([one['name'] for one in methods], 30)}",
            try_="upgrade.py plan --format text",
        )
    found: dict[str, str] = {}
    upstream: list[str] = []
    for one in chosen:
        path = job.root / one["path"]
        try:
            now = path.read_text("utf-8")
            if marker_rows(now):
                upstream.append(one["name"])
                sides, names = (one["base"], one["theirs"]), ("base", "target")
            else:
                unit = parse_module(now).units.get(one["name"])
                sides = one["theirs"], unit.source if unit else ""
                names = "target", f"{one['path']}: {one['name']}"
        except (OSError, SyntaxError) as error:
            raise BadInput(
                f"{path} cannot be read as Python: {error}",
                expected="a merged file that is Python",
                try_="correct it by hand; upgrade.py plan tells what is wrong",
            ) from error
        before, after = map(_plain, sides)
        found[one["name"]] = "\n".join(difflib.unified_diff(before, after, *names, n=1, lineterm=""))
    text = "\n\n".join(filter(None, found.values())) or "no difference"
    beside = [name for name in found if name not in upstream]
    changed = f"conflicts are open: what upstream changed in {', '.join(upstream)} since the base"
    said = [f"{', '.join(beside)} beside the target's"] if beside else []
    summary = "; ".join([*said, *([changed] if upstream else [])])
    return Result(Verdict.PASS, summary, {"job": job.id, "diff": found}, text, brief={"diff": found})


def _plain(source: str) -> list[str]:
    """The lines of a method without comments, each statement on one."""
    return unparse(ast.parse(textwrap.dedent(source))).split("\n")
