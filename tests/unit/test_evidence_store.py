"""Folders and ledger of runs: whole or recognisably not, and what `check` sees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from evidence_kit import SUBJECT, add_run

from npu_upgrade.evidence.judged import judged
from npu_upgrade.evidence.redaction import Redactor
from npu_upgrade.evidence.store import Outcome, Store
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.verdict import Verdict

HERE = Path(__file__).parent
PATHS = f"import sys; sys.path[:0] = [{str(HERE.parents[1] / 'scripts')!r}, {str(HERE)!r}]\n"


def start(code: str, *argv: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", PATHS + code, *argv])


def test_a_run_is_recorded_once_and_whole(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    id = add_run(store, tmp_path / "log")
    record, folder = store.find(id)
    assert (record.gate, record.label, record.verdict, record.tree) == (
        "serve",
        "CPU dummy",
        "PASS",
        SUBJECT.tree,
    )
    assert record.log == {"path": f"runs/{id}/server.log", "sha256": record.log and record.log["sha256"]}
    assert sorted(path.name for path in folder.iterdir()) == [
        "command.json",
        "manifest.json",
        "requests.json",
        "server.log",
        "verdict.json",
    ]
    assert store.problems(record) == []
    assert store.incomplete() == store.unrecorded() == []


def test_a_crash_in_the_middle_leaves_a_recognisable_folder(tmp_path: Path) -> None:
    code = """
import os
from pathlib import Path
from npu_upgrade.evidence.redaction import Redactor
from npu_upgrade.evidence.store import Store
run = Store(Path(sys.argv[1])).begin("serve", Redactor())
run.json("requests.json", [1])
os._exit(9)
"""
    assert start(code, str(tmp_path)).wait() == 9
    store = Store(tmp_path)
    [name] = store.incomplete()
    assert name.endswith("-serve-" + name.rsplit("-", 1)[1])
    assert store.records() == {}
    assert store.unrecorded() == []


def test_a_crash_before_the_ledger_line_is_seen(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    run = store.begin("serve", Redactor())
    run.json("requests.json", [])
    run.close()
    assert store.unrecorded() == [run.id]
    with pytest.raises(BadInput, match="no run"):
        store.find(run.id)


def test_many_writers_at_once(tmp_path: Path) -> None:
    code = """
from pathlib import Path
from evidence_kit import add_run
from npu_upgrade.evidence.store import Store
for number in range(5):
    add_run(Store(Path(sys.argv[1])), Path(sys.argv[2]))
"""
    store = Store(tmp_path / "store")
    writers = [start(code, str(store.folder), str(tmp_path / f"log{n}")) for n in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    assert len(store.records()) == 20
    assert not any(store.problems(record) for record in store.records().values())


def test_half_a_line_counts_for_nothing_and_stops_nobody(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    first = add_run(store, tmp_path / "log")
    with open(store.folder / "evidence.jsonl", "ab") as ledger:
        ledger.write(b'{"gate":"ser')
    assert list(store.records()) == [first]
    second = add_run(store, tmp_path / "log")
    assert list(store.records()) == [first, second]


def test_every_change_of_a_run_is_seen(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    id = add_run(store, tmp_path / "log")
    record, folder = store.find(id)
    log = (folder / "server.log").read_bytes()
    (folder / "server.log").write_bytes(log.replace(b"started", b"STARTED"))
    (folder / "new").write_text("x", "utf-8")
    assert store.problems(record) == ["new was added", "server.log was changed"]
    (folder / "new").unlink()
    (folder / "server.log").unlink()
    assert store.problems(record) == ["server.log is missing"]
    (folder / "server.log").write_bytes(log)
    manifest = (folder / "manifest.json").read_text("utf-8")
    (folder / "manifest.json").write_text(manifest + " ", "utf-8")
    assert store.problems(record) == ["manifest.json is not the one that the ledger names"]


def test_an_edited_ledger_is_not_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    add_run(store, tmp_path / "log", Verdict.FAIL)
    ledger = store.folder / "evidence.jsonl"
    ledger.write_text(ledger.read_text("utf-8").replace('"FAIL"', '"PASS"'), "utf-8")
    with pytest.raises(BadInput, match="changed after it was written"):
        store.records()


def test_what_was_judged_is_code_not_text_about_it(tmp_path: Path) -> None:
    package = tmp_path / "vllm_omni"
    (package / "docs").mkdir(parents=True)
    (package / "runner.py").write_text("x = 1\n", "utf-8")
    before, files = judged({"vllm_omni": package})
    assert list(files["vllm_omni"]) == ["runner.py"]
    (package / "report.md").write_text("fine", "utf-8")
    (package / "docs" / "page.py").write_text("", "utf-8")
    assert judged({"vllm_omni": package})[0] == before
    (package / "runner.py").write_text("x = 2\n", "utf-8")
    assert judged({"vllm_omni": package})[0].tree != before.tree
    with pytest.raises(BadInput, match="holds no code"):
        judged({"vllm": tmp_path / "none"})


def test_a_label_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    run = store.begin("serve", Redactor())
    outcome = Outcome(
        gate="serve",
        label="NPU",
        verdict=Verdict.PASS,
        subject=SUBJECT,
        pins={},
        command=[],
        started="2026-11-03T08:14:02Z",
        seconds=0,
        summary="",
    )
    with pytest.raises(BadInput, match="label 'NPU' is none of"):
        store.record(outcome, run)
    assert store.incomplete() == [run.folder.name]
