"""Bases, overrides, hooks and model attributes: what the GPU side has and the NPU side lacks."""

from __future__ import annotations

import pytest
from audit_kit import AR, GPU_AR, GPU_BASE, findings, make_world
from parity_kit import runners, told

MIXIN = """
class WireMixin:
    def open_wire(self):
        pass
"""
PICK = """
def _pick(self, scores):
    if getattr(self.model, "picks_itself", False):
        return self.model.pick(scores)
    return super()._pick(scores)
"""
PLAIN_PICK = "def _pick(self, scores):\n    return scores.max()\n"


def _with_mixin(folder, npu_bases: str):
    return make_world(
        folder,
        {
            "vllm_omni/worker/wire.py": MIXIN,
            GPU_AR: """
                from vllm_omni.worker.gpu_model_runner import OmniGPUModelRunner
                from vllm_omni.worker.wire import WireMixin

                class GPUARModelRunner(OmniGPUModelRunner, WireMixin):
                    def step(self):
                        self.open_wire()
            """,
            AR: f"""
                from vllm_omni.platforms.npu.worker.npu_model_runner import OmniNPUModelRunner
                from vllm_omni.worker.wire import WireMixin

                class NPUARModelRunner({npu_bases}):
                    def step(self):
                        if hasattr(self, "open_wire"):
                            self.open_wire()
            """,
        },
    )


def test_a_mixin_that_the_npu_class_lacks_is_told_once_as_a_base(tmp_path):
    world = _with_mixin(tmp_path, "OmniNPUModelRunner")
    assert told(world, "parity-bases") == [("NPUARModelRunner", "WireMixin")]
    assert told(world, "parity-overrides") == []


def test_a_mixin_that_comes_in_any_way_is_no_finding(tmp_path):
    assert told(_with_mixin(tmp_path, "OmniNPUModelRunner, WireMixin"), "parity-bases") == []


@pytest.mark.parametrize(
    ("asked", "bases", "found"),
    [
        ("issubclass(model_runner_cls, WireMixin)", "OmniNPUModelRunner", ["WireMixin"]),
        ("isinstance(model_runner_cls, (int, WireMixin))", "OmniNPUModelRunner", ["WireMixin"]),
        ("issubclass(model_runner_cls, WireMixin)", "OmniNPUModelRunner, WireMixin", []),
        ("issubclass(wire, WireMixin)", "OmniNPUModelRunner", []),
        ("hasattr(model_runner_cls, 'open_wire')", "OmniNPUModelRunner", []),
    ],
)
def test_a_type_that_other_code_asks_a_runner_for(tmp_path, asked: str, bases: str, found: list[str]):
    head = "def validate(model_runner_cls, wire):\n    from vllm_omni.worker.wire import WireMixin\n"
    asking = f"{head}    return {asked}\n"
    files = {
        "vllm_omni/validation.py": asking,
        "vllm_omni/worker/wire.py": "class WireMixin:\n    def open_wire(self):\n        pass\n",
        GPU_AR: """
            from vllm_omni.worker.gpu_model_runner import OmniGPUModelRunner
            from vllm_omni.worker.wire import WireMixin

            class GPUARModelRunner(OmniGPUModelRunner, WireMixin):
                pass
        """,
        AR: f"""
            from vllm_omni.platforms.npu.worker.npu_model_runner import OmniNPUModelRunner
            from vllm_omni.worker.wire import WireMixin

            class NPUARModelRunner({bases}):
                def open_wire(self):
                    pass
        """,
    }
    assert told(make_world(tmp_path, files), "parity-bases") == [("NPUARModelRunner", name) for name in found]


def _workers(folder, npu_bases: str, npu_init: str = "pass"):
    """An AR worker of either side; the GPU's has a mixin that only takes part in the constructor."""
    return make_world(
        folder,
        {
            "vllm/worker/base.py": "class Worker:\n    def __init__(self, rank):\n        self.rank = rank\n",
            "vllm_omni/worker/wire.py": """
                class WireMixin:
                    def __init__(self, *args):
                        super().__init__(*args)
                        from vllm_omni.wires import pull_wires
                        pull_wires()
            """,
            "vllm_omni/worker/gpu_ar_worker.py": """
                from vllm.worker.base import Worker
                from vllm_omni.worker.wire import WireMixin

                class GPUARWorker(WireMixin, Worker):
                    pass
            """,
            "vllm_omni/platforms/npu/worker/npu_ar_worker.py": f"""
                from vllm.worker.base import Worker
                from vllm_omni.wires import pull_wires
                from vllm_omni.worker.wire import WireMixin

                class NPUARWorker({npu_bases}):
                    def __init__(self, rank):
                        super().__init__(rank)
                        {npu_init}
            """,
        },
    )


def test_a_mixin_of_workers_that_takes_part_in_the_constructor_only(tmp_path):
    assert told(_workers(tmp_path, "Worker"), "parity-bases") == [("NPUARWorker", "WireMixin")]


def test_a_constructor_that_does_itself_what_the_mixin_does(tmp_path):
    assert told(_workers(tmp_path, "Worker", "pull_wires()"), "parity-bases") == []
    assert told(_workers(tmp_path / "mixed", "WireMixin, Worker"), "parity-bases") == []


def test_an_override_that_asks_the_model_is_missed_where_vllm_ascends_own_runs(tmp_path):
    world = runners(tmp_path, gpu=PICK, vllm=PLAIN_PICK, ascend=PLAIN_PICK)
    assert told(world, "parity-overrides") == [("NPUARModelRunner", "_pick")]


@pytest.mark.parametrize(
    ("models", "had"),
    [
        ({"one": "picks_itself = True"}, "had by vllm_omni/models/one.py"),
        (
            {"one": "def pick(self, scores):\n        return torch.cuda.Stream()"},
            "had by vllm_omni/models/one.py, which uses torch.cuda",
        ),
        (dict.fromkeys(("one", "two", "three"), "picks_itself = True"), ""),
        ({"one": "def rest(self):\n        return self.picks_itself"}, ""),
    ],
)
def test_few_models_that_have_what_is_asked_are_named(tmp_path, models: dict[str, str], had: str):
    more = {f"vllm_omni/models/{name}.py": f"class One:\n    {body}\n" for name, body in models.items()}
    world = runners(tmp_path, gpu=PICK, vllm=PLAIN_PICK, ascend=PLAIN_PICK, more=more)
    (found,) = findings(world, "parity-overrides")
    assert found.what.partition("; had by")[2] == had.removeprefix("had by")


def test_the_same_override_on_the_npu_side_is_no_finding(tmp_path):
    world = runners(tmp_path, gpu=PICK, npu=PICK, vllm=PLAIN_PICK, ascend=PLAIN_PICK)
    assert told(world, "parity-overrides") == []


def test_an_override_is_missed_where_the_gpu_sides_own_parent_runs(tmp_path):
    world = runners(tmp_path, gpu=PICK, gpu_base=PLAIN_PICK)
    assert told(world, "parity-overrides") == [("NPUARModelRunner", "_pick")]
    assert told(world, "parity-model-attributes") == []


def test_an_override_for_the_device_alone_is_vllm_ascends_business(tmp_path):
    tools = {"vllm_omni/worker/memory.py": "def left(pool):\n    return pool.left() * 2\n"}
    head = "from vllm_omni.worker.memory import left"
    gpu = "def free_memory(self):\n    return left(self.pool)\n"
    own = "def free_memory(self):\n    return self.pool.left()\n"
    world = runners(tmp_path / "a", head=head, gpu=gpu, vllm=own, ascend=own, more=tools)
    assert told(world, "parity-overrides") == []
    plain = runners(tmp_path / "b", head=head, gpu=gpu, vllm=own, more=tools)
    assert told(plain, "parity-overrides") == [("NPUARModelRunner", "free_memory")]


def test_a_helper_for_a_hook_of_the_model_is_missed(tmp_path):
    gpu = """
        def step(self, out):
            return self._after(out)

        def _after(self, out):
            hook = getattr(self.model, "after_step", None)
            return hook(out) if callable(hook) else out
    """
    world = runners(tmp_path, gpu=gpu, npu="def step(self, out):\n    return out\n")
    assert told(world, "parity-overrides") == [("NPUARModelRunner", "_after")]
    assert told(world, "parity-model-attributes") == []


def test_a_helper_written_out_in_its_caller_is_no_finding(tmp_path):
    gpu = """
        def step(self, out):
            return self._after(out)

        def _after(self, out):
            hook = getattr(self.model, "after_step", None)
            return hook(out) if callable(hook) else out
    """
    npu = """
        def step(self, out):
            hook = getattr(self.model, "after_step", None)
            return hook(out) if callable(hook) else out
    """
    world = runners(tmp_path, gpu=gpu, npu=npu)
    assert told(world, "parity-overrides") == []


def test_a_helper_that_nothing_needs_is_no_finding(tmp_path):
    gpu = 'def _old(self):\n    return getattr(self.model, "old_way", None)\n'
    assert told(runners(tmp_path, gpu=gpu), "parity-overrides") == []


def test_what_the_npu_side_calls_itself_must_be_there(tmp_path):
    gpu = "def step(self):\n    self._note()\n\ndef _note(self):\n    self.count += 1\n"
    world = runners(tmp_path, gpu=gpu, npu="def step(self):\n    self._note()\n")
    assert told(world, "parity-overrides") == [("NPUARModelRunner", "_note")]


def test_a_call_of_an_omni_helper_is_missed(tmp_path):
    base = "def _report(self):\n    self.reported = True\n"
    world = runners(
        tmp_path,
        gpu_base=base,
        gpu="def step(self):\n    self._report()\n    return 1\n",
        npu="def step(self):\n    return 1\n",
    )
    assert told(world, "parity-hooks") == [("NPUARModelRunner", "_report in step")]


def test_a_call_made_by_something_the_npu_method_calls_counts(tmp_path):
    base = "def _report(self):\n    self.reported = True\n"
    npu = "def step(self):\n    self._own()\n    return 1\n\ndef _own(self):\n    self._report()\n"
    gpu = "def step(self):\n    self._report()\n    return 1\n"
    assert told(runners(tmp_path, gpu_base=base, gpu=gpu, npu=npu), "parity-hooks") == []


def test_a_call_made_by_what_both_sides_share_counts(tmp_path):
    base = "def _common(self):\n    self._report()\n\ndef _report(self):\n    self.reported = True\n"
    gpu = "def step(self):\n    self._report()\n    return 1\n"
    npu = "def step(self):\n    self._common()\n    return 1\n"
    assert told(runners(tmp_path, gpu_base=base, gpu=gpu, npu=npu), "parity-hooks") == []


def test_what_a_helper_written_out_in_part_lacks_is_told_in_its_caller(tmp_path):
    tools = {"vllm_omni/worker/route.py": "def route(rows):\n    rows = list(rows)\n    return rows\n"}
    gpu = """
        def step(self, rows):
            return self._build(rows)

        def _build(self, rows):
            rows = route(rows)
            names = [row.name for row in rows]
            sizes = {row.name: row.size for row in rows}
            return self.pack(names, sizes)
    """
    npu = """
        def step(self, rows):
            names = [row.name for row in rows]
            sizes = {row.name: row.size for row in rows}
            return self.pack(names, sizes)
    """
    head = "from vllm_omni.worker.route import route"
    world = runners(tmp_path, head=head, gpu=gpu, npu=npu, more=tools)
    assert told(world, "parity-overrides") == []
    assert told(world, "parity-hooks") == [("NPUARModelRunner", "route in _build")]


def test_a_step_of_vllm_alone_is_vllms_business(tmp_path):
    vllm = "def step(self):\n    self.seen.clear()\n\ndef balance(self):\n    pass\n"
    gpu = "def step(self):\n    self.seen.clear()\n"
    world = runners(tmp_path, vllm=vllm, gpu=gpu, npu="def step(self):\n    pass\n")
    assert told(world, "parity-hooks") == []


def test_a_step_that_vllm_and_vllm_ascend_both_take_is_missed_in_the_npu_copy(tmp_path):
    text = "def step(self):\n    self.seen.clear()\n"
    world = runners(tmp_path, vllm=text, ascend=text, gpu=text, npu="def step(self):\n    pass\n")
    assert told(world, "parity-hooks") == [("NPUARModelRunner", "seen.clear in step")]


def test_a_function_of_one_expression_may_stand_written_out(tmp_path):
    tools = {"vllm_omni/worker/tools.py": "def cut(values, most):\n    return values.clip(max=most)\n"}
    head = "from vllm_omni.worker.tools import cut"
    gpu = "def step(self, x):\n    return cut(x, self.most)\n"
    same = "def step(self, x):\n    return x.clip(max=self.most)\n"
    other = "def step(self, x):\n    return x.clip(max=self.most - 1)\n"
    there = runners(tmp_path / "a", head=head, gpu=gpu, npu=same, more=tools)
    assert told(there, "parity-hooks") == []
    gone = runners(tmp_path / "b", head=head, gpu=gpu, npu=other, more=tools)
    assert told(gone, "parity-hooks") == [("NPUARModelRunner", "cut in step")]


def test_an_attribute_of_the_model_is_missed_with_what_stands_under_it(tmp_path):
    gpu = """
        def step(self, ids):
            kwargs = {}
            if getattr(self.model, "wants_ids", False):
                kwargs["ids"] = self.model.sorted_ids(ids)
            return kwargs
    """
    world = runners(tmp_path, gpu=gpu, npu="def step(self, ids):\n    kwargs = {}\n    return kwargs\n")
    subjects = told(world, "parity-model-attributes")
    assert [owner for owner, _ in subjects] == ["NPUARModelRunner"]
    assert told(world, "parity-hooks") == []


@pytest.mark.parametrize(
    "named",
    [
        "net = self.model",
        'net = getattr(self.model_runner, "model", None)',
        "net = self.model_runner.get_model()",
        "(net := self.model)",
    ],
)
def test_an_attribute_read_through_a_name_for_the_model_counts(tmp_path, named):
    gpu = 'def step(self):\n    return getattr(self.model, "wants_ids", False)\n'
    npu = f'def step(self):\n    {named}\n    return hasattr(net, "wants_ids")\n'
    assert told(runners(tmp_path, gpu=gpu, npu=npu), "parity-model-attributes") == []


def test_a_step_for_kernels_of_cuda_is_no_finding(tmp_path):
    tools = {"vllm_omni/worker/fast.py": 'def warm(x):\n    """Warms the Triton kernels."""\n    x.go()\n'}
    base = "def _warm(self):\n    from vllm_omni.worker.fast import warm\n    warm(self.x)\n"
    gpu = "def step(self):\n    self._warm()\n"
    world = runners(tmp_path, gpu_base=base, gpu=gpu, npu="def step(self):\n    pass\n", more=tools)
    assert told(world, "parity-hooks") == []


@pytest.mark.parametrize("idle", [True, False])
def test_a_step_that_is_idle_without_cuda_is_no_finding(tmp_path, idle):
    leaves = "        if not torch.cuda.is_available():\n            return\n" if idle else ""
    cache = f"import torch\n\nclass Cache:\n    def start_copy(self, x):\n{leaves}        x.copy()\n"
    gpu_base = "def load(self):\n    self.cache = Cache()\n"
    gpu = "def step(self, x):\n    self.cache.start_copy(x)\n    return x\n"
    world = runners(
        tmp_path,
        gpu_base=gpu_base,
        gpu=gpu,
        npu="def step(self, x):\n    return x\n",
        head="from vllm_omni.cache import Cache\n",
        more={"vllm_omni/cache.py": cache},
    )
    assert told(world, "parity-hooks") == ([] if idle else [("NPUARModelRunner", "cache.start_copy in step")])


def test_vllm_ascend_itself_is_held_against_vllm(tmp_path):
    vllm = """
        class GPUModelRunner:
            def sample(self):
                self.batch.note_tokens()
                self.drain()

            def drain(self):
                self.batch.drain()
    """
    ascend = """
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner

        class NPUModelRunner(GPUModelRunner):
            def sample(self):
                return self.batch.size
    """
    files = {"vllm/v1/worker/gpu_model_runner.py": vllm, "vllm_ascend/worker/model_runner_v1.py": ascend}
    world = make_world(tmp_path, files, omni=False)
    assert told(world, "parity-hooks") == [
        ("NPUModelRunner", "batch.note_tokens in sample"),
        ("NPUModelRunner", "drain in sample"),
    ]
    assert GPU_BASE not in {file.path for file in world.files}


def _declared(folder, npu_body: str, asking: str):
    """A worker class of either side; the GPU's names its runner, and another module asks for it."""
    return make_world(
        folder,
        {
            "vllm/worker/base.py": "class Worker:\n    pass\n",
            "vllm_omni/wires.py": f"def check(worker_class):\n    return {asking}\n",
            "vllm_omni/worker/gpu_ar_worker.py": """
                from vllm.worker.base import Worker

                class GPUARWorker(Worker):
                    runner_class = "GPUARModelRunner"
                    unasked = 1
            """,
            "vllm_omni/platforms/npu/worker/npu_ar_worker.py": f"""
                from vllm.worker.base import Worker

                class NPUARWorker(Worker):
                    {npu_body}
            """,
        },
    )


def test_a_class_attribute_that_other_code_asks_for(tmp_path):
    asking = 'getattr(worker_class, "runner_class", None)'
    lacking, having = (
        _declared(tmp_path / str(number), body, asking)
        for number, body in enumerate(("pass", "runner_class = 'NPUARModelRunner'"))
    )
    assert told(lacking, "parity-class-attributes") == [("NPUARWorker", "runner_class")]
    assert told(having, "parity-class-attributes") == []
    nobody = _declared(tmp_path / "nobody", "pass", "worker_class")
    assert told(nobody, "parity-class-attributes") == []
