"""The check on workarounds: code that does nothing any more with the given trees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from audit_kit import AR, ASCEND, BASE, NPU, PLAIN, VLLM, make_triple, make_world, seen

from npu_upgrade.audit.world import Triple, World

METHOD = """
                def gather(self, batch):
                    found = self.table[batch]
                    return found
"""


def runner(path: str, methods: str) -> str:
    return PLAIN[path].rstrip().removesuffix("pass").rstrip() + "\n" + methods


def test_nothing_to_find(tmp_path: Path) -> None:
    assert seen(make_world(tmp_path, {}), "workarounds") == []


def test_an_override_equal_to_what_it_overrides(tmp_path: Path) -> None:
    files = {ASCEND: runner(ASCEND, METHOD), AR: runner(AR, METHOD)}
    assert seen(make_world(tmp_path, files), "workarounds") == [
        ("equal-override", "NPUARModelRunner", "gather")
    ]


def test_an_override_that_differs(tmp_path: Path) -> None:
    files = {ASCEND: runner(ASCEND, METHOD), AR: runner(AR, METHOD.replace("batch]", "batch.id]"))}
    assert seen(make_world(tmp_path, files), "workarounds") == []


def test_equal_text_with_another_global_is_another_method(tmp_path: Path) -> None:
    method = METHOD.replace("self.table[batch]", "LIMIT + batch")
    files = {
        ASCEND: "LIMIT = 1\n" + dedent(runner(ASCEND, method)),
        AR: "LIMIT = 2\n" + dedent(runner(AR, method)),
    }
    assert seen(make_world(tmp_path, files), "workarounds") == []


def test_an_override_that_hides_another_class_is_needed(tmp_path: Path) -> None:
    # OmniGPUModelRunner comes before NPUModelRunner: without the override, its method would run
    gpu = "vllm_omni/worker/gpu_model_runner.py"
    other = METHOD.replace("batch]", "batch.id]")
    files = {ASCEND: runner(ASCEND, METHOD), gpu: runner(gpu, other), BASE: runner(BASE, METHOD)}
    assert seen(make_world(tmp_path, files), "workarounds") == []


@pytest.mark.parametrize(("given", "expected"), [("batch, size=size", True), ("batch, size=0", False)])
def test_an_override_that_only_passes_on(tmp_path: Path, given: str, expected: bool) -> None:
    method = f"""
                def gather(self, batch, *, size=1):
                    return super().gather({given})
"""
    upstream = METHOD.replace("self, batch", "self, batch, *, size=1")
    files = {ASCEND: runner(ASCEND, upstream), AR: runner(AR, method)}
    found = seen(make_world(tmp_path, files), "workarounds")
    assert found == ([("passed-on", "NPUARModelRunner", "gather")] if expected else [])


def asking(question: str) -> str:
    return f"""
                def run(self, batch):
                    if {question}:
                        self.count += 1
"""


def test_asking_for_a_method_that_is_there(tmp_path: Path) -> None:
    files = {ASCEND: runner(ASCEND, METHOD), AR: runner(AR, asking('hasattr(self, "gather")'))}
    found = seen(make_world(tmp_path, files), "workarounds")
    assert found == [("needless-question", "NPUARModelRunner.run", "gather")]


@pytest.mark.parametrize(
    ("setting", "sure"),
    [("self.limit = 3", True), ("if batch:\n                        self.limit = 3", False)],
)
def test_asking_for_what_the_constructor_sets(tmp_path: Path, setting: str, sure: bool) -> None:
    init = f"""
                def __init__(self, batch):
                    {setting}
"""
    files = {ASCEND: runner(ASCEND, init), AR: runner(AR, asking('getattr(self, "limit", None)'))}
    found = seen(make_world(tmp_path, files), "workarounds")
    assert found == ([("needless-question", "NPUARModelRunner.run", "limit")] if sure else [])


def test_upstreams_own_questions_are_upstreams(tmp_path: Path) -> None:
    copied = """
                def run(self, batch):
                    self.first(batch)
                    self.second(batch)
                    self.third(batch)
                    self.fourth(batch)
                    if hasattr(self, "gather"):
                        self.fifth(batch)
"""
    files = {
        ASCEND: runner(ASCEND, METHOD + copied),
        AR: runner(AR, copied + "                    self.last()\n"),
    }
    assert seen(make_world(tmp_path, files), "workarounds") == []


def test_asking_for_what_nothing_has(tmp_path: Path) -> None:
    files = {AR: runner(AR, asking('getattr(self.model, "was_long_ago", False)'))}
    found = seen(make_world(tmp_path, files), "workarounds")
    assert found == [("dead-question", "NPUARModelRunner.run", "was_long_ago")]
    model = {"vllm_omni/models/talker.py": "class Talker:\n    was_long_ago = True\n"}
    assert seen(make_world(tmp_path / "set", files | model), "workarounds") == []


def test_asking_a_module_for_what_it_has(tmp_path: Path) -> None:
    text = """
        from vllm.distributed import state

        def group():
            return getattr(state, "_GROUP", None)
    """
    files = {f"{NPU}/groups.py": text, "vllm/distributed/state.py": "_GROUP = None\n"}
    found = seen(make_world(tmp_path, files), "workarounds")
    assert found == [("needless-question", "group", "_GROUP")]


def with_versions(folder: Path, files: dict[str, str], vllm: str) -> World:
    triple = make_triple(folder, files)
    return World(Triple(triple.omni, triple.ascend, replace(triple.vllm, version=vllm)))


@pytest.mark.parametrize(("vllm", "kinds"), [("0.30.0", ["reached-note"]), ("0.28.0", [])])
def test_a_note_that_was_reached(tmp_path: Path, vllm: str, kinds: list[str]) -> None:
    note = "# TODO: remove this copy once we are\n# on vllm >= 0.29.0\nLIMIT = 1\n"
    world = with_versions(tmp_path, {f"{NPU}/limits.py": note}, vllm)
    assert [kind for kind, _, _ in seen(world, "workarounds")] == kinds


def test_a_note_without_a_wish_is_history(tmp_path: Path) -> None:
    note = "# vllm 0.18 defers this, so it is done here\nLIMIT = 1\n"
    assert seen(with_versions(tmp_path, {f"{NPU}/limits.py": note}, "0.30.0"), "workarounds") == []


def test_a_condition_on_the_version(tmp_path: Path) -> None:
    text = """
        from vllm_ascend.utils import vllm_version_is

        def limit():
            if vllm_version_is("0.28.0"):
                return 1
            return 2
    """
    files = {f"{NPU}/limits.py": text, "vllm_ascend/utils.py": "def vllm_version_is(v):\n    pass\n"}
    found = seen(with_versions(tmp_path, files, "0.30.0"), "workarounds")
    assert [(kind, owner) for kind, owner, _ in found] == [("version-guard", "limit")]


@pytest.mark.parametrize(("old", "kinds"), [("def helper():\n    pass\n", []), ("", ["import-guard"])])
def test_a_second_place_to_import_from(tmp_path: Path, old: str, kinds: list[str]) -> None:
    text = """
        try:
            from vllm.new_place import helper
        except ImportError:
            from vllm.old_place import helper
    """
    vllm = {"vllm/new_place.py": "def helper():\n    pass\n", "vllm/old_place.py": old}
    found = seen(make_world(tmp_path, {f"{NPU}/uses.py": text} | vllm), "workarounds")
    assert [kind for kind, _, _ in found] == kinds


def test_vllm_itself_is_not_judged(tmp_path: Path) -> None:
    files = {VLLM: "class GPUModelRunner:\n    def a(self):\n        return hasattr(self, 'a')\n"}
    assert seen(make_world(tmp_path, files, omni=False), "workarounds") == []
