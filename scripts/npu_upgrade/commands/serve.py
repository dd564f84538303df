"""Start a model with vLLM, prove that it serves, and see it gone.

Nothing is believed that a server says of itself: it is told from others by a random name, is ready after
real generations that its metrics count, and any end before the gate's own stop is a failure, whatever its
exit code. With dummy weights the answers have to come; with real weights they also have to be worth
something. Options of vllm serve follow --.

Everything is kept as evidence (upgrade.py evidence show RUN), labelled with the device and the weights: a
pass with dummy weights or on a CPU signs nothing off.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from npu_upgrade.commands.gate_next import after
from npu_upgrade.commands.serving_arguments import Asked, add_serving_arguments, asked, scratch
from npu_upgrade.gates.features.model import read
from npu_upgrade.gates.serving import root_cause
from npu_upgrade.gates.serving.gate import Served, judge
from npu_upgrade.gates.serving.launch import DUMMY, REAL
from npu_upgrade.gates.serving.record import record
from npu_upgrade.gates.serving.starts import Ladder, Servers, descend, ladder_text
from npu_upgrade.ground import invocation
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.gate_record import into_job

EXAMPLES = """  upgrade.py serve /models/Qwen3-8B --load-format dummy
  upgrade.py serve /models/Qwen3-8B --load-format real -- --max-model-len 4096 --tensor-parallel-size 2
  upgrade.py serve /models/Qwen3-Omni --omni --gate gate.yaml
  upgrade.py serve ./tiny --python cpu --load-format real -- --enforce-eager"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_serving_arguments(parser)
    parser.add_argument(
        "--ladder",
        action="store_true",
        help="when it fails, start again with less (same, eager, Dynamo off, text only): a diagnosis",
    )


def run(args: argparse.Namespace) -> Result:
    """PASS; FAIL with the first root cause; INCONCLUSIVE; BLOCKED when it cannot even be started."""
    wanted = asked(args)
    with scratch(wanted.store) as folder:
        served = judge(wanted.launch, wanted.device, wanted.options, folder / "server.log")
        further, ladder, stopped = (
            _diagnosed(wanted, served, folder) if args.ladder else ([], Ladder(), False)
        )
        line, result = record(
            wanted.store,
            "serve",
            [served],
            wanted.installed,
            verdict=served.verdict,
            summary=served.summary,
            more={"ladder": [one.as_json() for one in ladder.rungs]} if ladder.rungs else {},
            further=further,
        )
        result["job"] = into_job(args.workspace, line, wanted.installed)
        text = as_text(served, result)
        if ladder.rungs:
            text += f"\n\n{ladder_text(ladder.rungs)}"
    if served.interrupted or stopped:
        raise KeyboardInterrupt
    return Result(
        served.verdict, f"{line.label}: {served.summary}", result, text, _next(served, wanted, result)
    )


def _diagnosed(wanted: Asked, served: Served, folder: Path) -> tuple[list[Served], Ladder, bool]:
    """Further starts of a server that failed, what they say, and whether they were interrupted."""
    servers = Servers(wanted.launch, wanted.device, wanted.options, folder, called="ladder")
    ladder = Ladder()
    if served.verdict is not Verdict.FAIL or served.interrupted or _left_behind(served):
        return [], ladder, False
    config = Path(wanted.launch.model) / "config.json"
    modalities = read(config.parent).inputs() if config.is_file() else ()
    say("it failed; starting it again with less and less, to find out what it is (this passes nothing)")
    try:
        descend(servers, modalities, wanted.launch.arguments, ladder)
    except Blocked as error:
        say(f"the diagnosis ends early: {error.what}")
    except KeyboardInterrupt:
        return servers.served, ladder, True
    return servers.served, ladder, False


def _left_behind(served: Served) -> bool:
    return any(one.name == "teardown" and one.state == "FAIL" for one in served.checks)


def as_text(served: Served, result: dict[str, Any]) -> str:
    """The checks as a table, and below it what went wrong first."""
    rows = [
        (one.name, one.state, (one.why or one.answer.strip().replace("\n", " "))[:110])
        for one in served.checks
    ]
    text = table(("check", "state", ""), rows)
    if served.explanation and served.explanation.first:
        text += f"\n\n{root_cause.as_text(served.explanation)}"
    return f"{text}\n\nevidence: {result['folder']}"


def _next(served: Served, wanted: Asked, result: dict[str, Any]) -> str:
    """After a dummy pass the same with real weights."""
    command = invocation.current()
    if served.verdict is Verdict.PASS and served.launch.load_format == DUMMY and DUMMY in command:
        command[command.index(DUMMY)] = REAL
        return shlex.join(command)
    return after(wanted, result, served.verdict)
