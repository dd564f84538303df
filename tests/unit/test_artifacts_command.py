"""adapt.py artifacts: what is written, where, and what is a gap."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml
from artifacts_kit import (
    ACCURACY,
    CAPACITY,
    FEATURES,
    HF_ID,
    LOADS,
    NAME,
    add,
    add_all,
    analysed,
    mkdocs_tree,
    run,
)
from deliver_support import git

from npu_upgrade.checkpoint.gate_commands import gate_command
from npu_upgrade.checkpoint.serving import Serving
from npu_upgrade.evidence.store import DRY_RUN, workspace_store
from npu_upgrade.ground.files import write_json
from npu_upgrade.job.journal import Journal, Skipped

PAGE = f"docs/source/tutorials/models/{NAME}.md"
CONFIG = f"tests/e2e/models/configs/{NAME}.yaml"
MATRIX = "docs/source/user_guide/support_matrix/supported_models.md"
SECTIONS = [
    "1 Introduction",
    "2 Supported Features",
    "3 Prerequisites",
    "4 Installation",
    "5 Online Service Deployment",
    "6 Functional Verification",
    "7 Accuracy Evaluation",
    "8 Performance Evaluation",
    "9 Performance Tuning",
    "10 FAQ",
]
OLD_SECTIONS = [
    "Introduction",
    "Supported Features",
    "Environment Preparation",
    "Deployment",
    "Functional Verification",
    "Accuracy Evaluation",
    "Performance",
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return mkdocs_tree(tmp_path / "tree")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.fixture
def call(tree: Path, workspace: Path, capsys: pytest.CaptureFixture[str]):
    return lambda *options, model=HF_ID: run(
        capsys, "artifacts", model, "--tree", str(tree), "--workspace", str(workspace), *options
    )


def headings(text: str) -> list[str]:
    return [line[3:] for line in text.splitlines() if line.startswith("## ")]


def report(workspace: Path, name: str = "report.zh.md") -> str:
    return (workspace / ".npu-upgrade/adapt" / NAME / name).read_text("utf-8")


def files(folder: Path) -> dict[Path, bytes]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "calls.jsonl")
    return {path: path.read_bytes() for path in found}


def test_everything_from_evidence_and_no_gap(tree: Path, workspace: Path, call) -> None:
    add_all(workspace)
    code, result = call()
    assert (code, result["gaps"]) == (0, [])
    page = (tree / PAGE).read_text("utf-8")
    assert page.startswith(f"# {NAME}\n")
    assert headings(page) == SECTIONS
    assert '=== "A3 series"' in page
    assert "docker run" in page
    assert "curl http://localhost:8000/v1/chat/completions" in page
    assert "vllm-ascend:{{ vllm_ascend_version }}-a3" in page
    assert "export HCCL_OP_EXPANSION_MODE=AIV\nvllm serve <YOUR_MODEL_PATH>" in page
    assert "  --max-model-len 4096 \\\n  --max-num-seqs 16\n" in page
    assert "| gsm8k | 5 | all | exact_match,strict-match | 0.8312 |" in page
    assert "| 1024 | 128 | 16 | 64 | 812.5 | 7312.5 | 310.25 | 17.5 |" in page
    config = yaml.safe_load((tree / CONFIG).read_text("utf-8"))
    assert (config["model_name"], config["hardware"], config["num_fewshot"]) == (HF_ID, "Atlas A2 Series", 5)
    assert config["serve"]["tensor_parallel_size"] == 2
    assert config["apply_chat_template"] is False
    assert call("--check")[0] == 0


def test_a_model_that_takes_pictures_is_evaluated_as_one(tree: Path, workspace: Path, call) -> None:
    add_all(workspace)
    kinds = []
    for takes in (False, True):
        add(workspace, resolved={"is_multimodal": takes})
        code, found = call("--keep", MATRIX)
        assert code == 0, found
        kinds.append(yaml.safe_load((tree / CONFIG).read_text("utf-8"))["model_type"])
    assert kinds == ["vllm", "vllm-vlm"]


def test_the_page_is_registered_everywhere(tree: Path, workspace: Path, call) -> None:
    add_all(workspace)
    call()
    nav = (tree / "mkdocs.yml").read_text("utf-8").splitlines()
    assert (
        nav.index(f"      - tutorials/models/{NAME}.md") == nav.index("      - tutorials/models/Other.md") + 1
    )
    assert "# the pages" in nav
    titles: dict = {}
    exec((tree / "docs/hooks/nav_titles.py").read_text("utf-8"), titles)
    assert titles["TITLES"][f"tutorials/models/{NAME}.md"] == {"en": NAME, "zh": NAME}
    assert f"- [{NAME}]({NAME}.md)" in (tree / "docs/source/tutorials/models/index.md").read_text("utf-8")
    row = next(line for line in (tree / MATRIX).read_text("utf-8").splitlines() if f"{NAME}.md" in line)
    cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
    assert cells == [
        NAME,
        "🔵",
        "✅",
        "🟡",
        "✅",
        "",
        "✅",
        "131072",
        f"[{NAME}](../../tutorials/models/{NAME}.md)",
    ]


def test_the_older_form(workspace: Path, tmp_path: Path, capsys) -> None:
    models = tmp_path / "old/docs/source/tutorials/models"
    models.mkdir(parents=True)
    (models / "index.md").write_text("# Models\n\n:::{toctree}\n:maxdepth: 1\nOther.md\n:::\n", "utf-8")
    (tmp_path / "old/docs/source/conf.py").write_text(
        'extensions = ["sphinx_design"]\nmyst_substitutions = {"vllm_ascend_version": "v1"}\n', "utf-8"
    )
    reader = tmp_path / "old/tests/e2e/models/test_lm_eval_correctness.py"
    reader.parent.mkdir(parents=True)
    reader.write_text(
        "def build_model_args(c, tp):\n    c.get('dtype')\n"
        "    for s in ['enforce_eager']:\n        c.get(s)\n"
        "def t(c):\n    c.get('model', 'vllm')\n",
        "utf-8",
    )
    add_all(workspace)
    code, result = run(
        capsys, "artifacts", HF_ID, "--tree", str(tmp_path / "old"), "--workspace", str(workspace)
    )
    assert (code, result["form"]) == (0, "myst")
    page = (tmp_path / "old" / PAGE).read_text("utf-8")
    assert headings(page) == OLD_SECTIONS
    assert "::::{tab-item} A2 series" in page
    assert "vllm-ascend:|vllm_ascend_version|-a3" in page
    assert f"Other.md\n{NAME}.md\n:::" in (models / "index.md").read_text("utf-8")
    config = yaml.safe_load((tmp_path / "old" / CONFIG).read_text("utf-8"))
    assert (config["model"], config["dtype"], config.get("enforce_eager")) == ("vllm", "bfloat16", None)
    assert "serve" not in config
    assert "max_model_len" not in config  # this reader does not read it


def test_a_gate_that_was_left_out_is_not_asked_for_again(tree: Path, workspace: Path, call) -> None:
    analysed(workspace)
    add(workspace, "serve")
    add(workspace, "features", features=FEATURES)
    folder = workspace / ".npu-upgrade/adapt" / NAME
    folder.mkdir(parents=True, exist_ok=True)
    Journal(folder).add(Skipped, id="capacity", note="no time")
    assert call()[1]["next"].startswith("adapt.py accuracy ")
    Journal(folder).add(Skipped, id="accuracy", note="no questions")
    assert call()[1]["next"].startswith("adapt.py performance ")
    Journal(folder).add(Skipped, id="performance", note="no time")
    for options in ((), ("--check",)):
        result = call(*options)[1]
        assert [gap["id"] for gap in result["gaps"]] == ["capacity", "accuracy", "throughput"]
        assert result["next"] == f"adapt.py next {NAME} --workspace {workspace}"
    code, result = call("--check")
    assert (code, result["verdict"]) == (0, "PASS")
    assert result["summary"].endswith("left open with a note: capacity, accuracy, throughput")


@pytest.mark.parametrize(
    ("lacking", "gaps", "asked"),
    [
        ("serve", ["serve"], ("--load-format", "real")),
        ("features", ["graph"], ()),
        ("capacity", ["capacity"], ()),
        ("performance", ["throughput"], ()),
        ("accuracy", ["accuracy"], ()),
    ],
)
def test_a_missing_measurement_is_a_gap_that_shows(
    tree: Path, workspace: Path, call, lacking: str, gaps: list[str], asked: tuple[str, ...]
) -> None:
    more = {
        "features": {"features": FEATURES},
        "capacity": {"capacity": CAPACITY},
        "accuracy": {"accuracy": ACCURACY},
        "performance": {"performance": LOADS},
    }
    analysed(workspace)
    for gate in {"serve", *more} - {lacking}:
        add(workspace, gate, **more.get(gate, {}))
    code, result = call()
    assert code == 0, result
    assert [one["id"] for one in result["gaps"]] == gaps
    command = gate_command(lacking, HF_ID, max_len=128).adding(*asked).short
    next_command = f"{command} --workspace {workspace}"
    assert result["next"] == next_command
    page = (tree / PAGE).read_text("utf-8")
    assert all(f"**GAP ({gap})**" in page for gap in gaps)
    assert page.startswith(f"# {NAME} (Experimental)\n")
    assert command in page
    assert set(gaps) <= set(re.findall(r"[\w-]+", report(workspace).partition("## 1 ")[0]))
    assert (tree / CONFIG).exists() is (lacking != "accuracy")
    code, result = call("--check")
    assert (code, result["verdict"], result["next"]) == (4, "INCONCLUSIVE", next_command)
    add(workspace, lacking, **more.get(lacking, {}))
    assert call()[0] == 0
    assert "GAP" not in (tree / PAGE).read_text("utf-8")
    assert call("--check")[0] == 0


def test_no_value_comes_from_dummy_weights(tree: Path, workspace: Path, call) -> None:
    for gate in ("serve", "accuracy"):
        add(workspace, gate, "NPU dummy", accuracy=ACCURACY)
    result = call()[1]
    assert {"serve", "accuracy"} <= {gap["id"] for gap in result["gaps"]}
    page = (tree / PAGE).read_text("utf-8")
    assert "**Not validated**: only dummy weights were served (evidence label: NPU dummy)" in page
    assert "0.8312" not in page
    assert not (tree / CONFIG).exists()


def test_what_the_emulated_npu_showed_stands_before_what_a_cpu_did(tree: Path, workspace: Path, call) -> None:
    add_all(workspace, "CPU real")
    versions = {"vllm": "0.30.0", "vllm-ascend": "0.30.0rc2"}
    emulated = {"load_format": "real", "versions": versions}
    add(workspace, "serve", DRY_RUN, **emulated)
    add(workspace, "features", DRY_RUN, features=FEATURES, **emulated)
    add(workspace, "serve", DRY_RUN, verdict="FAIL", summary="no such operator", **emulated)
    assert call()[0] == 0  # it signs nothing off, and stops nothing
    page = (tree / PAGE).read_text("utf-8")
    assert f"| ACLGraph | verified | {DRY_RUN} |" in page
    assert "and on an emulated NPU, which shows that vllm-ascend's code runs" in page
    lines = [line for line in page.splitlines() if line.startswith("- ") and "vllm 0.30.0" in line]
    assert [line.partition(":")[0] for line in lines] == [f"- {DRY_RUN}", "- CPU real", "- CPU dummy"]
    row = next(line for line in (tree / MATRIX).read_text("utf-8").splitlines() if f"{NAME}.md" in line)
    assert "✅" not in row


def test_a_feature_that_works_alone_is_told_with_what_it_does_not_work_with(
    tree: Path, workspace: Path, call
) -> None:
    add_all(workspace, "CPU real")
    emulated = {"load_format": "real", "versions": {"vllm": "0.30.0", "vllm-ascend": "0.30.0rc2"}}
    add(workspace, "serve", DRY_RUN, **emulated)
    lora = {"feature": "lora", "status": "not proven", "requested": "--enable-lora", "cause": "no places"}
    parallel = {"feature": "expert_parallel", "status": "verified", "requested": "--enable-expert-parallel"}
    add(workspace, "features", DRY_RUN, features=[*FEATURES, parallel, lora], **emulated)
    alone = {**lora, "status": "verified", "cause": ""}
    add(workspace, "features", DRY_RUN, features=[alone], **emulated)
    assert call()[0] == 0
    page = (tree / PAGE).read_text("utf-8")
    told = "not together with EP, with which the server does not serve"
    row = next(line for line in page.splitlines() if line.startswith("| LoRA |"))
    assert f"| verified | {DRY_RUN} |" in row
    assert told in row
    assert f"- **LoRA** ({DRY_RUN}, {told}): no places" in page
    assert "served on a CPU only, and in an emulated dry-run" in page
    assert "No failure with a known cause was met" not in page
    text = report(workspace)
    assert f" | {DRY_RUN} | no places | {told} |" in text
    assert text.count(f"| features | {DRY_RUN} |") == 2


def test_the_config_is_in_the_list_of_those_that_are_run(tree: Path, workspace: Path, call) -> None:
    listed = tree / "tests/e2e/models/configs/accuracy.txt"
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.write_text("Other.yaml\n")
    add_all(workspace, "CPU real")
    call()
    assert listed.read_text() == "Other.yaml\n"
    add_all(workspace)
    call()
    call()
    assert listed.read_text() == f"Other.yaml\n{NAME}.yaml\n"


def test_report_and_runbook_go_into_the_tree_on_request(tree: Path, workspace: Path, call) -> None:
    add_all(workspace, model="/models/Qwen3-8B", work_dir="/home/ada/work")
    folder = tree / "docs/adaptations"
    assert call(model=NAME)[0] == 0
    assert not folder.exists()
    code, result = call("--reports", model=NAME)
    assert (code, len(result["changed"])) == (0, 2)
    texts = {path.name: path.read_text("utf-8") for path in folder.iterdir()}
    assert sorted(texts) == [f"{NAME}.report.zh.md", f"{NAME}.runbook.zh.md"]
    assert not any("/home/ada" in text or "/models/" in text for text in texts.values())
    assert call(model=NAME)[1]["changed"] == []  # they stay, and stay up to date


def _gap_line(page: str, gap: str) -> str:
    return next(line for line in page.splitlines() if f"GAP ({gap})" in line)


def test_a_cpu_is_never_called_an_npu(tree: Path, workspace: Path, call) -> None:
    add_all(workspace, "CPU real")
    call()
    page = (tree / PAGE).read_text("utf-8")
    assert page.startswith(f"# {NAME} (Experimental)\n")
    assert "Nothing was validated on NPU hardware yet" in page
    assert not (tree / CONFIG).exists()  # it would be held against an NPU's values
    served = page.partition("vllm serve")[2].partition("```")[0]
    assert "--max-model-len" not in served  # a CPU's setting
    assert "HCCL_OP_EXPANSION_MODE" not in page
    assert "| ACLGraph | not tried on an NPU | CPU real | - | on a CPU: verified |" in page
    assert "| EP | not applicable | CPU real | - | the model has no experts |" in page
    assert "812.5 tokens/s" not in page.replace(_gap_line(page, "throughput"), "")
    row = next(line for line in (tree / MATRIX).read_text("utf-8").splitlines() if f"{NAME}.md" in line)
    assert "✅" not in row
    assert "🔵" not in row
    assert "NPU 验证待完成" in report(workspace)


@pytest.mark.parametrize(
    ("plugin", "page_says", "report_says"),
    [
        (True, "the model's own plugin", "本次提供的插件"),
        (False, "code that came with this page", "本次提交的代码"),
    ],
)
def test_what_nobody_served_before_is_served_by_what_comes_with_the_page(
    tree: Path, workspace: Path, call, plugin: bool, page_says: str, report_says: str
) -> None:
    add_all(workspace)
    analysed(workspace, serving=Serving("nobody", "TidalForCausalLM", why="no registry has it"))
    if plugin:
        plan = {"trees": {"plugin": {"root": str(tree / "tidal"), "package": "tidal"}}}
        write_json(workspace / ".npu-upgrade/adapt" / NAME / "plan.json", plan)
    code, result = call(model=NAME)
    assert code == 0, result
    page = (tree / PAGE).read_text("utf-8")
    assert f"- Served by: {page_says}\n" in page
    assert ("bring the folder into the container" in page) is plugin  # no image has it
    told = report(workspace)
    assert f"| 现有支持 | {report_says} |" in told
    assert "静态分析已得出不兼容根因" in told
    assert "no registry has it" in told


def test_only_runs_of_the_newest_code_count(workspace: Path, call) -> None:
    from npu_upgrade.evidence.subject import Subject

    add_all(workspace)
    add(workspace, code=Subject({"vllm": "d" * 64, "vllm_ascend": "b" * 64}))
    assert {gap["id"] for gap in call()[1]["gaps"]} == {"graph", "capacity", "accuracy", "throughput"}


def test_metrics_that_are_no_numbers_are_no_measurement(tree: Path, workspace: Path, call) -> None:
    add_all(workspace)
    broken = {"tasks": [{"name": "gsm8k", "num_fewshot": 5, "metrics": [{"name": "acc", "value": "n/a"}]}]}
    add(workspace, "accuracy", accuracy=broken)
    assert [gap["id"] for gap in call()[1]["gaps"]] == ["accuracy"]
    assert not (tree / CONFIG).exists()


def test_tasks_with_their_own_fewshot_fit_no_config(workspace: Path, tree: Path, call) -> None:
    add_all(workspace)
    two = [ACCURACY["tasks"][0], ACCURACY["tasks"][0] | {"name": "ceval", "num_fewshot": 0}]
    add(workspace, "accuracy", accuracy=ACCURACY | {"tasks": two})
    assert [gap["id"] for gap in call()[1]["gaps"]] == ["num-fewshot"]
    assert not (tree / CONFIG).exists()


def test_the_report_has_a_log_for_every_claim(workspace: Path, call) -> None:
    root = {
        "id": "kv",
        "cause": "no room for the KV cache",
        "next": "lower it",
        "line": 2,
        "text": "ERROR it broke",
    }
    failed = add(
        workspace,
        verdict="FAIL",
        root=root,
        summary="chat failed",
        checks=[{"name": "chat", "state": "FAIL", "why": "500"}],
        ladder=[{"step": "eager", "state": "PASS", "why": "works", "root": None}],
    )
    add_all(workspace)
    call()
    text = report(workspace)
    assert f"evidence/runs/{failed.name}/server.log:2" in text
    for words in (
        "false-ready 案例",
        "回退阶梯证据",
        "dummy 与 real 不等价",
        "已验证",
        "不适用",
        "检查点缺失",
    ):
        assert words in text
    assert "131072" in text
    store = workspace_store(workspace)
    for id, record in store.records().items():
        if record.label != "NPU dummy" and id != failed.name:
            assert f"evidence/runs/{id}/" in text
    assert "TORCHDYNAMO_DISABLE=1" in report(workspace, "runbook.zh.md")
    assert f"## {NAME} on vllm-ascend" in report(workspace, "issue-comment.md")


def test_again_changes_nothing_and_a_dry_run_neither(tree: Path, workspace: Path, call) -> None:
    add_all(workspace)
    before = files(tree), files(workspace)
    code, _ = call("--dry-run")
    assert code == 0
    assert (files(tree), files(workspace)) == before
    call()
    before = files(tree), files(workspace)
    assert call()[1]["changed"] == []
    assert (files(tree), files(workspace)) == before


def test_edits_of_people_are_kept(tree: Path, workspace: Path, call) -> None:
    add_all(workspace)
    call()
    page = tree / PAGE
    mine = page.read_text("utf-8").replace("## 10 FAQ\n", "## 10 FAQ\n\nMy own experience.\n")
    page.write_text(mine, "utf-8")
    assert call("--check")[0] == 0
    add(workspace, ready_seconds=77.0)
    assert call()[1]["changed"] == [PAGE]
    text = page.read_text("utf-8")
    assert "My own experience." in text
    assert "77 s" in text


def test_an_edit_that_contradicts_the_evidence_stops_everything(tree: Path, workspace: Path, call) -> None:
    add_all(workspace)
    call()
    page = tree / PAGE
    page.write_text(page.read_text("utf-8").replace("It answered after 31 s.", "It is fast."), "utf-8")
    add(workspace, ready_seconds=77.0)
    before = files(tree)
    code, result = call()
    assert code == 2
    assert "was edited in lines that have to change" in result["error"]
    assert files(tree) == before
    assert call("--keep", f"{NAME}.md")[0] == 0
    assert "It is fast." in page.read_text("utf-8")


def test_a_file_of_somebody_else(tree: Path, workspace: Path, call) -> None:
    add_all(workspace)
    (tree / PAGE).write_text("# My page\n", "utf-8")
    code, result = call()
    assert code == 2
    assert "--keep" in result["try"]
    code, result = call("--replace", f"{NAME}.md")
    assert (code, (tree / PAGE).read_text("utf-8")) == (2, "# My page\n")
    assert "text that git does not have" in result["error"]
    git(tree.parent, "init", "-q", str(tree))
    git(tree, "-c", "user.name=A", "-c", "user.email=a@b.c", "add", ".")
    git(tree, "-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-q", "-m", "all")
    assert call("--replace", f"{NAME}.md")[0] == 0
    assert headings((tree / PAGE).read_text("utf-8")) == SECTIONS


def test_a_row_of_people_stays(tree: Path, workspace: Path, call) -> None:
    add_all(workspace)
    call()
    matrix = tree / MATRIX
    mine = matrix.read_text("utf-8").replace(f"| {NAME} | 🔵 |", f"| {NAME} | ✅ |")
    matrix.write_text(mine, "utf-8")
    add(workspace, ready_seconds=77.0)
    call()
    assert matrix.read_text("utf-8") == mine


def test_a_label_that_gets_stronger_renames_its_entries(tree: Path, workspace: Path, call) -> None:
    add_all(workspace, "CPU real")
    call()
    assert f"{NAME} (Experimental)" in (tree / "docs/hooks/nav_titles.py").read_text("utf-8")
    add_all(workspace, "NPU real")
    call()
    for path in ("docs/hooks/nav_titles.py", "docs/source/tutorials/models/index.md", PAGE):
        assert "(Experimental)" not in (tree / path).read_text("utf-8")
    assert "NPU validation pending" not in (tree / MATRIX).read_text("utf-8")


def test_a_plain_mkdocs_project(workspace: Path, tmp_path: Path, capsys) -> None:
    own = tmp_path / "own"
    (own / "docs/source").mkdir(parents=True)
    (own / "mkdocs.yml").write_text(
        "docs_dir: docs/source\nnav:\n  - Overview: index.md\nvalidation: {}\n", "utf-8"
    )
    add_all(workspace, model="/models/tiny", model_name="tiny")
    given = ("artifacts", "tiny", "--tree", str(own), "--workspace", str(workspace))
    given = (*given, "--unpublished", "checkpoints/tiny")
    assert run(capsys, *given)[0] == 0
    nav = yaml.safe_load((own / "mkdocs.yml").read_text("utf-8"))["nav"]
    pages = ["tutorials/models/index.md", {"tiny": "tutorials/models/tiny.md"}]
    assert nav == [{"Overview": "index.md"}, {"Model tutorials": pages}]
    page = (own / "docs/source/tutorials/models/tiny.md").read_text("utf-8")
    assert "{{" not in page.replace("{{ hi }}", "")
    assert "**A3 series**" in page
    assert "published nowhere: `checkpoints/tiny`" in page
    assert "huggingface.co" not in page
    assert "pytest" not in page  # this project has no such test
    config = (own / "tests/e2e/models/configs/tiny.yaml").read_text("utf-8")
    assert yaml.safe_load(config)["model_name"] == "checkpoints/tiny"
    assert "](../../" not in page
    assert run(capsys, *given, "--check")[0] == 0


def test_no_evidence(call, workspace: Path) -> None:
    code, result = call()
    assert code == 2
    assert "adapt.py serve" in result["try"]
    add_all(workspace)
    code, result = call(model="Qwen/Qwen3-8B-Base")
    assert "there are runs of Qwen3-8B" in result["expected"]


@pytest.mark.parametrize("name", ["result.json", "server.log", "extra"])
def test_tampered_evidence(workspace: Path, tree: Path, call, name: str) -> None:
    add_all(workspace)
    folder = next(workspace.glob(".npu-upgrade/evidence/runs/*accuracy*"))
    (folder / name).write_text("{}", "utf-8")
    before = files(tree)
    code, result = call()
    assert code == 2
    assert "cannot be trusted" in result["error"]
    assert files(tree) == before


def test_a_run_whose_folder_is_gone_counts_for_nothing(workspace: Path, call) -> None:
    import shutil

    add_all(workspace)
    shutil.rmtree(next(workspace.glob(".npu-upgrade/evidence/runs/*accuracy*")))
    assert [gap["id"] for gap in call()[1]["gaps"]] == ["accuracy"]


def test_similar_names_are_other_models(workspace: Path, tree: Path, call) -> None:
    add_all(workspace)
    longer = {"model": "Qwen/Qwen3-8B-Base", "model_name": "Qwen3-8B-Base"}
    add(workspace, ready_seconds=5.0, **longer)
    call()
    assert "31 s" in (tree / PAGE).read_text("utf-8")
    result = call(model="Qwen3-8B-Base")[1]
    assert "accuracy" in [gap["id"] for gap in result["gaps"]]
    assert "31 s" in (tree / PAGE).read_text("utf-8")
    assert "5 s" in (tree / PAGE.replace(NAME, "Qwen3-8B-Base")).read_text("utf-8")


def test_two_checkpoints_of_one_name_have_to_be_told_apart(workspace: Path, call) -> None:
    add_all(workspace, model="/models/Qwen3-8B")
    add_all(workspace, model="/tuned/Qwen3-8B", model_digest="e" * 64)
    code, result = call(model=NAME)
    assert code == 2
    assert "/tuned/Qwen3-8B" in result["error"]
    code, result = call("--hf-id", HF_ID, model="/tuned/Qwen3-8B")
    assert (code, result["gaps"]) == (0, [])


def test_a_local_folder_needs_the_published_id(workspace: Path, tree: Path, call) -> None:
    add_all(workspace, model="/models/Qwen3-8B")
    assert [gap["id"] for gap in call(model=NAME)[1]["gaps"]] == ["hf-id"]
    assert not (tree / CONFIG).exists()
    for path in (tree / PAGE, workspace / ".npu-upgrade/adapt" / NAME / "issue-comment.md"):
        assert "/models/Qwen3-8B" not in path.read_text("utf-8")  # a folder of this machine
    assert call("--hf-id", HF_ID, model=NAME)[1]["gaps"] == []
    assert call("--check", model=NAME)[0] == 0  # it is remembered
    assert call("--hf-id", "no id", model=NAME)[0] == 2
    assert "relative path" in call("--unpublished", "/home/me/it", model=NAME)[1]["expected"]


@pytest.mark.parametrize("name", ["Qwen 3", "通义", "../x", "a|b", "-x", "index", "{{x}}", "x" * 200])
def test_odd_names_are_refused_and_another_is_taken(workspace: Path, tree: Path, call, name: str) -> None:
    add_all(workspace, model=f"/models/{name}", model_name=name)
    before = files(tree)
    code, result = call("--hf-id", HF_ID, model=f"/models/{name}")
    assert code == 2
    assert "--name" in result["try"]
    assert files(tree) == before
    assert call("--hf-id", HF_ID, "--name", "Fine-1.0", model=f"/models/{name}")[0] == 0
    assert (tree / PAGE.replace(NAME, "Fine-1.0")).is_file()


def test_names_that_differ_in_case_only(workspace: Path, tree: Path, call) -> None:
    add_all(workspace)
    (tree / PAGE).with_name("qwen3-8b.md").write_text("# it\n", "utf-8")
    code, result = call()
    assert code == 2
    assert "upper and lower case" in result["error"]


def test_a_tree_without_documents(workspace: Path, tmp_path: Path, capsys) -> None:
    add_all(workspace)
    (tmp_path / "bare").mkdir()
    for tree in (tmp_path / "bare", tmp_path / "none"):
        code, result = run(capsys, "artifacts", HF_ID, "--tree", str(tree), "--workspace", str(workspace))
        assert code == 2
        assert "--tree DIR" in result["try"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_tree_that_cannot_be_written(workspace: Path, tree: Path, call) -> None:
    add_all(workspace)
    folder = tree / "docs/source/tutorials/models"
    folder.chmod(0o555)
    before = files(tree)
    try:
        code, result = call()
    finally:
        folder.chmod(0o755)
    assert code == 2
    assert "cannot write" in result["error"]
    assert files(tree) == before


def test_a_place_that_takes_no_file(workspace: Path, tree: Path, call) -> None:
    add_all(workspace)
    (tree / "tests").write_text("a file where a folder is needed\n", "utf-8")
    before = files(tree)
    code, result = call()
    assert code == 2
    assert "cannot" in result["error"]
    assert files(tree) == before


def test_a_choice_that_names_no_file(workspace: Path, call) -> None:
    add_all(workspace)
    code, result = call("--keep", "Qwen.md")
    assert code == 2
    assert f"{NAME}.md" in result["expected"]


def test_answers_cannot_break_the_page(workspace: Path, tree: Path, call) -> None:
    nasty = "```\n# Not a heading\n{% raw %}{{ x }}\x07 | </details>"
    checks = [{"name": "chat", "state": "PASS", "prompt": nasty, "answer": nasty}]
    add_all(workspace, checks=checks, summary=nasty.replace("\n", " "))
    call()
    page = (tree / PAGE).read_text("utf-8")
    assert headings(page) == SECTIONS
    assert "\n# Not a heading" not in page
    assert "{% raw" not in page
    assert "\x07" not in page
