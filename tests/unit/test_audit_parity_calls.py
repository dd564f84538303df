"""Keywords, conditions and same-named helpers of the GPU and the NPU side."""

from __future__ import annotations

import re

import pytest
from audit_kit import make_world
from parity_kit import runners, told

from npu_upgrade.audit.world import World

OUTPUT = {
    "vllm_omni/worker/output.py": """
        class Output:
            def __init__(self, ids, pooled=None, payload=None):
                self.ids = ids
    """
}
HEAD = "from vllm_omni.worker.output import Output"


def _outputs(folder, npu: str):
    gpu = "def step(self, ids, payload):\n    return Output(ids=ids, payload=payload)\n"
    return runners(folder, head=HEAD, npu_head=HEAD, gpu=gpu, npu=npu, more=OUTPUT)


def test_a_keyword_that_the_npu_side_does_not_pass(tmp_path):
    npu = "def step(self, ids, payload):\n    return Output(ids=ids, pooled=payload)\n"
    assert told(_outputs(tmp_path, npu), "parity-kwargs") == [
        ("NPUARModelRunner", "Output(payload=) in step")
    ]


@pytest.mark.parametrize(
    "body",
    [
        "return Output(ids=ids, payload=payload)",
        "out = Output(ids=ids)\n    out.payload = payload\n    return out",
        "return Output(**self.fields(ids, payload))",
        "fields = {'payload': payload}\n    return Output(ids=ids, **fields)",
    ],
)
def test_a_keyword_that_is_set_in_another_way(tmp_path, body):
    npu = f"def step(self, ids, payload):\n    {body}\n"
    assert told(_outputs(tmp_path, npu), "parity-kwargs") == []


def test_a_keyword_that_repeats_a_default_is_not_missed(tmp_path):
    gpu = "def step(self, ids):\n    return Output(ids=ids, pooled=None)\n"
    npu = "def step(self, ids):\n    return Output(ids=ids)\n"
    world = runners(tmp_path, head=HEAD, npu_head=HEAD, gpu=gpu, npu=npu, more=OUTPUT)
    assert told(world, "parity-kwargs") == []


@pytest.mark.parametrize(
    ("other", "missing"), [("sizes", []), ("meta", [("NPUARModelRunner", "replace(meta)(longest=) in step")])]
)
def test_fields_replaced_in_two_objects_are_not_one_thing(tmp_path, other, missing):
    head = "from dataclasses import replace"
    gpu = "def step(self, meta, sizes, n):\n    return replace(meta, longest=n)\n"
    npu = f"def step(self, meta, sizes, n):\n    return replace({other}, total=n)\n"
    assert told(runners(tmp_path, head=head, npu_head=head, gpu=gpu, npu=npu), "parity-kwargs") == missing


def test_a_key_of_a_dict_that_is_passed_on(tmp_path):
    gpu = """
        def step(self, x, request):
            extra = {"heat": self.heat}
            if request.source is not None:
                extra["source"] = request.source
            return self.talk(x, **extra)
    """
    npu = """
        def step(self, x, request):
            extra = {"heat": self.heat, "seed": request.seed}
            return self.talk(x, **extra)
    """
    world = runners(tmp_path, gpu=gpu, npu=npu)
    assert told(world, "parity-kwargs") == [("NPUARModelRunner", "talk(source=) in step")]


def test_what_vllm_itself_passes_is_vllms_business(tmp_path):
    gpu = "def step(self, x):\n    return self.forward(x, slots=self.slots)\n"
    npu = "def step(self, x):\n    return self.forward(x)\n"
    world = runners(tmp_path, vllm=gpu, gpu=gpu, npu=npu)
    assert told(world, "parity-kwargs") == []


def test_a_class_of_vllm_ascends_own_is_made_like_vllms(tmp_path):
    vllm = """
        class Batch:
            def __init__(self, size, keep=False):
                self.size = size

        class GPUModelRunner:
            def __init__(self, config):
                self.batch = Batch(size=config.size, keep=config.keep)
    """
    ascend = """
        from vllm.v1.worker.gpu_model_runner import Batch, GPUModelRunner

        class NPUBatch(Batch):
            pass

        class NPUModelRunner(GPUModelRunner):
            def __init__(self, config):
                super().__init__(config)
                self.batch = NPUBatch(size=config.size)
    """
    files = {"vllm/v1/worker/gpu_model_runner.py": vllm, "vllm_ascend/worker/model_runner_v1.py": ascend}
    world = make_world(tmp_path, files, omni=False)
    assert told(world, "parity-kwargs") == [("NPUModelRunner", "Batch(keep=) in __init__")]


def test_an_argument_by_place_to_an_inherited_method(tmp_path):
    vllm = """
        class GPUModelRunner:
            def warm(self, size, adapters=0):
                pass

            def step(self, size, adapters):
                self.warm(size, adapters)
    """
    ascend = """
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner

        class NPUModelRunner(GPUModelRunner):
            def step(self, size, adapters):
                self.warm(size)
    """
    files = {"vllm/v1/worker/gpu_model_runner.py": vllm, "vllm_ascend/worker/model_runner_v1.py": ascend}
    world = make_world(tmp_path, files, omni=False)
    assert told(world, "parity-kwargs") == [("NPUModelRunner", "warm(adapters=) in step")]


CACHE = """
def _reads(self):
    if not self.cache.full() and not self.cache.has_hits():
        return None
    return self.cache.read()
"""


def test_a_condition_of_which_the_npu_side_has_a_part(tmp_path):
    npu = CACHE.replace(" and not self.cache.has_hits()", "")
    world = runners(tmp_path, gpu=CACHE, npu=npu)
    assert told(world, "parity-conditions") == [("NPUARModelRunner", "self.cache.has_hits() in _reads")]


def test_a_condition_said_the_other_way_round_is_the_same(tmp_path):
    npu = CACHE.replace("not self.cache.full() and not self.cache.has_hits()", "HOLE").replace(
        "HOLE", "not (self.cache.full() or self.cache.has_hits())"
    )
    assert told(runners(tmp_path, gpu=CACHE, npu=npu), "parity-conditions") == []


GUARDED = """
def step(self, out):
    if self.is_pooler:
        payload = None
    else:
        payload = self._extract(out)
    return payload
"""
EXTRACT = "def _extract(self, out):\n    return out.payload\n"


def test_a_guard_around_a_call_that_both_make(tmp_path):
    npu = """
        def step(self, out):
            payload = self._extract(out)
            return payload if not self.is_pooler else 0
    """
    world = runners(tmp_path, gpu_base=EXTRACT, gpu=GUARDED, npu=npu)
    assert told(world, "parity-conditions") == [("NPUARModelRunner", "self.is_pooler in step")]


def test_the_same_guard_is_no_finding(tmp_path):
    for number, text in enumerate(
        ("None if self.is_pooler else self._extract(out)", "not self.is_pooler and self._extract(out)")
    ):
        npu = f"def step(self, out):\n    return {text}\n"
        world = runners(tmp_path / str(number), gpu_base=EXTRACT, gpu=GUARDED, npu=npu)
        assert told(world, "parity-conditions") == []


def test_a_check_that_only_the_gpu_side_makes(tmp_path):
    gpu = """
        def step(self, outs):
            if len(outs) != self.count:
                raise ValueError("one for each")
            return outs
    """
    world = runners(tmp_path, gpu=gpu, npu="def step(self, outs):\n    return outs\n")
    assert told(world, "parity-conditions") == [("NPUARModelRunner", "len(outs) != self.count in step")]


EARLY = """
def step(self, count, names):
    if HOLE:
        return self.idle()
    return self.work(count)
"""


@pytest.mark.parametrize(
    ("gpu", "npu", "subject"),
    [
        ("count <= 0", "not count", "count"),
        ("count >= self.most", "count > self.most", "count and self.most"),
        ("count and names", "count or names", "count and names"),
        ("count is None", "not count", "count"),
        ("names in self.done", "names not in self.done", "names and self.done"),
        ("not (count and names)", "not count and (not names)", "count and names"),
    ],
)
def test_a_condition_about_the_same_that_says_something_else(tmp_path, gpu, npu, subject):
    world = runners(tmp_path, gpu=EARLY.replace("HOLE", gpu), npu=EARLY.replace("HOLE", npu))
    assert told(world, "parity-conditions") == [("NPUARModelRunner", f"{subject} in step")]


@pytest.mark.parametrize(
    ("gpu", "npu"),
    [
        ("not count == self.most", "count != self.most"),
        ("count == self.most", "self.most == count"),
        ("count > self.most", "not count <= self.most"),
        ("len(names) == 0", "not names"),
        ("len(names) > 0", "names"),
        ("1 <= len(names)", "bool(names)"),
        ("count == 0", "not count"),
        ("not (count and names)", "not names or not count"),
        ("count and names and self.on", "self.on and (names and count)"),
        ("not count is None", "count is not None"),
    ],
)
def test_two_spellings_of_one_condition(tmp_path, gpu, npu):
    world = runners(tmp_path, gpu=EARLY.replace("HOLE", gpu), npu=EARLY.replace("HOLE", npu))
    assert told(world, "parity-conditions") == []


def test_where_vllm_and_vllm_ascend_say_otherwise_each_side_keeps_to_its_own(tmp_path):
    gpu, npu = EARLY.replace("HOLE", "count <= 0"), EARLY.replace("HOLE", "not count")
    world = runners(tmp_path, gpu=gpu, npu=npu, vllm=gpu, ascend=npu)
    assert told(world, "parity-conditions") == []


def test_what_vllm_said_before_and_says_otherwise_now_is_no_news_of_the_npu_side(tmp_path):
    part = CACHE.replace(" and not self.cache.has_hits()", "")
    other = CACHE.replace("has_hits()", "has_hits")
    old = runners(tmp_path / "old", gpu=CACHE, npu=part, vllm=CACHE)
    new = runners(tmp_path / "new", gpu=CACHE, npu=part, vllm=other)
    assert len(told(new, "parity-conditions")) == 1
    assert told(World(new.triple, old), "parity-conditions") == []


def test_a_branch_for_an_attribute_of_the_model(tmp_path):
    gpu = """
        def step(self, x):
            if self.has_images:
                y = 1
            elif getattr(self.model, "has_own_input", False):
                y = 2
            else:
                y = 3
            return y
    """
    npu = (
        "def step(self, x):\n    if self.has_images:\n        y = 1\n    else:\n        y = 3\n    return y\n"
    )
    world = runners(tmp_path, gpu=gpu, npu=npu)
    assert told(world, "parity-conditions") == [("NPUARModelRunner", "has_own_input in step")]
    assert told(world, "parity-model-attributes") == []


def test_a_switch_that_the_gpu_side_turns_off(tmp_path):
    vllm = "def run(self):\n    return self.new_way\n"
    gpu = "def prepare(self):\n    if self.new_way:\n        self.new_way = False\n    self.ready = True\n"
    npu = "def prepare(self):\n    self.ready = True\n"
    world = runners(tmp_path, vllm=vllm, gpu=gpu, npu=npu)
    assert told(world, "parity-conditions") == [("NPUARModelRunner", "self.new_way in prepare")]


def test_vllm_ascend_asks_something_else_than_vllm(tmp_path):
    vllm = """
        class GPUModelRunner:
            def warm(self):
                if self.takes_images and not self.config.two_towers:
                    self.embed()
    """
    ascend = """
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner

        class NPUModelRunner(GPUModelRunner):
            def warm(self):
                if self.has_images and not self.config.two_towers:
                    self.embed()
    """
    files = {"vllm/v1/worker/gpu_model_runner.py": vllm, "vllm_ascend/worker/model_runner_v1.py": ascend}
    world = make_world(tmp_path, files, omni=False)
    assert told(world, "parity-conditions") == [("NPUModelRunner", "self.takes_images in warm")]


HELPER = """
def _needs(self, rid):
    known = self.known.get(rid)
    if known is not None:
        return known
    stage = self._stage(rid)
    if stage is None:
        return True
    self.known[rid] = stage > 0
    return stage > 0
"""


def test_a_helper_that_no_longer_does_the_same(tmp_path):
    npu = HELPER.replace("    if stage is None:\n        return True\n", "")
    npu = npu.replace("stage > 0", "stage is None or stage > 0")
    world = runners(tmp_path, gpu=HELPER, npu=npu)
    assert told(world, "parity-helpers") == [("NPUARModelRunner", "_needs")]


@pytest.mark.parametrize(
    "change",
    [
        ("self.known[rid] = stage > 0", "self.known[rid] = stage > 0  # kept"),
        ("stage = self._stage(rid)", 'logger.debug("asked")\n    stage = self._stage(rid)'),
        ("self._stage(rid)", "self._stage(rid, eager=True)"),
        ("if stage is None:", "assert rid\n    if stage is None:"),
    ],
)
def test_a_helper_that_says_more_or_the_same(tmp_path, change):
    world = runners(tmp_path, gpu=HELPER, npu=HELPER.replace(*change))
    assert told(world, "parity-helpers") == []


def test_a_renamed_local_is_no_difference_and_hides_none(tmp_path):
    npu = re.sub(r"\bstage\b", "place", HELPER)
    assert told(runners(tmp_path / "same", gpu=HELPER, npu=npu), "parity-helpers") == []
    npu = npu.replace("    if place is None:\n        return True\n", "")
    npu = npu.replace("place > 0", "place is None or place > 0")
    world = runners(tmp_path / "other", gpu=HELPER, npu=npu)
    assert told(world, "parity-helpers") == [("NPUARModelRunner", "_needs")]


def test_what_a_helper_goes_on_to_is_a_part_of_it(tmp_path):
    gpu = HELPER.replace("    known =", "    if self.skips:\n        return False\n    known =")
    npu = "def _needs(self, rid):\n    if self.skips:\n        return False\n    return super()._needs(rid)"
    world = runners(tmp_path / "goes on", gpu=gpu, gpu_base=HELPER, npu=npu)
    assert told(world, "parity-helpers") == []
    world = runners(
        tmp_path / "not", gpu=gpu, gpu_base=HELPER, npu=npu.replace("super()._needs(rid)", "True")
    )
    assert told(world, "parity-helpers") == [("NPUARModelRunner", "_needs")]


def test_copies_of_upstream_methods_differ_by_nature(tmp_path):
    npu = HELPER.replace("    if stage is None:\n        return True\n", "")
    assert told(runners(tmp_path, vllm=HELPER, gpu=HELPER, npu=npu), "parity-helpers") == []


def test_module_functions_and_functions_inside_are_helpers_too(tmp_path):
    inner = "def step(self, x):\n    def pick(v):\n        {}\n        return v.last\n    return pick(x)\n"
    gpu = inner.format("if not v:\n            return v.nothing")
    npu = inner.format("v = v")
    vllm = "def step(self, x):\n    return x\n"
    world = runners(
        tmp_path,
        vllm=vllm,
        gpu=gpu,
        npu=npu,
        head="def flat(x):\n    return x.keys or x.names\n",
        npu_head="def flat(x):\n    return x.names\n",
    )
    assert sorted(told(world, "parity-helpers")) == [("", "flat"), ("NPUARModelRunner.step", "pick")]


def test_a_switch_that_the_class_below_turns_off_itself(tmp_path):
    ascend = "def __init__(self):\n    self.new_way = False\n\ndef run(self):\n    return self.new_way\n"
    gpu = "def prepare(self):\n    if self.new_way:\n        self.new_way = False\n    self.ready = True\n"
    npu = "def prepare(self):\n    self.ready = True\n"
    assert told(runners(tmp_path, ascend=ascend, gpu=gpu, npu=npu), "parity-conditions") == []


def test_what_two_methods_replace_is_not_compared(tmp_path):
    head = "from dataclasses import replace"
    gpu = "def step(self, meta, n):\n    return replace(meta, longest=n)\n"
    helper = "def tidy(self, meta):\n    return replace(meta, total=1)\n"
    npu = f"def step(self, meta, n):\n    return self.tidy(meta)\n\n{helper}"
    assert told(runners(tmp_path, head=head, npu_head=head, gpu=gpu, npu=npu), "parity-kwargs") == []


def test_a_keyword_that_the_npu_callee_does_not_take_is_the_callees_business(tmp_path):
    gpu = (
        "def step(self, x):\n    self._keep(x, staged=self.staged)\n\ndef _keep(self, x, staged):\n    pass\n"
    )
    npu = "def step(self, x):\n    self._keep(x)\n\ndef _keep(self, x):\n    pass\n"
    assert told(runners(tmp_path / "a", gpu=gpu, npu=npu), "parity-kwargs") == []
    open_npu = npu.replace("_keep(self, x)", "_keep(self, x, **more)")
    world = runners(tmp_path / "b", gpu=gpu, npu=open_npu)
    assert told(world, "parity-kwargs") == [("NPUARModelRunner", "_keep(staged=) in step")]


def test_two_statements_that_the_other_side_has_as_one_are_not_lacking(tmp_path):
    head, end = "def _sizes(self):\n", "    return sizes\n"
    gpu = f"{head}    sizes = self.config.sizes\n    sizes = sorted(sizes, reverse=True)\n{end}"
    npu = f"{head}    sizes = sorted(self.config.sizes, reverse=True)\n{end}"
    assert told(runners(tmp_path / "same", gpu=gpu, npu=npu), "parity-helpers") == []
    other = npu.replace("reverse=True", "key=str")
    assert told(runners(tmp_path / "other", gpu=gpu, npu=other), "parity-helpers") != []


COPIES = "def step(self, rows):\n    batch = self.copy(rows)\n    {wait}\n    return batch.rows\n"


@pytest.mark.parametrize(
    ("wait", "missing"),
    [
        ("pass", [("NPUARModelRunner", "batch.wait in step")]),
        ("batch.wait()", []),
        ("self.done = batch.wait", []),
    ],
)
def test_a_step_of_a_local_object_that_the_npu_side_does_not_take(tmp_path, wait, missing):
    gpu, npu = (COPIES.replace("{wait}", text) for text in ("batch.wait()", wait))
    assert told(runners(tmp_path, gpu=gpu, npu=npu), "parity-hooks") == missing


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ("return EMPTY", [("NPUARModelRunner", "self.signed for EMPTY in step")]),
        ("return self.signed(EMPTY)", []),
        ("self.signed(EMPTY)\n    return EMPTY", []),
        ("return rows", []),
        ("EMPTY = self.signed(rows)\n    return EMPTY", []),
    ],
)
def test_what_only_the_npu_side_returns_as_it_is(tmp_path, body, missing):
    end = "\n\ndef signed(self, output):\n    return output\n"
    gpu = f"def step(self, rows):\n    return self.signed(EMPTY)\n{end}"
    npu = f"def step(self, rows):\n    self.signed(rows)\n    {body}\n{end}"
    assert told(runners(tmp_path, gpu=gpu, npu=npu), "parity-hooks") == missing


@pytest.mark.parametrize(
    ("body", "owner"),
    [("super().load(*args, **kwargs)", "OmniNPUModelRunner"), ("super().load(*args)", "NPUARModelRunner")],
)
def test_an_override_that_hands_all_on_is_seen_through(tmp_path, body, owner):
    gpu = "def load(self, *args, **kwargs):\n    self.report()\n\n\ndef report(self):\n    return 1\n"
    base = "def load(self, *args, **kwargs):\n    self.loaded = True\n"
    npu = f"def load(self, *args, **kwargs):\n    {body}\n"
    world = runners(tmp_path, gpu_base=gpu, npu_base=base, npu=npu)
    assert owner in dict(told(world, "parity-hooks"))
    assert len(told(world, "parity-hooks")) == (1 if owner == "OmniNPUModelRunner" else 2)
