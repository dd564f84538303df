"""Walk real upgrades through `next` and `resolve` alone, and see whether they end in one commit.

No model takes part: conflicts, flags, hunks and findings are answered from the runners of the next
release, which the maintainers made by hand; a defect that this release has itself is corrected as it is
recorded. The repository is a real one, made of the released archives; every command is a process of its own,
as an agent would start it. A walk is good when every gate this machine has is PASS, or holds nothing new,
and there is one signed-off commit of the NPU side on top of what was there.

Each walk has the emulated run as a gate. A default run has two; a whole one has four, and times the first
plan with an empty cache.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.edits import apply
from bench.emulator_pairs import Pair, explains
from bench.emulator_upgrades import load_upgrades
from bench.shared import UPGRADE, begin, options
from bench.walk_answers import Answer, NextRelease
from bench.walk_repo import git, make_repo
from bench.walk_report import Commit, Transition, Walk, report, short_of_goals, summary
from npu_upgrade.evidence.chain import Record
from npu_upgrade.gates.emulation.known_defects import known_defects
from npu_upgrade.gates.emulation.outcome import FAIL, Outcome
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.job.job import open_job
from npu_upgrade.job.plan_file import load_plan
from npu_upgrade.lineage.downstream import omni_side
from npu_upgrade.sources.tree import open_source

MOST_STEPS, MOST_TRIES = 120, 6
_MOST_BEHIND = 300  # seconds


TRANSITIONS = (
    Transition("0.20-0.22", "0.20.0", "0.22.0", "0.22.1rc1", "0.22.0", ("pypi:vllm-omni==0.20.0",)),
    Transition("0.22-0.24", "0.22.0", "0.24.0", "0.24.0rc1", "0.24.0", ("pypi:vllm-omni==0.22.0",)),
    Transition("0.24-0.26", "0.24.0", "0.26.0", "0.26.0rc1", "0.26.0", ("pypi:vllm-omni==0.24.0",)),
    Transition("0.28-0.30", "0.28.0", "0.30.0", "0.30.0rc2", "0.30.0", ("pypi:vllm-omni==0.28.0",)),
)
DEFAULT = ("0.20-0.22", "0.24-0.26")


def main(argv: list[str] | None = None) -> int:
    parser = options(__doc__)
    known = [one.id for one in TRANSITIONS]
    parser.add_argument("--only", nargs="+", choices=known, metavar="ID", help=", ".join(known))
    parser.add_argument(
        "--emulate", choices=("whole", "skip"), default="whole", help="the emulated run: a gate, or left out"
    )
    parser.add_argument("--out", type=Path, help="keep the repositories below this folder")
    parser.add_argument("--cold", action="store_true", help="also time the first plan with an empty cache")
    args = parser.parse_args(argv)
    run = begin("bench-walk", args, args.only or args.emulate != "whole")
    out = (args.out or Path(tempfile.mkdtemp(prefix="bench-walk-"))).absolute()
    walks = [
        run.result(one.id, args.emulate, Walk, walk, one, out / one.id, args.emulate, good=lambda it: it.good)
        for one in TRANSITIONS
        if one.id in (args.only or (known if run.whole else DEFAULT))
    ]
    cold = time_cold(walks[0].transition, out) if args.cold or run.whole else None
    print(report(walks))
    if args.out is None and all(one.good for one in walks):
        shutil.rmtree(out)
    return run.close(summary(walks, cold), short_of_goals(walks, cold))


def walk(
    transition: Transition,
    repo: Path,
    emulate: str,
    skip: Sequence[str] = (),
    *,
    prove: bool = True,
    deliver: bool = True,
) -> Walk:
    """Start the upgrade and do what `next` says until there is nothing left to do, or to do but ``deliver``.

    ``skip`` are kinds of questions to leave out, which the commit then names; without ``prove`` the
    release that answers is not audited itself, and no waiver counts as proven.
    """
    shutil.rmtree(repo, ignore_errors=True)
    make_repo(repo, transition.omni, transition.gpu)
    done = Walk(transition, repo, prove=prove)
    tree = open_source(f"pypi:vllm-omni=={transition.answers}")
    release = NextRelease(tree, transition.gpu == transition.answers)
    ascend = f"pypi:vllm-ascend=={transition.ascend}"
    begun = time.monotonic()
    merged = call(done, ["merge", "--omni", f"git:{repo}@main", "--ascend", ascend, "--apply"])
    answer = following(done, merged)
    done.to_plan_s = time.monotonic() - begun
    for kind in skip:
        answer = call(done, ["next", "--skip", kind, "--note", "scripted walk"])
    for _ in range(MOST_STEPS):
        if answer.get("verdict") != "PASS" or "nothing is left" in answer["summary"]:
            break
        asked = [answer["ask"], *answer.get("with_it", ())] if "ask" in answer else []
        mended = [ask for ask in asked if corrected(done, ask)]
        if mended:
            answer = call(done, ["next"])
            done.rounds += 1
            continue
        if asked:
            hand = [ask for ask in asked if by_hand(done, release, ask)]
            rest = [ask for ask in asked if ask not in hand]
            if rest and not (rest[1:] and resolve_together(done, release, rest)):
                if not resolve(done, release, rest[0]):
                    break
                for ask in rest[1:]:  # what an answer before it closed is open no more
                    resolve(done, release, ask, again=True)
            edits = [by_hand(done, release, ask, write=True) for ask in hand]
            if any(edits):
                answer = call(done, ["next"])
                done.rounds += 1
                continue
        elif not deliver and " deliver " in answer["next"]:
            return done
        elif not run_named(done, answer["next"], emulate):
            break
        answer = following(done, done.last)
        done.rounds += 1
    if "nothing is left" not in answer.get("summary", ""):
        done.problems.append(f"stopped: {answer.get('summary') or answer.get('error')}")
    look_at_the_end(done)
    return done


def corrected(done: Walk, ask: dict[str, Any]) -> bool:
    """Make the recorded correction of a defect of the release that answers, where that is what failed.

    It is an edit by hand, as a person would make it: what is asked about is judged anew after it.
    """
    gate, _, run = ask["id"].partition("-")
    if gate != "emulate":
        return False
    tier, _, scenario = run.partition("-")
    failed = Outcome(tier, scenario, FAIL, ask["what"])
    pair = Pair(done.transition.answers, done.transition.ascend)
    named = next(
        (one.fixed_by for one in known_defects() if one.fixed_by and explains(one, pair, failed)), ""
    )
    fix = next((one.fix for one in load_upgrades() if one.id == named), "")
    if isinstance(fix, str):
        return False
    for edit in fix:
        file = done.repo / edit["path"]
        file.write_text(apply(edit["path"], file.read_text("utf-8"), edit), "utf-8")
    count_answer(done, ask, "corrected as it is recorded")
    return True


def by_hand(done: Walk, release: NextRelease, ask: dict[str, Any], *, write: bool = False) -> bool:
    """Whether a person would answer with an edit by hand, from the release; ``write``: it is made.

    It comes after the answers of its round: it closes what was found in the files as they were.
    """
    path = ask.get("place", {}).get("path", "")
    file = done.repo / path
    if not path or not file.is_file():
        return False
    text = file.read_text("utf-8")
    now = release.edited(ask, text, (ask.get("finding") or ask["id"]) in done.known)
    if write and now != text:
        file.write_text(now, "utf-8")
        count_answer(done, ask, "edited by hand")
    return now != text


def following(done: Walk, result: dict[str, Any]) -> dict[str, Any]:
    """What comes after a command: its own questions or the command it names, else what `next` says."""
    if "ask" in result:
        return result | {"verdict": "PASS"}
    if named(result) not in ("", "next", "resolve"):
        return {"verdict": "PASS", "summary": "", "next": result["next"]}
    return call(done, ["next"])


def words_of(command: str) -> list[str]:
    """A command of the skill with its options, as it was named; empty when it is none."""
    words = shlex.split(command)
    place = next((n for n, word in enumerate(words) if word.endswith("upgrade.py")), len(words))
    return words[place + 1 :]


def named(result: dict[str, Any]) -> str:
    """The command that a result names as the next one."""
    return next(iter(words_of(result.get("next") or "")), "")


def run_named(done: Walk, command: str, emulate: str) -> dict[str, Any]:
    """The result of the command that was named; empty when it is none of ours."""
    args = words_of(command)
    if not args:
        done.problems.append(f"next names no command of the skill: {command}")
        return {}
    if args[0] == "emulate" and emulate != "whole":
        return call(done, ["next", "--skip", "emulate", "--note", "scripted walk"])
    if args[0] == "emulate" and done.transition.baseline:
        args += ["--baseline", *done.transition.baseline]
    if args[0] == "audit" and done.prove:
        done.known = done.known or known_findings(done)
    result = call(done, args)
    if args[0] in ("plan", "audit", "emulate", "deliver"):
        done.verdicts[args[0]] = result.get("verdict", "?")
    return result


def resolve_together(done: Walk, release: NextRelease, asked: Sequence[dict[str, Any]]) -> bool:
    """Answer what belongs together from one file; false when it is refused, which is no end of the walk."""
    answers = {ask["id"]: answer_of(done, release, ask) for ask in asked}
    entries = {id_: _entry(id_, answer) for id_, answer in answers.items()}
    paths = {ask["id"]: ask.get("place", {}).get("path", "") for ask in asked}
    for _ in range(MOST_TRIES):
        result = call(done, ["resolve", "--from", "-"], json.dumps(list(entries.values())))
        if result["verdict"] == "PASS":
            for ask in asked:
                count_answer(done, ask, f"--{entries[ask['id']]['answer']}")
            return True
        problems: dict[str, list[str]] = result.get("problems", {})
        done.refused.append(f"{len(entries)} together: {problems or result.get('error')}")
        for id_, found in problems.items():
            lines = [one for one in release.imports_for(paths[id_], found) if one not in str(entries[id_])]
            if lines:
                entries[id_]["imports"] = [*entries[id_].get("imports", ()), *lines]
            elif answers[id_].others:
                answers[id_] = answers[id_].others[0]
                entries[id_] = _entry(id_, answers[id_])
            else:
                return False
    return False


def _entry(id_: str, answer: Answer) -> dict[str, Any]:
    """An answer as an entry of a file of answers."""
    word, options = answer.options[0].removeprefix("--"), answer.options
    given = dict(zip(options[::2], options[1::2], strict=False))
    note = options[options.index("--note") + 1] if "--note" in options else ""
    entry: dict[str, Any] = {"id": id_, "answer": given.get("--take", word), "note": note}
    if word == "import":
        entry |= {"answer": "with", "imports": [given["--import"]]}
    return entry | ({"text": answer.text} if answer.text else {})


def answer_of(done: Walk, release: NextRelease, ask: dict[str, Any]) -> Answer:
    path = ask.get("place", {}).get("path", "")
    file = (done.repo / path).read_text("utf-8") if path else ""
    return release.answer(ask, file, (ask.get("finding") or ask["id"]) in done.known)


def count_answer(done: Walk, ask: dict[str, Any], how: str) -> None:
    name = f"{ask['stage']} {how}"
    done.answered[name] = done.answered.get(name, 0) + 1
    if how == "--waive":
        key = ask.get("finding") or ask["id"]
        (done.waived if key in done.known else done.unproven).append(ask["what"])


def resolve(done: Walk, release: NextRelease, ask: dict[str, Any], *, again: bool = False) -> bool:
    """Answer one question; false when no answer was taken. ``again``: it is asked again then."""
    path = ask.get("place", {}).get("path", "")
    first = answer_of(done, release, ask)
    for one in (first, *first.others):
        result = give(done, ask, one)
        lines = release.imports_for(path, result.get("problems", []))
        if result["verdict"] == "FAIL" and lines:
            more = [word for line in lines for word in ("--import", line)]
            result = give(done, ask, Answer([*one.options, *more], one.text))
        if result["verdict"] == "PASS":
            count_answer(done, ask, one.options[0])
            return True
        if result["verdict"] == "USAGE" and again:
            return False
        why = "; ".join(result.get("problems", ())) or result.get("error")
        done.refused.append(f"{ask['id']} {one.options[0]}: {why}")
    if not again:
        done.problems.append(f"no answer to {ask['id']} is taken: {done.refused[-1]}")
    return False


def known_findings(done: Walk) -> set[str]:
    """The findings that the release which answers has itself on the same vllm-ascend."""
    file = done.repo.with_name(f"{done.repo.name}-known.json")
    ascend = f"pypi:vllm-ascend=={done.transition.ascend}"
    specs = ["--omni", f"pypi:vllm-omni=={done.transition.answers}", "--ascend", ascend]
    steps, printed = [*done.steps], {**done.printed}
    call(done, ["audit", *specs, "--baseline", "none", "--output", str(file)])
    done.steps, done.printed = steps, printed  # no step of the walk
    return {finding["key"] for finding in json.loads(file.read_text("utf-8"))["findings"]}


def give(done: Walk, ask: dict[str, Any], answer: Answer) -> dict[str, Any]:
    return call(done, ["resolve", ask["id"], *answer.options], answer.text)


def call(done: Walk, args: list[str], stdin: str = "", **environment: str) -> dict[str, Any]:
    """Run one subcommand in the repository: its whole result; what it prints is counted."""
    begun = time.monotonic()
    print(f"$ upgrade.py {shlex.join(args)[:200]}", file=sys.stderr, flush=True)
    process = subprocess.run(
        [sys.executable, str(UPGRADE), *args],
        cwd=done.repo,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        env=os.environ | environment,
        check=False,
    )
    seconds = time.monotonic() - begun
    done.steps.append((args[0], seconds))
    printed = len(process.stdout) + len(process.stderr)
    done.printed[args[0]] = done.printed.get(args[0], 0) + printed
    result = json.loads(process.stdout) if process.stdout.strip() else {"verdict": "?", "error": "no JSON"}
    if "whole_result" in result:
        result = json.loads((done.repo / result["whole_result"]).read_text("utf-8"))
    done.last = result
    if args[0] == "deliver" and result.get("verdict") == "PASS" and done.commit is None:
        verdicts = {record.gate: record.verdict for record in _evidence(done.repo)}
        done.commit = Commit(sum(s for _, s in done.steps), sum(done.printed.values()), verdicts)
    print(
        f"  {seconds:.1f} s {result.get('verdict')}: {result.get('summary') or result.get('error')}",
        file=sys.stderr,
    )
    return result


def look_at_the_end(done: Walk) -> None:
    """What the repository holds: one signed-off commit of the NPU side's files, and nothing else changed."""
    commits = git(done.repo, "rev-list", "main..HEAD").split()
    if len(commits) != 1:
        done.problems.append(f"{len(commits)} commits on the upgrade branch, not one")
        return
    message = git(done.repo, "show", "-s", "--format=%B", "HEAD")
    if message.count("\nSigned-off-by: ") != 1:
        done.problems.append("the commit is not signed off once")
    changed = set(git(done.repo, "diff", "--name-only", "main..HEAD").split())
    if not changed or changed - {*omni_side(open_source(f"dir:{done.repo}")).paths}:
        done.problems.append(f"the commit changes {sorted(changed)}")
    if git(done.repo, "status", "--porcelain").strip():
        done.problems.append("the working tree is not clean")
    done.verdicts |= {record.gate: record.verdict for record in _evidence(done.repo)}
    bad = _bad(done.verdicts)
    blocked = {gate for gate, verdict in bad.items() if gate == "emulate" and verdict == "BLOCKED"}
    # a pending run that shows nothing, as of a known race, is named by the second delivery
    before = _bad(done.commit.verdicts) if done.commit else bad
    named = {gate for gate in bad.keys() - before.keys() if bad[gate] == "INCONCLUSIVE"}
    left = bad.keys() - blocked - named
    done.problems += [f"gate {gate} is {verdict}" for gate, verdict in bad.items() if gate in left]


def _bad(verdicts: dict[str, str]) -> dict[str, str]:
    return {gate: verdict for gate, verdict in verdicts.items() if verdict != "PASS"}


def _evidence(repo: Path) -> list[Record]:
    """The standing evidence of the files as they are: the newest of each gate."""
    job = open_job(repo)
    return job.store.standing(job.records(), load_plan(job).subject(repo).tree)


def time_cold(transition: Transition, out: Path) -> float:
    """Seconds from the first call to the plan with its conflicts, with nothing in the cache."""
    done = Walk(transition, out / "cold")
    shutil.rmtree(done.repo, ignore_errors=True)
    make_repo(done.repo, transition.omni, transition.gpu)
    with tempfile.TemporaryDirectory(prefix="bench-walk-cache-") as cache:
        begun = time.monotonic()
        ascend = f"pypi:vllm-ascend=={transition.ascend}"
        specs = ["--omni", f"git:{done.repo}@main", "--ascend", ascend]
        call(done, ["merge", *specs, "--apply"], XDG_CACHE_HOME=cache)
        call(done, ["next"], XDG_CACHE_HOME=cache)
        took = time.monotonic() - begun
        # the merge looks at the old pair in the background, and writes into that cache
        ends = begun + _MOST_BEHIND
        while not [*done.repo.glob(".npu-upgrade/jobs/*/audit-ahead.json")] and time.monotonic() < ends:
            time.sleep(0.5)
        return took


if __name__ == "__main__":
    cache_root().mkdir(parents=True, exist_ok=True)
    sys.exit(main())
