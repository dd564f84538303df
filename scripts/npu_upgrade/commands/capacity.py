"""Find how long a context and how many sequences a model serves on this machine.

The command starts with 128k tokens and 16 sequences, goes on with 32 and 64, each with as many concurrent
real requests, and ends with the longest context that fits the KV cache. Without an NPU it begins with the
most sequences: when those are served, fewer need no start. If a length does not fit, it tries the one that
vLLM names. Each step that fails says why; performance measures the speed. Options of vllm
serve follow --.
"""

from __future__ import annotations

import argparse

from npu_upgrade.commands.arguments import option, positive
from npu_upgrade.commands.serving_arguments import add_serving_arguments, asked, conclude, noting
from npu_upgrade.gates.capacity import LENGTH, OPTIONS, SEQUENCES, Capacity, checks, climb
from npu_upgrade.gates.serving.device import NPU
from npu_upgrade.gates.serving.launch import clashing
from npu_upgrade.gates.serving.session import scratch, stopping
from npu_upgrade.gates.serving.starts import Servers
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result

EXAMPLES = """/models/Qwen3-8B
/models/Qwen3-8B --load-format dummy -- --tensor-parallel-size 2
/models/Qwen3-8B --length 32768 --sequences 16 64 256 --fill"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_serving_arguments(parser)
    option(
        parser,
        "--length N",
        f"context tokens to start with ({LENGTH})",
        type=positive(int),
        default=LENGTH,
    )
    option(
        parser,
        "--sequences N...",
        f"sequences at once, in this order; without an NPU the most first ({' '.join(map(str, SEQUENCES))})",
        type=positive(int),
        default=list(SEQUENCES),
    )
    option(
        parser,
        "--fill",
        "also send one request of the whole context per length; it may take ten times --answer",
    )
    option(parser, "--no-maximum", "skip the start at the longest context that would fit")


@noting("capacity")
def run(args: argparse.Namespace) -> Result:
    """PASS when the baseline and every further step is served; INCONCLUSIVE for less; FAIL for nothing."""
    clash = clashing(args.passed_on, OPTIONS)
    if clash or len(set(args.sequences)) < len(args.sequences):
        raise BadInput(
            f"{', '.join(clash)} after --" if clash else "--sequences repeats a number",
            expected="lengths and sequences as --length N and --sequences N ..., each number once",
            try_=upgrade("capacity", "MODEL", "--length", "32768", "--sequences", "16", "32").short,
        )
    session = asked(args)
    promised = session.checkpoint().longest()
    capacity = Capacity(promised)
    with scratch(session.store) as folder:
        servers = Servers(
            *(session.launch, session.device, session.options, folder),
            extra=checks(args.fill, session.options.answer),
        )
        # elsewhere there is no limit to find, and starts are all that it costs
        most_first = session.device.kind != NPU
        how = (args.length, args.sequences, not args.no_maximum, capacity, most_first)
        stopped = stopping(lambda: climb(servers, promised, *how))
        if not servers.served and stopped:
            raise stopped
        verdict, summary = capacity.judged(args.length, args.sequences, stopped)
        more = {"capacity": capacity.rows(), "promised_max_model_len": capacity.promised}
        text = _as_text(capacity)
        return conclude(
            session, "capacity", servers.served, verdict, summary, text, more, stopped, numbered=True
        )


def _as_text(capacity: Capacity) -> str:
    rows = [
        (str(one.length), str(one.sequences), one.state, str(one.cache_tokens or ""), one.why[:110])
        for one in capacity.steps
    ]
    return table(("context", "sequences", "state", "KV cache tokens", ""), rows)
