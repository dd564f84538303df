"""Lines of any file that pin the version of upstream a project was on."""

from __future__ import annotations

from pathlib import Path

import pytest
from sources_kit import git, write_tree

from npu_upgrade.merge.pinned import Move, pin_items, pinned_in, repinned
from npu_upgrade.sources.tree import open_source

MOVES = [
    Move("core", ("1.2.0",), "1.3.0"),
    Move("core-extra", ("0.8.0rc1",), "0.9.0"),
    Move("core-ship", (), ""),
]


def found(folder: Path, path: str, text: str) -> list[tuple[str, str]]:
    write_tree(folder, {"ship/__init__.py": "", path: text})
    pins = pinned_in(open_source(f"dir:{folder}"), MOVES)
    return [(one.change.new, one.why) for one in pins]


@pytest.mark.parametrize(
    ("path", "text", "after"),
    [
        ("Dockerfile", "ARG CORE_TAG=v1.2.0\n", "ARG CORE_TAG=v1.3.0"),
        (
            "docker/Dockerfile.b",
            "FROM quay.io/x/core-extra:v0.8.0rc1-b3\n",
            "FROM quay.io/x/core-extra:v0.9.0-b3",
        ),
        (".github/core-release.commit", "v1.2.0\n", "v1.3.0"),
        (".ci/flow.yml", "core_version: [0123abc, v1.2.0]\n", "core_version: [0123abc, v1.3.0]"),
        (".ci/flow.yml", "core:\n  tag: v1.2.0\n", "  tag: v1.3.0"),
        ("requirements/x.txt", "core==1.2.0\n", "core==1.3.0"),
        ("pyproject.toml", 'dependencies = ["core[all]==1.2.0"]\n', 'dependencies = ["core[all]==1.3.0"]'),
        (
            "README.md",
            "| main | CI for Core main and Core v1.2.0 |\n",
            "| main | CI for Core main and Core v1.3.0 |",
        ),
        ("docs/start.md", "```\ngit clone x/core\n\ngit checkout -b v1.2.0\n```\n", "git checkout -b v1.3.0"),
    ],
)
def test_a_pin_is_found_by_its_version_and_what_it_is_of(
    tmp_path: Path, path: str, text: str, after: str
) -> None:
    assert found(tmp_path, path, text) == [(after, "")]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("requirements.txt", "corelike-vision==1.2.0  # beside core\n"),  # another package
        ("Dockerfile", "ARG CORE_SHIP_TAG=v1.2.0\n"),  # the project's own version
        ("Dockerfile", "ARG CORE_TAG=v1.2.0.post1\n"),
        ("requirements.txt", "core>=1.2.0\n"),  # a bound that holds on
        ("README.md", "| v0.7.0 | Core v1.2.0 |\n"),  # the row of a release
        ("docs/notes.md", "## v0.7.0\n\n### Needs\n\n- Core v1.2.0\n"),
        ("docs/faq.md", "This works since Core v1.2.0.\n"),
        ("docs/zh/x.po", 'msgid "Core v1.2.0"\n'),
        ("ship/own.py", "CORE = '1.2.0'\n"),
    ],
)
def test_what_is_of_another_or_of_the_past_stays(tmp_path: Path, path: str, text: str) -> None:
    assert found(tmp_path, path, text) == []


def test_what_is_locked_is_for_a_person(tmp_path: Path) -> None:
    lock = '[[package]]\nname = "core"\nversion = "1.2.0"\nsdist = { url = "x", hash = "y" }\n'
    ((_, why),) = found(tmp_path, "uv.lock", lock)
    assert "lock it again with core 1.3.0" in why


def test_one_question_for_each_file(tmp_path: Path) -> None:
    write_tree(
        tmp_path, {"ship/__init__.py": "", "a.sh": "pip install core==1.2.0\n#\npip install core==1.2.0\n"}
    )
    (item,) = pin_items(pinned_in(open_source(f"dir:{tmp_path}"), MOVES))
    assert (item.kind, item.path, item.blocking) == ("pin", "a.sh", False)
    text = (tmp_path / "a.sh").read_text()
    assert repinned(text, item.changes) == text.replace("1.2.0", "1.3.0")


def test_what_git_ignores_is_left_alone(tmp_path: Path) -> None:
    def places() -> set[str]:
        return {one.path for one in pinned_in(open_source(f"dir:{tmp_path}"), MOVES)}

    pin = "ARG CORE_TAG=v1.2.0\n"
    write_tree(tmp_path, {"ship/__init__.py": "", "Dockerfile": pin, "skill/Dockerfile": pin})
    assert places() == {"Dockerfile", "skill/Dockerfile"}
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("skill/\n")
    assert places() == {"Dockerfile"}
