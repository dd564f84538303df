#!/usr/bin/env python3
"""Hand the tasks of evals.json to an agent and grade what it leaves, by code alone.

A task is worked on in a folder of its own: ``checkout`` has the repository with the skill in it, and
``answer.md`` takes the agent's last message. Minutes, calls and characters are from the skill's own journal.

  python3 evals/run.py list
  python3 evals/run.py prepare upgrade-0.22-to-0.24 /tmp/one
  python3 evals/run.py hand /tmp/one                        # print what to hand to an agent
  python3 evals/run.py hand /tmp/one --agent "claude -p"    # or run one, the task on its stdin
  python3 evals/run.py grade /tmp/one --record "agent A"
  python3 evals/run.py table
  python3 evals/run.py triggers                             # what to ask an agent about the description
  python3 evals/run.py triggers --answer FILE
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in ("scripts", "lab"))]

from npu_upgrade.environments.tools import ensure_tools  # noqa: E402

RESULTS = HERE / "results.jsonl"


def main(argv: list[str] | None = None) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the tasks")
    prepare = commands.add_parser("prepare", help="make the workspace of a task in a new folder")
    prepare.add_argument("id")
    prepare.add_argument("folder", type=Path)
    hand = commands.add_parser("hand", help="print the task, or run an agent on it")
    hand.add_argument("folder", type=Path)
    hand.add_argument("--agent", metavar="COMMAND", help="a command that takes the task on its stdin")
    grade = commands.add_parser("grade", help="score what was left; exit 1 when an assertion is not met")
    grade.add_argument("folder", type=Path)
    grade.add_argument("--record", metavar="AGENT", help="add the row to results.jsonl")
    commands.add_parser("table", help="the recorded runs")
    triggers = commands.add_parser("triggers", help="does the description bring the skill up?")
    triggers.add_argument("--answer", type=Path, metavar="FILE", help="score an agent's answer")
    args = parser.parse_args(argv)
    try:
        return COMMANDS[args.command](args)
    except (OSError, KeyError, ValueError) as error:
        print(json.dumps({"verdict": "USAGE", "error": f"{type(error).__name__}: {error}"}, indent=2))
        return 2


def _list(args: argparse.Namespace) -> int:
    from graders.task import tasks

    print("\n".join(f"{one.id:<28}{one.prompt[:90]}" for one in tasks().values()))
    return 0


def _prepare(args: argparse.Namespace) -> int:
    from graders.task import tasks
    from workspaces import prepare

    known = tasks()
    if args.id not in known:
        raise KeyError(f"no task {args.id}: one of {', '.join(known)}")
    prepare(known[args.id], args.folder)
    print(f"{args.folder} is ready; next: python3 evals/run.py hand {args.folder}")
    return 0


def _hand(args: argparse.Namespace) -> int:
    from graders.task import ANSWER, CHECKOUT

    text = _words(args.folder)
    if not args.agent:
        print(text)
        return 0
    checkout = args.folder / CHECKOUT
    done = subprocess.run(shlex.split(args.agent), cwd=checkout, input=text, capture_output=True, text=True)
    (args.folder / ANSWER).write_text(done.stdout, encoding="utf-8")
    return done.returncode


def _words(folder: Path) -> str:
    """What is handed to an agent: where it works, which skill it has, and the task."""
    from graders.task import ANSWER, CHECKOUT, handed, tasks
    from workspaces import SKILL

    task, checkout = tasks()[handed(folder).id], (folder / CHECKOUT).absolute()
    return (
        f"You work in the git checkout {checkout}. A skill is installed for you at {checkout / SKILL};"
        " its SKILL.md says how to use it. Nobody answers while you work: where a person has to decide,"
        " stop and ask in your last message. Write your last message to"
        f" {(folder / ANSWER).absolute()} as well.\n\n{task.prompt}\n"
    )


def _grade(args: argparse.Namespace) -> int:
    from graders import grade, results
    from graders.task import ANSWER, CHECKOUT, handed, tasks
    from graders.workspace import Workspace

    answer = args.folder / ANSWER
    text = answer.read_text("utf-8") if answer.exists() else ""
    given = handed(args.folder)
    workspace = Workspace((args.folder / CHECKOUT).resolve(), given.base, text)
    graded = grade.grade(tasks()[given.id], workspace)
    print(json.dumps(graded.as_json(), indent=2))
    if args.record:
        results.add(RESULTS, graded, args.record, os.cpu_count() or 0)
    return 0 if graded.met else 1


def _table(args: argparse.Namespace) -> int:
    from graders import results

    print(results.as_table(RESULTS))
    return 0


def _triggers(args: argparse.Namespace) -> int:
    from graders import triggers

    if args.answer is None:
        print(triggers.question())
        return 0
    score = triggers.score(args.answer.read_text("utf-8"))
    print(score.as_text())
    return 0 if score.good else 1


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "list": _list,
    "prepare": _prepare,
    "hand": _hand,
    "grade": _grade,
    "table": _table,
    "triggers": _triggers,
}

if __name__ == "__main__":
    ensure_tools()
    sys.exit(main())
