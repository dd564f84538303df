"""Payload files: whole or not there, bounded, and gone with their owner."""

import contextlib
import errno
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from omni_runners import payload_files
from omni_runners.errors import PayloadError
from omni_runners.payload_files import PayloadFiles

RUNNERS = Path(payload_files.__file__).parents[1]
OWNER = """
import sys, time
from pathlib import Path
from omni_runners.payload_files import PayloadFiles
files = PayloadFiles(Path(sys.argv[1]))
files.write(b"left behind")
print(files.folder, flush=True)
time.sleep(600)
"""


def test_a_file_is_whole_and_the_owner_removes_everything(tmp_path):
    files = PayloadFiles(tmp_path)
    path = files.write(b"12345")
    assert path.read_bytes() == b"12345"
    assert path.suffix == ".safetensors"
    files.close()
    assert list(tmp_path.glob("engine-*")) == []


def test_what_a_killed_engine_left_is_swept_by_the_next_one(tmp_path):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(RUNNERS)},
    )
    with owner:
        folder = Path(owner.stdout.readline().strip())
        beside = PayloadFiles(tmp_path)
        assert [path.read_bytes() for path in folder.iterdir()] == [b"left behind"], (
            "a living owner's is kept"
        )
        owner.send_signal(signal.SIGKILL)
    after = PayloadFiles(tmp_path)
    assert not folder.exists()
    assert not folder.with_name(f"{folder.name}.lock").exists()
    assert beside.folder.exists()
    assert after.folder.exists()
    assert after.folder != beside.folder


def test_unread_files_are_limited_and_reading_makes_room(tmp_path):
    files = PayloadFiles(tmp_path, limit=10)
    first = files.write(b"123456")
    with pytest.raises(PayloadError, match="6 bytes and 6 bytes of others are not read"):
        files.write(b"abcdef")
    first.unlink()
    assert files.write(b"abcdef").exists()


def test_files_that_nobody_reads_make_room(tmp_path):
    files = PayloadFiles(tmp_path, limit=10)
    old = files.write(b"123456")
    past = time.time() - 2 * payload_files.UNREAD_SECONDS
    os.utime(old, (past, past))
    new = files.write(b"abcdef")
    assert new.exists()
    assert not old.exists()


@contextlib.contextmanager
def happening_before_call(number, event):
    """``event()`` happens right before the ``number``-th call of a built-in, file accesses among them.

    Yields a list that is empty as long as it has not happened.
    """
    left, happened = [number], []

    def watch(frame, what, called):
        if what == "c_call":
            left[0] -= 1
            if left[0] == 0:
                sys.setprofile(None)
                event()
                happened.append(called)

    sys.setprofile(watch)
    try:
        yield happened
    finally:
        sys.setprofile(None)


def at_every_moment(case):
    """``case(number)`` for 1, 2, … until it says that its event came too late to happen."""
    moments = sum(1 for _ in itertools.takewhile(case, itertools.count(1)))
    assert moments > 20


def test_clients_may_remove_files_at_any_moment_of_a_write(tmp_path):
    def case(number):
        files = PayloadFiles(tmp_path / str(number), limit=10)
        others = [files.write(b"123"), files.write(b"456")]
        past = time.time() - 2 * payload_files.UNREAD_SECONDS
        os.utime(others[0], (past, past))
        with happening_before_call(number, lambda: [one.unlink(missing_ok=True) for one in others]) as done:
            path = files.write(b"abcdef")
        assert path.read_bytes() == b"abcdef"
        files.close()
        return done

    at_every_moment(case)


@pytest.mark.parametrize("doing", ["open", "write", "close"])
def test_someone_may_remove_the_whole_folder_at_any_moment(tmp_path, doing):
    """What cannot be done then is refused as usual: the engine lives on."""

    def case(number):
        base = tmp_path / f"{doing}-{number}"
        files = PayloadFiles(base)
        files.write(b"123")
        steps = {"open": lambda: PayloadFiles(base), "write": lambda: files.write(b"456")}
        removal = happening_before_call(number, lambda: shutil.rmtree(base, ignore_errors=True))
        with contextlib.suppress(PayloadError), removal as done:
            steps.get(doing, files.close)()
        return done

    at_every_moment(case)


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path, monkeypatch):
    files = PayloadFiles(tmp_path)

    def full(path, data):
        with path.open("wb") as file:
            file.write(data[:2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(PayloadError, match="No space left on device; expected: a folder with room"):
        files.write(b"12345")
    monkeypatch.undo()
    assert list(files.folder.iterdir()) == []
    assert files.write(b"12345").exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PayloadError, match=r"no folder for payloads.*OMNI_PAYLOAD_DIR"):
        PayloadFiles(tmp_path / "file")


def test_the_environment_says_where_and_how_much(tmp_path, monkeypatch):
    monkeypatch.setenv(payload_files.FOLDER, str(tmp_path / "there"))
    monkeypatch.setenv(payload_files.LIMIT, "123")
    files = PayloadFiles.from_environment()
    assert (files.folder.parent, files.limit) == (tmp_path / "there", 123)
    monkeypatch.setenv(payload_files.LIMIT, "1 GB")
    with pytest.raises(PayloadError, match="'1 GB'; expected: bytes"):
        PayloadFiles.from_environment()
