"""Accuracy configs, lm_eval as a process of its own, and values held against a config."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import serving_kit as kit
import yaml

from npu_upgrade.cli.main import main
from npu_upgrade.gates.accuracy import lm_eval
from npu_upgrade.gates.accuracy.config_file import Task, compare, fill_in, load
from npu_upgrade.gates.accuracy.lm_eval import template
from npu_upgrade.gates.serving import session
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.files import sha256
from npu_upgrade.sources.installed import Installed, Package

CONFIG = """# measured by hand
model_name: Org/Tiny
hardware: Atlas A2 Series
serve: {tensor_parallel_size: 2, dtype: auto, trust_remote_code: true, enforce_eager: false, max_images: 3}
tasks:
- name: sums
  metrics:
  - name: exact_match,none
    value: 0.5
num_fewshot: 5
envs: {HCCL_OP_EXPANSION_MODE: AIV}
"""
# an interpreter that knows lm_eval's version and command line, and asks the server once
LM_EVAL = """#!{python}
import json, pathlib, sys, urllib.request
if "-c" in sys.argv:
    if {offline} and "get_task_dict" in sys.argv[-2]:
        raise ConnectionError("the hub does not answer")
    print("0.4.13")
    sys.exit()
given = dict(zip(sys.argv, sys.argv[1:]))
model = dict(part.split("=", 1) for part in given["--model_args"].split(","))
body = json.dumps({{"model": model["model"], "prompt": "1+1="}}).encode()
urllib.request.urlopen(urllib.request.Request(model["base_url"], body)).read()
if {fails}:
    raise ValueError("the task is broken")
folder = pathlib.Path(given["--output_path"]) / "x"
folder.mkdir(parents=True)
values = {{"alias": "sums", "exact_match,none": 0.75, "exact_match_stderr,none": 0.1, "sample_len": 4}}
result = {{"results": {{"sums": values}}, "n-shot": {{"sums": 2}}}}
(folder / "results_1.json").write_text(json.dumps(result))
"""


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    return written(tmp_path, fails=False)


def written(folder: Path, *, fails: bool = False, offline: bool = False) -> Path:
    path = folder / "lm-python"
    path.write_text(LM_EVAL.format(python=sys.executable, fails=fails, offline=offline))
    path.chmod(0o755)
    return path


def config(folder: Path, text: str = CONFIG) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def measured(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys, *more: str) -> tuple[int, dict]:
    """The exit code and the JSON of the command over the fake vLLM."""
    installed = Installed("3.11", [Package("vllm", "0.30.0+cpu", "")])
    monkeypatch.setattr(session, "serving", lambda *_: installed)
    command = [
        "accuracy",
        str(kit.model(folder)),
        "--python",
        str(kit.installation(folder)),
        "--quiet",
        "0.2",
    ]
    code = main(
        "upgrade.py", "", ["accuracy"], [*command, "--format", "json", "--workspace", str(folder), *more]
    )
    return code, json.loads(capsys.readouterr().out)


def test_a_config_says_what_to_serve_and_what_to_expect(tmp_path: Path) -> None:
    found = load(config(tmp_path))
    assert found.model == "Org/Tiny"
    assert found.tasks == (Task("sums", {"exact_match,none": 0.5}),)
    expected = ["--tensor-parallel-size", "2", "--dtype", "auto", "--trust-remote-code"]
    assert list(found.arguments) == [*expected, "--limit-mm-per-prompt", '{"image": 3}']
    assert (found.run, found.environment) == ({"num_fewshot": 5}, {"HCCL_OP_EXPANSION_MODE": "AIV"})


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("model_name: Org/Tiny", "model: Org/Tiny", "model_name"),
        ("dtype: auto", "dtyp: auto", "dtyp"),
        ("value: 0.5", "value: half", r"tasks\[0\].metrics\[0\].value"),
        ("num_fewshot: 5", "num_fewshot: five", "num_fewshot"),
        ("tasks:", "task:", "tasks"),
        ("hardware: Atlas A2 Series", "model_type: vllm-asr", "vllm-asr"),
        ("model_name", "model_name: [", "no accuracy config"),
    ],
)
def test_what_is_wrong_with_a_config_is_named(old: str, new: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=why):
        load(config(tmp_path, CONFIG.replace(old, new, 1)))


def test_only_values_change_when_a_config_is_filled_in(tmp_path: Path) -> None:
    path = config(tmp_path)
    fill_in(path, {"sums": {"exact_match,none": 0.123456}})
    assert path.read_text().startswith("# measured by hand\n")
    before = yaml.safe_load(CONFIG)
    before["tasks"][0]["metrics"][0]["value"] = 0.1235
    assert yaml.safe_load(path.read_text()) == before


@pytest.mark.parametrize(
    ("value", "wanted", "state"),
    [
        *((0.5, 0.5, "PASS"), (0.524, 0.5, "PASS"), (0.476, 0.5, "PASS"), (0.53, 0.5, "FAIL")),
        *((0.47, 0.5, "FAIL"), (0.0, 0.0, "PASS"), (0.01, 0.0, "FAIL"), (0.5, None, "INCONCLUSIVE")),
    ],
)
def test_a_value_may_be_off_a_little_on_both_sides(value: float, wanted: float | None, state: str) -> None:
    found = compare([Task("sums", {"m": wanted})], {"sums": {"m": value}})
    assert [one.state for one in found] == [state]


def test_a_metric_that_was_not_measured_fails() -> None:
    assert compare([Task("sums", {"m": 1.0})], {"sums": {"other": 1.0}})[0].state == "FAIL"


@pytest.mark.parametrize(("more", "limit"), [((), None), (("--limit", "4"), 4)])
def test_a_measured_value_is_recorded(tmp_path, tool, monkeypatch, capsys, more, limit) -> None:
    """Of how many questions it is, too: a part of a task is not taken for the whole."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # knows nothing of our server
    given = ("--tasks", "sums", "--lm-eval", str(tool), *more)
    code, said = measured(tmp_path, monkeypatch, capsys, *given)
    assert code == 0
    metrics = [{"name": "exact_match,none", "value": 0.75}]
    task = {"name": "sums", "num_fewshot": 2, "limit": limit, "metrics": metrics}
    assert said["accuracy"] == {"tool": "lm_eval 0.4.13", "tasks": [task]}
    assert said["gate"] == "accuracy"
    kept = {path.name for path in Path(said["folder"]).iterdir()}
    assert {lm_eval.LOG, lm_eval.RESULTS, "result.json"} <= kept


def test_a_multimodal_run_records_the_template_it_was_asked_with(tmp_path, tool, monkeypatch, capsys) -> None:
    text = "{% for message in messages %}{{ message }}{% endfor %}"
    (kit.model(tmp_path) / "chat_template.json").write_text(json.dumps({"chat_template": text}))
    path = config(tmp_path, CONFIG.replace("value: 0.5", "value: 0.75") + "model_type: vllm-vlm\n")
    code, said = measured(tmp_path, monkeypatch, capsys, "--config", str(path), "--lm-eval", str(tool))
    assert code == 0, said
    kept = json.loads((Path(said["folder"]) / "result.json").read_text())["accuracy"]
    assert kept["apply_chat_template"] is True
    assert kept["chat_template"] == {"from": "chat_template.json", "sha256": sha256(text)}


@pytest.mark.parametrize(
    ("files", "arguments", "told"),
    [
        ({"tokenizer_config.json": '{"chat_template": "t"}'}, [], ("tokenizer_config.json", sha256("t"))),
        (
            {"tokenizer_config.json": '{"chat_template": "t"}', "chat_template.jinja": "j"},
            [],
            ("chat_template.jinja", sha256("j")),
        ),
        ({"chat_template.jinja": "j"}, ["--chat-template", "{{ x }}"], ("as text", sha256("{{ x }}"))),
        ({"chat_template.jinja": "j"}, ["--chat-template=own.jinja"], ("own.jinja", sha256("o"))),
        ({}, ["--enforce-eager"], ("none in the checkpoint", None)),
    ],
)
def test_where_the_template_comes_from(
    files: dict[str, str], arguments: list[str], told: tuple[str, str | None], tmp_path
) -> None:
    for name, text in (files | {"own.jinja": "o"}).items():
        (tmp_path / name).write_text(text)
    found = template(tmp_path, arguments, tmp_path)
    assert (told[0] in found["from"], found["sha256"]) == (True, told[1])
    assert "by its id" in template(Path("Org/None"), [], tmp_path)["from"]


@pytest.mark.parametrize(("value", "code"), [("0.75", 0), ("0.9", 1), ("null", 4)])
def test_a_config_decides(value: str, code: int, tmp_path, tool, monkeypatch, capsys) -> None:
    path = config(tmp_path, CONFIG.replace("value: 0.5", f"value: {value}"))
    found, said = measured(
        tmp_path, monkeypatch, capsys, "--config", str(path), "--lm-eval", str(tool), "--write"
    )
    assert found == code, said
    assert load(path).tasks[0].values == {"exact_match,none": 0.75}


def test_a_failed_evaluation_writes_nothing(tmp_path, monkeypatch, capsys) -> None:
    tool, path = written(tmp_path, fails=True), config(tmp_path)
    code, said = measured(
        tmp_path, monkeypatch, capsys, "--config", str(path), "--lm-eval", str(tool), "--write"
    )
    assert code == 1
    assert "ValueError: the task is broken" in said["summary"]
    assert path.read_text() == CONFIG


@pytest.mark.parametrize(
    "more", [["--tasks", "sums", "--load-format", "dummy"], [], ["--tasks", "sums", "--write"]], ids=str
)
def test_bad_requests_start_nothing(more: list[str], tmp_path, monkeypatch, capsys) -> None:
    assert measured(tmp_path, monkeypatch, capsys, *more)[0] == 2


def test_questions_that_cannot_be_fetched_block_the_gate_before_a_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    given = ("--tasks", "sums", "--lm-eval", str(written(tmp_path, offline=True)))
    code, said = measured(tmp_path, monkeypatch, capsys, *given)
    assert (code, "the hub does not answer" in said["error"]) == (3, True)
    assert not list((tmp_path / ".npu-upgrade/evidence/runs").glob("*"))


def test_without_lm_eval_the_gate_is_blocked() -> None:
    with pytest.raises(Blocked, match="has no lm_eval"):
        lm_eval.find(None, Path("/bin/false"), Installed("3.11"))


def test_chats_are_asked_with_the_template_and_thoughts_as_the_config_says() -> None:
    asked = lm_eval.Evaluation(
        Path("python"),
        "1",
        ["a", "b"],
        "/models/x",
        {"apply_chat_template": True, "limit": 8},
        thinking=False,
    )
    command = asked.command("http://h:1", "gate-1", Path("out"))
    assert command[command.index("--model") + 1] == "local-chat-completions"
    assert "base_url=http://h:1/v1/chat/completions" in command[command.index("--model_args") + 1]
    assert command[command.index("--tasks") + 1] == "a,b"
    assert "--apply_chat_template" in command
    assert "enable_thinking" in command[command.index("--gen_kwargs") + 1]
