"""Start a model with vLLM, prove that it serves, and then that it is gone.

The gate trusts nothing that a server says about itself. A random name identifies it; it is ready after real
generations that its metrics count; any exit before the gate stops it is a failure, whatever the exit code.
With dummy weights it has to answer; with real weights the answers also have to make sense and match those
of Transformers with the same weights on the CPU (float32, made once, if memory allows; else --reference).
Without a reference a pass says "loads and answers". Options of vllm serve follow --.

The run is kept as evidence (`evidence show RUN`), labelled with the device and the weights: a pass
with dummy weights or on a CPU signs nothing off.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import msgspec

from npu_upgrade.commands.arguments import option
from npu_upgrade.commands.serving_arguments import add_serving_arguments, asked, conclude, noting
from npu_upgrade.gates.reference.compare import DIFFERS, Outcome, find
from npu_upgrade.gates.serving import root_cause
from npu_upgrade.gates.serving.device import CPU, Device
from npu_upgrade.gates.serving.gate import Served, judge
from npu_upgrade.gates.serving.launch import REAL
from npu_upgrade.gates.serving.session import scratch
from npu_upgrade.gates.serving.starts import EAGER, Ladder, Servers, diagnose, ladder_text
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict

EXAMPLES = """/models/Qwen3-8B --load-format dummy
/models/Qwen3-8B --load-format real -- --max-model-len 4096 --tensor-parallel-size 2
/models/Qwen3-Omni --omni --gate gate.yaml
/models/Qwen3-235B-A22B --reference reference.json -- --tensor-parallel-size 16
./tiny --python cpu --load-format real -- --enforce-eager"""

# its rotary kernel takes (tokens, heads, size) for (tokens, size): seen in vllm 0.30.0
_OWN_KERNELS = (
    f"; {EAGER} uses vLLM's own kernels on a CPU, and the rotary one of vllm 0.30.0 is wrong for latent"
    f" attention: serve without {EAGER} before you look into the model"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_serving_arguments(parser)
    option(
        parser,
        "--ladder",
        "on failure, start again with less (same, eager, Dynamo off, text only): a diagnosis",
    )
    option(
        parser,
        "--reference FILE",
        "the answers of Transformers with these weights, recorded by the command reference",
        type=Path,
    )


@noting("serve")
def run(args: argparse.Namespace) -> Result:
    """PASS; FAIL with the first root cause; INCONCLUSIVE; BLOCKED when it cannot even be started."""
    session = asked(args)
    with scratch(session.store) as folder:
        held = find(session.launch, args.reference, session.like)
        options = replace(session.options, compare=held.compare, as_there=held.as_there)
        served = judge(session.launch, session.device, options, folder / "server.log")
        numbers = held.outcome  # what a ladder says of its own servers is another thing
        servers = Servers(session.launch, session.device, options, folder, called="ladder")
        ladder = Ladder()
        if args.ladder:
            diagnose(servers, served, ladder)
        interrupted = any(one.interrupted for one in (served, *servers.served))
        return conclude(
            session,
            "serve",
            [served],
            served.verdict,
            _summary(served, numbers, session.device),
            as_text(served, ladder),
            msgspec.to_builtins({"reference": numbers} | ({"ladder": ladder.rungs} if ladder.rungs else {})),
            KeyboardInterrupt() if interrupted else None,
            further=servers.served,
            logs={"reference.json": held.file} if held.file else {},
        )


def _summary(served: Served, numbers: Outcome, device: Device) -> str:
    """Wrong numbers say more than what a check makes of the words; a pass says what it is worth."""
    if numbers.state == DIFFERS:
        own_kernels = device.kind == CPU and EAGER in served.launch.arguments
        return f"reference: {numbers.why}{_OWN_KERNELS if own_kernels else ''}"
    said = served.verdict is Verdict.PASS and served.launch.load_format == REAL
    return f"{served.summary}; {numbers.why}" if said else served.summary


def as_text(served: Served, ladder: Ladder) -> str:
    """The checks as a table, and below it what went wrong first."""
    rows = [
        (one.name, one.state, (one.why or one.answer.strip().replace("\n", " "))[:110])
        for one in served.checks
    ]
    parts = [table(("check", "state", ""), rows)]
    if served.explanation and served.explanation.first:
        parts.append(root_cause.as_text(served.explanation))
    if ladder.rungs:
        parts.append(ladder_text(ladder.rungs))
    return "\n\n".join(parts)
