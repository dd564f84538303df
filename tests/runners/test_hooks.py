"""The contract: every release has what the runners need, and the table is what the sources say."""

import ast
import subprocess
import sys

import pytest

from npu_upgrade.audit.runner_hooks import reference
from npu_upgrade.audit.runner_hooks.catalogue import HOOKS, V1, V2, VLLM, Hook
from npu_upgrade.audit.runner_hooks.reference import Sources

RUNNER = """
class Runner:
    field: int
    def __init__(self): self.assigned = 1
    def _sample(self, logits, spec_decode_metadata, *, more=None, **rest): ...
    @property
    def shown(self): ...
"""


class Tree:
    version = None

    def __init__(self, **files):
        self.files = {name.replace("__", "/") + ".py": text for name, text in files.items()}

    def exists(self, path):
        return path in self.files

    def read(self, path):
        return self.files[path]


def hook(name, *needs, kind="method", inherited=False, owner="Runner"):
    return Hook(VLLM, "runner", "vllm/b.py", owner, name, needs, kind, inherited)


def test_what_a_source_says():
    sources = Sources(Tree(vllm__b=RUNNER))
    assert sources.says(hook("_sample")) == "(logits, spec_decode_metadata, *, more=…, **rest)"
    assert sources.says(hook("gone")) == "absent"
    assert sources.says(hook("gone", inherited=True)) == "inherited"
    found = [sources.says(hook(name, kind="attribute")) for name in ("field", "assigned", "shown", "gone")]
    assert found == ["present", "present", "present", "absent"]


def test_a_broken_contract_is_named():
    sources = Sources(Tree(vllm__b=RUNNER))
    assert sources.problem(hook("_sample", "logits")) == ""
    assert "lacks metadata" in sources.problem(hook("_sample", "logits", "metadata"))
    assert sources.problem(hook("gone")) == "vllm/b.py: Runner has no gone"
    assert sources.problem(hook("x", owner="Gone")) == "vllm/b.py: Gone has no x"
    assert Sources(Tree()).problem(hook("x")) == "vllm/b.py: Runner has no x"


def test_the_hooks_are_those_that_the_mixins_override():
    overridden = set()
    runners = reference.PATH.parents[1] / "runners" / "omni_runners"
    for name in ("core/ar", "core/generation", "core/worker", "schedulers"):
        for node in ast.walk(ast.parse((runners / f"{name}.py").read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "super()":
                overridden.add(node.attr)
    known = {hook.name for hook in HOOKS}
    assert overridden - known == {"__init__"}
    assert {"execute_model", "_sample", "sample", "init_device", "update_from_output"} <= overridden


@pytest.mark.network
def test_every_release_has_what_the_runners_need_and_the_table_holds():
    sources = reference.read_all()
    assert reference.problems(sources) == []
    assert reference.PATH.read_text(encoding="utf-8") == reference.render(sources)
    assert {V1, V2} <= {hook.path for hook in HOOKS}


def test_the_command_refuses_to_write_half_a_table():
    script = reference.PATH.parents[1] / "scripts" / "upgrade.py"
    command = [sys.executable, str(script), "hooks", "--write", "--vllm", "0.32.0"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "--write with one release" in ended.stdout
