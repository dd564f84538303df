"""What one scenario of the dry run says, as a state and one reason.

PASS, FAIL and INCONCLUSIVE are about the code under test. INCONCLUSIVE names what stopped the judgement: an
operator or vendor package without a reference, or a fault of the emulator itself. ABSENT: this release does
not have what the scenario uses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from npu_upgrade.gates.emulation.costs import Cost
from npu_upgrade.gates.emulation.costs import read as read_costs
from npu_upgrade.gates.emulation.standstill import UNSEEN, Quiet, quiet
from npu_upgrade.gates.serving.log_lines import read
from npu_upgrade.gates.serving.root_cause import explain

PASS, FAIL, INCONCLUSIVE, ABSENT, NOT_REACHED = "PASS", "FAIL", "INCONCLUSIVE", "ABSENT", "NOT REACHED"
_OUR_ERRORS = ("EmulatorFault", "MissingReference")
_VIOLATION = "OperatorLimit"
_LACKING = r"Failed to find function (acl\w+)"  # as torch_npu says it
_GRAPH = "ACL graph: a replay waits"
_LIBRARY = re.compile(
    r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object|[Cc]ould not load (lib\w+)"
    r"|([\w.+-]+\.so[\w.]*): undefined symbol|(libcuda\S*) not found"
)
_PACKAGE = re.compile(r"No module named '([^.']+)'$")  # of a package that is there, a module is drift
_OWN = ("vllm", "vllm_ascend", "vllm_omni", "npu_emulator")


_LATE = re.compile(r"timed out|no result after")
_STANDS = "is given nothing to run"


@dataclass(frozen=True)
class Outcome:
    """One (tier, scenario): its state, why in one line, and where to look.

    ``where`` is file:line in the tree of the code under test, ``log`` the scenario's own log, ``lines`` the
    executed lines by file, ``seconds`` wall time, ``peak_mib`` the memory of the scenario's processes in
    MiB, ``worker`` and ``runner`` the classes that were built, ``costs`` what its steps cost; ``failed_once``
    why another run of the same files failed, where this one of a server passed.
    """

    tier: str
    scenario: str
    state: str
    why: str = ""
    where: str = ""
    log: str = ""
    seconds: float = 0.0
    traceback: tuple[str, ...] = ()
    lines: Mapping[str, list[int]] = field(default_factory=dict)
    graphs: Mapping[str, int] = field(default_factory=dict)
    peak_mib: int = 0
    worker: str = ""
    runner: str = ""
    costs: tuple[Cost, ...] = ()
    failed_once: str = ""

    @property
    def name(self) -> str:
        return self.tier if self.tier == self.scenario else f"{self.tier} {self.scenario}"

    @property
    def is_late(self) -> bool:
        """Whether it shows nothing because it did not end, or answer, in time."""
        return self.state == INCONCLUSIVE and bool(_LATE.search(self.why))

    @property
    def stands_still(self) -> bool:
        """Whether a request was seen going no further; it would do so again."""
        return self.state == FAIL and self.why.endswith(_STANDS)

    def as_json(self) -> dict[str, Any]:
        """What a result shows of it; executed lines and costs are reported as a whole, elsewhere."""
        left_out = ("lines", "graphs", "peak_mib", "costs")
        found = {name: value for name, value in vars(self).items() if name not in left_out}
        return {name: value for name, value in found.items() if value not in ("", (), 0.0)}


def in_tree(text: str) -> str:
    """A text whose paths begin at the packages of the trees, without the folders of the cache above them."""
    return re.sub(r"[^\s'\"(]*-[0-9a-f]{16}/", "", text)


def read_outcome(out: Path, tier: str, scenario: str) -> Outcome:
    """The outcome of one run from its files in ``out``."""
    name = "import" if tier == "import" else f"{tier}-{scenario}"
    path = out / f"{name}.json"
    log = str(out / ("driver.log" if tier == "import" else f"{name}.log"))
    if not path.exists():
        return Outcome(tier, scenario, NOT_REACHED, "the import tier did not pass")
    result = json.loads(path.read_text(encoding="utf-8"))
    if error := result.get("error") or {}:
        error = own_error(error, Path(log))
    events = _events(out / f"{name}.record")
    state, why = judged(result | {"error": error}, events, quiet(out, name))
    found = Outcome(
        tier,
        scenario,
        state,
        why,
        where=in_tree(error.get("where", "")) if state in (FAIL, INCONCLUSIVE) else "",
        log=log,
        seconds=round(result.get("start_seconds", 0) + result.get("seconds", 0), 1),
        traceback=tuple(error.get("traceback", ())[-12:]),
        lines=result.get("lines", {}),
        graphs=result.get("graphs", {}),
        peak_mib=result.get("peak_mib", 0),
        worker=result.get("classes", {}).get("worker", ""),
        runner=result.get("classes", {}).get("runner", ""),
        costs=read_costs(events),
    )
    return replace(found, where="") if found.stands_still else found  # we waited there: no place of theirs


def dependencies(out: Path, tier: str, scenario: str) -> tuple[list[str], set[str]]:
    """The files of the projects that the processes of a run imported, and the operators they called."""
    name = "import" if tier == "import" else f"{tier}-{scenario}"
    result = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
    calls = (event["calls"] for event in _events(out / f"{name}.record") if event["event"] == "end")
    return result.get("loaded", []), {one for called in calls for one in called}


def judged(
    result: Mapping[str, Any], events: Sequence[Mapping[str, Any]], still: Quiet = UNSEEN
) -> tuple[str, str]:
    """State and reason of one result with the emulator's events of its processes."""
    if result.get("absent"):
        return ABSENT, str(result["absent"])
    error = result.get("error")
    if error:
        return _of_error(error, events, still)
    wrong = _wrong_classes(result.get("classes", {})) or _wrong_replacement(events)
    if wrong:
        return FAIL, wrong
    probes = [probe for probe in result.get("probes", []) if probe["why"]]
    if probes:
        return FAIL, "; ".join(f"{probe['name']}: {probe['why']}" for probe in probes)
    return PASS, ""


def _of_error(error: Mapping[str, Any], events: Sequence[Mapping[str, Any]], still: Quiet) -> tuple[str, str]:
    said = f"{error['type']}: {error['text'].strip()}"
    missing = _names(events, "missing")
    limits = [event["text"] for event in events if event["event"] == "limit"]
    if error["type"] == _VIOLATION or limits:
        return FAIL, "outside of an operator's documented limits: " + (limits[0] if limits else error["text"])
    if missing:
        return INCONCLUSIVE, f"no reference for {', '.join(missing)}"
    if _GRAPH in error["text"]:  # which the emulator raises, wherever the graph's results are read
        return FAIL, said
    if lacks := _lacking_here(error):
        return INCONCLUSIVE, f"this environment lacks {lacks}: {said}"
    lacking = re.search(_LACKING, error["text"])
    if lacking:
        return INCONCLUSIVE, f"the emulated CANN has no {lacking[1]}"
    late = error["text"] if error["type"] == ENDED and error["text"].endswith("timed out") else ""
    if error["type"] == "TimeoutError":  # a wait of the release's own came to its end
        late = f"{said.removesuffix(': ')} timed out"
    if late:
        if still.stands_still and (stages := _before_idle(events)):
            return FAIL, f"{late}: {stages}"
        return INCONCLUSIVE, f"{late}; a request that waits for ever, or a machine with too much to do"
    if error["type"] in _OUR_ERRORS or error.get("inside") or _names(events, "fault"):
        faults = _names(events, "fault")
        return INCONCLUSIVE, f"a fault of the emulator{f' in {faults[0]}' if faults else ''}: {said}"
    if error["type"] == "Ended" and not error.get("late"):
        return INCONCLUSIVE, f"a process died, perhaps by the emulator: {error['text']}"
    if error["type"] == "Ended" and not error.get("idle"):
        return INCONCLUSIVE, f"{error['text']}; an endless loop, or a machine with too much to do"
    return FAIL, said


def _before_idle(events: Sequence[Mapping[str, Any]]) -> str:
    """Which stages ran steps before one that ran none; empty where all did, or none."""
    ran = {event["process"]: str(event["stage"]) for event in events if event["event"] == "step"}
    runners = {event["process"]: str(event["runner"]) for event in events if event["event"] == "classes"}
    idle = [name.rpartition(".")[2] for process, name in runners.items() if process not in ran]
    if not ran or not idle:
        return ""
    done = ", ".join(dict.fromkeys(ran.values()))
    return f"the request goes no further than {done}, and the stage of {idle[0]} after it {_STANDS}"


def _lacking_here(error: Mapping[str, Any]) -> str:
    """The library or package that the Python environment does not have, or cannot load; else nothing."""
    if found := _LIBRARY.search(error["text"]):
        return next(filter(None, found.groups()))
    package = _PACKAGE.search(error["text"]) if error["type"] == "ModuleNotFoundError" else None
    return package[1] if package and package[1] not in _OWN else ""


def _names(events: Sequence[Mapping[str, Any]], kind: str) -> list[str]:
    return list(dict.fromkeys(event["name"] for event in events if event["event"] == kind))


def _wrong_classes(classes: Mapping[str, str]) -> str:
    for part in ("worker", "runner"):
        ran, expected = classes.get(part), classes.get(f"expected_{part}")
        if expected and ran != expected:
            return f"the {part} that ran is {ran}, expected {expected}"
    return ""


def _wrong_replacement(events: Sequence[Mapping[str, Any]]) -> str:
    """What the NPU platform put in the place of a model's own function and computes something else."""
    found = (event for event in events if event["event"] == "replaced" and event["why"])
    return next((f"{one['by']}, in the place of {one['name']}, {one['why']}" for one in found), "")


def _events(folder: Path) -> list[dict[str, Any]]:
    """The emulator's events of all processes of one run."""
    events = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                events.append(json.loads(line) | {"process": path.stem})
            except ValueError:
                continue  # a process was ended while it wrote
    return events


ENDED = "NotServing"
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_PROJECTS = ("/vllm_omni/", "/vllm_ascend/", "/vllm/")
_REACH = 16  # lines from an exception back to its innermost frame
# Only what code of another time raises: anything else may come from the emulator below it.
_DRIFT = re.compile(r"(?:ImportError|ModuleNotFoundError|AttributeError|NameError|TypeError): ")


def own_error(error: Mapping[str, Any], log: Path) -> Mapping[str, Any]:
    """The error of the server's process in place of the one that it ended; the same for any other error.

    Taken only when the innermost frame is of vllm-omni, vllm-ascend or vllm.
    """
    if error.get("type") != ENDED or not log.is_file():
        return error
    lines = list(read(log))
    first = explain(lines).first
    if first is None or not _DRIFT.match(first.text):
        return error
    above = [line.text for line in lines if first.line - _REACH <= line.number <= first.line]
    frames = [found for text in above if (found := _FRAME.search(text))]
    if not frames or not any(name in frames[-1][1] for name in _PROJECTS):
        return error
    path, number, function = frames[-1].groups()
    kind, _, text = first.text.partition(": ")
    return {
        "type": kind,
        "text": f"{text} (the server ended before it served)",
        "where": f"{path}:{number} in {function}",
        "inside": False,
        "traceback": above,
    }
