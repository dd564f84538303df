"""How long a context and how many sequences a model serves on this machine.

128k tokens and 16 sequences first, then 32 and 64, each with that many real requests at once, and the longest
context that the KV cache has room for. A length that does not fit is tried again at the length that vLLM says
would. Each step says what it was that did not serve. Options of vllm serve follow --.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from npu_upgrade.checkpoint.locate import model_folder
from npu_upgrade.commands.features import stopping
from npu_upgrade.commands.gate_next import after
from npu_upgrade.commands.serving_arguments import Asked, add_serving_arguments, asked, scratch
from npu_upgrade.gates.capacity import ANSWER, LENGTH, SEQUENCES, Capacity, climb, concurrent, filled
from npu_upgrade.gates.features.model import read
from npu_upgrade.gates.serving.record import record
from npu_upgrade.gates.serving.starts import Extra, Servers, Start
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict

EXAMPLES = """  upgrade.py capacity /models/Qwen3-8B
  upgrade.py capacity /models/Qwen3-8B --load-format dummy -- --tensor-parallel-size 2
  upgrade.py capacity /models/Qwen3-8B --length 32768 --sequences 16 64 256 --fill"""
_OURS = ("--max-model-len", "--max-num-seqs")
_LONGER = 10  # times the patience for an answer: a whole context takes a while
_TOKENS = 64  # of each answer: enough for all of them to run together for a while


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_serving_arguments(parser)
    parser.add_argument(
        "--length", type=int, default=LENGTH, metavar="N", help=f"tokens of context to begin with ({LENGTH})"
    )
    parser.add_argument(
        "--sequences",
        type=int,
        nargs="+",
        default=list(SEQUENCES),
        metavar="N",
        help=f"sequences at once, in this order ({' '.join(map(str, SEQUENCES))})",
    )
    parser.add_argument(
        "--fill",
        action="store_true",
        help="also one request of the whole context for each length; it may take ten times the patience for "
        "an answer",
    )
    parser.add_argument(
        "--no-maximum", action="store_true", help="leave out the start at the longest context that would fit"
    )


def run(args: argparse.Namespace) -> Result:
    """PASS when the baseline and every further step is served; INCONCLUSIVE for less; FAIL for nothing."""
    _check(args)
    wanted = asked(args)
    promised = read(model_folder(wanted.launch.model)).longest()
    capacity = Capacity(promised)
    with scratch(wanted.store) as folder:
        servers = Servers(
            *(wanted.launch, wanted.device, wanted.options, folder),
            extra=_checks(args.fill, wanted.options.answer),
        )
        stopped = stopping(
            lambda: climb(servers, promised, args.length, args.sequences, not args.no_maximum, capacity)
        )
        if not servers.served and stopped:
            raise stopped
        return _finish(args, wanted, capacity, servers, stopped)


def _check(args: argparse.Namespace) -> None:
    clash = sorted({one.partition("=")[0] for one in args.passed_on} & set(_OURS))
    if clash or min([args.length, *args.sequences]) < 1 or len(set(args.sequences)) < len(args.sequences):
        raise BadInput(
            f"{', '.join(clash)} after --"
            if clash
            else "a length or a number of sequences is below 1, or twice",
            expected="lengths and sequences as --length N and --sequences N ..., each number once",
            try_="upgrade.py capacity MODEL --length 32768 --sequences 16 32",
        )


def _checks(fill: bool, seconds: float) -> Callable[[Start], list[Extra]]:
    """What a start is asked, ``seconds`` being the patience for an answer; each length is filled once."""
    tried: set[int] = set()

    def checks(start: Start) -> list[Extra]:
        length, number = _given(start, "--max-model-len"), _given(start, "--max-num-seqs")
        found = [concurrent(number, _TOKENS, seconds)]
        if fill and length > ANSWER and length not in tried:
            tried.add(length)
            found.append(filled(length, _LONGER * seconds))
        return found

    return checks


def _given(start: Start, option: str) -> int:
    return int(start.arguments[start.arguments.index(option) + 1])


def _finish(
    args: argparse.Namespace,
    wanted: Asked,
    capacity: Capacity,
    servers: Servers,
    stopped: Blocked | KeyboardInterrupt | None,
) -> Result:
    verdict, summary = judged(capacity, args.length, args.sequences, stopped)
    more: dict[str, Any] = {"capacity": capacity.rows(), "promised_max_model_len": capacity.promised}
    line, result = record(
        wanted.store,
        "capacity",
        servers.served,
        wanted.installed,
        verdict=verdict,
        summary=summary,
        more=more,
        numbered=True,
    )
    if isinstance(stopped, KeyboardInterrupt):
        raise stopped
    rows = [
        (str(one.length), str(one.sequences), one.state, str(one.cache_tokens or ""), one.why[:110])
        for one in capacity.steps
    ]
    text = table(("context", "sequences", "state", "KV cache tokens", ""), rows)
    text += f"\n\nevidence: {result['folder']}"
    return Result(verdict, f"{line.label}: {summary}", result, text, after(wanted, result, verdict))


def judged(
    capacity: Capacity, length: int, sequences: list[int], stopped: BaseException | None
) -> tuple[Verdict, str]:
    """The verdict over the steps. The configuration's own limit lowers what is asked for, not the verdict."""
    if capacity.practical is None:
        said = next((one.why for one in reversed(capacity.steps) if one.why), "nothing was started")
        summary = f"nothing was served: {said}"
    else:
        most = (
            f"theoretical maximum {capacity.theoretical}" if capacity.theoretical else "no KV cache size told"
        )
        summary = (
            f"served {capacity.practical} tokens of context and {capacity.most_sequences} sequences; {most}"
            + (f"; filled {capacity.filled} tokens" if capacity.filled else "")
        )
    if isinstance(stopped, Blocked):
        return Verdict.BLOCKED, f"{summary}; ended early: {stopped.what}"
    if stopped is not None:
        return Verdict.INCONCLUSIVE, f"{summary}; interrupted"
    if capacity.practical is None:
        failed = any(one.state == "FAIL" for one in capacity.steps)
        return (Verdict.FAIL if failed else Verdict.INCONCLUSIVE), summary
    wanted = min(length, capacity.promised or length)
    whole = capacity.practical >= wanted and capacity.most_sequences == max(sequences)
    return (Verdict.PASS if whole else Verdict.INCONCLUSIVE), summary
