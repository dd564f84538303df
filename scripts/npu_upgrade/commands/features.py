"""Show which features of the installed release work with a model: a matrix with evidence in each row.

The features are graphs, expert parallel, flashcomm1, MTP, multimodal input, quantization and LoRA. The source
of the serving vllm and vllm-ascend says how to request each and what proves it; the command never requests a
feature that the release lacks. It tries all in one start; if that does not serve, all but the feature that
the failure names, else one by one. A feature is verified when the server resolved the request and showed the
expected log line, metric or answer; else it is unsupported, not applicable, missing in the checkpoint, or not
proven. Options of vllm serve follow --.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.commands.arguments import option
from npu_upgrade.commands.serving_arguments import add_serving_arguments, asked, conclude, noting
from npu_upgrade.gates.features import adapter as lora
from npu_upgrade.gates.features.capability import FEATURES
from npu_upgrade.gates.features.matrix import Matrix, Setting, make, start
from npu_upgrade.gates.features.probe import counters, packages_of, probe
from npu_upgrade.gates.features.source import given
from npu_upgrade.gates.serving.device import CPU
from npu_upgrade.gates.serving.launch import DUMMY, ranks
from npu_upgrade.gates.serving.session import named_python, scratch, stopping
from npu_upgrade.gates.serving.starts import Ladder, Servers, descend, ladder_text
from npu_upgrade.ground.command import ADAPT, adapt, program, upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.sources.installed import serving

EXAMPLES = """/models/Qwen3-30B-A3B -- --tensor-parallel-size 2
/models/Qwen3-30B-A3B --load-format dummy --only expert_parallel graph
./tiny --python cpu
--probe --python cpu
--probe --ascend pypi:vllm-ascend==0.30.0rc2 --vllm pypi:vllm==0.30.0"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_serving_arguments(parser, optional=True)
    option(parser, "--only NAME...", ", ".join(FEATURES), choices=FEATURES, default=list(FEATURES))
    option(parser, "--lora DIR", "the adapter to use (default: one with random weights)", type=Path)
    option(parser, "--no-ladder", "skip the diagnosis when nothing serves")
    option(
        parser,
        "--probe",
        "only show how to request each feature, from --ascend and --vllm or --python; start nothing",
    )
    option(parser, "--ascend SPEC", "with --probe: the vllm-ascend to read")
    option(parser, "--vllm SPEC", "with --probe: the vllm to read")


@noting("features")
def run(args: argparse.Namespace) -> Result:
    """PASS when all that applies is verified; FAIL for unsupported or a model that does not serve."""
    if args.probe:
        return _probed(args)
    if args.model and (args.ascend or args.vllm):
        raise BadInput(
            "--ascend and --vllm need --probe; the model's plan or --python selects the server",
            expected="MODEL alone, or --probe with the sources to read",
            try_=adapt("plan", args.model, "--ascend", args.ascend or "SPEC").short,
        )
    if not args.model:
        raise BadInput(
            "no model given",
            expected="MODEL, or --probe with the sources to read",
            try_=upgrade("features", "--probe", "--ascend", "SPEC", "--vllm", "SPEC").short,
        )
    session = asked(args)
    launch = session.launch
    model = session.checkpoint()
    adapter = lora.given(args.lora) if args.lora else None
    packages = packages_of(session.installed)
    say("reading how to request features: " + ", ".join(one.label for one in packages.values()))
    capabilities = probe(packages.get("vllm_ascend"), packages.get("vllm"))
    with scratch(session.store) as folder:
        if adapter is None and "lora" in args.only and capabilities["lora"].exists:
            adapter = lora.make(model.folder, folder / "adapter", session.like)
        lacking = "no adapter is given, and none can be made for these weights: --lora DIR"
        setting = Setting(
            model,
            dummy=launch.load_format == DUMMY,
            on_cpu=session.device.kind == CPU,
            ranks=ranks(launch.arguments),
            asked=launch.arguments,
            more={"lora": adapter.arguments()} if adapter else {},
            lacking={} if adapter else {"lora": lacking},
            aside=() if args.lora or list(args.only) != list(FEATURES) else ("lora",),
        )
        servers = Servers(
            *(launch, session.device, session.options, folder),
            extra=lambda start: [lora.ask] if "lora" in start.features else [],
            metrics=counters(capabilities.values()),
        )
        matrix, ladder = Matrix(), Ladder()

        def play() -> None:
            make(capabilities, setting, servers, args.only, matrix)
            if program() == ADAPT and not servers.served:
                # nothing can be asked for: one start as it is, so that there is evidence to cite
                matrix.starts.append(servers(start("start-1", {}, ())))
                matrix.serves = matrix.starts[-1].served
            if matrix.serves is False and not args.no_ladder:
                say("nothing serves; starting with less each time to find the cause (this passes nothing)")
                descend(servers, model.inputs(), launch.arguments, ladder)

        stopped = stopping(play)
        verdict, summary = matrix.judged(stopped)
        if ladder.narrowed:
            summary += f"; narrowed to {ladder.narrowed}"
        more = {
            "features": msgspec.to_builtins(list(matrix.rows.values())),
            "probed": [one.as_json() for one in capabilities.values()],
            "ladder": msgspec.to_builtins(ladder.rungs),
        }
        text = matrix.as_text() + (f"\n\n{ladder_text(ladder.rungs)}" if ladder.rungs else "")
        if servers.served:
            return conclude(
                session,
                "features",
                servers.served,
                verdict,
                summary,
                text,
                more,
                stopped,
                numbered=True,
            )
        if stopped:
            raise stopped
        return Result(verdict, summary, more, text)


def _probed(args: argparse.Namespace) -> Result:
    """What the features are called in sources, or in the installation that ``--python`` names."""
    if args.ascend or args.vllm:
        ascend = given(args.ascend, "vllm_ascend") if args.ascend else None
        vllm = given(args.vllm, "vllm") if args.vllm else None
    else:
        packages = packages_of(serving(named_python(args.python), os.environ, Path.cwd()))
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
    more = f"; {unknown} also need the source of vLLM (--vllm)" if unknown else ""
    return Result(verdict, f"{there} of {len(found)} features in {names}{more}", data, text)
