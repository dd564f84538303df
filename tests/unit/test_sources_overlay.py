"""A tree with some files replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources.tree import open_source, overlay


def test_replaced_added_and_removed_files(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    for name in ("__init__", "a", "b"):
        (tmp_path / "vllm" / f"{name}.py").write_text(f"NAME = '{name}'\n")
    tree = open_source(f"dir:{tmp_path}")
    edited = overlay(tree, {"vllm/a.py": "NAME = 'other'\n", "vllm/b.py": None, "vllm/c.py": "\n"})
    assert edited.read("vllm/a.py") == "NAME = 'other'\n"
    assert edited.read("vllm/__init__.py") == "NAME = '__init__'\n"
    assert edited.list("vllm") == ["vllm/__init__.py", "vllm/a.py", "vllm/c.py"]
    assert (edited.exists("vllm/b.py"), edited.exists("vllm/c.py")) == (False, True)
    with pytest.raises(BadInput):
        edited.read("vllm/b.py")
    assert (edited.project, edited.dirty, edited.spec == tree.spec) == ("vllm", True, False)
    assert tree.read("vllm/a.py") == "NAME = 'a'\n"
    assert overlay(tree, {}) is tree
