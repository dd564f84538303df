"""The checks for what calls hand over: values of another kind, and parameters that stay behind."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from audit_kit import ASCEND, BASE, make_world, seen

TABLES = "vllm/tables.py"
HANDED = """
    from collections.abc import Mapping
    from typing import Optional

    Rows = dict[str, tuple[int, ...]]

    def by_name(rows: Rows, size: int | None = None):
        return rows

    def by_place(rows: "Optional[list[int]]" = None, *, title: str = ""):
        return rows

    def any_of(rows):
        return rows

    def as_rows() -> Mapping[str, int]:
        return {}

    def as_list() -> list[int]:
        return []

    class First:
        def rows_of_model(self) -> tuple[int, int]:
            return 1, 2

    class Second:
        def rows_of_model(self) -> tuple[int, ...]:
            return (1,)
"""


def kinds_of(folder: Path, line: str) -> list[str]:
    runner = f"""
        from vllm.tables import any_of, as_list, as_rows, by_name, by_place
        from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

        class OmniNPUModelRunner(NPUModelRunner):
            def step(self, more):
                {line}
    """
    return [
        subject
        for _, _, subject in seen(make_world(folder, {BASE: runner, TABLES: HANDED}), "argument-types")
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("by_name(as_list())", "rows is a mapping, as_list() is a sequence"),
        ("by_place(rows=as_rows())", "rows is a sequence, as_rows() is a mapping"),
        ("rows = as_list(); by_name(rows)", "rows is a mapping, rows is a sequence"),
        ("by_name({}, [1])", "size is a number, [1] is a sequence"),
        ("by_place(title=[])", "title is text, [] is a sequence"),
        # all that define it in vLLM give a sequence
        (
            "by_name(self.model.rows_of_model())",
            "rows is a mapping, self.model.rows_of_model() is a sequence",
        ),
    ],
)
def test_an_argument_of_another_kind_is_found(tmp_path: Path, line: str, said: str) -> None:
    (subject,) = kinds_of(tmp_path, line)
    assert subject.partition(": ")[2] == said


@pytest.mark.parametrize(
    "line",
    [
        "by_name(as_rows())",
        "by_name({})",
        "by_place(as_list(), title=f'{more}')",
        "by_place(None)",
        "any_of(as_list())",
        "by_name(more)",
        "rows = as_list(); rows = more; by_name(rows)",
        "by_name(*as_list())",
    ],
)
def test_an_argument_of_its_kind_is_silent(tmp_path: Path, line: str) -> None:
    assert kinds_of(tmp_path, line) == []


OTHER = """
    class Other:
        def lift(self, load, height, wind=None):
            return load

        @staticmethod
        def kind() -> type["Other"]:
            return Other
"""


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("self.other.lift(load, height)", ["self.other.lift: wind"]),
        ("self.other.lift(load=load, height=height)", ["self.other.lift: wind"]),
        ("self.other.lift(load, height, wind)", []),
        ("self.other.lift(load, height, wind=None)", []),
        ("self.other.lift(load, 2 * height)", []),
        ("self.other.lift(*load)", []),
        ("self.other.lift(load, **height)", []),
        ("super().lift(load, height)", []),
    ],
)
def test_a_parameter_that_a_namesake_does_not_get(tmp_path: Path, call: str, found: list[str]) -> None:
    runner = f"""
        from vllm.other import Other
        from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

        class OmniNPUModelRunner(NPUModelRunner):
            def __init__(self):
                self.other = Other.kind()()

            def lift(self, load, height, wind=None):
                return {call}
    """
    world = make_world(tmp_path, {BASE: runner, "vllm/other.py": OTHER})
    assert [subject for _, _, subject in seen(world, "delegations")] == found


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("NPUModelRunner.lift(self, load)", ["NPUModelRunner.lift: wind"]),
        ("NPUModelRunner.lift(self, load, wind)", []),
        ("print(wind)\n                NPUModelRunner.lift(self, load)", []),  # it may mean the default
    ],
)
def test_a_parameter_that_an_override_takes_and_does_not_hand_on(
    tmp_path: Path, body: str, found: list[str]
) -> None:
    runner = f"""
        from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

        class OmniNPUModelRunner(NPUModelRunner):
            def lift(self, load, wind=None):
                {body}
    """
    ascend = "class NPUModelRunner:\n    def lift(self, load, wind=None):\n        return load, wind\n"
    special = "vllm_ascend/special.py"
    line = "from vllm_ascend.worker.model_runner_v1 import NPUModelRunner\n"
    heir = f"{line}\n\nclass Small(NPUModelRunner):\n    pass\n"
    either = "if small():\n    from vllm_ascend.special import Small as NPUModelRunner\nelse:\n    " + line
    for number, head in enumerate((line, either)):  # an heir in its place is called alike
        text = dedent(runner).replace(line, head)
        world = make_world(tmp_path / str(number), {BASE: text, ASCEND: ascend, special: heir})
        assert [subject for _, _, subject in seen(world, "delegations")] == found


JOINT = """
    def reshape_for_mask(x, mask, mode="keys"):
        return x

    class Slow:
        def __init__(self, config, prefix=""):
            self.prefix = prefix

    class Fast:
        def __init__(self, config, prefix=""):
            self.prefix = prefix
"""


@pytest.mark.parametrize(
    ("own", "others", "found"),
    [
        ("reshape_for_mask(x, x)", ["'full'", "mode='keys'"], ["reshape_for_mask: mode"]),
        ("reshape_for_mask(x, x, mode='full')", ["'full'", "mode='keys'"], []),
        ("reshape_for_mask(x, x)", ["'full'"], []),  # one other call is no usage
        ("reshape_for_mask(x, x)", ["'full'", "mode='keys'", "*x"], ["reshape_for_mask: mode"]),
        ("reshape_for_mask(x, x) + reshape_for_mask(x, x)", ["'full'"], []),
    ],
)
def test_what_all_other_calls_give(tmp_path: Path, own: str, others: list[str], found: list[str]) -> None:
    runner = f"""
        from vllm_omni.joint import reshape_for_mask
        from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

        class OmniNPUModelRunner(NPUModelRunner):
            def step(self, x):
                return {own}
    """
    calls = "".join(f"    reshape_for_mask(x, x, {other})\n" for other in others)
    user = f"from vllm_omni.joint import reshape_for_mask\n\n\ndef use(x):\n{calls}"
    files = {BASE: runner, "vllm_omni/joint.py": JOINT, "vllm_omni/user.py": user}
    assert [subject for _, _, subject in seen(make_world(tmp_path, files), "delegations")] == found


@pytest.mark.parametrize(
    ("second", "found"),
    [("Fast(self)", ["Fast: prefix"]), ("Fast(self, prefix)", []), ("Fast(self, '')", [])],
)
def test_what_the_other_object_that_a_function_may_make_gets(
    tmp_path: Path, second: str, found: list[str]
) -> None:
    runner = f"""
        from vllm_omni.joint import Fast, Slow
        from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

        class OmniNPUModelRunner(NPUModelRunner):
            def method_of(self, layer, prefix):
                if layer:
                    return Slow(self, prefix=prefix)
                return {second}
    """
    world = make_world(tmp_path, {BASE: runner, "vllm_omni/joint.py": JOINT})
    assert [subject for _, _, subject in seen(world, "delegations")] == found


CONFIGS = """
class ModelConfig:
    def __init__(self, stage: str):
        self.stage = stage


class WholeConfig:
    def __init__(self, model_config: ModelConfig):
        self.model_config = model_config


def needs_stage(config) -> bool:
    return getattr(config, "stage", None) is not None


def hands_on(config) -> bool:
    return bool(getattr(config, "first", None)) or needs_stage(config)


def names_stage(config) -> str:
    return f"{config}: {getattr(config, 'stage', None)}"
"""
ASKING = """
from vllm.configs import WholeConfig, hands_on, names_stage, needs_stage


class Worker:
    def __init__(self, whole: WholeConfig):
        self.whole = whole
        self.model_config = whole.model_config

    def start(self):
        return {call}
"""


@pytest.mark.parametrize(
    ("call", "kinds"),
    [
        ("needs_stage(self.model_config)", []),
        ("needs_stage(self.whole)", ["asked-in-vain"]),
        ("hands_on(self.whole)", ["asked-in-vain"]),
        ("hands_on(self.model_config)", []),
        ("names_stage(self.whole)", []),  # it does more with it than ask
        ("needs_stage(self.other)", []),
    ],
)
def test_an_object_that_has_nothing_of_what_it_is_asked_for(
    tmp_path: Path, call: str, kinds: list[str]
) -> None:
    files = {
        "vllm/configs.py": CONFIGS,
        "vllm_omni/platforms/npu/worker/npu_worker.py": ASKING.replace("{call}", call),
    }
    assert [kind for kind, _, _ in seen(make_world(tmp_path, files), "argument-types")] == kinds


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("_original_lift(self, load, height=height, wind=wind)", []),
        ("_original_lift(self, load, height=height)", ["_original_lift: wind"]),
        ("_original_lift(self, load)", []),  # so little says nothing
        ("_original_lift(self, load, height=height, wind=None)", []),  # on purpose
        ("_original_lift(self, load, height + wind)", []),
        ("_some_lift(self, load, height=height)", []),
    ],
)
def test_what_stands_in_for_a_function_hands_on_all_that_it_takes(
    tmp_path: Path, call: str, found: list[str]
) -> None:
    patch = f"""
        from vllm.other import Other

        _original_lift = _some_lift = None


        def _lift(self, load, height, wind=None):
            if wind is None:
                print(load)
            return {call}


        def apply():
            global _original_lift
            _original_lift = Other.lift
            Other.lift = _lift
    """
    world = make_world(tmp_path, {"vllm_omni/platforms/npu/patch.py": patch, "vllm/other.py": OTHER})
    assert [subject for _, _, subject in seen(world, "delegations")] == found
