"""Commands of ours that another one waits for."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from npu_upgrade.ground import command as command_module
from npu_upgrade.ground.command import adapt, answered_together

_SCRIPT = """
import pathlib, signal, sys, time
place = pathlib.Path(sys.argv[2])
if sys.argv[1] == "answers":
    print('{"verdict": "PASS", "summary": "' + place.name + '"}')
    raise SystemExit(3)
def end(*_):
    place.write_text("ended")
    raise SystemExit
signal.signal(signal.SIGTERM, end)
place.write_text("begun")
time.sleep(60)
"""


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/adapt.py").write_text(_SCRIPT)
    monkeypatch.setattr(command_module, "SKILL", tmp_path)
    return tmp_path


def test_each_of_several_commands_gives_its_own_answer(commands: Path) -> None:
    found = answered_together([adapt("answers", f"/{name}") for name in ("one", "two")], whole=False)
    assert [(code, said["summary"]) for code, said in found] == [(3, "one"), (3, "two")]


def test_what_was_started_is_ended_when_the_one_that_waits_is(commands: Path) -> None:
    places = [commands / "one", commands / "two"]

    def interrupt(*_: object) -> None:
        if all(place.exists() and place.read_text() == "begun" for place in places):
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            answered_together([adapt("waits", str(place)) for place in places], whole=False)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [place.read_text() for place in places] == ["ended", "ended"]
