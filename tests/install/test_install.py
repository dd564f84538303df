"""The skill as the `skills` installer leaves it: whole, runnable from anywhere, and never written to.

The test command installs once, with the installer that any Node can run. `make test-install` does all: two
versions of the installer, every layout, every documented command, a read-only folder and a bare Python.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import installers
import pytest
import skill_calls
from installers import LAYOUTS, Installer, Layout
from skill_calls import Call, documented_calls

from documented import COMMANDS, ROOT, broken_links, skill_documents

INSTALLERS = {"old": installers.old_installer, "newest": installers.newest_installer}
DROPPED = {"metadata.json"}
"""Files that the installer leaves out wherever they lie."""

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The working tree as a git source."""
    if not (ROOT / ".git").exists():
        pytest.skip("only a git checkout of the skill can be made a git source")
    return installers.git_source(ROOT, tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that the calls of this module share."""
    return tmp_path_factory.mktemp("cache")


def usable(name: str) -> Installer:
    """An installer, or a skip that says why it is BLOCKED here."""
    if shutil.which("npx") is None:
        pytest.skip("BLOCKED: no npx on PATH (Node 20 or newer brings it)")
    found = INSTALLERS[name]()
    if found.why_not:
        pytest.skip(f"BLOCKED: {found.why_not}")
    return found


def problems(called: list[Call], skill: Path, cwd: Path, cache: Path) -> list[str]:
    """What is wrong with the calls of an installed skill, and what they changed in its folder."""
    before = installers.contents(skill.resolve())
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        wrong = [
            text for text in pool.map(lambda call: skill_calls.run(call, skill, cwd, cache), called) if text
        ]
    return wrong + changed(before, installers.contents(skill.resolve()))


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The files that differ between two states of a folder."""
    return sorted(f"written: {name}" for name in before | after if before.get(name) != after.get(name))


@cache
def one_call_each() -> list[Call]:
    """Each subcommand of both runbooks."""
    return [Call(script, (name,)) for script, names in COMMANDS.items() for name in names]


def test_an_installed_skill_works_and_stays_as_it_is(source: str, own_cache: Path, tmp_path: Path) -> None:
    installer = usable("old")
    linked = next(layout for layout in LAYOUTS if layout.name == "both-linked")
    skill = installers.install(installer, source, tmp_path / "project", linked)
    assert (tmp_path / "project/.claude/skills" / installers.NAME).is_symlink()
    (tmp_path / "elsewhere").mkdir()
    assert problems(one_call_each(), skill, tmp_path / "elsewhere", own_cache) == []
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.install
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.parametrize("name", INSTALLERS)
def test_every_documented_call(
    name: str, layout: Layout, source: str, own_cache: Path, tmp_path: Path
) -> None:
    installer = usable(name)
    print(f"\nskills {installer.version} on Node {installer.node}, {layout.name}")
    project = tmp_path / "project"
    skill = installers.install(installer, source, project, layout)
    for folder in layout.folders:
        place = project / folder / installers.NAME
        assert whole(place) == []
        assert [link for document in skill_documents(place) for link in broken_links(document)] == []
    validated = subprocess.run([beside_python("agentskills"), "validate", str(skill)], capture_output=True)
    assert validated.returncode == 0, validated.stderr.decode()
    called = documented_calls(skill)
    assert {call.real for call in called} == {True, False}
    (tmp_path / "elsewhere").mkdir()
    assert problems(called, skill, tmp_path / "elsewhere", own_cache) == []
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.install
def test_a_read_only_folder_and_a_bare_python(source: str, tmp_path: Path) -> None:
    installer = usable("old")
    skill = installers.install(installer, source, tmp_path / "project", LAYOUTS[0])
    prefix = read_only(skill)
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    command = [*prefix, str(bare / "bin" / "python"), str(skill / "scripts" / "upgrade.py"), "env", "list"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=skill_calls.environment(tmp_path / "cache"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for script, names in COMMANDS.items():
        assert (
            skill_calls.run(Call(script, (next(iter(names)),)), skill, tmp_path, tmp_path / "cache", prefix)
            == ""
        )


def read_only(skill: Path) -> tuple[str, ...]:
    """Make a folder read-only; the start of command lines that see it so, which root needs."""
    if os.geteuid() == 0:
        script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
        prefix = ("unshare", "--mount", "sh", "-c", script, str(skill))
        if subprocess.run([*prefix, "true"], capture_output=True).returncode:
            pytest.skip("BLOCKED: root writes everywhere, and this machine lets it mount nothing read-only")
        assert subprocess.run([*prefix, "touch", str(skill / "x")], capture_output=True).returncode
        return prefix
    for path in [skill, *skill.rglob("*")]:
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    return ()


def whole(skill: Path) -> list[str]:
    """What an installed copy lacks of the source, apart from what the installer drops."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    return [
        name
        for name in filter(None, listed)
        if (ROOT / name).is_file() and Path(name).name not in DROPPED and not (skill / name).is_file()
    ]


def beside_python(name: str) -> str:
    """An executable of this environment."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        pytest.skip(f"{name} is in the environment of `make test-install`")
    return str(path)
