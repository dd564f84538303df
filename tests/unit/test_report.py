"""The page of a job: self-contained, in every state, and whatever files hold stays text."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lineage_kit import RUNNERS, git_at
from merge_kit import CONFLICTING, DAY, World, audit, made_once, started, upgrade
from page_kit import HOSTILE, Page

from npu_upgrade.job.ask import LOOK
from npu_upgrade.job.job import open_job
from npu_upgrade.job.journal import Answer, Skipped
from npu_upgrade.job.stages import State
from npu_upgrade.job.upgrade import walk as upgrade_walk
from npu_upgrade.report.overview import overview
from npu_upgrade.report.page import MARKDOWN, printable, render
from npu_upgrade.report.sides import MOST_ROWS, compare

BASE = RUNNERS[0].path


@pytest.fixture
def world(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> World:
    made = made_once(folders, lambda folder: started(folder, monkeypatch, CONFLICTING))
    monkeypatch.chdir(made.omni)
    return made


def page_of(world: World) -> Page:
    code, data, _ = upgrade("report")
    assert code == 0
    page = Page(Path(data["page"]).read_text("utf-8"))
    assert page.wrong == []
    return page


def test_each_state_of_a_job_has_a_page(world: World) -> None:
    text = page_of(world).text
    assert "Not delivered yet. Next: " in text
    assert "plan: to answer: 1 conflict" in text
    assert "0 flags, 1 conflict\n" in text
    assert "(merged, 1 conflict open)" in text
    assert "Open for: who drives the job" in text
    assert "the merge did not decide, somebody has to" in text
    assert "the commit is not published" not in text
    id_ = upgrade("next")[1]["ask"]["id"]
    upgrade("resolve", id_, "--take", "theirs", "--note", "read both")
    text = page_of(world).text
    assert ("read both" in text, "what became of ours" in text) == (True, True)
    for kind in ("look", "port", "emulate"):
        upgrade("next", "--skip", kind, "--note", "left out here")
    assert "emulate was left out: left out here" in page_of(world).text
    audit(world)
    upgrade("deliver", "--repo", str(world.omni))
    first, _, history = page_of(world).text.partition("History")
    assert "Delivered: commit" in first
    assert "(merged, 1 conflict answered)" in first
    assert first.partition("Open for: ")[2].partition("\n")[0] == "a reviewer, who has an NPU"
    assert "nothing that counts ran on an NPU" in first
    assert "not done yet" not in first
    assert re.search(r"static.*audit\s*PASS.*emulated dry-run.*left out here.*NPU real", first, re.DOTALL)
    assert "merge" in history


def test_a_gate_that_could_not_tell_is_for_a_reviewer(world: World) -> None:
    walk = upgrade_walk(open_job(world.omni))
    told = {"label": "emulated dry-run", "gate": "emulate", "verdict": "INCONCLUSIVE", "id": "1"}
    walk = replace(
        walk,
        standing=[*walk.standing, told | {"summary": "22 lag, 0 note, not shown: eager ar-pp2"}],
        stages=[replace(one, state=State.DONE) if one.name == "emulate" else one for one in walk.stages],
    )
    first = overview(walk, "t", "w", [], [])
    assert "whether what emulate (emulated dry-run) could not tell may stay so" in [
        o.what for o in first.open
    ]
    assert list(first.words) == ["lag", "inconclusive"]
    assert first.open[0].who == "who drives the job"


def test_what_was_written_by_hand_is_on_the_first_screen(world: World) -> None:
    upgrade("resolve", upgrade("next")[1]["ask"]["id"], "--take", "theirs")
    helper = world.omni / BASE.replace("npu_model_runner", "helper")
    helper.write_text("x = 1\n")
    git_at(world.omni, DAY, "add", "-N", str(helper))
    unit, why = "OmniNPUModelRunner.run", "upstream alone is wrong here"
    open_job(world.omni).journal.add(
        Answer, id=unit, how="accept", note=why, stage=LOOK, path=BASE, unit=unit
    )
    first = page_of(world).text.partition("What is proven")[0]
    assert "Written by hand, with the reason (1)" in first
    assert "OmniNPUModelRunner.run: upstream alone is wrong here" in first
    assert "helper.pyedited beside the merge" in first
    text = render(open_job(world.omni), MARKDOWN).text
    assert "\nWritten by hand:\n\n- OmniNPUModelRunner.run: upstream alone is wrong here\n" in text


def test_a_decision_that_was_waived_is_told_with_its_reason(world: World) -> None:
    plan_file = open_job(world.omni).folder / "out" / "plan.json"
    plan = json.loads(plan_file.read_text())
    item = {"id": "overridden-1", "kind": "overridden-changed", "title": "run changed", "state": "waived"}
    plan["items"] += [
        item | {"note": "it sets nothing"},
        item | {"id": "overridden-2", "title": "stop changed"},
    ]
    plan_file.write_text(json.dumps(plan))
    text = render(open_job(world.omni), MARKDOWN).text
    assert "  - run changed: it sets nothing\n" in text
    assert "  - stop changed\n" in text


def test_long_lists_are_folded_below_the_first_screen(world: World) -> None:
    job = open_job(world.omni)
    hunks = [{"id": f"port-{at}", "tier": 2, "unit": "A.run", "text": "a\nb"} for at in range(9)]
    (job.folder / "port.json").write_text(json.dumps({"summary": "9 hunks", "hunks": hunks}))
    rows = [{"key": f"k{at}", "what": f"finding {at}", "state": "LAG"} for at in range(7)]
    (job.folder / "audit.json").write_text(json.dumps({"findings": rows}))
    runs = [{"tier": "eager", "scenario": f"s{at}", "state": "PASS" if at else "FAIL"} for at in range(4)]
    (job.folder / "emulate.json").write_text(json.dumps({"verdict": "FAIL", "summary": "4", "runs": runs}))
    page = Page(render(job).text)
    assert page.wrong == []
    for part in ("9 hunks: nobody answered", "LAG 7 that the versions before have too", "PASS 3 runs"):
        assert part in " ".join(page.text.split())
    html = render(job).text
    assert html.index("nobody answered</summary>") < html.rindex("port-0")
    assert html.index("that the versions before have too</summary>") < html.rindex("finding 0")


def test_evidence_that_does_not_count_is_in_the_history_only(world: World) -> None:
    upgrade("resolve", upgrade("next")[1]["ask"]["id"], "--take", "theirs")
    audit(world)
    with open(world.omni / BASE, "a", encoding="utf-8") as stream:
        stream.write("# by hand\n")
    first, _, history = page_of(world).text.partition("History")
    assert "does not count" not in first
    assert history.count("does not count: it is of other contents") >= 2
    assert "audit: the files changed since it judged them" in first


def test_markdown_says_the_same(world: World) -> None:
    code, data, _ = upgrade("report", "--markdown")
    text = Path(data["page"]).read_text("utf-8")
    assert (code, Path(data["page"]).name) == (0, "report.md")
    assert re.findall("^#+ .*", text, re.MULTILINE)[1:] == [
        "### What changed, and why",
        "### What is proven",
        "### What is open, and who decides",
    ]
    assert "- **who drives the job**: plan: to answer: 1 conflict" in text


def test_markdown_of_hostile_contents_is_text(world: World) -> None:
    open_job(world.omni).journal.add(Skipped, id="emulate", note=f"a\n| b | <b>{HOSTILE} @somebody #12")
    text = render(open_job(world.omni), MARKDOWN).text
    (line,) = (line for line in text.splitlines() if line.startswith("- **a reviewer**: emulate"))
    assert not re.search(r"(?<!\\)[<>|#@`]", line)


def test_the_sides_of_a_method_stand_beside_each_other(world: World) -> None:
    page = page_of(world)
    for text in ("self.record(stats.of(logits))", "self.record(logits.cpu())", "<<<<<<< ", "Omni-new"):
        assert text in page.text


def test_hostile_contents_stay_text(world: World) -> None:
    job = open_job(world.omni)
    plan_file = job.folder / "out" / "plan.json"
    plan = json.loads(plan_file.read_text())
    plan["items"].append(
        {
            "id": HOSTILE,
            "kind": "x",
            "title": HOSTILE,
            "detail": HOSTILE,
            "path": "",
            "blocking": True,
            "state": "open",
            "note": HOSTILE,
        }
    )
    plan["methods"][0]["name"] = HOSTILE
    plan_file.write_text(json.dumps(plan))
    finding = {
        "key": HOSTILE,
        "what": HOSTILE,
        "why": HOSTILE,
        "state": "NEW",
        "here": {"path": HOSTILE, "line": 1},
    }
    (job.folder / "audit.json").write_text(
        json.dumps({"verdict": HOSTILE, "summary": HOSTILE, "findings": [finding]})
    )
    hunk = {"id": HOSTILE, "tier": 1, "unit": HOSTILE, "path": BASE, "text": HOSTILE}
    (job.folder / "port.json").write_text(json.dumps({"summary": HOSTILE, "hunks": [hunk]}))
    run = world.omni / ".npu-upgrade" / "evidence" / "runs" / "20260101T000000Z-serve-00000000"
    run.mkdir(parents=True)
    (run / "verdict.json").write_text(
        json.dumps({"gate": HOSTILE, "label": HOSTILE, "verdict": "FAIL", "summary": HOSTILE})
    )
    (run / "result.json").write_text(
        json.dumps(
            {"root": {"cause": HOSTILE}, "checks": [{"name": HOSTILE, "state": "FAIL", "why": HOSTILE}]}
        )
    )
    job.journal.add(Skipped, id="emulate", note=HOSTILE)
    text = page_of(world).text
    assert text.count("<script>alert(1)</script>") > 10
    assert "{{ 7 * 7 }}" in text
    assert ("\x00" in text, "\x1b" in text) == (False, False)


@pytest.mark.parametrize(
    "name", ["plan.json", "audit.json", "port.json", "methods.json", "journal.jsonl", "evidence.jsonl"]
)
@pytest.mark.parametrize("content", ["", "[]", "{", "null", "\udcff"])
def test_damaged_files_are_left_out(world: World, name: str, content: str) -> None:
    job = open_job(world.omni)
    folder = {"plan.json": job.folder / "out", "evidence.jsonl": job.store.folder}.get(name, job.folder)
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert Page(render(job).text).wrong == []


def test_the_runs_of_servers_are_shown(world: World) -> None:
    run = world.omni / ".npu-upgrade" / "evidence" / "runs" / "20260102T000000Z-serve-00000001"
    run.mkdir(parents=True)
    said = {"gate": "serve", "label": "CPU real", "verdict": "PASS", "summary": "it served"}
    result = {
        "checks": [{"name": "chat", "state": "PASS", "why": "an answer of 12 tokens"}],
        "features": [{"feature": "expert_parallel", "status": "not applicable", "why": "no experts"}],
        "capacity": [{"max_model_len": 131072, "max_num_seqs": 16, "state": "PASS"}],
        "accuracy": {"tasks": [{"name": "gsm8k", "metrics": [{"name": "exact_match", "value": 0.44}]}]},
        "versions": {"vllm": "0.30.0"},
        "model_name": "Tiny",
        "root": None,
    }
    (run / "verdict.json").write_text(json.dumps(said))
    (run / "result.json").write_text(json.dumps(result))
    text = page_of(world).text
    for part in (
        "it served",
        "an answer of 12 tokens",
        "not applicable",
        "131072",
        "gsm8k",
        "0.44",
        "vllm 0.30.0",
    ):
        assert part in text


STRANGE = (
    '{"items": [1, "a", {}], "methods": [[], {}], "findings": [null, {}], "hunks": "x", "runs": [{}, 3]}'
)


@pytest.mark.parametrize("name", ["audit.json", "port.json", "methods.json", "emulate.json"])
def test_files_of_another_version_make_a_page(world: World, name: str) -> None:
    job = open_job(world.omni)
    (job.folder / name).write_text(STRANGE)
    assert Page(render(job).text).wrong == []


def test_the_page_is_bounded(world: World) -> None:
    job = open_job(world.omni)
    finding = {
        "key": "k",
        "what": "w" * 9000,
        "why": "y" * 9000,
        "state": "NEW",
        "here": {"path": "p", "line": 1},
    }
    (job.folder / "audit.json").write_text(json.dumps({"findings": [finding] * 5000}))
    sides = [
        {
            "path": BASE,
            "name": "OmniNPUModelRunner.run",
            "ours": "a\n" * 50_000,
            "base": "b\n" * 50_000,
            "theirs": "c\n" * 50_000,
        }
    ]
    (job.folder / "methods.json").write_text(json.dumps({"methods": sides}))
    page = render(job).text
    assert len(page) < 4_000_000
    assert "more are left out" in page


def test_an_output_that_is_a_folder(world: World) -> None:
    code, data, _ = upgrade("report", "--out", str(world.omni))
    assert (code, "is a folder" in data["error"]) == (2, True)


@given(st.text())
def test_printable_text_has_no_control_characters(text: str) -> None:
    assert not {char for char in printable(text) if ord(char) < 32 and char not in "\t\n\r"}
    assert len(printable(text)) == len(text)


@given(
    st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=40),
    st.lists(st.sampled_from(["a", "b", "x"]), max_size=40),
)
def test_the_changed_rows_hold_what_differs(left: list[str], right: list[str]) -> None:
    sides = compare("\n".join(left), "\n".join(right))
    dropped = [row.left for row in sides.rows if row.kind in ("changed", "dropped")]
    added = [row.right for row in sides.rows if row.kind in ("changed", "added")]
    assert ("\n".join(left) == "\n".join(right)) == (not dropped and not added)
    for row in sides.rows:
        assert row.kind != "equal" or row.left == row.right
    assert len(sides.rows) <= MOST_ROWS


BROWSER = next(
    (found for name in ("chromium", "google-chrome", "chrome") if (found := shutil.which(name))), None
)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_a_real_browser_shows_it(world: World, tmp_path: Path) -> None:
    """The browser's own tree of the page has the sections, and nothing is wider than a narrow window."""
    assert BROWSER
    page = Path(upgrade("report", "--out", str(tmp_path / "page.html"))[1]["page"])
    probe = (
        "<script>onload=()=>{document.title=JSON.stringify({wide:document.documentElement.scrollWidth,"
        "window:innerWidth,tables:document.querySelectorAll('table').length,"
        "sections:document.querySelectorAll('h2').length})}</script></body>"
    )
    text = page.read_text().replace("default-src 'none'", "script-src 'unsafe-inline'")
    page.write_text(text.replace("<details>", "<details open>").replace("</body>", probe))
    command = [
        BROWSER,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    command += ["--window-size=500,900", "--virtual-time-budget=3000", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    title = done.stdout.partition("<title>")[2].partition("</title>")[0]
    if not title.startswith("{"):
        pytest.skip(f"the browser does not run here: {done.stderr[-200:]}")
    seen = json.loads(title)
    assert seen["sections"] >= 6
    assert seen["wide"] <= seen["window"]
