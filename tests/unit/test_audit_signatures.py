"""The check for overrides that do not fit their parents or the calls that reach them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from audit_kit import ASCEND, BASE, GPU_BASE, VLLM, findings, make_world, seen
from hypothesis import given
from hypothesis import strategies as st

from npu_upgrade.audit.type_hints import lost_parameters, lost_returns
from npu_upgrade.program.program import File

HEAD = """
from vllm.types import Base, Derived, Other
from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

class OmniNPUModelRunner(NPUModelRunner):
"""
TYPES = "class Base:\n    pass\n\nclass Derived(Base):\n    pass\n\nclass Other:\n    pass\n"


def both(folder: Path, parent: str, own: str) -> list[tuple[str, str]]:
    """The findings where vllm-ascend's runner has ``parent`` and omni's has ``own``."""
    head = "from vllm.types import Base, Derived, Other\n\nclass NPUModelRunner:\n"
    files = {
        "vllm/types.py": TYPES,
        ASCEND: f"{head}    {parent}\n        return 1\n",
        BASE: f"{HEAD.lstrip()}    {own}\n        return 1\n",
    }
    return [(kind, subject) for kind, _, subject in seen(make_world(folder, files), "signatures")]


@pytest.mark.parametrize(
    ("parent", "own", "found"),
    [
        ("def plan(self, rows, size=1):", "def plan(self, rows):", ("not-taken", "plan(size)")),
        ("def plan(self, *, size):", "def plan(self):", ("not-taken", "plan(size)")),
        ("def plan(self):", "def plan(self, size):", ("not-taken", "plan(size (has no default))")),
        ("def plan(self, rows, size):", "def plan(self, size, rows):", ("order", "plan(size, rows)")),
        ("def plan(self):", "async def plan(self):", ("method-kind", "plan [kind]")),
        ("@property\n    def plan(self):", "def plan(self):", ("method-kind", "plan [kind]")),
        ("def plan(self) -> Base | Other:", "def plan(self) -> Base:", ("return-type", "plan -> Other")),
        (
            "def plan(self) -> tuple[int, int, int]:",
            "def plan(self) -> tuple[int, int]:",
            ("return-type", "plan -> tuple[int, int, int]"),
        ),
        ("def plan(self, x: Base):", "def plan(self, x: Other):", ("parameter-type", "plan(x: Base)")),
    ],
)
def test_an_override_that_does_not_fit(tmp_path: Path, parent: str, own: str, found: tuple[str, str]) -> None:
    assert both(tmp_path, parent, own) == [found]


@pytest.mark.parametrize(
    ("parent", "own"),
    [
        ("def plan(self, rows):", "def plan(self, rows, size=1):"),
        ("def plan(self, rows, size=1):", "def plan(self, *args, **kwargs):"),
        ("def plan(self, rows, size=1):", "def plan(self, rows, **kwargs):"),
        ("def _plan(self):", "def _plan(self, size):"),
        ("def plan(self, rows):", "def plan(self):  # type: ignore[override]"),
        ("def plan(self, x: Base | None):", "def plan(self, x: 'Derived'):"),
        ("def plan(self, x: int):", "def plan(self, x: int | str):"),
        ("def plan(self) -> Base | None:", "def plan(self) -> Derived:"),
        ("def plan(self) -> 'Base | Other':", "def plan(self) -> Union[Other, Base, None]:"),
        ("def plan(self) -> tuple[int, ...]:", "def plan(self) -> tuple[int, int]:"),
        ("def plan(self, x: list[int]):", "def plan(self, x: Sequence[int]):"),
    ],
)
def test_an_override_that_fits(tmp_path: Path, parent: str, own: str) -> None:
    assert both(tmp_path, parent, own) == []


RUN = """
from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

class OmniNPUModelRunner(NPUModelRunner):
    def run(self, size):
        return size
"""
UPSTREAM = """
    class GPUModelRunner:
        def run(self, size, eager=False):
            return size

        def warm(self):
            self.run(1, eager=True)
"""


def test_a_call_above_that_reaches_the_override(tmp_path: Path) -> None:
    (found,) = findings(make_world(tmp_path, {VLLM: UPSTREAM, BASE: RUN}), "signatures")
    assert (found.kind, found.owner, found.subject) == (
        "call-site",
        "OmniNPUModelRunner",
        "run: has no parameter eager",
    )
    assert found.here.path == BASE
    assert found.there
    assert (found.there.path, found.there.line) == (VLLM, 6)


def test_a_call_that_a_hidden_method_makes_does_not_count(tmp_path: Path) -> None:
    own = RUN + "\n    def warm(self):\n        self.run(1)\n"
    found = seen(make_world(tmp_path, {VLLM: UPSTREAM, BASE: own}), "signatures")
    assert found == [("not-taken", "OmniNPUModelRunner", "run(eager)")]


def test_what_vllm_ascend_does_not_take_either_is_not_omnis(tmp_path: Path) -> None:
    ascend = """
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner

        class NPUModelRunner(GPUModelRunner):
            def run(self, size):
                return size
    """
    files = {VLLM: UPSTREAM, ASCEND: ascend, BASE: RUN}
    assert seen(make_world(tmp_path / "omni", files), "signatures") == []
    found = seen(make_world(tmp_path / "ascend", files, omni=False), "signatures")
    assert ("call-site", "NPUModelRunner", "run: has no parameter eager") in found


def test_an_override_has_to_fit_each_of_its_parents(tmp_path: Path) -> None:
    plan = "    def plan(self, rows{}):\n        return rows\n"
    gpu = "class OmniGPUModelRunner:\n" + plan.format("")
    own = HEAD.lstrip().replace("(NPUModelRunner)", "(OmniGPUModelRunner, NPUModelRunner)")
    files = {
        "vllm/types.py": TYPES,
        GPU_BASE: gpu,
        ASCEND: "class NPUModelRunner:\n" + plan.format(", size=1"),
        BASE: f"from vllm_omni.worker.gpu_model_runner import OmniGPUModelRunner\n{own}{plan.format('')}",
    }
    found = seen(make_world(tmp_path, files), "signatures")
    assert ("not-taken", "OmniNPUModelRunner", "plan(size)") in found


WORKER = "vllm_omni/platforms/npu/worker/npu_ar_worker.py"


@pytest.mark.parametrize(
    ("made", "around"),
    [
        ("self.model_runner = OmniNPUModelRunner()", {}),
        ("self.model_runner = self.runner_cls()", {}),
        ("pass", {"vllm/v1/engine/loop.py": "def go(worker):\n    worker.model_runner.run(1, eager=True)\n"}),
    ],
)
def test_a_worker_or_an_engine_calls_the_runner(tmp_path: Path, made: str, around: dict[str, str]) -> None:
    ascend = """
        class NPUModelRunner:
            def run(self, size, eager=False):
                pass
    """
    above = """
        class NPUWorker:
            def warm(self):
                self.model_runner.run(1, eager=True)
    """
    worker = f"""
        from vllm_ascend.worker.worker import NPUWorker
        from {BASE[:-3].replace("/", ".")} import OmniNPUModelRunner

        class NPUARWorker(NPUWorker):
            runner_cls = OmniNPUModelRunner

            def init_device(self):
                {made}
    """
    files = {ASCEND: ascend, BASE: RUN, WORKER: worker, "vllm_ascend/worker/worker.py": above} | around
    found = seen(make_world(tmp_path, files), "signatures")
    assert found == [("call-site", "OmniNPUModelRunner", "run: has no parameter eager")]


@pytest.mark.parametrize(
    ("sent", "wrong"),
    [
        ('"sleep", args=(1,)', False),
        ('"sleep", args=(1, True)', True),
        ('"sleep", kwargs=dict(level=1, tags=2)', True),
        ('"sleep", kwargs={"level": 1}', False),
        ('"sleep", args=given', False),
    ],
)
def test_what_the_engine_sends_to_all_workers(tmp_path: Path, sent: str, wrong: bool) -> None:
    files = {
        "vllm/v1/worker/worker_base.py": """
            class WorkerBase:
                def sleep(self, level=1, tags=None):
                    pass
        """,
        "vllm/v1/executor/abstract.py": f"def go(executor, given):\n    executor.collective_rpc({sent})\n",
        WORKER: """
            from vllm.v1.worker.worker_base import WorkerBase

            class NPUARWorker(WorkerBase):
                def sleep(self, level=1):
                    pass
        """,
    }
    kinds = [kind for kind, _, _ in seen(make_world(tmp_path, files), "signatures")]
    assert kinds == (["call-site"] if wrong else ["not-taken"])


def hint(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@given(st.lists(st.sampled_from(["int", "str", "None", "dict[str, int]"]), min_size=1, unique=True))
def test_the_spelling_of_a_union_does_not_matter(parts: list[str]) -> None:
    file = _NO_FILE
    spellings = [" | ".join(parts), f"Union[{', '.join(parts)}]", repr(" | ".join(reversed(parts)))]
    for one in spellings:
        for other in spellings:
            assert lost_parameters(hint(one), hint(other), (file, file)) == []
            assert lost_returns(hint(one), hint(other), (file, file)) == []


class _Nothing(File):
    """A file in which no name stands for anything in the trees."""

    def __init__(self) -> None:
        self.path = "vllm/none.py"
        self.tree = ast.parse("")


_NO_FILE = _Nothing()


@pytest.mark.parametrize(
    ("own", "used", "found"),
    [
        ("self.note(rows)", "left = self.plan(1)", [("no-result", "plan -> None")]),
        ("return rows", "left = self.plan(1)", []),
        ("self.note(rows)", "self.plan(1)", []),
        ("raise NotImplementedError", "left = self.plan(1)", []),
    ],
)
def test_an_override_that_returns_nothing(
    tmp_path: Path, own: str, used: str, found: list[tuple[str, str]]
) -> None:
    parent = f"""
        class NPUModelRunner:
            def note(self, rows):
                pass

            def plan(self, rows):
                return rows

            def run(self):
                {used}
    """
    text = f"{HEAD.lstrip()}    def plan(self, rows):\n        {own}\n"
    world = make_world(tmp_path, {"vllm/types.py": TYPES, ASCEND: parent, BASE: text})
    assert [(kind, subject) for kind, _, subject in seen(world, "signatures")] == found
