"""The digest of a checkpoint: the whole content, large files read once as long as nobody writes to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from npu_upgrade.evidence import judged
from npu_upgrade.evidence.judged import model_digest

BYTES = 3 << 20


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "Tiny"
    (folder / "vocoder").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    for name in ("model.safetensors", "vocoder/model.safetensors"):
        (folder / name).write_bytes(bytes(BYTES))
    return folder


def change(path: Path, at: int) -> None:
    """One byte at a place, with the time of modification as it was."""
    before = path.stat()
    with path.open("r+b") as stream:
        stream.seek(at)
        stream.write(b"1")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("at", [0, BYTES - 1])
@pytest.mark.parametrize("name", ["model.safetensors", "vocoder/model.safetensors"])
def test_every_byte_counts(model: Path, monkeypatch: pytest.MonkeyPatch, name: str, at: int) -> None:
    monkeypatch.setattr(judged, "_COARSE", 0)
    before = model_digest(model)
    assert model_digest(model) == before
    change(model / name, at)
    assert model_digest(model) not in (before, None)


def test_a_file_in_the_place_of_another_counts(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged, "_COARSE", 0)
    before, shard = model_digest(model), model / "model.safetensors"
    new = model / "new"
    new.write_bytes(b"1" * BYTES)
    os.utime(new, ns=(0, shard.stat().st_mtime_ns))
    new.rename(shard)
    assert model_digest(model) != before


def test_what_is_no_part_of_the_model_does_not_count(model: Path) -> None:
    before = model_digest(model)
    (model / "notes.md").write_text("not of the model")
    (model / ".cache").mkdir()
    (model / ".cache/state.json").write_text("{}")
    assert model_digest(model) == before


def test_a_large_file_is_read_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    whole = judged.file_sha256
    monkeypatch.setattr(judged, "file_sha256", lambda path: (read.append(path.name), whole(path))[1])
    before = model_digest(model)
    assert model_digest(model) == before
    assert read.count("model.safetensors") == 4, "nothing is kept of a file that was just written"
    monkeypatch.setattr(judged, "_COARSE", 0)
    assert model_digest(model) == model_digest(model) == before
    assert read.count("model.safetensors") == 6


def test_a_pipe_is_not_read_and_no_folder_has_no_digest(model: Path) -> None:
    before = model_digest(model)
    os.mkfifo(model / "more.safetensors")
    assert model_digest(model) not in (before, None)
    assert model_digest("nobody/nothing") is None
