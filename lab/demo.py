#!/usr/bin/env python3
"""The main job on real releases: vllm-omni 0.22.0 onto vllm-ascend 0.23.0.post1.

Runs the same commands a maintainer or an agent runs, shows what breaks before the merge, what
was merged, how the conflicts are decided, and what the runners do afterwards on an emulated
NPU. Results lie in the output folder; sources and environments are cached as always.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

from npu_upgrade.code.conflict_text import answers

OMNI = "pypi:vllm-omni==0.22.0"
ASCEND = "pypi:vllm-ascend==0.23.0.post1"
SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
WORKSPACE = SCRIPTS.parent / "upgrade-out"
OUT = WORKSPACE / "demo"
SHOWN = 12  # findings printed in full


# without a name: the tiers that show it in the shortest time
BEFORE = ("--tiers", "import,eager", "--scenarios", "ar")
AFTER = ("--tiers", "import,eager,graph", "--scenarios", "ar", "generation")


def main() -> int:
    WORKSPACE.mkdir(exist_ok=True)
    step("lineage", "--omni", OMNI, "--ascend", ASCEND)
    show_audit(audit())
    can_run = emulate("as they are", "--omni", OMNI, "--ascend", ASCEND, *BEFORE)
    # over the files that an earlier demonstration left there
    merge = step("merge", "--omni", OMNI, "--ascend", ASCEND, "--out", OUT.name, "--replace")
    plan = step("plan", "--job", merge["job"])
    if show_conflicts(plan, Path(merge["plan"])):
        plan = step("plan", "--job", merge["job"])
    if can_run and not open_conflicts(plan):
        emulate("merged", "--job", merge["job"], *AFTER)
    print(
        f"\n== the merged files are below {OUT}, what is left is in {Path(merge['plan']).with_suffix('.md')}"
    )
    print("static checks and an emulated dry-run: nothing ran on an NPU")
    return 0


def emulate(what: str, *args: str) -> bool:
    """Run the runners on an emulated NPU; False when this machine cannot."""
    print(f"\n== the runners {what}, on an emulated NPU", flush=True)
    result = step("emulate", *args, may_end=(0, 1, 3, 4))
    if result["verdict"] == "BLOCKED":
        print(f"  skipped, this machine cannot: {result.get('error')}\n  try: {result.get('try')}")
        return False
    print(f"  {result['verdict']}: {result['summary']}")
    return True


def open_conflicts(plan: dict) -> list[dict]:
    return [item for item in plan["items"] if item["blocking"] and item["kind"] == "conflict"]


def show_conflicts(plan: dict, whole: Path) -> bool:
    """Show each conflict and decide it as this demo does: upstream's side. True when there were some."""
    conflicts = open_conflicts(plan)
    details = {item["id"]: item["detail"] for item in json.loads(whole.read_text("utf-8"))["items"]}
    for item in conflicts:
        print(f"\n== {item['title']}\n{details[item['id']]}")
    if conflicts:
        print("\n== an agent reads both sides of each conflict and decides")
        print("  the demo takes vllm-ascend's side of these, and has the result checked again")
    for path in {item["path"] for item in conflicts}:
        take_theirs(OUT / path)
    return bool(conflicts)


def take_theirs(path: Path) -> None:
    """Decide every conflict of a file for vllm-ascend's side."""
    path.write_text(answers(path.read_text("utf-8"))[1].text, "utf-8")


def step(*args: str, table: bool = True, may_end: tuple[int, ...] = (0, 1)) -> dict:
    """Run one subcommand, show its progress and table, and return its JSON; ends the demo on an error."""
    print(f"\n$ upgrade.py {shlex.join(args)}", flush=True)
    command = [sys.executable, str(SCRIPTS / "upgrade.py"), *args, "--format", "json"]
    shown = None if table else subprocess.PIPE
    done = subprocess.run(
        command, cwd=WORKSPACE, stdout=subprocess.PIPE, stderr=shown, text=True, check=False
    )
    if done.returncode not in may_end:
        if not table:
            print(done.stderr, file=sys.stderr)
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


if __name__ == "__main__":
    sys.exit(main())
