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


def main() -> int:
    WORKSPACE.mkdir(exist_ok=True)
    step("lineage", "--omni", OMNI, "--ascend", ASCEND)
    merge = step("merge", "--omni", OMNI, "--ascend", ASCEND, "--out", OUT.name)
    plan = step("plan", "--job", merge["job"])
    show_result(merge, plan)
    return 0


def step(*args: str) -> dict:
    """Run one subcommand, show its progress and table, and return its JSON; ends the demo on an error."""
    print(f"\n$ upgrade.py {shlex.join(args)}", flush=True)
    command = [sys.executable, str(SCRIPTS / "upgrade.py"), *args, "--format", "json"]
    done = subprocess.run(command, cwd=WORKSPACE, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.returncode)
    return json.loads(done.stdout)


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
