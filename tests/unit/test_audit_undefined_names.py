"""The check for names that nothing binds, and attributes of classes beside the workers."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from audit_kit import make_world, seen

from npu_upgrade.audit.world import World

PATH = "vllm_omni/platforms/npu/cranes.py"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def lift(load):\n    return load + height\n", ["height"]),
        ("def lift(load):\n    a = b = load\n    return a + c\n", ["c"]),
        ("height = 1\n\ndef lift(load):\n    return load + height\n", []),
        ("def lift(load: Height):\n    return len(load)\n", ["Height"]),
        ("from __future__ import annotations\n\ndef lift(load: Height):\n    return load\n", []),
        ("from vllm import *\n\ndef lift(load):\n    return load + height\n", []),
        ("def keep():\n    global height\n    height = 1\n\ndef lift(load):\n    return height\n", []),
    ],
)
def test_a_name_that_nothing_binds(tmp_path: Path, text: str, names: list[str]) -> None:
    world = make_world(tmp_path, {PATH: text})
    assert [subject for _, _, subject in seen(world, "undefined-names")] == names


@pytest.mark.parametrize(("read", "found"), [("rope", []), ("hook", ["Crane.hook"])])
def test_an_attribute_of_a_class_beside_the_workers(tmp_path: Path, read: str, found: list[str]) -> None:
    text = f"class Crane:\n    def __init__(self):\n        self.rope = 1\n        print(self.{read})\n"
    world = make_world(tmp_path, {PATH: text})
    assert [subject for _, _, subject in seen(world, "attributes")] == found


LIFT = "def lift(load):\n    if load:\n        height = 1\n    return {}\n"


@pytest.mark.parametrize(
    ("before", "now", "names"),
    [
        (LIFT.format("load"), LIFT.format("height"), ["height"]),
        (LIFT.format("height"), LIFT.format("height + 1"), []),
        (None, LIFT.format("height"), ["height"]),
        (None, LIFT.format("height").replace("    if load:\n    ", ""), []),
    ],
)
def test_a_local_that_came_to_be_read_before_it_is_set(
    tmp_path: Path, before: str | None, now: str, names: list[str]
) -> None:
    old = make_world(tmp_path / "old", {PATH: before} if before else {})
    world = World(make_world(tmp_path / "new", {PATH: now}).triple, old)
    assert [subject for _, _, subject in seen(world, "undefined-names")] == names
    assert seen(World(world.triple), "undefined-names") == []


def test_what_the_gpu_sides_method_reads_too_early_is_its_own_way(tmp_path: Path) -> None:
    method = textwrap.indent(LIFT.format("height").replace("(load)", "(self, load)"), "    ")
    own, gpu = (f"class {name}Crane:\n{method}" for name in ("NPU", "GPU"))
    for files, told in (({}, ["height"]), ({"vllm_omni/worker/gpu_cranes.py": gpu}, [])):
        new = make_world(tmp_path / f"new{len(files)}", files | {PATH.replace("cranes", "npu_cranes"): own})
        world = World(new.triple, make_world(tmp_path / f"old{len(files)}", files))
        assert [subject for _, _, subject in seen(world, "undefined-names")] == told
