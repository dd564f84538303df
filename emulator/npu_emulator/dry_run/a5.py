"""What tells a server's processes that their device is an Ascend 950 (A5).

vllm-ascend reads its device from a file that its build writes, and holds it against what torch_npu says; the
packages that are emulated have the file of an A2. Torch_npu's own operators stay those of an A2: those of an
A5 are CANN's.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType

_BUILT, _SOC, _NUMBER = "vllm_ascend._build_info", "ascend950", 260
_FIRST = f"from {__name__} import become\n\nbecome()\n"


def variables(folder: Path) -> dict[str, str]:
    """Of a process whose device is to be an A5, and of all that it starts; ``folder`` is written to."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_FIRST, encoding="utf-8")
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])}


def become() -> None:
    """Before anything else is imported: vllm-ascend is one that was built for an A5.

    What is imported already has asked for its device, so this process takes no warm ones; and what is wanted
    of executed lines is recorded from here, since a platform is made before vLLM calls a plugin.
    """
    from npu_emulator.dry_run import executed, plugin, warm

    built = ModuleType(_BUILT)
    built.__device_type__, built.__soc_version__ = "A5", _SOC
    sys.modules[_BUILT] = built
    os.environ[plugin.MODELS] = __name__
    os.environ.pop(warm.ADDRESS, None)
    if watched := os.environ.get(plugin.WATCHED):
        executed.watch(json.loads(watched))


def register() -> None:
    """In each process of vLLM: torch_npu says so, too."""
    import torch_npu

    from npu_emulator.dry_run import replaced

    torch_npu.npu.get_soc_version = lambda: _NUMBER
    replaced.register()
