"""The environment that a server is started with."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import serving_kit as kit


def test_a_virtual_environment_is_named_and_uv_is_found_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "uv").touch()
    monkeypatch.setattr(sys, "executable", str(tools / "python"))
    launch = kit.launch(tmp_path, "none")
    assert launch.variables().get("VIRTUAL_ENV") == os.environ.get("VIRTUAL_ENV")
    (tmp_path / "pyvenv.cfg").touch()
    found = launch.variables()
    assert found["VIRTUAL_ENV"] == str(tmp_path)
    path = found["PATH"].split(os.pathsep)
    assert (path[0], path[-1]) == (str(tmp_path / "bin"), str(tools))
