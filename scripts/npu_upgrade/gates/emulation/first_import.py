"""Import vLLM and vllm-ascend once when their environment is new, so that later imports find byte code."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

from npu_upgrade.gates.emulation.process import play
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.progress import say

RUNNER = "vllm_ascend.worker.model_runner_v1"


def import_once(python: Path, variables: Mapping[str, str], packages: Mapping[str, Path]) -> None:
    """Import once what every run of these vLLM and vllm-ascend imports, and remember that.

    What it says does not matter here: the import tier will say it again.
    """
    made_from = "\n".join(str(packages[top]) for top in ("vllm", "vllm_ascend"))
    mark = python.parents[1] / f".imported-{hashlib.sha256(made_from.encode()).hexdigest()[:16]}"
    if mark.exists():
        return
    say("importing everything once, which writes its byte code (about 30 s)")
    with tempfile.TemporaryDirectory(prefix="npu-upgrade-") as folder, contextlib.suppress(Blocked):
        plan = {"out": folder, "models": folder, "modules": [RUNNER], "watched": [], "runs": []}
        play(python, variables, plan, Path(folder))
    mark.touch()
