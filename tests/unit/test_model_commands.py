"""adapt.py analyze and adapt.py plan as a user runs them."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import artifacts_kit
import model_kit as kit
import pytest
from command_kit import called

from npu_upgrade.checkpoint.likeness import families
from npu_upgrade.checkpoint.parts import by_pattern
from npu_upgrade.checkpoint.steps import planned_family
from npu_upgrade.delivery.adaptation_files import planned_files
from npu_upgrade.gates.features.model import read

NEW = kit.LLAMA | {"architectures": ["NovelForCausalLM"], "model_type": "novel_lm"}
SHAPES = {name.replace("self_attn", "attention"): shape for name, shape in kit.llama_shapes().items()}


@pytest.fixture
def adapt(tmp_path, monkeypatch):
    """Runs a subcommand in a workspace; returns its exit code and its JSON."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    monkeypatch.chdir(workspace)

    def run(*argv):
        output = tmp_path / "result.json"
        code, shown, _ = called("adapt.py", *argv, "--output", output)
        return code, json.loads(output.read_text()) if code in (0, 1, 4) else shown

    return run


def test_a_sound_checkpoint_passes_and_is_kept(adapt, tmp_path):
    code, value = adapt("analyze", kit.checkpoint(tmp_path / "Tiny-1B"))
    assert (code, value["verdict"]) == (0, "PASS")
    place = Path(".npu-upgrade/adapt/Tiny-1B/analysis.json")
    kept = json.loads(place.read_text())
    assert kept["properties"] == value["properties"]
    assert adapt("plan", tmp_path / "Tiny-1B")[0] == 0
    assert json.loads(place.read_text())["verdict"] == kept["verdict"] == "PASS"
    assert value["properties"]["architecture"] == "LlamaForCausalLM"
    assert value["serving"]["by"] == "native"
    assert value["next"].startswith("adapt.py plan")
    assert "torch" not in sys.modules


LATENT = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "kv_lora_rank": 512}


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"num_attention_heads": 4, "num_key_value_heads": 4}, "mha"),
        ({"num_attention_heads": 4, "num_key_value_heads": 2}, "gqa"),
        ({"num_attention_heads": 4, "num_key_value_heads": 1}, "mqa"),
        (LATENT | {"qk_rope_head_dim": 64}, "mla"),
        (LATENT | {"qk_rope_head_dim": 64, "index_topk": 64}, "dsa"),
    ],
)
def test_the_attention_is_told(adapt, tmp_path, more, kind):
    _, value = adapt("analyze", kit.checkpoint(tmp_path / "m", kit.LLAMA | more))
    assert value["attention"]["kind"] == kind


def test_the_quantization_and_the_processor_are_told(adapt, tmp_path):
    config = kit.LLAMA | {
        "vision_config": {"depth": 2},
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 4]},
    }
    folder = kit.checkpoint(tmp_path / "m", config)
    _, value = adapt("analyze", folder)
    assert value["properties"]["quantization"] == "fp8"
    assert "image" in value["modalities"]
    assert "processor-missing" in {one["kind"] for one in value["findings"]}
    (folder / "preprocessor_config.json").write_text("{}")
    _, value = adapt("analyze", folder)
    assert "processor-missing" not in {one["kind"] for one in value["findings"]}
    assert value["files"]["processor"]


def test_a_corrupt_shard_fails(adapt, tmp_path):
    folder = kit.checkpoint(tmp_path / "m")
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-1])
    code, value = adapt("analyze", folder)
    assert (code, value["findings"][0]["kind"]) == (1, "shard-truncated")
    assert "shard-truncated" in value["summary"]
    code, value = adapt("plan", folder, "--scaffold", tmp_path / "out")
    assert code == 1
    assert not (tmp_path / "out").exists()


def test_weights_alone_are_inconclusive(adapt, tmp_path):
    assert adapt("analyze", kit.checkpoint(tmp_path / "m", None))[0] == 4


def test_an_unknown_architecture_needs_an_adapter(adapt, tmp_path):
    code, value = adapt("analyze", kit.checkpoint(tmp_path / "m", NEW, SHAPES))
    assert (code, value["strategy"]["name"], value["serving"]["by"]) == (0, "native adapter", "nobody")


@pytest.mark.parametrize(
    ("architecture", "by"),
    [
        ("MptForCausalLM", "removed"),
        ("AXK2ForCausalLM", "transformers"),
        ("Qwen3Model", "converted"),
        ("NoSuch", "nobody"),
    ],
)
def test_who_serves(adapt, tmp_path, architecture, by):
    config = kit.LLAMA | {"architectures": [architecture]}
    assert adapt("analyze", kit.checkpoint(tmp_path / "m", config))[1]["serving"]["by"] == by


STRANGE = SHAPES | {f"model.layers.{layer}.lattice": (3, 5, 7) for layer in range(3)}


@pytest.mark.parametrize("form", ["plugin", "tree"])
def test_scaffolds_compile_and_have_a_place_for_every_tensor(adapt, tmp_path, form):
    folder = kit.checkpoint(tmp_path / "m", NEW, SHAPES)
    code, value = adapt("plan", folder, "--scaffold", tmp_path / "out", "--form", form)
    assert (code, value["likeness"]["family"], value["decisions"]) == (0, "LlamaForCausalLM", [])
    files = [Path(path) for path in value["scaffold"]]
    model = next(path for path in files if path.name == "model.py")
    for path in files:
        compile(path.read_text(), str(path), "exec") if path.suffix == ".py" else None
    test = next(path for path in files if path.name.startswith("test_"))
    names = test.read_text().partition("TENSORS = ")[2].partition("\n]\n")[0]
    assert len(ast.literal_eval(f"{names}]")) == len(by_pattern(SHAPES))
    text = model.read_text()
    table = weights_of(text)
    assert set(table) == set(by_pattern(SHAPES))
    assert table["model.layers.*.attention.q_proj.weight"] == ("model.layers.*.self_attn.q_proj.weight",)
    assert "(family.LlamaForCausalLM)" in text
    code, again = adapt("plan", folder, "--scaffold", tmp_path / "out", "--form", form)
    assert (code, "is there already" in again["error"]) == (2, True)
    assert model.read_text() == text


def test_what_is_open_is_named_in_the_scaffold_until_it_is_decided(adapt, tmp_path):
    folder = kit.checkpoint(tmp_path / "m", NEW | {"ripple": 3}, STRANGE)
    code, value = adapt("plan", folder, "--scaffold", tmp_path / "out")
    assert (code, value["open_weights"]) == (0, ["model.layers.*.lattice"])
    assert [one["id"] for one in value["likeness"]["questions"]] == ["ripple"]
    table = weights_of((tmp_path / "out/novel_lm_plugin/model.py").read_text())
    assert [pattern for pattern, places in table.items() if places is None] == ["model.layers.*.lattice"]
    assert adapt("plan", folder, "--decide", "ripple=perhaps")[0] == 0  # a key of a class that reads it
    assert adapt("plan", folder, "--decide", "ripple")[0] == 2
    code, error = adapt("plan", folder, "--decide", "riple=ignore")
    assert (code, error["error"]) == (2, "the plan asks nothing about riple")
    assert error["expected"] == "one of: model.layers.*.lattice"  # the other question is answered
    code, error = adapt("plan", folder, "--decide", "family=LlamaForCausal")
    assert (code, error["error"]) == (2, "no family is called LlamaForCausal")
    assert "LlamaForCausalLM" in error["expected"]
    assert {"riple", "family"}.isdisjoint(
        json.loads(Path(".npu-upgrade/adapt/m/plan.json").read_text())["answers"]
    )
    code, value = adapt(
        "plan", folder, "--decide", "ripple=ignore", "--decide", "model.layers.*.lattice=drop"
    )
    assert (value["decisions"], value["open_weights"]) == ([], [])
    assert adapt("plan", folder)[1]["decisions"] == []  # answers are kept


def test_who_knows_the_model_says_in_which_order_parts_lie(adapt, tmp_path):
    shapes = {name: shape for name, shape in SHAPES.items() if "gate_proj" not in name}
    wide, hidden = kit.LLAMA["intermediate_size"], kit.LLAMA["hidden_size"]
    fused = {name.replace("up_proj", "gate_up"): (2 * wide, hidden) for name in shapes if "up_proj" in name}
    shapes = {name: shape for name, shape in shapes.items() if "up_proj" not in name} | fused
    folder, pattern = kit.checkpoint(tmp_path / "m", NEW, shapes), "model.layers.*.mlp.gate_up.weight"
    code, value = adapt("plan", folder)
    assert code == 0
    assert f"no shape shows that {pattern} holds gate_proj, then up_proj" in value["summary"]
    code, error = adapt("plan", folder, "--decide", f"{pattern}=up,gate")
    assert (code, error["expected"]) == (2, "as-named or gate_proj,up_proj or up_proj,gate_proj")
    adapt("plan", folder, "--scaffold", tmp_path / "out")
    model = tmp_path / "out/novel_lm_plugin/model.py"
    as_named = model.read_text()
    code, value = adapt("plan", folder, "--decide", f"{pattern}=up_proj,gate_proj")
    assert (code, "scaffolds written anew with the answer" in value["summary"]) == (0, True)
    turned = model.read_text()
    assert turned != as_named
    assert weights_of(turned)[pattern] == tuple(reversed(weights_of(as_named)[pattern]))
    code, value = adapt("plan", folder, "--decide", f"{pattern}=as-named")
    assert (code, "no shape shows" in value["summary"], model.read_text()) == (0, False, as_named)
    assert "written anew" not in adapt("plan", folder, "--decide", f"{pattern}=as-named")[1]["summary"]
    model.write_text(f"# mine\n{as_named}")
    code, error = adapt("plan", folder, "--decide", f"{pattern}=up_proj,gate_proj")
    assert (code, error["error"]) == (2, f"{model} was edited since it was written")
    assert model.read_text() == f"# mine\n{as_named}"


def test_code_of_the_checkpoint_that_no_family_explains_is_for_a_person(adapt, tmp_path):
    folder = kit.checkpoint(tmp_path / "m", NEW, STRANGE)
    (folder / "modeling_novel.py").write_text("raise SystemExit('this code ran')\n")
    code, value = adapt("plan", folder)
    assert code == 4
    assert "modeling_novel.py" in next(
        one["what"] for one in value["findings"] if one["kind"] == "code-decides"
    )
    sound = kit.checkpoint(tmp_path / "sound", NEW, SHAPES)
    (sound / "modeling_novel.py").write_text("raise SystemExit('this code ran')\n")
    assert adapt("plan", sound)[0] == 0


def test_a_scaffold_in_the_tree_of_vllm_ascend_is_registered_there(adapt, tmp_path):
    out = tmp_path / "ascend"
    models = out / "vllm_ascend/models"
    models.mkdir(parents=True)
    (out / "vllm_ascend/__init__.py").write_text("")
    (models / "__init__.py").write_text("def register_model():\n    pass\n\n\nAFTER = 1\n")
    folder = kit.checkpoint(tmp_path / "m", NEW, SHAPES)
    code, value = adapt("plan", folder, "--scaffold", out, "--form", "tree", "--ascend", out)
    assert code == 0
    written = {str(Path(path).relative_to(out)) for path in value["scaffold"]}
    package = {f"vllm_ascend/models/novel_lm/{name}.py" for name in ("__init__", "model", "configuration")}
    assert written == package | {"vllm_ascend/models/__init__.py", "tests/models/test_novel_lm.py"}
    text = (models / "__init__.py").read_text()
    assert text.index("register_novel_lm()") < text.index("AFTER")
    ast.parse(text)
    planned = {(file["root"], file["path"]) for step in value["steps"] for file in step["files"]}
    assert {("ascend", path) for path in written} <= planned


def test_the_unit_test_of_a_plugin_is_among_those_of_the_project_and_in_the_plan(adapt, tmp_path):
    repo = artifacts_kit.mkdocs_tree(tmp_path / "ascend")
    (repo / "tests/ut").mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=repo, check=True)
    folder = kit.checkpoint(tmp_path / "m", NEW, SHAPES)
    # a relative folder, too, since gates and deliver may be called from another one
    code, value = adapt("plan", folder, "--scaffold", repo / "m", "--delivery", os.path.relpath(repo))
    assert code == 0, value
    test = repo / "tests/ut/models/test_novel_lm_plugin.py"
    assert str(test) in value["scaffold"]
    assert value["trees"]["plugin"]["test"] == str(test)
    assert 'Path(__file__).parent / "../../../m"' in test.read_text()
    assert {"tests/ut/models/test_novel_lm_plugin.py", "m"} <= set(planned_files(Path(value["state"]), repo))


def test_a_scaffold_names_the_licence_as_the_unit_tests_beside_its_own_do(adapt, tmp_path):
    repo = artifacts_kit.mkdocs_tree(tmp_path / "ascend")
    beside, line = repo / "tests/ut/models", "# SPDX-License-Identifier: Example-1.0"
    beside.mkdir(parents=True)
    for name, text in {"a": f"{line}\n", "b": f"#!/usr/bin/env python\n{line}\n", "c": "\n"}.items():
        (beside / f"test_{name}.py").write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=repo, check=True)
    folder = kit.checkpoint(tmp_path / "m", NEW, SHAPES)
    code, value = adapt("plan", folder, "--scaffold", repo / "m", "--delivery", repo)
    assert code == 0, value
    heads = {Path(path).name: Path(path).read_text().partition("\n")[0] for path in value["scaffold"]}
    assert heads.pop("pyproject.toml") == "[build-system]"
    assert len(heads) == 4
    assert set(heads.values()) == {line}


FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 4]}}


def in_blocks(given):
    """The shapes with a scale for each block of a projection, and the types of both."""
    shapes, dtypes = dict(given), {}
    for name, shape in given.items():
        if "proj" in name:
            dtypes[name] = "F8_E4M3"
            shapes[f"{name}_scale_inv"] = (-(-shape[0] // 4), -(-shape[1] // 4))
            dtypes[f"{name}_scale_inv"] = "F32"
    return shapes, dtypes


def test_an_fp8_checkpoint_gets_what_dequantises_it(adapt, tmp_path):
    folder = kit.checkpoint(tmp_path / "m", NEW | FP8, *in_blocks(SHAPES))
    assert adapt("plan", folder, "--scaffold", tmp_path / "out")[0] == 0
    text = (tmp_path / "out/novel_lm_plugin/model.py").read_text()
    assert "BLOCK = (4, 4)" in text
    assert not any("scale" in pattern for pattern in weights_of(text))
    assert 'pop("quantization_config"' in (tmp_path / "out/novel_lm_plugin/configuration.py").read_text()


@pytest.mark.parametrize("form", ["plugin", "tree"])
def test_a_scaffold_passes_the_rules_of_the_project_that_it_goes_to(adapt, tmp_path, form):
    project = tmp_path / "project"
    (project / "vllm_ascend/models").mkdir(parents=True)
    (project / "vllm_ascend/__init__.py").write_text("")
    (project / "vllm_ascend/models/__init__.py").write_text("def register_model():\n    pass\n")
    rules = "[tool.ruff]\nline-length = 100\n[tool.ruff.format]\n"
    rules += '[tool.ruff.lint]\nselect = ["E", "F", "I", "UP", "W"]\n'
    (project / "pyproject.toml").write_text(rules)
    names = {"architectures": ["NovelModelWithOneRatherLongNameOfItsOwnForCausalLM"]}
    folder = kit.checkpoint(tmp_path / "m", NEW | names | FP8 | {"ripple": 3}, *in_blocks(STRANGE))
    out = project / "novel" if form == "plugin" else project
    code, value = adapt("plan", folder, "--scaffold", out, "--form", form, "--ascend", project)
    assert code == 0, value
    ruff = Path(sys.executable).with_name("ruff")
    for what in (["check"], ["format", "--check"]):
        done = subprocess.run([ruff, *what, project], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def weights_of(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "WEIGHTS":
            return ast.literal_eval(node.value)
    raise AssertionError("no WEIGHTS")


def test_names_that_would_break_a_scaffold(adapt, tmp_path):
    config = NEW | {"architectures": ['X"""; import os; #'], "model_type": 'a"b\nc'}
    shapes = {'evil"\n.weight': (1, 1), "}}{{.weight": (1, 1)}
    code, value = adapt(
        "plan", kit.checkpoint(tmp_path / "m", config, shapes), "--scaffold", tmp_path / "out"
    )
    assert code == 0
    for path in map(Path, value["scaffold"]):
        if path.suffix == ".py":
            parsed = ast.parse(path.read_text())
            imported = [node for node in ast.walk(parsed) if isinstance(node, ast.Import)]
            assert "os" not in {alias.name for node in imported for alias in node.names}


def test_the_plan_names_files_and_order(adapt, tmp_path):
    code, value = adapt("plan", kit.checkpoint(tmp_path / "m", NEW, SHAPES), "--form", "tree")
    assert code == 0
    assert [step["name"] for step in value["steps"]] == [
        "adapter",
        "dummy",
        "real",
        "features",
        "capacity",
        "performance",
        "accuracy",
        "artifacts",
        "deliver",
    ]
    paths = {file["path"] for step in value["steps"] for file in step["files"]}
    assert {"vllm/model_executor/models/novel_lm/model.py", "vllm/model_executor/models/registry.py"} <= paths
    assert "tests/e2e/models/configs/m.yaml" in paths
    reuse = adapt("plan", kit.checkpoint(tmp_path / "known"))[1]
    assert reuse["steps"][0]["name"] == "dummy"


def test_the_plan_says_whether_the_checkout_is_the_release_that_the_gates_run(adapt, tmp_path):
    """Evidence is of the release; a checkout that differs would be delivered with another code's runs."""
    tree = artifacts_kit.mkdocs_tree(tmp_path / "tree")
    package = tree / "vllm_ascend"
    package.mkdir()
    for name in ("__init__.py", "platform.py"):
        (package / name).write_text("")
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "x")):
        subprocess.run(["git", "-c", "user.name=T", "-c", "user.email=t@e.org", *words], cwd=tree, check=True)
    folder = kit.checkpoint(tmp_path / "m")
    given = ("plan", folder, "--ascend", f"git:{tree}@main", "--delivery", tree)
    assert "is that of git:" in adapt(*given)[1]["summary"]
    (package / "platform.py").write_text("import os\n")
    summary = adapt(*given)[1]["summary"]
    assert "which the gates run, in 1 files (vllm_ascend/platform.py): --ascend" in summary
    (package / "platform.py").write_text("")
    (package / "added.py").write_text("")
    (package / "_version.py").write_text("what a build writes")
    assert "in 1 files (vllm_ascend/added.py): --ascend" in adapt(*given)[1]["summary"]
    assert "the gates run" not in adapt("plan", folder, "--ascend", tree, "--delivery", tree)[1]["summary"]


def test_the_plan_of_a_plugin_names_no_file_of_the_trees(adapt, tmp_path):
    out = tmp_path / "out"
    folder = kit.checkpoint(tmp_path / "m", NEW, SHAPES)
    code, value = adapt("plan", folder, "--form", "plugin", "--scaffold", out)
    assert code == 0
    files = [(file["root"], file["path"]) for step in value["steps"] for file in step["files"]]
    assert {root for root, _ in files} == {"plugin", "delivery"}
    assert sorted(str(out / path) for root, path in files if root == "plugin") == value["scaffold"]
    test = str(out / "tests/test_novel_lm_plugin.py")
    plugin = {"root": str(out), "there": True, "package": "novel_lm_plugin", "test": test}
    assert value["trees"]["plugin"] == plugin
    again = adapt("plan", folder)[1]
    assert again["trees"]["plugin"] == value["trees"]["plugin"]
    assert "out" in planned_files(Path(again["state"]), tmp_path)
    assert "plugin" not in adapt("plan", folder, "--form", "tree")[1]["trees"]
    assert "pyproject.toml" not in planned_files(Path(again["state"]), tmp_path / "elsewhere")


def test_a_hub_id(adapt, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    code, value = adapt("analyze", "someone/some-model")
    assert (code, value["verdict"]) == (3, "BLOCKED")
    assert "hf download someone/some-model" in value["try"]
    root = tmp_path / "hub" / "models--someone--some-model"
    kit.checkpoint(root / "snapshots" / "abc")
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("abc")
    code, value = adapt("analyze", "someone/some-model")
    assert (code, value["name"]) == (0, "some-model")


@pytest.mark.parametrize("given", ["nowhere", "/no/such/folder", "", "../x/y/z", "a\0b"])
def test_a_model_that_is_none(adapt, given):
    assert adapt("analyze", given)[0] == 2


def test_a_file_an_empty_folder_and_wrong_sources(adapt, tmp_path):
    folder = kit.checkpoint(tmp_path / "m")
    (tmp_path / "empty").mkdir()
    assert adapt("analyze", folder / "config.json")[0] == 2
    assert adapt("analyze", tmp_path / "empty")[0] == 2
    assert adapt("analyze", folder, "--vllm", tmp_path / "empty")[0] == 2
    assert adapt("analyze", folder, "--python", tmp_path / "nothing")[0] == 2
    assert adapt("analyze", folder, "--utilisation", "2")[0] == 2


def test_a_model_below_the_models_folder(adapt, tmp_path):
    kit.checkpoint(tmp_path / "models" / "Tiny")
    code, value = adapt("analyze", "Tiny", "--models", tmp_path / "models")
    assert code == 0
    assert "--models" in value["next"]


def test_a_mixture_that_names_its_experts_otherwise_is_one_everywhere(adapt, tmp_path):
    family = families()["Qwen3MoeForCausalLM"]
    shapes = {}
    for pattern, shape in family.tensors.items():
        name = pattern.replace("model.layers.*", "trunk.rows.0").replace("mlp.experts", "brush.twigs")
        for one in range(14) if "*" in name else (0,):
            shapes[name.replace("*", str(one))] = shape
    shapes = {name: shape for name, shape in shapes.items() if not name.endswith(".bias")}
    config = {key: value for key, value in family.sizes.items() if "." not in key}
    config |= {"architectures": ["BrushForCausalLM"], "model_type": "brush", "num_hidden_layers": 1}
    config |= {"tie_word_embeddings": False, "twigs_at_once": config.pop("num_experts_per_tok")}
    for name in ("num_experts", "num_local_experts"):
        config.pop(name, None)
    folder = kit.checkpoint(tmp_path / "Brush", config | {"twig_number": 14}, shapes)
    asked = adapt("plan", folder)[1]["likeness"]["questions"]
    answers = {"twig_number": "num_experts", "twigs_at_once": "num_experts_per_tok"}
    decided = [word for one in asked for word in ("--decide", f"{one['id']}={answers[one['id']]}")]
    code, value = adapt("plan", folder, *decided)
    assert (code, value["likeness"]["family"], value["decisions"]) == (0, "Qwen3MoeForCausalLM", [])
    assert all("no experts" not in step["what"] for step in value["steps"])
    for _ in range(2):  # the second time by an analysis that is made again
        known = json.loads(Path(".npu-upgrade/adapt/Brush/analysis.json").read_text())["properties"]
        assert (known["experts"], known["experts_per_token"], known["model_type"]) == (14, 2, "brush")
        assert adapt("analyze", folder)[0] == 0
    fact = read(folder, planned_family(Path.cwd(), str(folder))).experts()
    assert (fact.value, fact.evidence) == (14, "config.json, in the words of qwen3_moe: num_experts = 14")
