"""Which script a printed command names: the one that was run, for all commands that both have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npu_upgrade.cli import main as cli
from npu_upgrade.gates.validation.rungs import Outcome, Rung
from npu_upgrade.ground.command import note, upgrade
from npu_upgrade.ground.verdict import Verdict

SHARED = ["evidence", "validate", "explain", "accuracy"]


def call(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> dict:
    capsys.readouterr()
    cli.main("adapt.py", "", ["next", *SHARED], [*map(str, argv), "--format", "json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("argv", "tried"),
    [
        (("evidence", "show", "none"), "adapt.py evidence list"),
        (("accuracy", "Tiny"), "adapt.py accuracy MODEL --tasks gsm8k"),
        (("explain",), "adapt.py explain serve.log"),
    ],
)
def test_an_error_of_a_shared_command_names_the_script_that_was_run(
    argv, tried: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(capsys, *argv)["try"] == tried


def test_the_help_names_the_script_that_was_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main("adapt.py", "", ["serve"], ["serve", "--help"])
    assert "upgrade.py" not in capsys.readouterr().out


def test_a_rung_is_run_by_the_script_that_climbs() -> None:
    def command(name: str) -> str:
        return Outcome(Rung("a", "CPU dummy", upgrade(name, "M")), Verdict.PASS, "").as_json()["command"]

    note("adapt.py", ["validate"], ["serve"])
    assert (command("serve"), command("audit")) == ("adapt.py serve M", "upgrade.py audit M")
    note("upgrade.py", ["validate"], ["serve"])
    assert command("serve") == "upgrade.py serve M"
