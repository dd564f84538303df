"""Resolving names, classes and method resolution orders over several trees."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
from audit_kit import AR, ASCEND, BASE, GPU_BASE, VLLM, make_world
from hypothesis import given
from hypothesis import strategies as st

from npu_upgrade.audit.run import check_names, run_checks
from npu_upgrade.program.program import UNKNOWN, ClassSymbol, FunctionSymbol, ModuleSymbol, ValueSymbol, _c3


def classes(world) -> dict[str, ClassSymbol]:
    return {cls.name: cls for cls in world.classes}


def names(cls: ClassSymbol) -> list[str]:
    return [base.name for base in cls.mro]


def test_the_order_is_pythons(tmp_path: Path) -> None:
    world = make_world(tmp_path, {})
    assert names(classes(world)["NPUARModelRunner"]) == [
        "NPUARModelRunner",
        "OmniNPUModelRunner",
        "OmniGPUModelRunner",
        "NPUModelRunner",
        "GPUModelRunner",
    ]


def test_the_method_a_call_reaches_and_the_one_above_it(tmp_path: Path) -> None:
    method = "    def run(self):\n        pass\n"
    world = make_world(
        tmp_path,
        {
            VLLM: f"class GPUModelRunner:\n{method}",
            ASCEND: f"from vllm.v1.worker.gpu_model_runner import GPUModelRunner\n\n"
            f"class NPUModelRunner(GPUModelRunner):\n{method}",
            GPU_BASE: f"from vllm.v1.worker.gpu_model_runner import GPUModelRunner\n\n"
            f"class OmniGPUModelRunner(GPUModelRunner):\n{method}",
        },
    )
    runner = classes(world)["NPUARModelRunner"]
    reached = runner.lookup("run")
    assert reached
    assert reached.qualname == "OmniGPUModelRunner.run"
    above = runner.after(reached.owner, "run")
    assert above
    assert above.qualname == "NPUModelRunner.run"
    assert runner.lookup("walk") is None


def test_names_are_followed_through_re_exports(tmp_path: Path) -> None:
    world = make_world(
        tmp_path,
        {
            "vllm/stats/__init__.py": "from .deep import *\nfrom vllm.stats.deep import count as tally\n",
            "vllm/stats/deep.py": "def count():\n    pass\n\n\nLIMIT = 3\n\n\nclass Stats:\n    pass\n",
            "vllm/lazy.py": "def __getattr__(name):\n    return name\n",
        },
    )
    look = world.program.lookup
    assert isinstance(look("vllm.stats", "tally"), FunctionSymbol)
    assert isinstance(look("vllm.stats", "Stats"), ClassSymbol)
    assert isinstance(look("vllm.stats", "LIMIT"), ValueSymbol)
    assert look("vllm.stats", "deep") == ModuleSymbol("vllm.stats.deep")
    assert look("vllm.stats", "gone") is None
    assert look("vllm.lazy", "anything") is UNKNOWN
    assert look("torch", "Tensor") is UNKNOWN


def test_a_class_with_a_base_from_outside_is_open(tmp_path: Path) -> None:
    text = "import torch\nfrom abc import ABC\n\n\nclass Open(torch.nn.Module):\n    pass\n"
    text += "\n\nclass Closed(ABC):\n    pass\n"
    world = make_world(tmp_path, {"vllm/model.py": text})
    file = world.program.file("vllm/model.py")
    assert file
    assert (file.classes["Open"].is_open, file.classes["Closed"].is_open) == (True, False)


@pytest.mark.parametrize(
    "imports",
    [
        "from vllm.b import Foo",
        "from vllm.b import Foo as Foo",
        "from vllm.b import Other as Foo",
        "from vllm.package import Foo",
        "from vllm.package import *",
        "try:\n    from vllm.b import Foo\nexcept ImportError:\n    Foo = object",
        "if True:\n    from vllm.b import Foo",
        "class Foo(Base):\n    pass",
    ],
)
def test_a_class_may_bear_its_bases_name(tmp_path: Path, imports: str) -> None:
    """``class Foo(Foo)`` derives from what bore the name before; what is bound later is not meant."""
    own = "class Foo(Foo):\n    pass\n\nclass Leaf(Foo):\n    pass\n\nFoo = print(Foo)\n"
    files = {
        "vllm/b.py": "class Base:\n    pass\n\nclass Foo(Base):\n    pass\n\nclass Other(Base):\n    pass\n",
        "vllm/package/__init__.py": "from vllm.b import Foo\n",
        "vllm/a.py": f"from vllm.b import Base\n{imports}\n\n{own}",
    }
    file = make_world(tmp_path, files).program.file("vllm/a.py")
    assert file
    assert [base.name for base in file.classes["Foo"].mro][-1] == "Base"
    assert len(file.classes["Foo"].mro) == 3
    assert file.classes["Leaf"].mro[1:] == file.classes["Foo"].mro


def test_a_base_is_what_the_name_stood_for(tmp_path: Path) -> None:
    """A class below another one is not its base, whatever its name."""
    files = {
        "vllm/b.py": "class Foo:\n    pass\n",
        "vllm/a.py": "from vllm.b import Foo\n\nclass Bar(Foo):\n    pass\n\nclass Foo(Bar):\n    pass\n",
    }
    file = make_world(tmp_path, files).program.file("vllm/a.py")
    assert file
    assert [(cls.name, cls.file.path) for cls in file.classes["Foo"].mro] == [
        ("Foo", "vllm/a.py"),
        ("Bar", "vllm/a.py"),
        ("Foo", "vllm/b.py"),
    ]


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_classes_in_a_cycle_have_an_order_of_their_own(tmp_path: Path, length: int) -> None:
    """Python refuses such a program; what source alone shows of it may be a branch that never runs.

    The base that leads round is not known, every other one counts, and it is all the same where one begins.
    """
    files = {
        f"vllm/part{number}.py": f"from vllm.part{(number + 1) % length} import C{(number + 1) % length}\n"
        f"class Good{number}:\n    pass\n\n"
        f"class C{number}(C{(number + 1) % length}, Good{number}):\n    pass\n"
        for number in range(length)
    }
    files["vllm/below.py"] = "from vllm.part0 import C0\nclass Below(C0):\n    pass\n"
    for first in range(length):
        program = make_world(tmp_path, files).program
        found = {}
        for number in [first, *range(length)]:
            cls = program.find_class(f"vllm/part{number}.py", f"C{number}")
            assert cls
            found[number] = names(cls)
            assert cls.is_open
        assert found == {number: [f"C{number}", f"Good{number}"] for number in range(length)}
        below = program.find_class("vllm/below.py", "Below")
        assert below
        assert names(below) == ["Below", "C0", "Good0"]


def test_the_usual_class_wins_over_a_special_devices(tmp_path: Path) -> None:
    special = """
        from vllm_omni.worker.gpu_model_runner import OmniGPUModelRunner
        from vllm_ascend.utils import is_small

        if is_small():
            from vllm_ascend.small import SmallRunner as NPUModelRunner
        else:
            from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

        class OmniNPUModelRunner(OmniGPUModelRunner, NPUModelRunner):
            pass
    """
    small = "class SmallRunner:\n    pass\n"
    world = make_world(tmp_path, {BASE: special, "vllm_ascend/small.py": small})
    assert "NPUModelRunner" in names(classes(world)["NPUARModelRunner"])


def test_attributes_assigned_on_self(tmp_path: Path) -> None:
    body = """
        from vllm_omni.platforms.npu.worker.npu_model_runner import OmniNPUModelRunner

        class NPUARModelRunner(OmniNPUModelRunner):
            limit: int = 3

            def __init__(self, other):
                self.a, (self.b, *self.c) = other
                self.d: int = 1
                other.e = 2
                with other.open() as self.f:
                    for self.g in other:
                        pass
    """
    runner = classes(make_world(tmp_path, {AR: body}))["NPUARModelRunner"]
    assert set(runner.assigned) == {"a", "b", "c", "d", "f", "g"}
    assert set(runner.fields) == {"limit"}


def test_pairs(tmp_path: Path) -> None:
    worker = "class NPUARWorker:\n    pass\n"
    gpu_worker = "class GPUARWorker:\n    pass\n"
    files = {
        "vllm_omni/platforms/npu/worker/npu_ar_worker.py": worker,
        "vllm_omni/worker/gpu_ar_worker.py": gpu_worker,
    }
    world = make_world(tmp_path / "omni", files)
    pairs = {pair.npu.name: (pair.gpu.name, pair.inherits) for pair in world.pairs}
    assert pairs == {
        "NPUARModelRunner": ("GPUARModelRunner", False),
        "NPUARWorker": ("GPUARWorker", False),
        "OmniNPUModelRunner": ("OmniGPUModelRunner", True),
    }
    world = make_world(tmp_path / "ascend", {}, omni=False)
    assert [(pair.npu.name, pair.gpu.name, pair.inherits) for pair in world.pairs] == [
        ("NPUModelRunner", "GPUModelRunner", True)
    ]


@given(st.lists(st.lists(st.integers(0, 4), max_size=3, unique=True), max_size=5))
def test_the_merge_of_orders_is_pythons(parents: list[list[int]]) -> None:
    """Against Python itself, for every hierarchy it accepts."""
    made: list[type] = [type("C0", (), {})]
    for wanted in parents:
        bases = tuple(made[number % len(made)] for number in wanted)
        try:
            made.append(type(f"C{len(made)}", bases or (), {}))
        except TypeError:
            continue
    for cls in made:
        orders = [list(base.__mro__[:-1]) for base in cls.__bases__ if base is not object]
        direct = [base for base in cls.__bases__ if base is not object]
        assert [cls, *_c3([*orders, direct])] == list(cls.__mro__[:-1])


@pytest.mark.parametrize("text", ["def broken(:\n", "\0"])
def test_a_file_that_is_not_python_is_not_there(tmp_path: Path, text: str) -> None:
    world = make_world(tmp_path, {"vllm/odd.py": text})
    assert world.program.file("vllm/odd.py") is None


def test_a_world_goes_when_nobody_has_it_any_more(tmp_path: Path) -> None:
    files = {
        ASCEND: """
            class NPUModelRunner:
                def __init__(self):
                    self.size = 1

                def run(self, batch):
                    return self.size
        """,
        AR: f"""
            from {ASCEND[:-3].replace("/", ".")} import NPUModelRunner

            class NPUARModelRunner(NPUModelRunner):
                def run(self, batch):
                    return super().run(batch) + self.length
        """,
    }
    world = make_world(tmp_path, files)
    assert list(run_checks(world, check_names()))
    left = weakref.ref(world), weakref.ref(world.program)
    del world
    gc.collect()
    assert [one() for one in left] == [None, None]
