"""The check on duplicates: defined twice, pasted twice, the same in sibling runners."""

from __future__ import annotations

from pathlib import Path

from audit_kit import AR, ASCEND, GENERATION, GPU_AR, NPU, PLAIN, make_world, seen

BODY = """
                    first = self.table.lookup(batch, 1)
                    second = self.table.lookup(first, 2)
                    self.table.store(batch, first, second)
"""
HELPER = """
                def collect(self, batch):
                    found = []
                    for item in batch:
                        if item.ready:
                            found.append(item.value)
                            item.ready = False
                    return found
"""


def runner(path: str, methods: str) -> str:
    return PLAIN[path].rstrip().removesuffix("pass").rstrip() + "\n" + methods


def test_nothing_to_find(tmp_path: Path) -> None:
    method = f"                def run(self, batch):{BODY}"
    assert seen(make_world(tmp_path, {AR: runner(AR, method)}), "duplicates") == []


def test_a_method_defined_twice(tmp_path: Path) -> None:
    twice = "                def run(self):\n                    return 1\n" * 2
    found = seen(make_world(tmp_path, {AR: runner(AR, twice)}), "duplicates")
    assert found == [("defined-twice", "NPUARModelRunner", "run")]


def test_a_setter_is_no_second_definition(tmp_path: Path) -> None:
    both = """
                @property
                def size(self):
                    return 1

                @size.setter
                def size(self, value):
                    self.value = value
"""
    assert seen(make_world(tmp_path, {AR: runner(AR, both)}), "duplicates") == []


def test_a_block_pasted_twice(tmp_path: Path) -> None:
    method = f"                def run(self, batch):{BODY}                    self.other()\n{BODY}"
    found = seen(make_world(tmp_path, {AR: runner(AR, method)}), "duplicates")
    assert found == [("pasted-twice", "NPUARModelRunner", "run")]


def test_the_same_in_two_branches_is_no_paste(tmp_path: Path) -> None:
    inner = BODY.replace("\n    ", "\n        ")
    method = f"                def run(self, batch):\n                    if batch:{inner}"
    method += f"                    else:{inner}"
    assert seen(make_world(tmp_path, {AR: runner(AR, method)}), "duplicates") == []


def test_a_helper_in_two_siblings(tmp_path: Path) -> None:
    files = {path: runner(path, HELPER) for path in (AR, GENERATION)}
    found = seen(make_world(tmp_path, files), "duplicates")
    assert found == [("in-siblings", "NPUGenerationModelRunner", "collect")]


def test_a_helper_that_the_gpu_side_has_there_too_follows_it(tmp_path: Path) -> None:
    files = {path: runner(path, HELPER) for path in (AR, GENERATION, GPU_AR)}
    assert seen(make_world(tmp_path, files), "duplicates") == []


def test_an_override_is_no_sibling(tmp_path: Path) -> None:
    base = f"{NPU}/npu_model_runner.py"
    files = {path: runner(path, HELPER) for path in (base, AR)}
    assert seen(make_world(tmp_path, files), "duplicates") == []


def method(*own: str) -> str:
    steps = [f"self.step_{number}(batch)" for number in range(8)]
    lines = ["def run(self, batch):", *(f"    {line}" for line in [*steps[:4], *own, *steps[4:]])]
    return "\n".join(" " * 16 + line for line in lines) + "\n"


def test_a_block_of_omni_code_in_two_copies(tmp_path: Path) -> None:
    own = [f"self.connector.send_{number}(batch)" for number in range(8)]
    files = {ASCEND: runner(ASCEND, method()), AR: runner(AR, method(*own))}
    files[GENERATION] = runner(GENERATION, method(*own))
    found = seen(make_world(tmp_path, files), "duplicates")
    assert ("block-in-siblings", "NPUGenerationModelRunner", "run") in found


def test_upstreams_code_in_two_copies_is_no_duplicate(tmp_path: Path) -> None:
    files = {path: runner(path, method()) for path in (ASCEND, AR, GENERATION)}
    kinds = [kind for kind, _, _ in seen(make_world(tmp_path, files), "duplicates")]
    assert "block-in-siblings" not in kinds
