"""Find the first root cause in the log of a failed server.

The last lines of a serve log are wrappers: "Engine core initialization failed", "EngineDeadError". This
command reads the whole log once, whatever its size, separates processes, tracebacks and their chains, and
names the first error that is not a consequence, with its cause and the next step. An error that matches no
signature is reported as UNKNOWN with the end of its traceback. FAIL means that an error was found;
INCONCLUSIVE that it is unknown, or that the log holds only wrappers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from npu_upgrade.commands.arguments import option
from npu_upgrade.gates.serving.root_cause import Explanation, as_text, explain_file
from npu_upgrade.gates.serving.signatures import PAGE, render, signatures
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_atomic
from npu_upgrade.ground.paths import SKILL
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.lineage.catalogue.skill import reference_to_refresh

EXAMPLES = """serve.log
serve.log --format json
--check
--update-references"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "log", nargs="?", type=Path, metavar="FILE", help="the log: stdout and stderr of the server"
    )
    what = parser.add_mutually_exclusive_group()
    option(what, "--check", f"fail when references/{PAGE} is stale")
    option(what, "--update-references", f"write references/{PAGE}; only in a source checkout of this skill")


def run(args: argparse.Namespace) -> Result:
    """FAIL with the root cause, INCONCLUSIVE when it is unknown or hidden, PASS when there is no error."""
    if args.check:
        return _check()
    if args.update_references:
        path = reference_to_refresh().with_name(PAGE)
        write_atomic(path, render(signatures()))
        return Result(Verdict.PASS, f"{path} is written", {"reference": str(path)})
    if args.log is None:
        raise BadInput("no log given", expected="a file", try_=upgrade("explain", "serve.log").short)
    return _result(args.log, explain_file(args.log))


def _result(log: Path, found: Explanation) -> Result:
    data = {"log": str(log)} | found.as_json()
    first = found.first
    if first and first.signature:
        verdict, summary = Verdict.FAIL, f"{first.signature.id}: {first.signature.cause}"
    elif first:
        verdict, summary = Verdict.INCONCLUSIVE, f"UNKNOWN, line {first.line}: {first.text[:160]}"
    elif found.wrappers:
        verdict = Verdict.INCONCLUSIVE
        summary = (
            "only wrappers: the process that failed says nothing in this log; get its stderr and exit code"
        )
    else:
        verdict = Verdict.PASS
        summary = f"no error in {found.lines} lines, which does not prove that the server served"
    return Result(verdict, summary, data, as_text(found))


def _check() -> Result:
    path = SKILL / "references" / PAGE
    data = {"reference": str(path)}
    if path.is_file() and path.read_text("utf-8") == render(signatures()):
        return Result(Verdict.PASS, f"{PAGE} holds", data)
    stale = f"{PAGE} is stale: the signatures changed, or it was edited by hand"
    return Result(Verdict.FAIL, stale, data, next=upgrade("explain", "--update-references"))
