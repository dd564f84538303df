"""Check the hooks of vLLM, vllm-ascend and vllm-omni that ``runners/omni_runners`` needs, by release.

Without options: is references/runner-hooks.md current, and has every release in it the hooks? ``--vllm``,
``--ascend`` and ``--omni`` check a release that is not in the table, before anything runs on it.
"""

from __future__ import annotations

import argparse

from npu_upgrade.audit.runner_hooks import reference
from npu_upgrade.audit.runner_hooks.catalogue import ASCEND, OMNI, VLLM
from npu_upgrade.commands.arguments import option
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_atomic
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.lineage.catalogue.skill import reference_to_refresh

EXAMPLES = """
--vllm 0.33.0
--write"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "--vllm VERSION", "this release of vLLM only")
    option(parser, "--ascend VERSION", "this release of vllm-ascend only")
    option(parser, "--omni VERSION", "this release of vllm-omni only, for its stages")
    option(parser, "--write", "rewrite references/runner-hooks.md")


def run(args: argparse.Namespace) -> Result:
    """PASS when all releases have the hooks and the reference is current; else FAIL with what is not so."""
    given = {VLLM: args.vllm, ASCEND: args.ascend, OMNI: args.omni}
    chosen: dict[str, tuple[str, ...]] = {name: (version,) for name, version in given.items() if version}
    if chosen and args.write:
        raise BadInput(
            "--write with one release",
            expected="all releases of the table",
            try_="--write without --vllm, --ascend and --omni",
        )
    sources = reference.read_all(chosen) if chosen else reference.read_all()
    problems = reference.problems(sources)
    text = reference.render(sources)
    if args.write:
        write_atomic(reference_to_refresh().with_name(reference.PATH.name), text)
    elif not chosen and (not reference.PATH.exists() or reference.PATH.read_text("utf-8") != text):
        problems.append(f"{reference.PATH.name} is stale: {upgrade('hooks', '--write').short}")
    verdict = Verdict.FAIL if problems else Verdict.PASS
    data = {"releases": [f"{project} {version}" for project, version in sources], "problems": problems}
    return Result(
        verdict, f"{len(sources)} releases read, {len(problems)} problems", data, "\n".join(problems)
    )
