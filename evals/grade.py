#!/usr/bin/env python3
"""Score a finished workspace: what an agent left of one task of evals.json, by code alone.

Nothing is run that the workspace holds. The result is JSON on stdout; exit 0 when every
assertion is met, 1 when one is not, 2 for a task or folder that is not there.

  python3 evals/grade.py --eval upgrade-0.22-to-0.23 --workspace ~/vllm-omni
  python3 evals/grade.py --list
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "scripts")]

from npu_upgrade.environments.tools import ensure_tools  # noqa: E402

FILE = HERE / "evals.json"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--eval", metavar="ID", help="the task of evals.json")
    parser.add_argument("--workspace", type=Path, metavar="DIR", help="the checkout the agent worked in")
    parser.add_argument("--base", default="main", metavar="REF", help="what it was given (default: main)")
    parser.add_argument("--list", action="store_true", help="list the tasks")
    args = parser.parse_args(argv)
    known = {task["id"]: task for task in tasks()}
    if args.list:
        print("\n".join(f"{task['id']:<28}{task['prompt'][:90]}" for task in known.values()))
        return 0
    problem = _problem(args, known)
    if problem:
        print(json.dumps({"verdict": "USAGE", "error": problem}, indent=2))
        return 2
    result = grade(known[args.eval], args.workspace, args.base)
    print(json.dumps(result, indent=2))
    return 0 if result["verdict"] == "PASS" else 1


def tasks() -> list[dict[str, Any]]:
    """The tasks of evals.json."""
    return json.loads(FILE.read_text("utf-8"))["evals"]


def grade(task: dict[str, Any], folder: Path, base: str = "main") -> dict[str, Any]:
    """The scores of one workspace, and which assertions they meet."""
    from graders import adaptation, commit, gates, runners
    from graders.workspace import Workspace

    known = {
        **{name: getattr(commit, name) for name in ("one_commit", "signed_off", "nothing_else", "honest")},
        **{name: getattr(runners, name) for name in ("recall", "unasked", "names", "markers", "omni_kept")},
        **{
            name: getattr(adaptation, name)
            for name in ("artifacts", "pins_untouched", "no_sign_off_without_proof")
        },
        "gates": gates.passed,
    }
    workspace = Workspace(folder.resolve(), base)
    rows = []
    for one in task["assertions"]:
        score = known[one["grader"]](workspace, task)
        met = score.value is None or score.value >= one["at_least"]
        value = None if score.value is None else round(score.value, 3)
        rows.append(
            {"grader": one["grader"], "text": one["text"], "score": value, "met": met, "why": score.why}
        )
    judged = [row["score"] for row in rows if row["score"] is not None]
    return {
        "eval": task["id"],
        "verdict": "PASS" if all(row["met"] for row in rows) else "FAIL",
        "score": round(sum(judged) / len(judged), 3) if judged else 0.0,
        "assertions": rows,
    }


def _problem(args: argparse.Namespace, known: dict[str, Any]) -> str:
    if args.eval not in known:
        return f"no task {args.eval}: one of {', '.join(known)}"
    if args.workspace is None or not (args.workspace / ".git").exists():
        return f"{args.workspace} is no git checkout"
    return ""


if __name__ == "__main__":
    ensure_tools()
    sys.exit(main())
