"""The check for results and states with another number of elements than expected."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_kit import AR, ASCEND, BASE, VLLM, findings, make_world, seen
from hypothesis import given
from hypothesis import strategies as st

from npu_upgrade.audit.checks.arity import ArityReader
from npu_upgrade.program.callees import resolver_of
from npu_upgrade.program.program import Program
from npu_upgrade.program.scope import Scope
from npu_upgrade.sources.tree import SourceTree

TAKES = """
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    class OmniNPUModelRunner(NPUModelRunner):
        def step(self):
            a, b = self.prepare()
"""


def taken(folder: Path, body: str, takes: str = TAKES) -> list[tuple[str, str, str]]:
    """The findings where vllm-ascend's ``prepare`` has this body."""
    lines = "\n".join(f"        {line}" for line in body.split("\n"))
    ascend = f"class NPUModelRunner:\n    def prepare(self):\n{lines}\n"
    return seen(make_world(folder, {ASCEND: ascend, BASE: takes}), "arity")


@pytest.mark.parametrize(
    "body",
    [
        "return 1, 2, 3",
        "return (1, 2, 3) if self.x else (3, 2, 1)",
        "if self.x:\n    return 1, 2, 3\nreturn None",
        "result = 1, 2, 3\nreturn result",
        "try:\n    return 1, 2, 3\nexcept TypeError:\n    return 3, 2, 1",
        "try:\n    pass\nexcept* ValueError:\n    pass\nreturn 1, 2, 3",
    ],
)
def test_too_many_values_to_unpack(tmp_path: Path, body: str) -> None:
    assert taken(tmp_path, body) == [("unpack", "OmniNPUModelRunner.step", "2 of 3: self.prepare")]


def test_a_result_is_followed_through_another_method(tmp_path: Path) -> None:
    ascend = """
        class NPUModelRunner:
            def prepare(self):
                return self.other()

            def other(self):
                return 1, 2, 3
    """
    found = seen(make_world(tmp_path, {ASCEND: ascend, BASE: TAKES}), "arity")
    assert found == [("unpack", "OmniNPUModelRunner.step", "2 of 3: self.prepare")]


@pytest.mark.parametrize(
    "body",
    [
        "return 1, 2",
        "return (1, 2) if self.x else (1, 2, 3)",
        "return self.elsewhere()",
        "return [1, 2, 3]",
        "try:\n    return 1, 2\nexcept TypeError:\n    pass\nreturn 1, 2, 3",
        "try:\n    pass\nexcept TypeError:\n    return 1, 2\nreturn 1, 2, 3",
        "try:\n    yield 1\nexcept TypeError:\n    pass\nreturn 1, 2, 3",
        "return *self.x, 2, 3",
        "yield 1, 2, 3",
        "pass",
    ],
)
def test_what_fits_or_cannot_be_told(tmp_path: Path, body: str) -> None:
    assert taken(tmp_path, body) == []


@pytest.mark.parametrize("caught", ["TypeError", "ValueError", "IndexError", "LookupError", "OSError"])
@pytest.mark.parametrize(
    ("line", "excusing"),
    [
        ("a, b = self.prepare()", {"TypeError", "ValueError"}),
        ("a = self.prepare()[5]", {"TypeError", "IndexError", "LookupError"}),
    ],
)
def test_a_misfit_that_is_caught_is_expected(
    tmp_path: Path, line: str, excusing: set[str], caught: str
) -> None:
    takes = f"""
        from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

        class OmniNPUModelRunner(NPUModelRunner):
            def step(self):
                try:
                    {line}
                except {caught}:
                    pass
    """
    assert bool(taken(tmp_path, "return 1, 2, 3", takes)) == (caught not in excusing)


@pytest.mark.parametrize(("hint", "wrong"), [("tuple[int, int, int]", True), ("tuple[int, ...]", False)])
def test_a_hint_counts_where_the_statements_do_not_tell(tmp_path: Path, hint: str, wrong: bool) -> None:
    ascend = f"class NPUModelRunner:\n    def prepare(self) -> {hint}:\n        return self.elsewhere()\n"
    found = seen(make_world(tmp_path, {ASCEND: ascend, BASE: TAKES}), "arity")
    assert bool(found) is wrong


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("got = self.prepare()\n            a, b = got", "unpack"),
        ("a = self.prepare()[3]", "index"),
        ("got = self.prepare()\n            a = got[3]", "index"),
        ("a = self.prepare()[2]", None),
        ("a, *b = self.prepare()", None),
        ("a, b, c = self.prepare()", None),
    ],
)
def test_ways_to_take_a_result_apart(tmp_path: Path, line: str, kind: str | None) -> None:
    takes = TAKES.replace("a, b = self.prepare()", line)
    kinds = [found[0] for found in taken(tmp_path, "return 1, 2, 3", takes)]
    assert kinds == ([kind] if kind else [])


def test_upstream_takes_an_overrides_result_apart(tmp_path: Path) -> None:
    files = {
        VLLM: """
            class GPUModelRunner:
                def prepare(self):
                    return 1, 2, 3

                def step(self):
                    a, b, c = self.prepare()
        """,
        BASE: """
            from vllm.v1.worker.gpu_model_runner import GPUModelRunner

            class OmniNPUModelRunner(GPUModelRunner):
                def prepare(self):
                    return 1, 2
        """,
    }
    (found,) = findings(make_world(tmp_path, files), "arity")
    assert (found.kind, found.owner) == ("unpack", "GPUModelRunner.step")
    assert found.here.path == BASE
    assert found.there
    assert found.there.path == VLLM


def test_an_override_returns_another_number_than_its_parent(tmp_path: Path) -> None:
    files = {
        ASCEND: "class NPUModelRunner:\n    def prepare(self):\n        return 1, 2, 3\n",
        BASE: TAKES.replace("def step", "def prepare").replace("a, b = self.prepare()", "return 1, 2"),
    }
    found = seen(make_world(tmp_path, files), "arity")
    assert found == [("override", "OmniNPUModelRunner", "prepare: 2 for 3")]


STATE = """
    from typing import NamedTuple

    class State(NamedTuple):
        logits: object
        hidden: object
        stats: object = None
"""


def state_findings(folder: Path, takes: str) -> list[tuple[str, str, str]]:
    runner = f"""
        from {ASCEND[:-3].replace("/", ".")} import NPUModelRunner, State

        class OmniNPUModelRunner(NPUModelRunner):
            def sample(self):
                {takes}
    """
    ascend = f"""{STATE}
    class NPUModelRunner:
        def execute(self):
            self.state = State(1, 2, 3)
    """
    return seen(make_world(folder, {ASCEND: ascend, BASE: runner}), "arity")


@pytest.mark.parametrize(
    ("takes", "kind"),
    [
        ("(logits, hidden) = self.state", "state"),
        ("state = self.state\n                logits, hidden = state", "state"),
        ("(hidden, logits, stats) = self.state", "state-order"),
        ("(logits, hidden, stats) = self.state", None),
        ("(logits, kept, _) = self.state", None),
    ],
)
def test_a_state_made_above_and_taken_apart_below(tmp_path: Path, takes: str, kind: str | None) -> None:
    assert [found[0] for found in state_findings(tmp_path, takes)] == ([kind] if kind else [])


def test_a_state_made_by_a_method_that_is_overridden_does_not_count(tmp_path: Path) -> None:
    takes = """(logits, hidden) = self.state

            def execute(self):
                self.state = None
    """
    assert state_findings(tmp_path, takes) == []


def test_a_state_that_repeats_upstreams_lacks_a_field(tmp_path: Path) -> None:
    own = STATE.replace("        stats: object = None\n", "")
    runner = f"""{own}
    from {ASCEND[:-3].replace("/", ".")} import NPUModelRunner

    class NPUARModelRunner(NPUModelRunner):
        pass
    """
    ascend = f"{STATE}\n    class NPUModelRunner:\n        pass\n"
    found = seen(make_world(tmp_path, {ASCEND: ascend, AR: runner}), "arity")
    assert found == [("state-fields", "State", "stats")]


@given(st.integers(0, 5), st.integers(0, 3))
def test_the_number_of_elements_of_a_tuple_through_any_detour(length: int, detours: int) -> None:
    values = ", ".join("0" * length)
    text = f"def f0():\n    return ({values}{',' if length == 1 else ''})\n"
    text += "".join(f"def f{n + 1}():\n    x = f{n}()\n    return x\n" for n in range(detours))
    program = _one_file(text)
    file = program.file("vllm/one.py")
    assert file
    node = file.functions[f"f{detours}"].node
    reader = ArityReader(resolver_of(program))
    scope = Scope(file, node)
    value = reader.resolver.body(node).returns[0].value
    assert value
    assert reader.of(value, scope) == {length}


def _one_file(text: str) -> Program:

    tree = SourceTree(
        "dir:/", "dir:/", _has=lambda path: path == "vllm/one.py", _bytes=lambda path: text.encode()
    )
    return Program({"vllm": tree})


def test_an_override_whose_own_callers_know_it_is_left_alone(tmp_path: Path) -> None:
    files = {
        ASCEND: "class NPUModelRunner:\n    def prepare(self):\n        return 1, 2, 3\n",
        BASE: TAKES + "\n        def prepare(self):\n            return 1, 2\n",
    }
    assert seen(make_world(tmp_path, files), "arity") == []


@pytest.mark.parametrize(
    ("ours", "told"),
    [
        ("return out.view(1, 2), n", []),
        ("return out.view(1, 2)", ["attend: a tensor for 2"]),
        ("if n:\n    return out.view(1, 2)\nreturn super().attend(out, n)", ["attend: a tensor or 2 for 2"]),
        ("view = out.view(1, 2)\nreturn view, n", []),
        ("return out", []),  # which may be anything
    ],
)
def test_a_tensor_where_the_parent_gives_several(tmp_path: Path, ours: str, told: list[str]) -> None:
    """Also in classes of the NPU side that are no worker's."""
    body = "\n".join(f"        {line}" for line in ours.split("\n"))
    ascend = "class Impl:\n    def attend(self, out, n):\n        return out, n\n"
    omni = "from vllm_ascend.attention import Impl\n\nclass NPUImpl(Impl):\n    def attend(self, out, n):\n"
    files = {"vllm_ascend/attention.py": ascend, "vllm_omni/platforms/npu/attention.py": f"{omni}{body}\n"}
    assert [subject for _, _, subject in seen(make_world(tmp_path, files), "arity")] == told


def test_a_function_that_unpacks_a_tensor_by_rows_is_silent(tmp_path: Path) -> None:
    assert taken(tmp_path, "return self.x.view(2, 3)") == []
