"""A server's processes that are to have an A5 for their device know it before they import anything."""

import json
import os
import subprocess
import sys
import types

from npu_emulator.dry_run import a5, plugin, warm
from npu_upgrade.gates.emulation.catalogue import EMULATOR

_TOLD = f"""
import json, os
from importlib import import_module
built = import_module("vllm_ascend._build_info")
left = [os.environ.get(name) for name in {[plugin.MODELS, warm.ADDRESS]!r}]
print(json.dumps([built.__device_type__, built.__soc_version__, *left]))
"""


def test_a_process_finds_the_build_file_of_an_a5_and_takes_no_warm_process(tmp_path, monkeypatch):
    package = tmp_path / "packages" / "vllm_ascend"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "_build_info.py").write_text("__device_type__ = 'A2'\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(EMULATOR), str(package.parent)]))
    monkeypatch.setenv(warm.ADDRESS, "somewhere")
    variables = os.environ | a5.variables(tmp_path / "a5")
    done = subprocess.run(
        [sys.executable, "-P", "-c", _TOLD], env=variables, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == ["A5", "ascend950", a5.__name__, None]


def test_what_torch_npu_says_of_the_device_agrees(monkeypatch):
    said, replaced = types.ModuleType("torch_npu"), types.ModuleType("npu_emulator.dry_run.replaced")
    said.npu = types.SimpleNamespace(get_soc_version=lambda: 223)
    replaced.register = lambda: compared.append(True)
    compared: list[bool] = []
    monkeypatch.setitem(sys.modules, said.__name__, said)
    monkeypatch.setitem(sys.modules, replaced.__name__, replaced)
    a5.register()
    assert (said.npu.get_soc_version(), compared) == (260, [True])
