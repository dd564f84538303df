"""Which code and which checkpoint a run counts for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from npu_upgrade.evidence.judged import judged
from npu_upgrade.evidence.runs import _is_of


@pytest.mark.parametrize(
    ("name", "same"), [("_build_info.py", True), ("_version.py", True), ("ops.py", False)]
)
def test_what_a_build_writes_is_none_of_the_code(tmp_path: Path, name: str, same: bool) -> None:
    """So that a run of a checkout that was built counts for the checkout that was not."""
    (tmp_path / "__init__.py").write_text("")
    before = judged({"vllm_ascend": tmp_path})[0].tree
    (tmp_path / name).write_text("__soc_version__ = 'x'\n")
    assert (judged({"vllm_ascend": tmp_path})[0].tree == before) is same


def test_a_checkpoint_is_named_by_its_folder_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("Eddy", "Other"):
        (tmp_path / "models" / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    run = SimpleNamespace(result={"model_name": "Eddy", "model": str(tmp_path / "models" / "Eddy")})
    names = (
        "Eddy",
        "models/Eddy",
        "models/Eddy/",
        str(tmp_path / "models" / "Eddy"),
        "models/Other",
        "Other",
    )
    assert [_is_of(run, name) for name in names] == [True, True, True, True, False, False]
