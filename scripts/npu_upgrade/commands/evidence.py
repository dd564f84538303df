"""List, show, check, compare, pack and import the evidence of runs.

Every gate run leaves a folder (arguments, redacted environment, versions, log, requests, metrics, root
cause, verdict) and one ledger line that names the code it judged. A pack holds runs in one file, so that the
machine with the NPU need not be the one where you work; import checks every hash before it adds anything.
It takes runs of an upgrade only if job, commit, files and the start of the evidence are the same. compare
BEFORE AFTER compares two serve runs on the same weights: tokens, throughput, room for the KV cache.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.commands.arguments import option
from npu_upgrade.commands.job_arguments import add_workspace_argument
from npu_upgrade.evidence import chain
from npu_upgrade.evidence.chain import Record
from npu_upgrade.evidence.pack import Origin, pack
from npu_upgrade.evidence.store import Store, present_store, workspace_store
from npu_upgrade.evidence.unpack import take
from npu_upgrade.ground.command import ADAPT, Command, adapt, program, upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.stages import find_workspace, named_from_here

EXAMPLES = """list
show 20261103T081402Z-serve-5f1c9a02
check
compare 20261103T081402Z-serve-5f1c9a02 20261103T093011Z-serve-0c77e1d4
pack 20261103T081402Z-serve-5f1c9a02 --out run.tar.gz
import run.tar.gz --workspace ../vllm-omni"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(_ACTIONS))
    parser.add_argument(
        "what", nargs="*", metavar="RUN", help="runs by id, or the pack to import (default: all runs)"
    )
    option(parser, "--out FILE", "where pack writes (tar.gz)", type=Path)
    add_workspace_argument(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS; FAIL when a run's files are not as recorded; exit 2 for a pack that is refused."""
    place = workspace_store if args.action == "import" else present_store
    store = place(args.workspace or find_workspace(Path.cwd()))
    return _ACTIONS[args.action](store, args)


def _list(store: Store, args: argparse.Namespace) -> Result:
    rows = [_row(id, one) for id, one in store.records().items()]
    odd = _odd(store)
    names = ("run", "label", "verdict", "root cause", "summary")
    text = table(names, [tuple(row[name] for name in names) for row in rows]) if rows else ""
    text += "".join(f"\n{kind}: {', '.join(found)}" for kind, found in odd.items() if found)
    count = sum(map(len, odd.values()))
    summary = f"{len(rows)} runs" + (f"; {count} do not count" if count else "")
    return Result(Verdict.PASS, summary, {"runs": rows} | odd, text.strip())


def _row(id: str, one: Record) -> dict[str, str]:
    root = one.data.get("root") or {}
    return {
        "run": id,
        "label": one.label,
        "verdict": one.verdict,
        "root cause": root.get("id", ""),
        "summary": one.summary,
        "tree": one.tree,
    }


def _odd(store: Store) -> dict[str, list[str]]:
    torn = [f"line {number}" for number in chain.load(store.folder).torn]
    return {"incomplete": store.incomplete(), "unrecorded": store.unrecorded(), "torn": torn}


def _show(store: Store, args: argparse.Namespace) -> Result:
    if len(args.what) != 1:
        raise BadInput("show takes one run", expected="its id", try_=upgrade("evidence", "list").short)
    record, folder = store.find(args.what[0])
    files = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    data: dict[str, Any] = {"record": msgspec.to_builtins(record), "folder": str(folder), "files": files}
    rows = [(name, str(value)) for name, value in _row(str(record.run), record).items()]
    rows += [("command", shlex.join(record.command)), ("started", record.started), ("folder", str(folder))]
    text = table(("", ""), rows).strip() + "\n\n" + "\n".join(files)
    return Result(Verdict.PASS, f"{record.verdict}: {record.summary}", data, text)


def _check(store: Store, args: argparse.Namespace) -> Result:
    chosen = [store.find(id)[0] for id in args.what] or list(store.records().values())
    problems = {str(one.run): wrong for one in chosen if (wrong := store.problems(one))}
    data: dict[str, Any] = {"checked": [one.run for one in chosen], "problems": problems} | _odd(store)
    if problems:
        text = "\n".join(f"{id}: {one}" for id, wrong in problems.items() for one in wrong)
        return Result(Verdict.FAIL, f"{len(problems)} of {len(chosen)} runs are not as recorded", data, text)
    return Result(Verdict.PASS, f"{len(chosen)} runs are as recorded", data)


def _compare(store: Store, args: argparse.Namespace) -> Result:
    from npu_upgrade.gates.validation.before_after import compare

    if len(args.what) != 2:
        raise BadInput(
            "compare takes two runs of serve",
            expected="the one before and the one after",
            try_=upgrade("evidence", "list").short,
        )
    record, data = compare(store, *args.what)
    said, data = f"{record.label}: {record.summary}", {"label": record.label} | data
    return Result(Verdict(record.verdict), said, data, next=overview(store.workspace))


def _pack(store: Store, args: argparse.Namespace) -> Result:
    ids = args.what or list(store.records())
    if not ids or args.out is None:
        raise BadInput(
            "nothing to pack" if args.out else "--out is missing",
            expected="runs in this workspace, and a file to write",
            try_=f"{upgrade('evidence', 'list').short}, then evidence pack RUN --out FILE",
        )
    jobs = {job.id for id in ids if (job := store.find(id)[0].job)}
    target = pack(store, ids, args.out, _origin(store, jobs))
    said = f"{len(ids)} runs in {target} ({target.stat().st_size} bytes)"
    taking = upgrade("evidence", "import", str(target))
    return Result(Verdict.PASS, said, {"pack": str(target)}, next=taking)


def _import(store: Store, args: argparse.Namespace) -> Result:
    if len(args.what) != 1:
        raise BadInput(
            "import takes one pack", expected="a file", try_=upgrade("evidence", "import", "FILE").short
        )
    added, known = take(store, Path(args.what[0]), _origin(store))
    taken = [store.find(id)[0] for id in (*added, *known)]
    jobs = sorted({one.job.id for one in taken if one.job})
    said = f"{len(added)} runs added, {len(known)} were here already"
    said += f"; from {', '.join(jobs)}" if jobs else ""
    data = {"added": added, "known": known, "jobs": jobs}
    return Result(Verdict.PASS, said, data, next=overview(store.workspace))


def _origin(store: Store, jobs: Collection[str] | None = None) -> Origin | None:
    """The upgrade of the store's workspace; with ``jobs`` only if it is one of them."""
    from npu_upgrade.job.upgraded import upgraded_in

    found = upgraded_in(store.workspace)
    return found.origin if found and (jobs is None or found.job.id in jobs) else None


_ACTIONS: dict[str, Callable[[Store, argparse.Namespace], Result]] = {
    **{"list": _list, "show": _show, "check": _check},
    **{"compare": _compare, "pack": _pack, "import": _import},
}


def overview(workspace: Path) -> Command:
    """What to look at after several runs: the adaptation that goes on, else the list of the runs."""
    from npu_upgrade.job.adaptation import models

    if program() == ADAPT and models(workspace):
        return adapt("next", *named_from_here(workspace))
    return upgrade("evidence", "list", *named_from_here(workspace))
