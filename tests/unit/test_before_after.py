"""Two runs on the same weights, before and after an upgrade: what differs is told, and tokens decide."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evidence_kit import STARTED, SUBJECT

from npu_upgrade.cli.main import main
from npu_upgrade.evidence.redaction import Redactor
from npu_upgrade.evidence.store import Outcome, Store, workspace_store
from npu_upgrade.ground.verdict import Verdict

Run = dict[str, Any]


def served() -> Run:
    """What a run leaves: two greedy completions, one with chance, and how it was made."""
    exchanges = [
        {
            "method": "POST",
            "path": "/v1/completions",
            "sent": {"model": name, "prompt": prompt, "temperature": heat},
            "status": 200,
            "answer": {
                "usage": {"completion_tokens": 4},
                "choices": [{"text": text, "token_ids": ids, "finish_reason": "stop"}],
            },
            "seconds": 1.0,
        }
        for name, prompt, heat, text, ids in (
            ("a", "one", 0, "uno", [1, 2, 3, 4]),
            ("b", "one", 0, "uno", [1, 2, 3, 4]),
            ("c", "two", 0, "due", [5, 6, 7, 8]),
            ("d", "any", 0.7, "by chance", [9]),
        )
    ]
    made = {"model_digest": "d", "load_format": "real", "mode": "omni", "device": {"kind": "npu"}}
    how = {"serve_arguments": [], "versions": {"vllm": "0.24.0"}, "kv_cache": {"tokens": 1000}}
    return {"result": made | how | {"verdict": "PASS"}, "exchanges": exchanges}


def add(store: Store, run: Run, gate: str = "serve") -> str:
    folder = store.begin(gate, Redactor())
    for name, value in run.items():
        folder.json(f"{name}.json", value)
    outcome = Outcome(
        gate=gate,
        label="NPU real",
        verdict=Verdict.PASS,
        subject=SUBJECT,
        pins={},
        command=["upgrade.py", "serve"],
        started=STARTED,
        seconds=1.0,
        summary="it served",
    )
    store.record(outcome, folder)
    return folder.id


def compared(tmp_path: Path, capsys: pytest.CaptureFixture[str], after: Run) -> tuple[int, dict]:
    store = workspace_store(tmp_path)
    runs = [add(store, served()), add(store, after)]
    words = ["evidence", "compare", *runs, "--format", "json", "--workspace", str(tmp_path)]
    code = main("upgrade.py", "", ["evidence"], words)
    return code, json.loads(capsys.readouterr().out)


def other_tokens(run: Run) -> None:
    run["exchanges"][2]["answer"]["choices"][0]["token_ids"][3] = 9


def other_second_time(run: Run) -> None:
    run["exchanges"][1]["answer"]["choices"][0] |= {"text": "un", "token_ids": [1]}


def other_by_chance(run: Run) -> None:
    run["exchanges"][3]["answer"]["choices"][0] |= {"text": "else", "token_ids": [2]}


def other_audio(run: Run) -> None:
    run["exchanges"][2]["answer"]["choices"][0]["message"] = {"audio": {"data": "AAAA"}}


def slower(run: Run) -> None:
    for one in run["exchanges"]:
        one["seconds"] = 1.5


def slow_once(run: Run) -> None:
    run["exchanges"][0]["seconds"] = 30.0


def less_room(run: Run) -> None:
    run["result"]["kv_cache"]["tokens"] = 900


def other_weights(run: Run) -> None:
    run["result"]["model_digest"] = "e"
    other_tokens(run)


def without_greedy(run: Run) -> None:
    del run["exchanges"][:3]


@pytest.mark.parametrize(
    ("change", "code", "why"),
    [
        (other_by_chance, 0, "3 greedy answers are the same"),
        (other_tokens, 1, "1 of 3 greedy answers are other ones: 'two'"),
        (other_second_time, 1, "1 of 3 greedy answers are other ones: 'one'"),
        (other_audio, 4, "other audio or pictures for 'two'"),
        (slower, 4, "2.67 tokens a second, 4.0 before"),
        (slow_once, 0, "3 greedy answers are the same"),
        (less_room, 4, "900 tokens of KV cache, 1000 before"),
        (other_weights, 4, "not made alike: model_digest: d and e"),
        (without_greedy, 4, "no greedy request is in both"),
    ],
)
def test_what_differs_is_told(
    change: Callable[[Run], None], code: int, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = served()
    change(after)
    found, said = compared(tmp_path, capsys, after)
    assert (found, why in said["summary"]) == (code, True), said
    record, folder = Store(tmp_path / ".npu-upgrade/evidence").find(said["run"])
    assert json.loads((folder / "result.json").read_text())["tokens_per_second"] == said["tokens_per_second"]
    assert (record.gate, record.label, record.verdict) == ("before-after", "NPU real", said["verdict"])


def test_only_runs_of_serve_as_they_were_recorded_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = workspace_store(tmp_path)
    one, other = add(store, served()), add(store, served(), "features")

    def refused(*runs: str) -> str:
        words = ["evidence", "compare", *runs, "--format", "json", "--workspace", str(tmp_path)]
        assert main("upgrade.py", "", ["evidence"], words) == 2
        return json.loads(capsys.readouterr().out)["error"]

    assert "two runs" in refused(one)
    assert "it is a run of features" in refused(one, other)
    (store.runs / one / "exchanges.json").write_text("[]")
    assert "exchanges.json was changed" in refused(one, one)
