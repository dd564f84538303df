"""The check for arguments and unpacked results that stand in each other's place."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_kit import AR, BASE, findings, make_world, seen

CRANES = "vllm_ascend/harbour/cranes.py"
HOME = """
class Crane:
    def __init__(self, *args, **kwargs):
        self.setup(*args, **kwargs)


class Winch:
    def __init__(self, rope, hook):
        self.rope, self.hook = rope, hook

    def lift(self, load, height, slowly=False):
        return load, height

    def turn(self, drum, load, height=0, slowly=False):
        pass

    def either(self, load, height):
        if load:
            return height, load
        return load, height


def make():
    return Winch


def tie(rope, knot):
    pass
"""
HEAD = """
from vllm_ascend.harbour.cranes import Winch, make, tie
from {base} import OmniNPUModelRunner

_original_lift = None


def keep():
    global _original_lift
    _original_lift = Winch.lift


class NPUARModelRunner(OmniNPUModelRunner):
    winch_cls = Winch

    def run(self, rope, hook, load, height, knot):
        winch = Winch(rope, hook)
        {line}
"""


def told(folder: Path, line: str, check: str = "order") -> list[tuple[str, str]]:
    text = HEAD.replace("{line}", line).replace("{base}", BASE[:-3].replace("/", "."))
    world = make_world(folder, {AR: text, CRANES: HOME})
    return [(kind, subject) for kind, _, subject in seen(world, check)]


@pytest.mark.parametrize(
    "line",
    [
        "tie(knot, rope)",
        "tie(rope=knot, knot=rope)",
        "winch.lift(height, load)",
        "Winch(hook, rope)",
        "self.winch_cls(hook, rope)",
        "make()(self.hook, self.rope)",
        "winch.turn(load, height)",
        "winch.turn(load, self.height, knot)",
        "_original_lift(winch, height, load)",
    ],
)
def test_arguments_in_each_others_place_are_found(tmp_path: Path, line: str) -> None:
    assert [kind for kind, _ in told(tmp_path, line)] == ["argument-order"]


def test_results_in_each_others_place_are_found(tmp_path: Path) -> None:
    assert told(tmp_path, "height, load = winch.lift(load, height)") == [
        ("result-order", "winch.lift: load and height")
    ]


@pytest.mark.parametrize(
    "line",
    [
        "tie(rope, knot)",
        "tie(knot, 'rope')",
        "winch.turn(load, knot)",
        "winch.turn(knot, load, height)",
        "winch.turn(load, height, load=load, height=height)",
        "winch.turn(drum=load, load=height)",
        "tie(*[knot, rope])",
        "load, height = winch.lift(load, height)",
        "height, load = winch.either(load, height)",
        "high, load = winch.lift(load, height)",
        "self.winch_cls(rope, hook)",
    ],
)
def test_what_stands_in_its_place_or_tells_nothing_is_silent(tmp_path: Path, line: str) -> None:
    assert told(tmp_path, line) == []


@pytest.mark.parametrize("line", ["make()(rope, string=hook)", "_original_lift(winch, load)"])
def test_calls_of_what_a_function_gives_or_a_global_keeps_are_judged(tmp_path: Path, line: str) -> None:
    assert len(told(tmp_path, line, "calls")) == 1


TAKERS = """
import torch_npu


def one(x):
    out, _, rest = torch_npu.npu_join(x, x)
    return out, rest


def two(x):
    low, _, rest = torch_npu.npu_join(x, x)
    return low, rest
"""


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("a, rest, _ = torch_npu.npu_join(x, x)", ["result-place"]),
        ("a, _, rest = torch_npu.npu_join(x, x)", []),
        ("a, rest = torch_npu.npu_join(x, x)", []),
        ("a, rest, _ = torch_npu.npu_join(x, x, turned=True)", []),
        ("a, left, _ = torch_npu.npu_join(x, x)", []),
    ],
)
def test_a_result_is_taken_from_where_all_others_take_it(tmp_path: Path, line: str, kinds: list[str]) -> None:
    text = f"import torch_npu\n\n\ndef run(x):\n    {line}\n"
    files = {"vllm_ascend/ops/join.py": TAKERS, "vllm_omni/platforms/npu/join.py": text}
    assert [kind for kind, _, _ in seen(make_world(tmp_path, files), "order")] == kinds


FORMS = """
class Norm:
    def forward_cuda(self, x):
        return self.forward_native(x)

    def forward_native(self, x, rest=None):
        return (x, rest) if rest is not None else x

    def forward_npu(self, {takes}):
        out, new_rest = fused(x, rest)
        return {result}
"""


@pytest.mark.parametrize(
    ("result", "kinds"),
    [("new_rest, out", ["result-place"]), ("out, new_rest", []), ("out", []), ("new_rest, out, x", [])],
)
def test_the_form_for_the_device_returns_in_the_order_of_the_others(
    tmp_path: Path, result: str, kinds: list[str]
) -> None:
    form = FORMS.replace("{result}", result).replace("{takes}", "x, rest=None")
    files = {"vllm_omni/layers/norm.py": form}
    found = findings(make_world(tmp_path, files), "order")
    assert [one.kind for one in found] == kinds
    # the form that is named is one that returns by place, not the first
    assert all("returns rest as 1, forward_native as 2" in one.what for one in found)


@pytest.mark.parametrize(
    ("takes", "kinds"),
    [
        ("rest, x", ["parameter-order"]),
        ("x, rest", []),
        ("x, more, rest", []),
        ("x", ["parameter-of-forms"]),
    ],
)
def test_the_form_for_the_device_takes_in_the_order_of_the_others(
    tmp_path: Path, takes: str, kinds: list[str]
) -> None:
    form = (
        FORMS.replace("{result}", "x")
        .replace("{takes}", takes)
        .replace("cuda(self, x)", "cuda(self, x, rest)")
    )
    files = {"vllm_omni/layers/norm.py": form}
    assert [kind for kind, _, _ in seen(make_world(tmp_path, files), "order")] == kinds


@pytest.mark.parametrize(
    ("takes", "native", "kinds"),
    [
        ("x", "x, rest=None", ["parameter-of-forms"]),
        ("x, **more", "x, rest=None", []),
        ("x, rest=None", "x, rest=None", []),
        ("x", "x", []),  # one of the others does without it, too
    ],
)
def test_the_form_for_the_device_takes_what_all_others_take(
    tmp_path: Path, takes: str, native: str, kinds: list[str]
) -> None:
    text = f"""
        class Norm:
            def forward_cuda(self, x, rest=None):
                return x

            def forward_native(self, {native}):
                return x

            def forward_npu(self, {takes}):
                return x
    """
    world = make_world(tmp_path, {"vllm_omni/layers/norm.py": text})
    assert [kind for kind, _, _ in seen(world, "order")] == kinds
