"""The project's own tools run on what a merge changed, and on nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from npu_upgrade.code import formatting
from npu_upgrade.code.formatting import configured, formatted, project_of

HOOKS = "repos:\n- hooks:\n  - id: ruff-format\n  - id: codespell\n- hooks:\n  - id: isort\n"
TIDY = "def f(x):\n    return x\n"
ROUGH = "old = {'a' :1}\n"
NEW = "new = {'b' :2}\n"


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({}, []),
        ({"pyproject.toml": "[project]\nname = 'x'\n"}, []),
        ({"pyproject.toml": "[tool.ruff.format]\n[tool.ruff.lint]\n"}, ["ruff check", "ruff format"]),
        (
            {"pyproject.toml": "[tool.yapf]\n[tool.isort]\n[tool.ruff.lint]\n"},
            ["ruff check", "isort", "yapf"],
        ),
        ({"ruff.toml": "line-length = 80\n"}, ["ruff check", "ruff format"]),
        ({".pre-commit-config.yaml": HOOKS, "pyproject.toml": "[tool.black]\n"}, ["isort", "ruff format"]),
        ({".pre-commit-config.yaml": "- 1\n", "pyproject.toml": "[tool.black]\n"}, ["black"]),
    ],
)
def test_the_tools_are_read_from_the_configuration(
    tmp_path: Path, files: dict[str, str], names: list[str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert configured(tmp_path) == names


@pytest.mark.parametrize(
    ("before", "text", "want"),
    [
        (TIDY, TIDY + NEW, TIDY + '\n\nnew = {"b": 2}\n'),  # tidy before: all of it
        (ROUGH + TIDY, ROUGH + TIDY + NEW, ROUGH + TIDY + 'new = {"b": 2}\n'),  # rough before: the new lines
        (TIDY, f"<<<<<<< ours\n{NEW}=======\n{ROUGH}>>>>>>> theirs\n", None),  # not while it is in dispute
        (ROUGH, ROUGH, None),
        (TIDY, "def (\n", None),  # what it cannot read stays
    ],
)
def test_only_what_changed_is_formatted(tmp_path: Path, before: str, text: str, want: str | None) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ruff.format]\n")
    assert formatted(tmp_path, "a.py", before, text) == (want or text)


def test_a_tool_that_is_not_at_hand_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formatting.shutil, "which", lambda name, path=None: None)
    (tmp_path / "pyproject.toml").write_text("[tool.yapf]\n")
    assert formatted(tmp_path, "a.py", TIDY, TIDY + NEW) == TIDY + NEW
    assert "yapf" in capsys.readouterr().err


def test_the_project_of_a_folder_is_looked_for_up_to_its_git_checkout(tmp_path: Path) -> None:
    (tmp_path / "ruff.toml").write_text("")
    inner = tmp_path / "a/b"
    (inner / "c").mkdir(parents=True)
    assert project_of(inner / "c") == tmp_path
    (inner / ".git").mkdir()
    assert project_of(inner / "c") is None
    (inner / "pyproject.toml").write_text("[tool.yapf]\n")
    assert project_of(inner / "c") == inner
