"""Writing files: whole or not at all, one or several."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_atomic, write_together


def snapshot(folder: Path) -> dict[str, tuple[int, str]]:
    """Relative path -> mode and content (a link's target) of everything in a folder but its empty folders."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            os.readlink(path) if path.is_symlink() else path.read_bytes().decode(),
        )
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def a_folder(folder: Path) -> Path:
    (folder / "target").mkdir()
    return folder / "target"


def a_folder_with_files(folder: Path) -> Path:
    (a_folder(folder) / "inner").write_text("inner")
    return folder / "target"


def a_link_to_a_folder(folder: Path) -> Path:
    (folder / "elsewhere").mkdir()
    (folder / "target").symlink_to(folder / "elsewhere")
    return folder / "target"


def below_a_file(folder: Path) -> Path:
    (folder / "file").write_text("file")
    return folder / "file" / "target"


def with_a_long_name(folder: Path) -> Path:
    return folder / ("x" * 300)


def below_a_long_name(folder: Path) -> Path:
    return folder / ("x" * 300) / "target"


def below_a_dangling_link(folder: Path) -> Path:
    (folder / "link").symlink_to(folder / "nowhere" / "else")
    return folder / "link" / "target"


def a_link_to_itself(folder: Path) -> Path:
    (folder / "link").symlink_to(folder / "link")
    return folder / "link" / "target"


def in_a_pseudo_file_system(folder: Path) -> Path:
    return Path("/proc/self/npu-upgrade-target")


UNWRITABLE = [
    a_folder,
    a_folder_with_files,
    a_link_to_a_folder,
    below_a_file,
    with_a_long_name,
    below_a_long_name,
    below_a_dangling_link,
    a_link_to_itself,
    in_a_pseudo_file_system,
]


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize("kind", UNWRITABLE)
def test_one_unwritable_place_leaves_all_files_as_they_were(
    tmp_path: Path, kind: Callable[[Path], Path], position: int
) -> None:
    old, executable, new = tmp_path / "old", tmp_path / "executable", tmp_path / "deep" / "new"
    old.write_text("old")
    executable.write_text("old, too")
    executable.chmod(0o755)
    (tmp_path / ".old.new").write_text("somebody's")
    target = kind(tmp_path)
    before = snapshot(tmp_path)
    places = [old, executable, new]
    places.insert(position, target)
    with pytest.raises(BadInput, match="cannot write") as raised:
        write_together(dict.fromkeys(places, "text"))
    assert str(target) in str(raised.value)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["replace", "chmod", "fdopen"])
def test_a_failure_at_any_moment_leaves_all_files_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    files = {tmp_path / name: f"new {name}" for name in ("a", "b", "deep/c", "d")}
    for name in ("a", "d"):
        (tmp_path / name).write_text(f"old {name}")
    before = snapshot(tmp_path)
    real = getattr(os, call)
    for moment in range(1, 20):
        left = [moment]

        def failing(*args: object, left: list[int] = left, **more: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                raise error
            return real(*args, **more)

        with monkeypatch.context() as patched:
            patched.setattr(os, call, failing)
            try:
                write_together(files)
            except (BadInput, KeyboardInterrupt):
                assert snapshot(tmp_path) == before
            else:
                break
    assert moment > len(files)
    assert {path: path.read_text() for path in files} == files


def test_files_keep_their_modes_and_new_ones_get_the_usual_one(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("old")
    (tmp_path / "script").chmod(0o750)
    write_together({tmp_path / "script": "new", tmp_path / "deep" / "file": "text"})
    assert {name: oct(mode & 0o777) for name, (mode, _) in snapshot(tmp_path).items()} == {
        "script": "0o750",
        "deep/file": "0o644",
    }


@pytest.mark.parametrize("write", [write_atomic, lambda path, text: write_together({path: text})])
def test_an_immutable_file_is_told(tmp_path: Path, write: Callable[[Path, str], None]) -> None:
    place = tmp_path / "place"
    place.write_text("old")
    if subprocess.run(["chattr", "+i", str(place)], capture_output=True, check=False).returncode:
        pytest.skip("this file system has no immutable files")
    try:
        with pytest.raises(BadInput, match="cannot write"):
            write(place, "new")
    finally:
        subprocess.run(["chattr", "-i", str(place)], check=True)
    assert snapshot(tmp_path)["place"][1] == "old"
