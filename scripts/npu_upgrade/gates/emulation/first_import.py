"""Import vLLM and vllm-ascend once when their environment is new, so that later imports find byte code."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from npu_upgrade.code.exports import module_of
from npu_upgrade.gates.emulation.process import play
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.sources.tree import SourceTree


def runner_module(ascend: SourceTree, vllm: SourceTree) -> str:
    """The module of vllm-ascend's own runner, which imports all that a run needs."""
    return module_of(Downstream(ascend, {"vllm": vllm}).runners[0].path)


def import_once(
    python: Path, variables: Mapping[str, str], packages: Mapping[str, Path], module: Callable[[], str]
) -> None:
    """Import once ``module``, as every run of these vLLM and vllm-ascend does, and remember that.

    What it says does not matter here: the import tier will say it again.
    """
    made_from = "\n".join(str(packages[top]) for top in ("vllm", "vllm_ascend"))
    mark = python.parents[1] / f".imported-{hashlib.sha256(made_from.encode()).hexdigest()[:16]}"
    if mark.exists():
        return
    say("importing everything once, which writes its byte code (about 30 s)")
    with tempfile.TemporaryDirectory(prefix="npu-upgrade-") as folder, contextlib.suppress(Blocked):
        plan = {"out": folder, "models": folder, "modules": [module()], "watched": [], "runs": []}
        play(python, variables, plan, Path(folder))
    mark.touch()
