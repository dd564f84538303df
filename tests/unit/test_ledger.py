"""The evidence ledger: appended whole, chained, bound to a tree, and seen when edited."""

from __future__ import annotations

import json
import multiprocessing
import resource
from pathlib import Path
from typing import Any

import pytest
from drawn import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npu_upgrade.evidence import chain
from npu_upgrade.evidence.pack import pack
from npu_upgrade.evidence.redaction import Redactor
from npu_upgrade.evidence.store import Outcome
from npu_upgrade.evidence.subject import Subject, subject_of
from npu_upgrade.evidence.unpack import take
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job.job import Job, start_job

SUBJECT = Subject({"a.py": "1" * 64, "b.py": "2" * 64})


@pytest.fixture
def job(tmp_path: Path) -> Job:
    source = {"spec": "pypi:x==1.0", "identity": {"version": "1.0"}}
    return start_job(tmp_path, omni=source, ascend=source)


def add(job: Job, **changes: Any) -> chain.Record:
    values: dict[str, Any] = {
        "gate": "plan",
        "label": "static",
        "verdict": Verdict.PASS,
        "subject": SUBJECT,
        "pins": {"vllm-ascend": {"version": "0.23.0"}},
        "command": ["upgrade.py", "plan"],
        "started": "2026-11-20T12:00:00Z",
        "seconds": 0.1234567,
        "summary": "fine",
    }
    values |= changes
    return job.store.record(Outcome(job=job.of(values["subject"].tree), **values))


def standing(job: Job, subject: Subject) -> list[chain.Record]:
    return job.store.standing(job.records(), subject.tree)


def path(job: Job) -> Path:
    return job.store.folder / "evidence.jsonl"


def test_a_record_comes_back_as_written(job, tmp_path):
    log = tmp_path / "run.log"
    log.write_text("line\n")
    written = add(job, log=log, data={"tests": 3})
    [record] = job.records()
    assert record == written
    assert (record.gate, record.label, record.verdict, record.previous) == ("plan", "static", "PASS", None)
    assert (record.subject.files, record.subject.tree) == (SUBJECT.files, SUBJECT.tree)
    assert record.job == job.of(SUBJECT.tree)
    assert record.log == {"path": str(log), "sha256": sha256("line\n")}
    assert record.seconds == 0.123
    assert set(record.environment) == {"python", "platform", "machine", "packages"}


def test_the_line_is_what_the_reference_page_says(job):
    record = add(job)
    [line] = path(job).read_text().splitlines()
    body = json.loads(line)
    name = body.pop("id")
    spelled = json.dumps(body, sort_keys=True, separators=(",", ":"))
    assert name == record.id == sha256(spelled)
    tree = sha256("a.py " + "1" * 64 + "\nb.py " + "2" * 64 + "\n")
    assert body["subject"]["tree"] == tree
    assert body["schema"] == "npu-upgrade/evidence/2"


def test_records_chain_and_the_newest_of_a_tree_is_its_verdict(job):
    first = add(job)
    other = add(job, subject=Subject({"a.py": "3" * 64}), verdict=Verdict.FAIL)
    second = add(job, verdict=Verdict.INCONCLUSIVE)
    assert [r.previous for r in job.records()] == [None, first.id, other.id]
    assert standing(job, SUBJECT) == [second]
    assert standing(job, Subject({"a.py": "3" * 64})) == [other]
    assert standing(job, Subject({"a.py": "4" * 64})) == []


def test_labels_do_not_stand_in_for_each_other(job):
    real = add(job, gate="serve", label="NPU real", verdict=Verdict.FAIL)
    emulated = add(job, gate="serve", label="emulated dry-run")
    add(job, gate="serve", label="NPU dummy")  # a pass on a device that no run shows
    assert standing(job, SUBJECT) == [emulated, real]


def served(job: Job, tree: str = SUBJECT.tree) -> tuple[chain.Record, Path]:
    """A run of a server with the job's runners, and its folder."""
    run = job.store.begin("serve", Redactor())
    run.json("result.json", {})
    outcome = Outcome(
        gate="serve",
        label="NPU real",
        verdict=Verdict.PASS,
        subject=Subject({"vllm_omni": "a" * 64}),
        job=job.of(tree),
        pins={"vllm": {"version": "dev"}},
        command=["upgrade.py", "serve", "M"],
        started="2026-11-20T12:00:00Z",
        seconds=1,
        summary="it\nserved",
    )
    return job.store.record(outcome, run), job.store.runs / run.id


def test_the_ledger_of_a_job_is_a_view_of_the_one_chain(job, tmp_path):
    planned, (run, _) = add(job), served(job)
    source = {"spec": "pypi:x==2.0", "identity": {"version": "2.0"}}
    other = start_job(tmp_path, omni=source, ascend=source)
    elsewhere = add(other)
    assert [r.previous for r in (planned, run, elsewhere)] == [None, planned.id, run.id]
    assert (job.records(), other.records()) == ([planned, run], [elsewhere])
    assert standing(job, SUBJECT) == [planned, run]
    assert list(job.store.records()) == [run.run]


def test_a_run_whose_folder_was_edited_stands_for_nothing(job):
    served(job)
    _, folder = served(job)
    assert len(standing(job, SUBJECT)) == 1
    (folder / "result.json").write_text("[]")
    assert standing(job, SUBJECT) == []  # the older run does not take its place


def test_a_run_of_a_job_on_another_machine_is_one_here(job, tmp_path):
    run, _ = served(job)
    packed = pack(job.store, [str(run.run)], tmp_path / "pack.tar.gz")
    source = {"spec": "pypi:x==1.0", "identity": {"version": "1.0"}}
    here = start_job(tmp_path / "here", omni=source, ascend=source)
    assert standing(here, SUBJECT) == []
    take(here.store, packed)
    (found,) = standing(here, SUBJECT)
    assert (found.label, found.summary, found.data["imported"]) == ("NPU real", "it served", run.id)
    assert standing(here, Subject({"a.py": "3" * 64})) == []


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_torn_line_is_told_skipped_and_kept(job, cut):
    first = add(job)
    add(job)
    whole = path(job).read_bytes()
    (job.store.folder / "evidence.head").write_text(
        first.id + "\n"
    )  # the writer died before it moved the head
    path(job).write_bytes(whole[:-cut])
    assert job.records() == [first]
    assert job.ledger().unfinished
    assert job.ledger().torn == [2]
    third = add(job, summary="after the crash")
    assert path(job).read_bytes().startswith(whole[:-cut])
    assert job.records() == [first, third]
    assert third.previous == first.id
    assert not job.ledger().unfinished


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda lines: [lines[0].replace("PASS", "FAIL"), *lines[1:]], "line 1 was changed"),
        (lambda lines: [*lines[:2], lines[2].replace("fine", "good")], "line 3 was changed"),
        (lambda lines: lines[1:], "a record before line 1"),
        (lambda lines: [lines[0], lines[2]], "a record before line 2"),
        (lambda lines: [lines[0], lines[2], lines[1]], "a record before line 2"),
        (lambda lines: lines[:2], "newest records were removed"),
        (lambda lines: [lines[0], "", *lines[1:]], "line 2 is not a record"),
        (lambda lines: [lines[0], "{}", *lines[1:]], "line 2 is not a record"),
        (lambda lines: [lines[0], "[NaN]", *lines[1:]], "line 2 is not a record"),
    ],
    ids=["edit", "edit-last", "cut-first", "cut", "swap", "cut-last", "empty", "no-fields", "no-json"],
)
def test_an_edited_ledger_is_refused(job, edit, said):
    for _ in range(3):
        add(job)
    path(job).write_text("".join(f"{line}\n" for line in edit(path(job).read_text().splitlines())))
    before = path(job).read_bytes()
    for use in (Job.records, add):
        with pytest.raises(BadInput, match=said):
            use(job)
    assert path(job).read_bytes() == before


def test_a_rewritten_record_with_a_right_hash_breaks_the_chain(job):
    add(job, verdict=Verdict.FAIL)
    add(job)
    first, second = path(job).read_text().splitlines()
    body = json.loads(first) | {"verdict": "PASS"}
    del body["id"]
    forged = chain.canonical(body | {"id": sha256(chain.canonical(body))}).decode()
    path(job).write_text(f"{forged}\n{second}\n")
    with pytest.raises(BadInput, match="a record before line 2"):
        job.records()


@pytest.mark.parametrize(
    "pin",
    [
        {"version": "main"},
        {"version": "v0.11.0-dev"},
        {"version": "releases/v0.18.0"},
        {"version": "latest"},
        {"version": ">=0.22"},
        {"sha": "abc1234"},
        {"sha": "HEAD"},
        {"version": "0.22.0", "sha": "main"},
        {"ref": "main"},
        {},
        {"sha": "a" * 40, "dirty": True},
    ],
)
def test_only_exact_pins(job, pin):
    with pytest.raises(BadInput, match="vllm-ascend is not pinned"):
        add(job, pins={"vllm-ascend": pin})
    assert not path(job).exists()


@pytest.mark.parametrize(
    "pin",
    [
        {"version": "0.23.0.post1"},
        {"version": "v0.22.1rc1"},
        {"version": "0.30.0.dev3+gabc123.d2026"},
        {"sha": "a" * 40, "version": None, "requested": "git:x@main"},
        {"archive_sha256": "b" * 64},
        {"sha": "a" * 40, "dirty": True, "tree": "c" * 64},
    ],
)
def test_exact_pins(job, pin):
    assert add(job, pins={"vllm-ascend": pin}).pins == {"vllm-ascend": pin}


@pytest.mark.parametrize(
    "change",
    [
        {"label": "NPU"},
        {"gate": ""},
        {"subject": Subject({})},
        {"started": "2026-11-20T12:00:00"},
        {"started": "2026-11-20T12:00:00+08:00"},
        {"started": "today"},
        {"log": Path("no-such.log")},
        {"data": {"text": "x" * 70_000}},
    ],
)
def test_what_is_no_record_is_refused(job, change):
    with pytest.raises(BadInput, match="not a record of evidence"):
        add(job, **change)
    assert not path(job).exists()


def test_a_full_disk_blocks(job):
    add(job)
    before, (soft, hard) = path(job).read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))  # room for a part of a line
    try:
        with pytest.raises(Blocked, match="only a part"):
            add(job)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path(job).read_bytes()[: len(before)] == before
    add(job)
    assert len(job.records()) == 2


def _writer(job: Job, number: int) -> None:
    for _ in range(10):
        add(job, summary=f"writer {number}")


def test_two_writers_at_once_lose_nothing(job):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_writer, args=(job, number)) for number in range(2)]
    for one in writers:
        one.start()
    while any(one.is_alive() for one in writers):
        job.records()  # a reader meanwhile never sees a broken chain
    for one in writers:
        one.join()
        assert one.exitcode == 0
    summaries = [record.summary for record in job.records()]
    assert sorted(summaries) == ["writer 0"] * 10 + ["writer 1"] * 10


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=10,
)


@given(data=st.dictionaries(st.text(), values, max_size=4), summary=st.text().filter(lambda t: "\n" not in t))
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_survives_the_round_trip(job, data, summary):
    for name in ("evidence.jsonl", "evidence.head"):
        (job.store.folder / name).unlink(missing_ok=True)
    written = add(job, data=data, summary=summary)
    assert job.records() == [written]
    assert written.data == json.loads(json.dumps(data))
    line = path(job).read_bytes()
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert chain.canonical(json.loads(line)) + b"\n" == line


@given(value=values)
def test_equal_values_have_one_spelling(value):
    spelled = chain.canonical(value)
    assert chain.canonical(json.loads(spelled)) == spelled


def test_a_subject_is_the_bytes_on_disk(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/a.py").write_bytes(b"x = 1\r\n")
    subject = subject_of(tmp_path, ["pkg/a.py", "gone.py"])
    assert subject.files == {"gone.py": "absent", "pkg/a.py": sha256(b"x = 1\r\n")}
    (tmp_path / "gone.py").write_bytes(b"")
    assert subject_of(tmp_path, ["pkg/a.py", "gone.py"]).tree != subject.tree
    with pytest.raises(BadInput, match="not a file of the repository"):
        subject_of(tmp_path, ["../a.py"])
