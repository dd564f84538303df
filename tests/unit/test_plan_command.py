"""From merge over plan to the delivered commit, and the answers that are remembered on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lineage_kit import RUNNERS, git_at
from merge_kit import CONFLICTING, World, audit, make_world, upgrade

from npu_upgrade.job.job import open_job
from npu_upgrade.job.journal import Begun
from npu_upgrade.lineage.items import item_id
from npu_upgrade.merge.plan import close_rewritten, close_unused

BASE = RUNNERS[0].path
DAY = "2026-03-02"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = make_world(tmp_path, CONFLICTING)
    monkeypatch.chdir(made.workspace)
    for name, value in (("user.name", "T"), ("user.email", "t@example.com")):
        git_at(made.omni, DAY, "config", name, value)
    return made


def merge(world: World, *more: str) -> tuple[int, dict, str]:
    return upgrade("merge", "--omni", f"git:{world.omni}@main", "--ascend", world.target, *more)


def resolve(path: Path, answer: str) -> None:
    """Put ``answer`` in the place of the one conflict of a file."""
    text = path.read_text()
    start, end = text.index("<<<<<<< "), text.index(">>>>>>> ")
    path.write_text(text[:start] + answer + text[text.index("\n", end) + 1 :])


ANSWER = "        self.record(stats.of(logits.cpu()))\n"


def test_plan_fails_while_conflicts_are_left_and_passes_after(world: World) -> None:
    merge(world, "--out", "out")
    code, data, _ = upgrade("plan")
    assert (code, data["conflicts_open"]) == (1, 1)
    assert [item["kind"] for item in data["items"] if item["blocking"]] == ["conflict"]
    resolve(world.workspace / "out" / BASE, ANSWER)
    code, data, _ = upgrade("plan")
    assert (code, data["conflicts_open"], data["learned"]) == (0, 0, 1)
    assert "audit" in data["next"]


def test_a_merged_method_is_shown_beside_the_targets(world: World) -> None:
    merge(world, "--out", "out")
    path = world.workspace / "out" / BASE
    methods = json.loads((open_job(world.workspace).folder / "methods.json").read_text())["methods"]
    name = methods[0]["name"]
    code, data, _ = upgrade("plan", "--diff", name)
    assert (code, "what upstream changed" in data["summary"]) == (0, True)
    lines = data["diff"][name].split("\n")
    assert lines[:2] == ["--- base", "+++ target"]
    assert any(line.startswith("+") and "stats" in line for line in lines[2:])
    resolve(path, ANSWER)
    code, data, _ = upgrade("plan", "--diff", name)
    assert (code, list(data["diff"])) == (0, [name])
    assert "+    self.record(stats.of(logits.cpu()))" in data["diff"][name]
    method = name.rpartition(".")[2]
    for word in (method, f"{methods[0]['runner']}.{method}"):
        assert upgrade("plan", "--diff", word)[1]["diff"] == data["diff"]
    code, data, _ = upgrade("plan", "--diff", "nothing")
    assert (code, name in data["expected"]) == (2, True)


def test_an_answer_is_used_again(world: World) -> None:
    merge(world, "--out", "out")
    resolve(world.workspace / "out" / BASE, ANSWER)
    upgrade("plan")
    code, data, _ = merge(world, "--out", "again")
    assert (code, data["conflicts_open"]) == (0, 0)
    assert ANSWER in (world.workspace / "again" / BASE).read_text()
    plan = json.loads((world.workspace / "again" / "plan.json").read_text())
    assert [flag["kind"] for method in plan["methods"] for flag in method["flags"]] == ["remembered"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("        self.record(\n", "does not parse"),
        ("        self.record(statz)\n", "undefined names: statz"),
    ],
)
def test_a_bad_resolution_is_seen(world: World, text: str, problem: str) -> None:
    merge(world, "--out", "out")
    resolve(world.workspace / "out" / BASE, text)
    code, data, _ = upgrade("plan")
    assert code == 1
    assert problem in data["problems"][0]["problem"]


def test_markers_that_go_while_their_code_stays_are_seen_before_the_delivery(world: World) -> None:
    merge(world, "--out", "out")
    file = world.workspace / "out" / BASE
    resolve(file, ANSWER)
    file.write_text("".join(line for line in file.read_text().splitlines(True) if "Omni-new" not in line))
    code, data, _ = upgrade("plan")
    assert (code, len(data["problems"])) == (1, 1)
    assert "lost markers of omni code that still stands" in data["problems"][0]["problem"]
    code, data, _ = upgrade("next")
    assert (code, data["step"], data["then"].rpartition("/")[2].split()[1]) == (1, "change", "plan")
    assert "lost markers" in data["why"]


def test_a_missing_file_is_seen(world: World) -> None:
    merge(world, "--out", "out")
    (world.workspace / "out" / BASE).unlink()
    code, data, _ = upgrade("plan")
    assert (code, data["problems"][0]["problem"]) == (1, "is missing")


def test_items_are_closed_with_a_note_and_stay_closed(world: World) -> None:
    merge(world, "--out", "out")
    resolve(world.workspace / "out" / BASE, ANSWER)
    upgrade("plan")
    merge(world, "--out", "again")
    (flag,) = (i for i in upgrade("plan")[1]["items"] if i["kind"] == "flag-remembered")
    assert upgrade("resolve", flag["id"], "--accept", "--note", "read it")[0] == 0
    data = upgrade("plan")[1]
    assert flag["id"] not in {item["id"] for item in data["items"]}
    merge(world, "--out", "again")
    plan = json.loads((world.workspace / "again" / "plan.json").read_text())
    assert [(i["state"], i["note"]) for i in plan["items"] if i["id"] == flag["id"]] == [("done", "read it")]


def test_only_resolve_closes_items(world: World) -> None:
    merge(world, "--out", "out")
    (item,) = (i for i in upgrade("plan")[1]["items"] if i["blocking"])
    for option in ("--done", "--waive"):
        assert upgrade("plan", option, item["id"], "--note", "no time")[0] == 2
    assert "in a word" in upgrade("resolve", item["id"], "--waive", "--note", "no time")[1]["error"]
    assert upgrade("plan")[1]["conflicts_open"] == 1


DEEPER = "            if x:\n                h(x)\n        a = f(x)"  # a hunk has depths of its own
FLAGGED = {"kind": "both-added", "base": "", "ours": DEEPER, "theirs": "b = g(x)"}
MERGED = "class R:\n    def run(self, x):\n        a = f(x)\n        b = g(x)\n        return a\n"


@pytest.mark.parametrize(
    ("now", "state"),
    [
        (MERGED, "open"),
        (MERGED.replace("return a", "return a, b"), "open"),
        (MERGED.replace("g(x)", "g(x, a)"), "done"),
        (MERGED.replace("        b = g(x)\n", ""), "done"),
        (MERGED + "    def (\n", "open"),
    ],
)
def test_a_flag_whose_statement_was_rewritten_closes_and_opens_again(now: str, state: str) -> None:
    flag_id = item_id("flag-both-added", "r.py: R.run", "", FLAGGED["ours"], FLAGGED["theirs"])
    item = {"id": flag_id, "kind": "flag-both-added", "state": "open", "note": ""}
    plan = {"items": [item], "methods": [{"path": "r.py", "name": "R.run", "flags": [FLAGGED]}]}
    close_rewritten(plan, {"r.py": MERGED}, {"r.py": now})
    assert item["state"] == state
    close_rewritten(plan, {"r.py": MERGED}, {"r.py": MERGED})
    assert item["state"] == "open"


def test_a_question_about_a_name_closes_when_nothing_uses_it_and_opens_again() -> None:
    title = "r.py: no certain import for Cache"
    item = {"kind": "unresolved-name", "title": title, "path": "r.py", "state": "open", "note": ""}
    states = []
    for now in ("x = Cache()\n", "from a import Cache\n", "x = Cache()\n", "def (", "# Cache\n"):
        close_unused({"items": [item]}, {"r.py": now})
        states.append(item["state"])
    assert states == ["open", "done", "open", "open", "done"]


def test_a_flag_about_half_of_a_pair_closes_with_the_other_half_and_opens_again() -> None:
    flag = {"kind": "parted", "base": "", "ours": "a = f(x)", "theirs": "end(x)"}
    item = {"id": item_id("flag-parted", "r.py: R.run", "", flag["ours"], flag["theirs"])}
    item |= {"kind": "flag-parted", "state": "open", "note": ""}
    plan = {"items": [item], "methods": [{"path": "r.py", "name": "R.run", "flags": [flag]}]}
    states = []
    for now in (MERGED, MERGED.replace("        return a", "        end(x)\n        return a"), MERGED):
        close_rewritten(plan, {"r.py": MERGED}, {"r.py": now})
        states.append((item["state"], item["note"]))
    assert states == [("open", ""), ("done", "what it lacked was added since"), ("open", "")]


def test_no_job(world: World) -> None:
    code, data, _ = upgrade("plan")
    assert (code, "merge" in data["try"]) == (2, True)


def test_from_merge_to_one_signed_off_commit(world: World) -> None:
    before = git_at(world.omni, DAY, "rev-parse", "main")
    merge(world, "--apply", "--branch", "up", "--workspace", str(world.workspace))
    assert upgrade("deliver", "--repo", str(world.omni))[0] == 2  # conflicts are left
    resolve(world.omni / BASE, ANSWER)
    assert upgrade("deliver", "--repo", str(world.omni))[0] == 2  # no evidence for this content
    assert upgrade("plan")[0] == 0
    assert "gate audit" in upgrade("deliver", "--repo", str(world.omni))[1]["error"]
    code, data, _ = audit(world)
    assert (code, "upgrade.py port" in data["next"]) == (0, True), data
    code, data, _ = upgrade("deliver", "--repo", str(world.omni))
    assert code == 0, data
    message = git_at(world.omni, DAY, "log", "-1", "--format=%B")
    assert message.startswith("[NPU] Upgrade to vllm-ascend")
    assert "Signed-off-by: T <t@example.com>" in message
    assert "NPU-Validation: pending" in message
    assert git_at(world.omni, DAY, "rev-list", "--count", f"{before}..up") == "1"
    assert git_at(world.omni, DAY, "show", "--format=", "--name-only", "up") == BASE
    assert git_at(world.omni, DAY, "status", "--porcelain") == ""


def test_an_edit_after_the_plan_needs_the_plan_again(world: World) -> None:
    merge(world, "--apply", "--branch", "up", "--workspace", str(world.workspace))
    resolve(world.omni / BASE, ANSWER)
    upgrade("plan")
    path = world.omni / BASE
    path.write_text(path.read_text() + "# one more thought\n")
    code, data, _ = upgrade("deliver", "--repo", str(world.omni))
    assert (code, "plan" in data["try"] + data["expected"] + data["error"]) == (2, True)


def test_next_leads_through_the_job(world: World) -> None:
    merge(world, "--out", "out")
    assert "resolve conflict-" in upgrade("next")[1]["next"]
    resolve(world.workspace / "out" / BASE, ANSWER)
    assert "upgrade.py plan" in upgrade("next")[1]["next"]
    upgrade("plan")
    assert "--skip" not in upgrade("next", "--skip", "look", "--note", "read before")[1]["next"]
    assert "audit" in upgrade("next")[1]["next"]
    code, data, _ = audit(world)
    assert code == 0, data
    assert "emulate" in upgrade("next")[1]["next"]


def test_an_interrupted_merge_is_run_again(world: World) -> None:
    merge(world, "--out", "out")
    job = open_job(world.workspace)
    job.journal.add(Begun, stage="merge", command=["upgrade.py", "merge"], pid=2**22 + 1, born=1.0)
    code, data, _ = upgrade("next")
    assert (code, "interrupted" in data["why"]) == (0, True)
    assert "merge" in data["next"]


def test_what_is_merged_and_answered_is_in_the_projects_own_style(world: World) -> None:
    """The checkout's file was tidy before, so all of it is tidy after."""
    (world.omni / "pyproject.toml").write_text("[tool.ruff]\nline-length = 44\n[tool.ruff.format]\n")
    merge(world, "--apply", "--branch", "up")
    assert "<<<<<<<" in (world.omni / BASE).read_text()
    (item,) = (i for i in upgrade("plan", "--workspace", str(world.omni))[1]["items"] if i["blocking"])
    assert upgrade("resolve", item["id"], "--take", "theirs", "--workspace", str(world.omni))[0] == 0
    text = (world.omni / BASE).read_text()
    assert "self.count(\n            batch, padded=True\n        )" in text
