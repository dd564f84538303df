"""Say what a checkpoint is, who serves it, what it needs of memory, and whether it is consistent.

Files are read, nothing of the checkpoint is run, and no torch is needed. With --vllm, --ascend or --python
their sources answer; without, the facts of the releases that ship with the skill. PASS: the checkpoint is
consistent; FAIL: it is not (a corrupt shard, a missing tensor or scale, names that have no place in the
model that serves it); INCONCLUSIVE: something could not be judged.
"""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from npu_upgrade.checkpoint import oracle
from npu_upgrade.checkpoint.analysis import Analysis, analyse
from npu_upgrade.checkpoint.locate import model_folder
from npu_upgrade.checkpoint.memory import GIB
from npu_upgrade.checkpoint.report import text_of
from npu_upgrade.commands.adapt.model_arguments import (
    add_model_arguments,
    named_sources,
    next_options,
    write_state,
)
from npu_upgrade.ground.verdict import Result, Verdict

EXAMPLES = """  adapt.py analyze /models/Qwen3-8B
  adapt.py analyze Qwen/Qwen3-8B --vllm pypi:vllm==0.30.0 --ascend pypi:vllm-ascend==0.30.0rc2
  adapt.py analyze Qwen3-8B --vllm ../vllm --ascend ../vllm-ascend --utilisation 0.85
  adapt.py analyze ./checkpoint --python ~/vllm/bin/python --output analysis.json"""


_MOST_PATTERNS = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument(
        "--utilisation",
        type=_share,
        default=0.9,
        metavar="X",
        help="share of a device's memory (default: 0.9)",
    )
    parser.add_argument(
        "--reserve-gib",
        type=_size,
        default=None,
        metavar="N",
        help="what activations, graphs and communication take of it (default: 3)",
    )


def run(args: argparse.Namespace) -> Result:
    """PASS, FAIL or INCONCLUSIVE by the findings; the analysis is kept in the workspace."""
    folder = model_folder(args.model, args.models)
    reserve = None if args.reserve_gib is None else int(args.reserve_gib * GIB)
    found = analyse(folder, named_sources(args), {"utilisation": args.utilisation, "reserve": reserve})
    value = found.as_json()
    if args.python:
        value["oracle"] = _ask(found, args)
    verdict = verdict_of(value)
    value["verdict"] = verdict.value
    place = write_state(args, found.name, "analysis.json", value)
    value["state"] = str(place)
    options = next_options(args)
    command = shlex.join(["adapt.py", "plan", args.model, *options])
    if verdict_of(value, ignored=("name-unmapped",)) is Verdict.FAIL:
        command = shlex.join(["adapt.py", "analyze", args.model, *options])
    text = text_of(value) + _oracle_text(value)
    return Result(verdict, _summary(value), _shown(value), text, command)


def _shown(value: dict[str, Any]) -> dict[str, Any]:
    """What is printed: of the names only those that need a look; the file in the workspace has all."""
    mapping = value["mapping"]
    wanted = [row for row in mapping["patterns"] if row.get("state") in ("missing", "open", "mtp", None)]
    shown = {key: one for key, one in value.items() if key != "verdict"}
    return shown | {"mapping": mapping | {"patterns": wanted[:_MOST_PATTERNS]}}


def verdict_of(value: dict[str, Any], ignored: tuple[str, ...] = ()) -> Verdict:
    """By the worst finding (but those ``ignored``), and by what vLLM itself says where it was asked."""
    severities = {one["severity"] for one in value["findings"] if one["kind"] not in ignored}
    if "error" in severities:
        return Verdict.FAIL
    differs = value.get("oracle", {}).get("differences")
    return Verdict.INCONCLUSIVE if "unsure" in severities or differs else Verdict.PASS


def _ask(found: Analysis, args: argparse.Namespace) -> dict[str, Any]:
    answer = oracle.ask(args.python, [found.folder])[0]
    differences = [] if "error" in answer else oracle.differences(found.properties, answer)
    return {"answer": answer, "differences": differences}


def _oracle_text(value: dict[str, Any]) -> str:
    asked = value.get("oracle")
    if not asked:
        return ""
    version = asked["answer"]["vllm"]
    if "error" in asked["answer"]:
        return f"\n\nvLLM {version} itself cannot load the configuration: {asked['answer']['error'][:400]}"
    lines = [f"{one['property']}: here {one['analysis']}, vLLM {one['vllm']}" for one in asked["differences"]]
    return f"\n\nvLLM {version} itself: " + (
        "\n  ".join(["it says otherwise", *lines]) if lines else "the same"
    )


def _summary(value: dict[str, Any]) -> str:
    errors = [one for one in value["findings"] if one["severity"] == "error"]
    unsure = [one for one in value["findings"] if one["severity"] == "unsure"]
    name = value["properties"]["architecture"] or "an unnamed architecture"
    if errors:
        more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
        return f"{name}: {errors[0]['kind']}: {errors[0]['what']}{more}"
    if unsure:
        return f"{name}: {unsure[0]['what']}"
    differs = value.get("oracle", {}).get("differences")
    if differs:
        return f"{name}: vLLM itself says otherwise about {', '.join(one['property'] for one in differs)}"
    return f"{name}: {value['serving']['by']}; {value['strategy']['name']}; consistent"


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
