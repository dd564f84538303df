from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from npu_upgrade.cli import main as cli
from npu_upgrade.ground import progress
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.paths import WORKSPACE_DIR, workspace_root
from npu_upgrade.ground.verdict import Result, Verdict

SCRIPTS = Path(cli.__file__).parents[2]


@pytest.fixture
def command(monkeypatch):
    """Registers ``run`` as the command module ``tiny``; returns a function that calls the command line."""

    def register(run, name="tiny"):
        module = ModuleType(f"npu_upgrade.commands.{name}", "Do a tiny thing, at length.")
        module.EXAMPLES = "--count 3"
        module.add_arguments = lambda parser: parser.add_argument("--count", type=int, default=1)
        module.run = run
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(cli.HELP, name, f"do a {name} thing")
        return lambda *argv: cli.main("upgrade.py", "Summary.", [name], list(argv))

    return register


def passing(args):
    return Result(
        Verdict.PASS,
        f"{args.count} done",
        {"items": ["ä"] * args.count},
        text="a table",
        next=upgrade("next"),
    )


@pytest.mark.parametrize(("verdict", "code"), [("PASS", 0), ("FAIL", 1), ("BLOCKED", 3), ("INCONCLUSIVE", 4)])
def test_exit_code_is_the_verdict(command, capsys, verdict, code):
    assert command(lambda args: Result(Verdict(verdict), "so it is"))("tiny") == code
    assert json.loads(capsys.readouterr().out)["verdict"] == verdict


def test_a_short_result_is_json_and_said_once(command, capsys):
    assert command(passing)("tiny", "--count", "2") == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "verdict": "PASS",
        "summary": "2 done",
        "next": "upgrade.py next",
        "items": ["ä", "ä"],
    }
    assert err == ""


def test_text_format_has_no_json(command, capsys):
    command(passing)("tiny", "--format", "text")
    out, err = capsys.readouterr()
    assert out == "a table\n\nPASS: 1 done\nnext: upgrade.py next\n"
    assert err == ""


def test_an_entry_of_a_list_is_one_line(command, capsys):
    data = {"found": [{"id": "a", "where": {"line": 1}}, {"id": "ä\nb"}], "none": [], "counts": {"x": 1}}
    command(lambda args: Result(Verdict.PASS, "found", data))("tiny")
    out = capsys.readouterr().out
    assert json.loads(out)["found"] == data["found"]
    assert '\n  {"id": "a", "where": {"line": 1}},\n  {"id": "ä\\nb"}\n' in out
    assert '"counts": {\n  "x": 1\n }' in out


def test_output_takes_the_whole_result(command, capsys, tmp_path):
    target = tmp_path / "new" / "result.json"
    assert command(passing)("tiny", "--output", str(target)) == 0
    shown = json.loads(capsys.readouterr().out)
    assert "items" not in shown
    assert shown["whole_result"] == str(target)
    assert json.loads(target.read_text())["items"] == ["ä"]


def test_output_that_is_a_folder_is_refused_before_the_work(command, capsys, tmp_path):
    def run(args):
        pytest.fail("the work was started")

    assert command(run)("tiny", "--output", str(tmp_path)) == 2
    assert json.loads(capsys.readouterr().out)["verdict"] == "USAGE"


@pytest.mark.parametrize("has_workspace", [True, False])
def test_a_long_result_is_shown_in_brief_with_its_file(command, capsys, tmp_path, monkeypatch, has_workspace):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    if has_workspace:
        workspace_root(tmp_path)
    data = {"items": ["x" * 100] * 1000, "note": "y" * 9000, "many": {str(n): n for n in range(2000)}}
    call = command(lambda args: Result(Verdict.FAIL, "many", data, text="z" * 30_000))
    assert call("tiny") == 1
    out, err = capsys.readouterr()
    assert len(out) < 1.2 * cli.MOST_CHARACTERS
    assert err == ""
    shown = json.loads(out)
    assert (shown["summary"], shown["items"][-1]) == ("many", "and 995 more")
    assert shown["in_the_whole_result"] == "many"
    whole = Path(shown["whole_result"]).absolute()  # it is named from here
    assert whole.is_relative_to(tmp_path / (WORKSPACE_DIR if has_workspace else "cache"))
    assert {key: json.loads(whole.read_text())[key] for key in data} == data
    assert call("tiny", "--format", "json") == 1
    assert json.loads(capsys.readouterr().out)["items"] == data["items"]


def test_models_that_are_walked_at_the_same_time_have_a_file_each(tmp_path, monkeypatch):
    monkeypatch.chdir(workspace_root(tmp_path))
    work = cli.workspace_of(["tiny"])
    (work / "adapt" / "Tiny-8B").mkdir(parents=True)
    result = Result(Verdict.PASS, "one", {"items": [1]}, brief={"items": 1})
    names = [
        Path(cli._shown(result, None, ["tiny", *more])["whole_result"]).name
        for more in ([], ["./models/Tiny-8B"], ["./models/Other"])
    ]
    assert names == ["tiny.json", "tiny-Tiny-8B.json", "tiny.json"]


def test_what_a_command_shows_in_brief_replaces_its_data(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(workspace_root(tmp_path))
    result = Result(Verdict.PASS, "three", {"items": [1, 2, 3]}, brief={"items": 3})
    assert command(lambda args: result)("tiny") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["items"] == 3
    assert json.loads(Path(shown["whole_result"]).read_text())["items"] == [1, 2, 3]


def test_progress_that_nobody_watches_is_seldom_but_for_notes(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress, "_START", now[0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "_shown", [now[0]])
    for second in range(61):
        now[0] = float(second)
        progress.say(f"at {second}")
        if second == 20:
            progress.say("note: without the base")
    said = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]
    assert said == ["at 15", "note: without the base", "at 30", "at 45", "at 60"]


@pytest.mark.parametrize(
    ("argv", "wrong"),
    [
        ([], "COMMAND"),
        (["other"], "other"),
        (["tiny", "--cuont", "3"], "--cuont"),
        (["tiny", "--coun", "3"], "--coun"),
        (["tiny", "--count", "many"], "many"),
    ],
)
def test_wrong_usage(command, capsys, argv, wrong):
    assert command(passing)(*argv) == 2
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert report["verdict"] == "USAGE"
    assert wrong in report["error"]
    assert report["try"].endswith("--help")
    assert err == ""


@pytest.mark.parametrize(("error", "code", "verdict"), [(BadInput, 2, "USAGE"), (Blocked, 3, "BLOCKED")])
def test_errors_say_what_was_expected_and_what_to_try(command, capsys, error, code, verdict):
    def run(args):
        raise error("no such tree", expected="a folder", try_="another one")

    assert command(run)("tiny") == code
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "verdict": verdict,
        "error": "no such tree",
        "expected": "a folder",
        "try": "another one",
    }
    assert err == ""
    assert command(run)("tiny", "--format", "text") == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error: no such tree\n  expected: a folder\n  try: another one\n")


def test_a_defect_is_told_from_a_failed_step(command, capsys):
    def run(args):
        return {}["missing"]

    assert command(run)("tiny") == 70
    out, err = capsys.readouterr()
    assert json.loads(out)["verdict"] == "DEFECT"
    assert "KeyError" in json.loads(out)["error"]
    assert "Traceback" in err


def test_an_interrupted_command_names_itself_as_the_next(command, capsys):
    def run(args):
        raise KeyboardInterrupt

    assert command(run)("tiny") == 130
    out, err = capsys.readouterr()
    assert json.loads(out)["verdict"] == "INTERRUPTED"
    assert json.loads(out)["next"].endswith(" tiny")
    assert err == "interrupted: nothing is half-written; repeat the command to go on\n"
    assert command(run)("tiny", "--format", "text") == 130
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("argv", [["--help"], ["tiny", "--help"]])
def test_help(command, capsys, argv):
    with pytest.raises(SystemExit) as stopped:
        command(passing)(*argv)
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert cli.EXIT_CODES in out
    assert ("do a tiny thing" if len(argv) == 1 else "upgrade.py tiny --count 3") in out


def test_only_the_chosen_command_is_imported(command, capsys):
    command(passing)
    assert cli.main("upgrade.py", "Summary.", ["not_there", "tiny"], ["tiny"]) == 0
    assert cli.main("upgrade.py", "Summary.", ["not_there", "tiny"], ["not_there"]) == 70


def test_a_command_of_a_package(command, capsys):
    command(lambda args: Result(Verdict.PASS, "another"), "adapt.tiny")
    command(lambda args: Result(Verdict.PASS, "shared"))
    for names, said in ((["adapt.tiny"], "another"), (["tiny"], "shared")):
        assert cli.main("adapt.py", "Summary.", names, ["tiny"]) == 0
        assert json.loads(capsys.readouterr().out)["summary"] == said


def test_examples_and_the_next_command_name_the_program(command, capsys, monkeypatch):
    command(passing)
    monkeypatch.setattr(sys, "argv", [str(SCRIPTS / "adapt.py")])
    with pytest.raises(SystemExit):
        cli.main("adapt.py", "Summary.", ["tiny"], ["tiny", "--help"])
    assert "adapt.py tiny --count 3" in capsys.readouterr().out
    cli.main("adapt.py", "Summary.", ["tiny"], ["tiny"])
    assert json.loads(capsys.readouterr().out)["next"] == f"python3 {SCRIPTS / 'upgrade.py'} next"


PROGRAM = """
    import sys
    from types import ModuleType
    from npu_upgrade.cli import main as cli
    from npu_upgrade.ground import progress
    from npu_upgrade.ground.verdict import Result, Verdict
    module = ModuleType("npu_upgrade.commands.tiny", "Tiny.")
    module.EXAMPLES = ""
    module.add_arguments = lambda parser: None
    def run(args):
        {body}
    module.run = run
    sys.modules[module.__name__] = module
    sys.exit(cli.main("upgrade.py", "Summary.", ["tiny"], ["tiny", *sys.argv[1:]]))
"""


def program(body, *argv, **options):
    """Starts a process whose command has ``body``."""
    code = textwrap.dedent(PROGRAM).format(body=body)
    env = os.environ | {"PYTHONPATH": str(SCRIPTS), "PYTHONUNBUFFERED": ""} | options.pop("env", {})
    return subprocess.Popen([sys.executable, "-c", code, *argv], env=env, stdout=subprocess.PIPE, **options)


@pytest.mark.parametrize("size", [10, 20_000])
def test_reader_that_goes_away(size):
    body = f"sys.stdin.read(); return Result(Verdict.PASS, 'x' * {size})"
    process = program(body, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    process.stdin.close()
    assert b"Traceback" not in (stderr := process.stderr.read()), stderr
    assert b"Exception ignored" not in stderr
    process.stderr.close()
    assert process.wait() == 141


def test_work_goes_on_when_nobody_reads_its_progress(tmp_path):
    done = tmp_path / "done"
    read_end, write_end = os.pipe()
    body = (
        f"sys.stdin.read(); progress.say('going'); open({str(done)!r}, 'w'); return Result(Verdict.PASS, '')"
    )
    process = program(body, stdin=subprocess.PIPE, stderr=write_end)
    os.close(read_end)
    os.close(write_end)
    process.communicate()
    assert done.exists()


def test_any_text_survives_any_locale():
    body = r"return Result(Verdict.PASS, 'é 中 \udc80')"
    process = program(body, stderr=subprocess.DEVNULL, env={"LC_ALL": "C", "PYTHONIOENCODING": "latin-1"})
    out, _ = process.communicate()
    assert process.returncode == 0
    assert json.loads(out)["summary"] == "é 中 \udc80"
