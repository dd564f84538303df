"""Runs with evidence, for tests."""

from __future__ import annotations

from pathlib import Path

from npu_upgrade.evidence.redaction import Redactor
from npu_upgrade.evidence.store import Outcome, Store
from npu_upgrade.evidence.subject import Subject
from npu_upgrade.ground.verdict import Verdict

STARTED = "2026-11-03T08:14:02Z"
SUBJECT = Subject({"vllm_omni": "a" * 64})


def add_run(store: Store, log: Path, verdict: Verdict = Verdict.PASS) -> str:
    """Record one run and return its id."""
    log.write_text("INFO started\n", "utf-8")
    run = store.begin("serve", Redactor())
    run.command(["vllm", "serve", "/models/tiny"], {"VLLM_X": "1"})
    run.log("server.log", log)
    run.json("requests.json", [{"path": "/v1/completions", "status": 200}])
    outcome = Outcome(
        gate="serve",
        label="CPU dummy",
        verdict=verdict,
        subject=SUBJECT,
        pins={},
        command=["upgrade.py", "serve"],
        started=STARTED,
        seconds=2.5,
        summary="it served",
    )
    store.record(outcome, run)
    return run.id
