#!/usr/bin/env python3
"""The main job on real releases: vllm-omni 0.22.0 onto vllm-ascend 0.23.0.post1.

Runs the same commands a maintainer or an agent runs, and ends with what was merged, what
is left, and where the result lies. Nothing outside the output folder is written.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

OMNI = "pypi:vllm-omni==0.22.0"
ASCEND = "pypi:vllm-ascend==0.23.0.post1"
SCRIPTS = Path(__file__).resolve().parent
WORKSPACE = SCRIPTS.parent / "upgrade-out"
OUT = WORKSPACE / "demo"
SHOWN = 12  # findings printed in full


def main() -> int:
    WORKSPACE.mkdir(exist_ok=True)
    step("lineage", "--omni", OMNI, "--ascend", ASCEND)
    show_audit(audit())
    merge = step("merge", "--omni", OMNI, "--ascend", ASCEND, "--out", OUT.name)
    plan = step("plan", "--job", merge["job"])
    show_result(merge, plan)
    return 0


def step(*args: str, table: bool = True) -> dict:
    """Run one subcommand, show its progress and table, and return its JSON; ends the demo on an error."""
    print(f"\n$ upgrade.py {shlex.join(args)}", flush=True)
    command = [sys.executable, str(SCRIPTS / "upgrade.py"), *args, "--format", "json"]
    shown = None if table else subprocess.PIPE
    done = subprocess.run(
        command, cwd=WORKSPACE, stdout=subprocess.PIPE, stderr=shown, text=True, check=False
    )
    if not table and done.returncode not in (0, 1):
        print(done.stderr, file=sys.stderr)
    if done.returncode not in (0, 1):
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def audit() -> dict:
    """What would break if the runners stayed as they are: the whole result of the audit."""
    report = WORKSPACE / "audit.json"
    step("audit", "--omni", OMNI, "--ascend", ASCEND, "--output", str(report), table=False)
    return json.loads(report.read_text("utf-8"))


def show_audit(result: dict) -> None:
    print("\n== what breaks without a merge (not in the pair it was released for)")
    new = [finding for finding in result["findings"] if finding["state"] == "NEW"]
    for found in new[:SHOWN]:
        place = found["here"]
        print(f"  {place['path']}:{place['line']} [{found['check']}]\n      {found['what']}")
    more = f", {len(new) - SHOWN} more in {WORKSPACE / 'audit.json'}" if len(new) > SHOWN else ""
    print(f"  {result['verdict']}: {result['summary']}{more}")


def show_result(merge: dict, plan: dict) -> None:
    print("\n== what was merged")
    for method in merge["methods"]:
        name = method["name"].rpartition(".")[2]
        print(f"  {method['runner']:<11}{name:<20}{method['outcome']}  (base {method['base']})")
    print("\n== what is left")
    left = [item for item in plan["items"] if item["blocking"]]
    for item in left:
        print(f"  resolve: {item['title']}")
    looks = plan["counts"]["items to look at"]
    print(f"  {len(left)} to resolve, {looks} to look at (plan.md has the texts of both sides)")
    print("\n== where it is")
    for path in merge["files"]:
        print(f"  {path}")
    print(f"  {Path(merge['plan']).with_suffix('.md')}")
    print(f"  {merge['plan']}")
    print("\n== what comes next")
    print(f"  resolve the conflicts, then: cd {WORKSPACE} && python3 {SCRIPTS / 'upgrade.py'} plan")
    print("\nstatic checks only: nothing was run, on no NPU and on no emulation of one")


if __name__ == "__main__":
    sys.exit(main())
