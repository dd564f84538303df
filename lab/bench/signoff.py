"""Try to get signed off what did not run, and deliver what did: ``make bench-signoff``.

Three workspaces are made by real commands: a model with an adapter of its own and one that takes pictures,
served on this CPU, and an upgrade of vllm-omni whose stages run on the emulated NPU. A case does something to
a copy of one, and delivers. What is wrong has to be refused, or named in the commit, in words that say what
is missing; what is right has to be committed without a gap that is none.

``recorded``: evidence of real runs, as it is or damaged. ``rewritten``: every hash made to fit again, for
runs that no machine here can make. ``live``: a server of its own. All cases have to end right, and there have
to be as many honest ones as others. A default run leaves out live cases that are like another one.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CalledProcessError

import msgspec

from bench.shared import Run, begin, options, some
from bench.signoff_bases import Answer, Place, make, put_back
from bench.signoff_cases import ADVERSARIAL, LIVE, REFUSED, Case
from bench.signoff_evidence import anew
from bench.signoff_honest import HONEST
from bench.walk_repo import git
from npu_upgrade.ground.errors import UpgradeError, report
from npu_upgrade.ground.tables import table

_AT_ONCE = 2  # workspaces
CASES = (*ADVERSARIAL, *HONEST)


class Seen(msgspec.Struct):
    """What became of a case: ``wrong`` is empty when it is what had to be."""

    got: str
    wrong: str
    seconds: float


def main() -> int:
    """Exit code 1 when one case ends otherwise than it has to, 3 when something outside is missing."""
    parser = options(__doc__)
    parser.add_argument("--case", action="append", default=[], help="words in the name of a case; repeatable")
    given = parser.parse_args()
    run = begin("bench-signoff", given, given.case)
    chosen = [one for one in CASES if run.whole or not one.whole]
    if given.case:
        chosen = some([one for one in CASES if any(word in _name(one) for word in given.case)], given.case)
    begun, folder = time.monotonic(), (run.keep or Path(tempfile.mkdtemp(prefix="bench-signoff-"))).absolute()
    by_workspace: dict[str, list[Case]] = {}
    for one in chosen:
        by_workspace.setdefault(_workspace(one), []).append(one)
    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            plays = [pool.submit(_play, cases, run, folder) for cases in by_workspace.values()]
            seen = [pair for one in plays for pair in one.result()]
    except UpgradeError as error:
        return report(error, as_text=True)
    head = ("case", "kind", "expected", "got", "ok")
    rows = [
        (_name(one), one.kind, f"{one.end}: {one.words[0]}", it.got, "no" if it.wrong else "yes")
        for one, it in seen
    ]
    print(table(head, rows))
    if run.keep is None and not any(it.wrong for _, it in seen):
        shutil.rmtree(folder)
    sides = {"adversarial": [], "honest": []}
    for one, it in seen:
        sides["honest" if one.honest else "adversarial"].append(not it.wrong)
    figures: dict[str, object] = {name: f"{sum(right)}/{len(right)}" for name, right in sides.items()}
    figures["live"] = sum(one.kind == LIVE for one, _ in seen)
    figures["seconds"] = round(time.monotonic() - begun)
    missed = [f"{_name(one)}: {it.wrong}" for one, it in seen if it.wrong]
    if not given.case and len(sides["honest"]) < len(sides["adversarial"]):
        missed.append("as many honest cases as adversarial ones")
    return run.close(figures, missed)


def _name(case: Case) -> str:
    return f"{case.base}: {case.name}"


def _workspace(case: Case) -> str:
    """The base of a case's workspace; that of an NPU is an emulated one, written anew."""
    return "upgrade" if case.base == "npu" else case.base


def _play(cases: Sequence[Case], run: Run, folder: Path) -> list[tuple[Case, Seen]]:
    """The cases of one workspace, one after the other."""
    played = []
    for case in cases:
        content = [case.kind, case.end, case.words, case.never]
        seen = run.result(
            _name(case), content, Seen, _deliver, case, run, folder, good=lambda it: not it.wrong
        )
        print(f"{_name(case)}: {seen.wrong or 'right'} ({seen.seconds:.0f} s)", file=sys.stderr, flush=True)
        played.append((case, seen))
    return played


def _deliver(case: Case, run: Run, folder: Path) -> Seen:
    base = _workspace(case)
    place = make(base, folder / f"{base}-{run.sources[:12]}")
    begun = time.monotonic()
    put_back(place)
    if case.base == "npu":
        anew(lambda chain: chain.on_npu())(place)
    before = git(place.repo, "rev-parse", "HEAD").strip()
    try:
        played = case.play(place)
    except (AssertionError, CalledProcessError) as error:
        return Seen("not played", f"not as far as the delivery: {error}", round(time.monotonic() - begun, 1))
    answer = played if isinstance(played, Answer) else place.deliver()
    wrong = [f"it lacks {word!r}" for word in case.words if word not in answer.words]
    wrong += [f"it says {word!r}" for word in case.never if word in answer.words]
    wrong += _of_the_end(place, before, case, answer)
    if (status := place.status()).code not in (0, 2):
        wrong.append(f"status ended with {status.code}: {status.words}")
    end = "refused" if answer.code else "committed"
    said = answer.words if wrong else case.words[0]
    told = f"{'; '.join(wrong)}: {answer.words}" if wrong else ""
    return Seen(f"{end}: {said[:60]}", told, round(time.monotonic() - begun, 1))


def _of_the_end(place: Place, before: str, case: Case, answer: Answer) -> list[str]:
    """What is wrong with the repository after a delivery."""
    new = git(place.repo, "rev-list", f"{before}..HEAD").split()
    if case.end == REFUSED:
        wrong = [] if answer.code and not new else [f"it was committed ({len(new)} commits)"]
        return wrong + ([] if answer.data.get("try") else ["it does not say what to try"])
    message = git(place.repo, "show", "-s", "--format=%B", "HEAD")
    wrong = [] if answer.code == 0 else [f"it was refused ({answer.code})"]
    wrong += [] if message.count("\nSigned-off-by: ") == 1 else ["the commit is not signed off once"]
    made = git(place.repo, "rev-list", "--count", "--grep=^NPU-Validation: ", "HEAD").strip()
    return wrong + ([] if made == "1" else [f"{made} commits deliver it"])


if __name__ == "__main__":
    sys.exit(main())
