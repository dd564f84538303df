"""Which features of the installed release work with a model: the feature matrix, each row with its evidence.

Graphs, expert parallel, flashcomm1, MTP, multimodal input, quantization and LoRA. What they are called, and
what proves them, is read from the source of the vllm and vllm-ascend that serve; a feature the release does
not have is never asked for. All are tried in one start; only when that does not serve, one by one. A feature
is verified when what was asked for is what was resolved and its line, metric or answer was seen; it can also
be unsupported, not applicable, missing in the checkpoint, or not proven. Options of vllm serve follow --.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from npu_upgrade.checkpoint.locate import model_folder
from npu_upgrade.commands.gate_next import after
from npu_upgrade.commands.serving_arguments import (
    Asked,
    add_serving_arguments,
    asked,
    named_python,
    scratch,
)
from npu_upgrade.gates.features import adapter as lora
from npu_upgrade.gates.features.capability import FEATURES, Capability
from npu_upgrade.gates.features.matrix import Matrix, Setting, make
from npu_upgrade.gates.features.model import NOT_PROVEN, UNSUPPORTED, VERIFIED, Checkpoint, read
from npu_upgrade.gates.features.probe import probe
from npu_upgrade.gates.features.source import Package, given, installed_package
from npu_upgrade.gates.serving.device import CPU
from npu_upgrade.gates.serving.launch import DUMMY
from npu_upgrade.gates.serving.record import record
from npu_upgrade.gates.serving.starts import Ladder, Servers, counters, descend, ladder_text
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.sources.installed import Installed, serving

EXAMPLES = """  upgrade.py features /models/Qwen3-30B-A3B -- --tensor-parallel-size 2
  upgrade.py features /models/Qwen3-30B-A3B --load-format dummy --only expert_parallel graph
  upgrade.py features ./tiny --python cpu
  upgrade.py features --probe --python cpu
  upgrade.py features --probe --ascend pypi:vllm-ascend==0.30.0rc2 --vllm pypi:vllm==0.30.0"""
_PARALLEL = ("--tensor-parallel-size", "-tp", "--data-parallel-size", "-dp")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_serving_arguments(parser, optional=True)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=FEATURES,
        default=list(FEATURES),
        metavar="NAME",
        help=", ".join(FEATURES),
    )
    parser.add_argument(
        "--lora", type=Path, metavar="DIR", help="the adapter to ask for (default: one with random weights)"
    )
    parser.add_argument(
        "--no-ladder", action="store_true", help="leave the diagnosis out when nothing serves"
    )
    parser.add_argument(
        "--probe",
        action="store_true",
        help="only say what the features are called, in --ascend and --vllm or for --python; start nothing",
    )
    parser.add_argument("--ascend", metavar="SPEC", help="with --probe: the vllm-ascend to read")
    parser.add_argument("--vllm", metavar="SPEC", help="with --probe: the vllm to read")


def run(args: argparse.Namespace) -> Result:
    """PASS when all that applies is verified; FAIL for unsupported or a model that does not serve."""
    if args.probe:
        return _probed(args)
    if args.ascend or args.vllm or not args.model:
        raise BadInput(
            "--ascend and --vllm go with --probe" if args.model else "no model is named",
            expected="MODEL, or --probe with the sources to read",
            try_="upgrade.py features --probe --ascend pypi:vllm-ascend==VERSION --vllm pypi:vllm==VERSION",
        )
    wanted = asked(args)
    model = read(model_folder(wanted.launch.model))
    adapter = lora.given(args.lora) if args.lora else None
    capabilities = _of(wanted)
    with scratch(wanted.store) as folder:
        if adapter is None and "lora" in args.only and capabilities["lora"].exists:
            adapter = lora.make(model.folder, folder / "adapter")
        setting = _setting(wanted, model, adapter)
        servers = Servers(
            *(wanted.launch, wanted.device, wanted.options, folder),
            extra=lambda start: [lora.ask] if "lora" in start.features else [],
            metrics=counters(capabilities.values()),
        )
        matrix, ladder = Matrix(), Ladder()
        stopped = stopping(lambda: _play(args, matrix, ladder, capabilities, setting, servers))
        return _finish(wanted, capabilities, matrix, ladder, servers, stopped)


def _of(wanted: Asked) -> dict[str, Capability]:
    packages = _served_by(wanted.installed)
    say("reading what the features are called: " + ", ".join(one.label for one in packages.values()))
    return probe(packages.get("vllm_ascend"), packages.get("vllm"))


def _served_by(installed: Installed) -> dict[str, Package]:
    names = ("vllm", "vllm_ascend")
    return {name: installed_package(folder, name) for name in names if (folder := installed.folder(name))}


def _setting(wanted: Asked, model: Checkpoint, adapter: lora.Adapter | None) -> Setting:
    return Setting(
        model,
        dummy=wanted.launch.load_format == DUMMY,
        on_cpu=wanted.device.kind == CPU,
        ranks=_ranks(wanted.launch.arguments),
        asked=wanted.launch.arguments,
        more={"lora": adapter.arguments()} if adapter else {},
        lacking={}
        if adapter
        else {"lora": "no adapter is given, and none can be made for these weights: --lora DIR"},
    )


def _ranks(arguments: Sequence[str]) -> int:
    """Tensor times data parallel, as the arguments of vllm serve ask for."""
    product = 1
    for at, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        text = value if equals else "".join(arguments[at + 1 : at + 2])
        if name in _PARALLEL and text.isdigit():
            product *= int(text)
    return product


def _play(
    args: argparse.Namespace,
    matrix: Matrix,
    ladder: Ladder,
    capabilities: Mapping[str, Capability],
    setting: Setting,
    servers: Servers,
) -> None:
    make(capabilities, setting, servers, args.only, matrix)
    if matrix.serves is False and not args.no_ladder:
        say("nothing serves; starting with less and less, to find out what it is (this passes nothing)")
        descend(servers, setting.model.inputs(), setting.asked, ladder)


def stopping(play: Callable[[], object]) -> Blocked | KeyboardInterrupt | None:
    """Run it; what ended it early is said, so that what was done before is recorded."""
    try:
        play()
    except (Blocked, KeyboardInterrupt) as error:
        return error
    return None


def _finish(
    wanted: Asked,
    capabilities: Mapping[str, Capability],
    matrix: Matrix,
    ladder: Ladder,
    servers: Servers,
    stopped: Blocked | KeyboardInterrupt | None,
) -> Result:
    verdict, summary = judged(matrix, stopped)
    if ladder.narrowed:
        summary += f"; narrowed to {ladder.narrowed}"
    more = {
        "features": [row.as_json() for row in matrix.rows.values()],
        "probed": [one.as_json() for one in capabilities.values()],
        "ladder": [one.as_json() for one in ladder.rungs],
    }
    if not servers.served:
        if stopped:
            raise stopped
        return Result(verdict, summary, more, matrix.as_text())
    line, result = record(
        wanted.store,
        "features",
        servers.served,
        wanted.installed,
        verdict=verdict,
        summary=summary,
        more=more,
        numbered=True,
    )
    if isinstance(stopped, KeyboardInterrupt):
        raise stopped
    text = matrix.as_text()
    if ladder.rungs:
        text += f"\n\n{ladder_text(ladder.rungs)}"
    text += f"\n\nevidence: {result['folder']}"
    return Result(verdict, f"{line.label}: {summary}", result, text, after(wanted, result, verdict))


def judged(matrix: Matrix, stopped: BaseException | None) -> tuple[Verdict, str]:
    """The verdict over the rows, and one line about them."""
    counts = ", ".join(f"{matrix.count(one)} {one}" for one in _statuses(matrix))
    summary = f"{counts} in {len(matrix.starts)} starts"
    if isinstance(stopped, Blocked):
        return Verdict.BLOCKED, f"{summary}; ended early: {stopped.what}"
    if stopped is not None:
        return Verdict.INCONCLUSIVE, f"{summary}; interrupted"
    if matrix.serves is False:
        return Verdict.FAIL, f"the model does not serve, with no feature asked for; {summary}"
    if matrix.count(UNSUPPORTED):
        return Verdict.FAIL, summary
    return (Verdict.INCONCLUSIVE if matrix.count(NOT_PROVEN) else Verdict.PASS), summary


def _statuses(matrix: Matrix) -> list[str]:
    return sorted({row.status for row in matrix.rows.values()}, key=lambda one: (one != VERIFIED, one))


def _probed(args: argparse.Namespace) -> Result:
    """What the features are called in sources, or in the installation that ``--python`` names."""
    if args.ascend or args.vllm:
        ascend = given(args.ascend, "vllm_ascend") if args.ascend else None
        vllm = given(args.vllm, "vllm") if args.vllm else None
    else:
        python = named_python(args.python)
        packages = _served_by(serving(python, os.environ, Path.cwd()))
        ascend, vllm = packages.get("vllm_ascend"), packages.get("vllm")
    found = probe(ascend, vllm)
    rows = [
        (
            one.feature,
            "yes" if one.exists else "no" if one.known else "?",
            one.ways[0].shown if one.ways else one.why,
            " + ".join(" or ".join(proof.shown for proof in group[:1]) for group in one.proofs if group),
        )
        for one in found.values()
    ]
    data: dict[str, Any] = {"features": [one.as_json() for one in found.values()]}
    text = table(("feature", "there", "asked for by", "proven by"), rows)
    names = " and ".join(one.label for one in (ascend, vllm) if one)
    unknown = sum(not one.known for one in found.values())
    there = sum(one.exists for one in found.values())
    verdict = Verdict.INCONCLUSIVE if unknown else Verdict.PASS
    more = f"; {unknown} need the source of vLLM as well (--vllm)" if unknown else ""
    return Result(verdict, f"{there} of {len(found)} features in {names}{more}", data, text)
