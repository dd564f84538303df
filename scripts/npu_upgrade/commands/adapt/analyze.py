"""Show what a checkpoint is, what serves it, how much memory it needs, and whether it is consistent.

The command reads files, runs none of the checkpoint's code, and needs no torch. With --vllm, --ascend or
--python it uses their sources; else the release facts that ship with the skill. PASS: the checkpoint is
consistent; FAIL: it is not (a corrupt shard, a missing tensor or scale, names without a place in the model
that serves it); INCONCLUSIVE: something could not be judged.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.checkpoint import oracle
from npu_upgrade.checkpoint.analysis import analyse
from npu_upgrade.checkpoint.analysis_file import BY_AN_ADAPTER, AnalysisFile, text_of
from npu_upgrade.checkpoint.locate import model_folder
from npu_upgrade.checkpoint.memory import GIB, RESERVE, UTILISATION
from npu_upgrade.checkpoint.steps import planned_family
from npu_upgrade.commands.adapt.model_arguments import (
    add_model_arguments,
    model_options,
    named_sources,
    write_state,
)
from npu_upgrade.commands.arguments import option
from npu_upgrade.ground.command import adapt
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.stages import find_workspace

EXAMPLES = """/models/Qwen3-8B
Qwen/Qwen3-8B --vllm pypi:vllm==0.30.0 --ascend pypi:vllm-ascend==0.30.0rc2
Qwen3-8B --vllm ../vllm --ascend ../vllm-ascend --utilisation 0.85
./checkpoint --python ~/vllm/bin/python --output analysis.json"""


_MOST_PATTERNS = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    share = "share of a device's memory (default: %(default)s)"
    option(parser, "--utilisation X", share, type=_share, default=UTILISATION)
    size = "GiB of it for activations, graphs and communication (default: %(default)g)"
    option(parser, "--reserve-gib N", size, type=_size, default=RESERVE / GIB)


def run(args: argparse.Namespace) -> Result:
    """PASS, FAIL or INCONCLUSIVE by the findings; the analysis is kept in the workspace."""
    folder = model_folder(args.model, args.models)
    reserve = int(args.reserve_gib * GIB)
    like = planned_family(args.workspace or find_workspace(Path.cwd()), str(folder))
    file = analyse(folder, named_sources(args), args.utilisation, reserve, like).file
    if args.python:
        file.oracle = oracle.consult(args.python, folder, file.properties)
    verdict = file.judge()
    file.verdict = verdict.value
    place = write_state(args, file.name, "analysis.json", file)
    command = "analyze" if file.judge(ignored=BY_AN_ADAPTER) is Verdict.FAIL else "plan"
    following = adapt(command, args.model, *model_options(args))
    return Result(verdict, _summary(file), _shown(file) | {"state": str(place)}, text_of(file), following)


def _shown(file: AnalysisFile) -> dict[str, Any]:
    """What is printed: of the names only those that need a look; the file in the workspace has all."""
    wanted = [one for one in file.mapping.patterns if one.state in ("missing", "open", "mtp", None)]
    mapping = msgspec.structs.replace(file.mapping, patterns=wanted[:_MOST_PATTERNS])
    shown = msgspec.to_builtins(msgspec.structs.replace(file, mapping=mapping))
    del shown["verdict"]
    return shown


def _summary(file: AnalysisFile) -> str:
    name = file.properties.architecture or "an unnamed architecture"
    found = {kind: [one for one in file.findings if one.severity == kind] for kind in ("error", "unsure")}
    if errors := found["error"]:
        more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
        return f"{name}: {errors[0].kind}: {errors[0].what}{more}"
    if found["unsure"]:
        return f"{name}: {found['unsure'][0].what}"
    if file.oracle and file.oracle.differences:
        names = ", ".join(one.property for one in file.oracle.differences)
        return f"{name}: vLLM itself disagrees about {names}"
    return f"{name}: {file.serving.by}; {file.strategy.name}; consistent"


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError("a share above 0 and up to 1 is expected")
    return value


def _size(text: str) -> float:
    value = float(text)
    if not 0 <= value < 10_000:
        raise argparse.ArgumentTypeError("a number of GiB is expected")
    return value
