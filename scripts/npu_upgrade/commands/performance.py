"""Serve a model and measure it with `vllm bench serve`: throughput, time to the first token, time per token.

The command starts, proves and ends the server as serve does. It sends prompts of --input-len random tokens,
each answered with --output-len tokens, with each number of --concurrency at once. The model's pages show the
values with these lengths and the device label: CPU values say nothing about an NPU. Options of vllm serve
follow --.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from npu_upgrade.commands.arguments import option, positive
from npu_upgrade.commands.serving_arguments import add_serving_arguments, asked, conclude, noting
from npu_upgrade.gates.performance import Bench
from npu_upgrade.gates.serving.gate import judge
from npu_upgrade.gates.serving.launch import given
from npu_upgrade.gates.serving.session import scratch
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result

EXAMPLES = """/models/Qwen3-8B
/models/Qwen3-8B --input-len 4096 --output-len 512 --concurrency 1 16 64 -- --tensor-parallel-size 2
./tiny --python cpu --input-len 128 --output-len 32 --concurrency 1 4"""
INPUT, OUTPUT, CONCURRENCY = 1024, 128, (1, 16)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_serving_arguments(parser)
    for name, default, what in (("input-len", INPUT, "prompt"), ("output-len", OUTPUT, "answer")):
        option(parser, f"--{name} N", f"tokens of each {what} ({default}, or what fits)", type=positive(int))
    option(
        parser,
        "--concurrency N...",
        f"requests at once, one measurement each ({' '.join(map(str, CONCURRENCY))})",
        type=positive(int),
        default=list(CONCURRENCY),
    )


@noting("performance")
def run(args: argparse.Namespace) -> Result:
    """PASS when everything was measured; FAIL when a request was not answered, or the server fails."""
    session = asked(args)
    input_len, output_len = _lengths(args, session.checkpoint().longest())
    with scratch(session.store) as folder:
        bench = Bench(session.launch, folder, input_len, output_len, args.concurrency)
        options = replace(session.options, extra=bench.extra)
        served = judge(session.launch, session.device, options, folder / "server.log")
        said = "; ".join(one.shown for one in bench.loads)
        rows = [tuple(map(str, row.values())) for row in bench.rows()]
        return conclude(
            session,
            "performance",
            [served],
            served.verdict,
            f"{said}; {served.summary}" if said else served.summary,
            table(tuple(bench.rows()[0]), rows) if rows else served.summary,
            {"performance": bench.rows()},
            KeyboardInterrupt() if served.interrupted else None,
            logs=bench.logs(),
        )


def _lengths(args: argparse.Namespace, promised: int | None) -> tuple[int, int]:
    """The lengths asked for; left open, they are lowered to what the context has room for."""
    named = given(args.passed_on, "--max-model-len")
    room = int(named[-1]) if named and named[-1].isdigit() else promised or INPUT + OUTPUT
    input_len = args.input_len or min(INPUT, room // 2)
    output_len = args.output_len or min(OUTPUT, room // 4)
    if input_len + output_len > room:
        raise BadInput(
            f"{input_len} and {output_len} tokens do not fit into a context of {room}",
            expected="lengths that fit together",
            try_=f"--input-len {room // 2} --output-len {room // 4}, or a longer --max-model-len after --",
        )
    return max(input_len, 1), max(output_len, 1)
