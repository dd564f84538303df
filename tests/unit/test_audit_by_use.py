"""The checks that go by how others use a thing: buffers, operators, and names in strings."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_kit import AR, ASCEND, BASE, VLLM, make_triple, make_world, seen

from npu_upgrade.audit import operator_schemas
from npu_upgrade.audit.world import World

RUNNER = f"""
from {VLLM[:-3].replace("/", ".")} import GPUModelRunner


class NPUModelRunner(GPUModelRunner):
    def load(self):
        self.places[:1].zero_()
        self.rows.gpu[:1].zero_()

    def unload(self):
        self.places[:2].zero_()
        self.rows.gpu[:2].zero_()
        self.rows.np[:2] = 0

    def done(self):
        return self.places[:3]
"""
OWN = f"""
from {BASE[:-3].replace("/", ".")} import OmniNPUModelRunner


class NPUARModelRunner(OmniNPUModelRunner):
    def run(self):
        {{line}}
"""


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("self.places.gpu[:1].zero_()", ["no-buffer"]),
        ("self.rows[:1].zero_()", ["buffer"]),
        ("self.places[:1].zero_()", []),
        ("self.rows.gpu[:1].zero_()", []),
        ("self.others.gpu[:1].zero_()", []),
    ],
)
def test_a_buffer_is_used_as_upstream_does(tmp_path: Path, line: str, kinds: list[str]) -> None:
    world = make_world(tmp_path, {ASCEND: RUNNER, AR: OWN.replace("{line}", line)})
    assert [kind for kind, _, _ in seen(world, "buffers")] == kinds


OPS = """
import torch_npu


def one(x):
    a, _, b = torch_npu.npu_hoist(x, rope_num=1)
    return a, b


def two(x):
    a, _, b = torch_npu.npu_hoist(x, rope_num=2, knot=1)
    return a, b
"""


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("a, b = torch_npu.npu_hoist(x, rope_num=1)", ["results"]),
        ("a, _, b = torch_npu.npu_hoist(x, num_ropes=1)", ["keyword"]),
        ("a, _, b = torch_npu.npu_hoist(x, rope_num=1, slowly=True)", []),
        ("a = torch_npu.npu_hoist(x, rope_num=1)[0]", []),
        ("a, b = torch_npu.npu_lower(x)", []),
    ],
)
def test_an_operator_is_called_as_all_others_do(tmp_path: Path, line: str, kinds: list[str]) -> None:
    text = f"import torch_npu\n\n\ndef run(x):\n    {line}\n"
    files = {"vllm_ascend/ops/hoist.py": OPS, "vllm_omni/platforms/npu/hoist.py": text}
    assert [kind for kind, _, _ in seen(make_world(tmp_path, files), "operators")] == kinds


LISTED = """
custom:
- func: npu_hoist(Tensor self, Tensor[] ropes, *, int? knot=None, str layout="A,(B)") -> (Tensor, Tensor, int)
  impl_ns: op_api
- func: npu_hoist.out(Tensor self, *, Tensor? work=None, Tensor(a!) lifted) -> (Tensor(a!), Tensor, int)
- func: npu_lower(Tensor input, int[2] steps=[1, 2]) -> Tensor
- func: npu_empty(int[] size, *, Layout? layout=None) -> Tensor
"""
BINDING = r"""
TORCH_LIBRARY_EXPAND(_C_ascend, ops) {
  // ops.def("winch(Tensor x, int old) -> Tensor");
  ops.def(
      "winch(Tensor! x,"
      "      int speed=1) -> ()");
}
"""
SWING = """
from vllm.utils import direct_register_custom_op


def swing(load, *, arc):
    return load


direct_register_custom_op(op_name="npu_swing", op_func=swing)
"""


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("torch_npu.npu_hoist(x, ropes=[], knot=1)", []),
        ("return torch_npu.npu_hoist(x, ropes=[], knot=1).view(1)", ["results"]),
        ("return 1 + torch_npu.npu_hoist(x, ropes=[], knot=1)", ["results"]),
        ("return torch_npu.npu_hoist(x, ropes=[], knot=1)[0].view(1)", []),
        ("return torch_npu.npu_lower(x).view(1)", []),
        ("torch_npu.npu_hoist(input=x, ropes=[])", []),
        ("torch_npu.npu_hoist.out(x, work=w, out=[x])", []),
        ("torch.ops.npu.npu_hoist(x, [], layout='C')", []),
        ("torch_npu.npu_hoist(x, [], knots=1)", ["schema"]),
        ("torch_npu.npu_hoist(x, [], 1)", ["schema"]),
        ("a, b = torch_npu.npu_hoist(x, [])", ["results"]),
        ("a, b = torch_npu.npu_lower(x)", []),
        ("torch_npu.npu_lower(x, [3, 4], 5)", ["schema"]),
        ("torch_npu.npu_empty(2, 3, dtype=x)", []),
        ("torch_npu.npu_other(x, anything=1)", []),
        ("torch_npu.npu.set_device(x)", []),
        ("torch.ops._C_ascend.winch(x, speed=2)", []),
        ("torch.ops._C_ascend.winch(x, old=2)", ["schema"]),
        ("torch.ops.vllm.npu_swing(x, arc=2)", []),
        ("torch.ops.vllm.npu_swing(x)", ["schema"]),
    ],
)
def test_a_call_fits_the_schema_of_its_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, kinds: list[str]
) -> None:
    asked = []

    def peek(project: str, version: str, path: str) -> str:
        asked.append((project, version))
        return LISTED

    monkeypatch.setattr(operator_schemas, "peek_file", peek)
    files = {
        "vllm_omni/platforms/npu/hoist.py": f"import torch_npu\n\n\ndef run(x, w):\n    {line}\n",
        "vllm_ascend/ops/swing.py": SWING,
        "vllm_omni/shared/hoist.py": "import torch_npu\n\ndef run(x):\n    torch_npu.npu_lower(x)\n",
    }
    triple = make_triple(tmp_path, files)
    (tmp_path / "vllm_ascend" / "csrc").mkdir()
    (tmp_path / "vllm_ascend" / "csrc" / "torch_binding.cpp").write_text(BINDING)
    (tmp_path / "vllm_ascend" / "requirements.txt").write_text("torch-npu==2.10.0.post4\n")
    assert [kind for kind, _, _ in seen(World(triple), "operators")] == kinds
    assert set(asked) <= {("torch-npu", "2.10.0.post4")}


WARM = "def rope_warmup():\n    pass\n\n\ndef knot_warmup():\n    pass\n"
LOOP = """
import importlib

NAMES = ({names})


def apply():
    module = importlib.import_module("vllm_ascend.warm")
    for name in NAMES:
        original = getattr(module, name, None)
        {use}
"""
SET = "setattr(module, name, getattr(apply, name, None))"


@pytest.mark.parametrize(
    ("names", "use", "missing"),
    [
        ("'rope_warmup', 'knot_warmup'", "print(original)", []),
        ("'rope_warmup', 'knots_warmup'", "print(original)", ["knots_warmup"]),
        ("'ropes_warmup', 'knots_warmup'", "print(original)", []),  # all of another version
        ("'ropes_warmup', 'knots_warmup'", SET, ["knots_warmup", "ropes_warmup"]),
        ("'rope_warmup', 'knot_warmup'", SET, []),
    ],
)
def test_a_name_that_a_loop_asks_for_in_vain_is_found(
    tmp_path: Path, names: str, use: str, missing: list[str]
) -> None:
    loop = LOOP.replace("{names}", names).replace("{use}", use)
    files = {"vllm_ascend/warm.py": WARM, "vllm_omni/platforms/npu/warm.py": loop}
    assert [subject for _, _, subject in seen(make_world(tmp_path, files), "names-asked")] == missing


# A layer is replaced by the name of its class, not by the one it is registered under.
@pytest.mark.parametrize(
    ("key", "missing"), [("Crane", []), ("OldCrane", ["OldCrane"]), ("crane", ["crane"])]
)
def test_a_layer_is_registered_under_a_class_that_there_is(
    tmp_path: Path, key: str, missing: list[str]
) -> None:
    own = f"""
        from vllm.layers import Crane, register_oot

        class NPUCrane(Crane):
            pass

        def register():
            for name, cls in {{"{key}": NPUCrane}}.items():
                register_oot(cls, name=name)
    """
    layers = "NAMES = ['crane']\n\n\nclass Crane:\n    pass\n\n\ndef register_oot(cls, name):\n    pass\n"
    files = {"vllm/layers.py": layers, "vllm_omni/platforms/npu/layers.py": own}
    assert [subject for _, _, subject in seen(make_world(tmp_path, files), "names-asked")] == missing


CAPTURING = f"""
from {VLLM[:-3].replace("/", ".")} import GPUModelRunner


class NPUModelRunner(GPUModelRunner):
    def capture_sizes(self, sizes, graph_mode):
        pass

    def warm(self):
        self.capture_sizes(sizes=[1], graph_mode=2)
"""


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("mode = kwargs.get('graph_mode')", []),
        ("mode = kwargs.get('run_mode')", ["run_mode"]),
        ("mode = kwargs['run_mode']", ["run_mode"]),
        ("mode = self.kept.get('run_mode')", []),
        ("self.capture_sizes(**self.kept)\n        mode = kwargs.get('run_mode')", []),  # may give anything
    ],
)
def test_a_keyword_that_no_call_gives_is_found(tmp_path: Path, line: str, missing: list[str]) -> None:
    own = OWN.replace("def run(self)", "def capture_sizes(self, *args, **kwargs)").replace("{line}", line)
    world = make_world(tmp_path, {ASCEND: CAPTURING, AR: own})
    assert [subject for _, _, subject in seen(world, "names-asked")] == missing


BORROWING = """
class Wrapper:
    def call(self, entries):
        saved, held = self.entries, 1
        kept = self.entries
        mode = {asked}
        self.entries = entries
        {set}
        try:
            return self.run(mode)
        finally:
            self.entries = kept
            {end}
"""


@pytest.mark.parametrize(
    ("sets", "end", "left"),
    [
        ("self.mode = 1", "self.mode = mode", []),
        ("self.mode = 1", "pass", ["self.mode"]),
        ("self.depth = 1", "pass", []),  # it was only read
    ],
)
def test_what_is_borrowed_is_put_back(tmp_path: Path, sets: str, end: str, left: list[str]) -> None:
    text = BORROWING.replace("{set}", sets).replace("{end}", end)
    for number, asked in enumerate(("self.mode", "int(getattr(self, 'mode', 1) or 1)")):
        files = {"vllm_omni/platforms/npu/wrapper.py": text.replace("{asked}", asked)}
        world = make_world(tmp_path / str(number), files)
        assert [subject for _, _, subject in seen(world, "restores")] == left


def test_what_a_function_around_sets_is_its_own_affair(tmp_path: Path) -> None:
    inner = BORROWING.replace("{set}", "pass").replace("{end}", "pass").replace("class Wrapper:\n", "")
    inner = inner.replace("{asked}", "self.mode")
    text = f"def install(wrapper):\n    before = wrapper.call\n{inner}\n    wrapper.call = call\n"
    world = make_world(tmp_path, {"vllm_omni/platforms/npu/wrapper.py": text})
    assert seen(world, "restores") == []


@pytest.mark.parametrize(
    ("key", "spread", "missing"),
    [
        ("token_counts", "**given", []),
        ("tokens_count", "**given", ["tokens_count"]),
        ("tokens_count", "given", []),  # whoever gets the mapping may ask it for anything
    ],
)
def test_a_keyword_that_stands_nowhere_else(
    tmp_path: Path, key: str, spread: str, missing: list[str]
) -> None:
    own = f"""
        class NPUCrane:
            def lift(self, model, tokens):
                given = {{}}
                given["{key}"] = tokens
                return model({spread})
    """
    files = {"vllm_omni/platforms/npu/crane.py": own, "vllm_omni/model.py": "def model(token_counts): ...\n"}
    assert [subject for _, _, subject in seen(make_world(tmp_path, files), "names-asked")] == missing
