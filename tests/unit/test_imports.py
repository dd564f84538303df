from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from lineage_kit import RUNNERS, write_tree

from npu_upgrade.code.conflict_text import answers
from npu_upgrade.code.names import Import, undefined_names
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.lineage.import_sources import UpstreamFile
from npu_upgrade.lineage.imports import ImportPlan, derive_imports, without_lost
from npu_upgrade.sources.tree import open_source

BASE, AR, GENERATION = (runner.path for runner in RUNNERS)
GPU_BASE, GPU_AR = (runner.gpu_path for runner in RUNNERS[:2])
UPSTREAM = UpstreamFile(
    "vllm_ascend/worker/runner.py",
    "import time\n"
    "from typing import TYPE_CHECKING, TypeAlias\n"
    "from vllm.worker import mamba as mb\n"
    "from vllm.both import both\n"
    "from ..ops import op\n"
    "if TYPE_CHECKING:\n    from vllm.typed import Typed\n"
    "logger = make(__name__)\n"
    "LIMIT = 3\n"
    "Meta: TypeAlias = dict\n"
    "class State: ...\n"
    "def helper():\n    lost = 1\n    return lost\n",
)
ASCEND = {
    "vllm_ascend/__init__.py": "",
    UPSTREAM.path: UPSTREAM.source,
    "vllm_ascend/ops.py": "def op(): ...\ndef only_here(): ...\ndef twice(): ...\ndef lost(): ...\n",
    "vllm_ascend/more.py": "import re\ndef twice(): ...\nclass State: ...\n",
    "vllm_ascend/again.py": "import re\n",
}
GPU = {
    GPU_BASE: "from vllm.gpu import gpu_only\nfrom vllm.gpu import both\nfrom vllm.types import Meta\n",
    GPU_AR: "from vllm_omni.gone import stale\ndef gpu_helper(): ...\n",
}

Derive = Callable[..., dict[str, ImportPlan]]


def write(root: Path, files: Mapping[str, str]) -> str:
    return f"dir:{write_tree(root, files)}"


@pytest.fixture(scope="module")
def derive(tmp_path_factory: pytest.TempPathFactory) -> Derive:
    target = open_source(write(tmp_path_factory.mktemp("ascend"), ASCEND))

    def run(
        merged: Mapping[str, str],
        ours: Mapping[str, str] | None = None,
        omni: Mapping[str, str] | None = None,
    ) -> dict[str, ImportPlan]:
        ours = merged if ours is None else ours
        files = {"vllm_omni/__init__.py": "", **ours, **GPU, **(omni or {})}
        tree = open_source(write(tmp_path_factory.mktemp("omni"), files))
        return derive_imports(merged, ours, UPSTREAM, GPU, target, tree)

    return run


def one(derive: Derive, merged: str, ours: str | None = None, path: str = BASE, **more: str) -> ImportPlan:
    return derive({path: merged}, None if ours is None else {path: ours}, more)[path]


@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("time", "import time"),
        ("mb", "from vllm.worker import mamba as mb"),
        ("op", "from vllm_ascend.ops import op"),
        ("both", "from vllm.both import both"),
        ("Typed", "from vllm.typed import Typed"),
        ("LIMIT", "from vllm_ascend.worker.runner import LIMIT"),
        ("State", "from vllm_ascend.worker.runner import State"),
        ("Meta", "from vllm.types import Meta"),
        ("gpu_only", "from vllm.gpu import gpu_only"),
        ("gpu_helper", "from vllm_omni.worker.gpu_ar_model_runner import gpu_helper"),
        ("only_here", "from vllm_ascend.ops import only_here"),
        ("re", "import re"),
    ],
)
def test_finds_where_a_name_comes_from(derive: Derive, name: str, statement: str) -> None:
    plan = one(derive, f"def f():\n    return {name}()\n")
    assert [item.statement() for item in plan.added] == [statement]
    assert plan.source == f"{statement}\n\ndef f():\n    return {name}()\n"
    assert plan.reasons[name]
    assert not plan.unresolved


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere", "no single definition"),
        ("twice", "defined in several modules: vllm_ascend.more, vllm_ascend.ops"),
        ("lost", "a local variable elsewhere"),
        ("logger", "no single definition"),
        ("stale", "no single definition"),
    ],
)
def test_reports_what_it_is_not_sure_of(derive: Derive, name: str, reason: str) -> None:
    source = f"def f():\n    return {name}\n"
    plan = one(derive, source, "def f():\n    return 1\n")
    assert plan.unresolved == [name]
    assert reason in plan.reasons[name]
    assert plan.source == source
    assert not plan.added


def test_a_name_that_ours_had_as_a_local_is_not_searched_for(derive: Derive) -> None:
    ours = "def f():\n    only_here = 1\n    return only_here\n"
    assert one(derive, "def f():\n    return only_here\n", ours).unresolved == ["only_here"]


def test_nobody_is_asked_about_what_was_lacking_before_or_what_a_conflict_decides(derive: Derive) -> None:
    source = "def f():\n    return nowhere\n"
    assert not one(derive, source, source).unresolved
    sides = "<<<<<<< ours\n    part = 1\n||||||| base\n=======\n    whole = 1\n>>>>>>> theirs\n"
    merged = f"def f():\n{sides}    return part, whole, nowhere\n"
    ours = "def f():\n    part = 1\n    return part\n"
    assert one(derive, merged, ours).unresolved == ["nowhere"]
    heads = "<<<<<<< ours\ndef f(part):\n||||||| base\n=======\ndef f(whole):\n>>>>>>> theirs\n"
    assert not one(derive, f"{heads}    return part, whole\n", ours).unresolved


def test_siblings_give_their_definitions_but_never_in_a_circle(derive: Derive) -> None:
    files = {
        BASE: "class State: ...\nclass Own: ...\ndef f():\n    return Late()\n",
        AR: "from vllm_omni.platforms.npu.worker.npu_model_runner import Own\nclass Late(Own): ...\n",
        GENERATION: "def f():\n    return State(), Late()\n",
    }
    plans = derive(files, files | {BASE: files[BASE].replace("Late()", "Own()")})
    package = "vllm_omni.platforms.npu.worker"
    assert plans[GENERATION].added == [
        Import(f"{package}.npu_ar_model_runner", "Late"),
        Import(f"{package}.npu_model_runner", "State"),
    ]
    assert plans[BASE].unresolved == ["Late"]


def test_typing_imports_stay_typing_imports_unless_they_run(derive: Derive) -> None:
    quoted = one(derive, "import torch\n\n\ndef f(x: 'Typed'):\n    return torch\n")
    assert quoted.source == (
        "from typing import TYPE_CHECKING\n\nimport torch\n\n"
        "if TYPE_CHECKING:\n    from vllm.typed import Typed\n\n\n"
        "def f(x: 'Typed'):\n    return torch\n"
    )
    assert not one(derive, "def f(x: Typed): ...\n").added[0].typing_only
    future = one(derive, "from __future__ import annotations\ndef f(x: Typed): ...\n")
    assert Import("vllm.typed", "Typed", typing_only=True) in future.added


def test_a_typing_import_that_now_runs_moves_out_of_its_block(derive: Derive) -> None:
    head = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from vllm.typed import Typed\n\n\n"
    plan = one(derive, head + "def f():\n    return Typed()\n", head + "def f(x: 'Typed'): ...\n")
    assert plan.source == "from vllm.typed import Typed\n\n\ndef f():\n    return Typed()\n"
    assert [item.statement() for item in plan.dropped] == ["from typing import TYPE_CHECKING"]
    assert len(plan.moved) == 1


def test_drops_what_lost_its_use_and_nothing_else(derive: Derive) -> None:
    head = (
        "from __future__ import annotations\n"
        "import gone, never\n"
        "import seen  # noqa: F401\n"
        "from m import (\n    exported,\n    public,\n    unused,\n)\n"
        "try:\n    import maybe\nexcept ImportError:\n    maybe = None\n"
        "__all__ = ['public']\n"
    )
    used = head + "def f():\n    return gone, seen, exported, public, unused, maybe\n"
    importer = {"vllm_omni/user.py": "from .platforms.npu.worker.npu_model_runner import exported\n"}
    plan = derive({BASE: head}, {BASE: used}, importer)[BASE]
    assert plan.dropped == [Import("gone", None), Import("m", "unused")]
    assert plan.source == head.replace("gone, ", "").replace("    unused,\n", "")


def test_drops_an_import_that_a_new_definition_hides(derive: Derive) -> None:
    ours = "from m import f\n\nf()\n"
    assert one(derive, "from m import f\n\ndef f(): ...\nf()\n", ours).source == "def f(): ...\nf()\n"


def test_a_name_bound_differently_falls_out(derive: Derive) -> None:
    ours = "from vllm.worker.mamba import run\n\ndef f():\n    run()\n"
    plan = one(derive, ours.replace("run()", "mb.run()"), ours)
    assert plan.source == "from vllm.worker import mamba as mb\n\ndef f():\n    mb.run()\n"


def test_points_stale_imports_to_where_the_target_has_them(derive: Derive) -> None:
    source = (
        "from vllm_ascend.gone import op  # noqa: E402\n"
        "from vllm_ascend.more import only_here as here\n"
        "from vllm_ascend.more import twice\n"
        "from vllm_ascend.none import nothing\n"
        "from vllm.gone import unjudged\n"
        "print(op, here, twice, nothing, unjudged)\n"
        "def f():\n    from vllm_ascend.gone import op\n"
    )
    plan = one(derive, source)
    assert plan.moved == [
        (Import("vllm_ascend.gone", "op"), Import("vllm_ascend.ops", "op")),
        (Import("vllm_ascend.more", "only_here", "here"), Import("vllm_ascend.ops", "only_here", "here")),
    ]
    assert "from vllm_ascend.ops import only_here as here, op  # noqa: E402\n" in plan.source
    assert plan.unresolved == ["nothing"]
    assert "from vllm_ascend.none import nothing is gone" in plan.reasons["nothing"]
    assert "from vllm_ascend.none import nothing\n" in plan.source
    assert plan.source.endswith("def f():\n    from vllm_ascend.gone import op\n")


def test_without_trees_nothing_is_stale() -> None:
    source = {BASE: "from vllm_ascend.gone import x\nfrom vllm_omni.gone import y\nprint(x, y, op)\n"}
    plan = derive_imports(source, source, UPSTREAM, {}, None, None)[BASE]
    assert plan.added == [Import("vllm_ascend.ops", "op")]
    assert not plan.moved
    assert not plan.unresolved


CONFLICT = (
    "import copy\nimport gc\n\n\ndef f():\n"
    "<<<<<<< ours\n    copy.copy(time)\n||||||| base\n    gc.collect()\n    both()\n"
    "=======\n    return op()\n>>>>>>> theirs\n"
)


def test_both_answers_to_a_conflict_count_and_its_text_stays(derive: Derive) -> None:
    plan = one(derive, CONFLICT, "import copy\nimport gc\ngc, copy\n")
    assert [item.statement() for item in plan.added] == ["from vllm_ascend.ops import op", "import time"]
    assert [item.statement() for item in plan.dropped] == ["import gc"]
    assert plan.source.endswith(CONFLICT[CONFLICT.index("def f()") :])
    assert plan.source.startswith("import copy\nimport time\n\nfrom vllm_ascend.ops import op\n\n\n")


def test_an_import_in_a_conflict_serves_its_side_only(derive: Derive) -> None:
    source = "<<<<<<< ours\nimport time\n=======\n>>>>>>> theirs\ntime.time()\n"
    assert one(derive, source).source == "import time\n\n" + source


def test_refuses_an_answer_that_is_not_python(derive: Derive) -> None:
    with pytest.raises(BadInput, match=r"conflicts decided for theirs: line 4"):
        one(derive, "<<<<<<< ours\nx = 1\n=======\nx = (\n>>>>>>> theirs\n")


NAMES = ["time", "mb", "op", "Typed", "LIMIT", "Meta", "nowhere", "only_here", "copy", "here"]
HEADS = [
    "import copy",
    "import torch, time  # both",
    "from vllm_ascend.gone import op",
    "from vllm_ascend.ops import (\n    op,\n    only_here as here,\n)",
    "if TYPE_CHECKING:\n    from vllm.typed import Typed",
    "from typing import TYPE_CHECKING",
    "",
    "# comment",
    "try:\n    import copy\nexcept ImportError:\n    copy = None",
]
USE = st.sampled_from(NAMES)
BODIES = st.one_of(
    USE.map(lambda name: f"def f(a: '{name}'):\n    return 1"),
    USE.map(lambda name: f"def g():\n    return {name}.x"),
    st.tuples(USE, USE).map(
        lambda pair: (
            f"<<<<<<< ours\n{pair[0]}()\n||||||| base\nimport gc\n=======\n{pair[1]}()\n>>>>>>> theirs"
        )
    ),
)


@given(
    st.lists(st.sampled_from(HEADS), max_size=5),
    st.lists(BODIES, max_size=4),
    st.lists(BODIES.filter(lambda text: "<<<" not in text), max_size=3),
)
@settings(max_examples=examples(150))
def test_deriving_settles_parses_and_keeps_the_rest(
    trees: tuple, head: list[str], body: list[str], old: list[str]
) -> None:
    merged = {BASE: "\n".join([*head, *body]) + "\n"}
    ours = {BASE: "\n".join([*head, *old]) + "\n"}
    plan = derive_imports(merged, ours, UPSTREAM, GPU, *trees)[BASE]
    again = derive_imports({BASE: plan.source}, ours, UPSTREAM, GPU, *trees)[BASE]
    assert again.source == plan.source
    assert plan.source.endswith("\n".join(body) + "\n" if body else "")
    for answer in answers(plan.source):
        ast.parse(answer.text)
        assert undefined_names(answer.text) - undefined_names(ours[BASE]) <= set(plan.unresolved)


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple:
    target = open_source(write(tmp_path_factory.mktemp("ascend"), ASCEND))
    omni = open_source(write(tmp_path_factory.mktemp("omni"), {"vllm_omni/__init__.py": "", **GPU}))
    return target, omni


def test_an_answer_takes_the_imports_with_it_that_only_the_other_side_used(tmp_path: Path) -> None:
    head = "from copy import copy, deepcopy\nimport time\nimport json\n\n\ndef f(x):\n"
    both = "<<<<<<< ours\n    x = deepcopy(x)\n=======\n    x = copy(time.time())\n>>>>>>> theirs\n"
    before = f"{head}{both}    return x\n"
    after = f"{head}    x = copy(x)\n    return x\n"
    files = {
        "vllm_omni/__init__.py": "",
        "vllm_omni/r.py": after,
        "vllm_omni/s.py": "from vllm_omni.r import time\n",
    }
    tree = open_source(f"dir:{write_tree(tmp_path, files)}")
    assert without_lost("vllm_omni/r.py", before, after, lambda: tree) == after.replace(", deepcopy", "")
