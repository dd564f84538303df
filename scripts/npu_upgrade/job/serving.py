"""What serves a model that is being adapted: its own environment with the plugin, or an emulated NPU."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.audit.triples import open_triple
from npu_upgrade.evidence.runs import mapping
from npu_upgrade.gates.emulation.environment import prepare
from npu_upgrade.gates.plugin import Plugin, python_with
from npu_upgrade.gates.serving.session import named_python
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.files import read_object
from npu_upgrade.ground.paths import models_folder
from npu_upgrade.job.adaptation import name_of
from npu_upgrade.sources.installed import installed

AUTO, CPU = "auto", "cpu"


@dataclass(frozen=True)
class Planned:
    """``plan`` of the model, empty where none is being adapted; ``plugin``: the code that it needs."""

    plan: dict[str, Any] = field(default_factory=dict)
    plugin: Plugin | None = None

    def python(self, asked: str, *, emulated: bool) -> tuple[Path, dict[str, str]]:
        """The interpreter that serves, and the variables it needs, for ``--python`` as it was given."""
        variables: dict[str, str] = {}
        if emulated and asked == AUTO and self.plan:
            base, variables = self._emulated()
        else:
            base = named_python(asked)
        if asked == CPU and self._code_in_tree:
            raise Blocked(
                "the plan puts the model's code into vllm-ascend, which vLLM for a CPU does not load",
                expected="a plugin, an emulated NPU, or an interpreter with that vllm-ascend",
                try_="adapt.py plan MODEL --form plugin --scaffold DIR, with the plan's options: without an "
                "NPU a plugin goes all the way; or adapt.py serve MODEL --emulated",
            )
        whole = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
        if self.plugin is None or self._has_it(base, whole):
            return base, variables
        return python_with(base, self.plugin, whole), variables

    @property
    def _code_in_tree(self) -> bool:
        """Whether the scaffold of the model is no plugin."""
        return self.plugin is None and bool(self.plan.get("scaffold"))

    def _emulated(self) -> tuple[Path, dict[str, str]]:
        trees = mapping(self.plan.get("trees"))
        places = {name: mapping(trees.get(name)) for name in ("vllm", "ascend")}
        specs = {
            name: str(one.get("spec") or f"dir:{one['root']}")
            for name, one in places.items()
            if one.get("spec") or one.get("there")
        }
        if "ascend" not in specs:
            raise BadInput(
                "the plan names no vllm-ascend, so there is none to emulate",
                expected="the one that the model is adapted to",
                try_="adapt.py plan MODEL --ascend SPEC",
            )
        triple = open_triple(None, specs["ascend"], specs.get("vllm"))
        made = prepare(None, triple.ascend, triple.vllm)
        variables = dict(made.variables)
        variables.pop(
            "VLLM_ENABLE_V1_MULTIPROCESSING", None
        )  # the engine of a server is a process of its own
        return made.python, variables

    def _has_it(self, base: Path, variables: dict[str, str]) -> bool:
        """Whether somebody installed the plugin there as one edits it."""
        assert self.plugin
        found = installed(base, (), variables).adapters.get(self.plugin.package)
        return (
            found is not None and Path(found).resolve() == (self.plugin.root / self.plugin.package).resolve()
        )


def planned(workspace: Path, model: str) -> Planned:
    """What the workspace's plan says of ``model``; empty where it is not being adapted there."""
    folder = models_folder(workspace) / name_of(model)
    plan = read_object(folder / "plan.json")
    tree = mapping(mapping(plan.get("trees")).get("plugin"))
    if not tree or not Path(str(tree["root"])).is_dir():
        return Planned(plan)
    config = read_object(Path(model) / "config.json")
    architecture = next(iter(config.get("architectures") or [""]))
    test = Path(str(tree["test"])) if tree.get("test") else None
    root, package = Path(str(tree["root"])), str(tree["package"])
    return Planned(plan, Plugin(root, package, str(architecture), folder, test))
