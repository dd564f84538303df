"""Commands as values: what they show, and whose program they name."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from command_kit import called

from npu_upgrade.gates.validation.rungs import Outcome, Rung
from npu_upgrade.ground import command
from npu_upgrade.ground.command import Command, adapt, note, upgrade
from npu_upgrade.ground.verdict import Verdict

SCRIPTS = Path(command.__file__).parents[2]


def test_a_command_renders_as_a_shell_runs_it_from_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [str(SCRIPTS / "upgrade.py")])
    words = shlex.split(str(Command("upgrade.py", "plan", ("--note", "it's fine"), ("--port", "1"))))
    assert words == [
        "python3",
        str(SCRIPTS / "upgrade.py"),
        "plan",
        "--note",
        "it's fine",
        "--",
        "--port",
        "1",
    ]


def test_the_other_program_is_found_beside_the_one_that_was_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [str(SCRIPTS / "upgrade.py")])
    assert str(SCRIPTS / "adapt.py") in str(adapt("next"))
    assert adapt("next").short == "adapt.py next"


def test_a_shared_command_is_told_in_the_program_that_was_called() -> None:
    before = command.current()
    try:
        command.note("adapt.py", ["serve", "M"], ["evidence", "serve"])
        assert upgrade("evidence", "list").program == "adapt.py"
        assert upgrade("merge").program == "upgrade.py"
        command.note("upgrade.py", ["serve", "M"], ["evidence", "serve"])
        assert upgrade("evidence", "list").program == "upgrade.py"
    finally:
        command.note(before[0], before[1:])


def test_more_arguments_come_before_what_is_passed_on() -> None:
    assert Command("upgrade.py", "serve", ("M",), ("-x",)).adding("--env", "A=1").argv == [
        *("upgrade.py", "serve", "M", "--env", "A=1", "--", "-x")
    ]


@pytest.mark.parametrize(
    ("argv", "tried"),
    [
        (("evidence", "show", "none"), "adapt.py evidence list"),
        (("accuracy", "Tiny"), "adapt.py accuracy MODEL --tasks gsm8k"),
        (("explain",), "adapt.py explain serve.log"),
    ],
)
def test_an_error_of_a_shared_command_names_the_script_that_was_run(
    argv, tried: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert called("adapt.py", *argv)[1]["try"] == tried


def test_a_rung_is_run_by_the_script_that_climbs() -> None:
    def shown(name: str) -> str:
        return Outcome(Rung("a", "CPU dummy", upgrade(name, "M")), Verdict.PASS, "").as_json()["command"]

    note("adapt.py", ["validate"], ["serve"])
    assert (shown("serve"), shown("audit")) == ("adapt.py serve M", "upgrade.py audit M")
    note("upgrade.py", ["validate"], ["serve"])
    assert shown("serve") == "upgrade.py serve M"


def test_of_a_wheel_the_console_scripts_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FROM_WHEEL", True)
    monkeypatch.setattr(command.sys, "executable", str(tmp_path / "python"))
    script = tmp_path / "npu-upgrade"
    script.touch(mode=0o755)
    assert str(upgrade("plan", "--note", "a b")) == f"{script} plan --note 'a b'"
    assert upgrade("plan").short == "npu-upgrade plan"
    assert upgrade("plan").argv == ["upgrade.py", "plan"]  # as records have it
    monkeypatch.setenv("PATH", str(tmp_path))
    assert str(upgrade("plan")) == "npu-upgrade plan"


def test_of_a_wheel_sentences_name_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        'then "upgrade.py plan"; /a/scripts/upgrade.py plan; ["upgrade.py", "plan"]; see references/audit.md'
    )
    assert command.called_here(said) == said
    monkeypatch.setattr(command, "FROM_WHEEL", True)
    told = command.called_here(said)
    assert told.startswith(
        'then "npu-upgrade plan"; /a/scripts/upgrade.py plan; ["upgrade.py", "plan"]; see /'
    )
    assert Path(told.rpartition(" ")[2]).is_file()
