"""What an upgrade touches beside the merged methods, told from small trees."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from lineage_kit import NPU_WORKER, RUNNERS, omni_files, write_tree

from npu_upgrade.lineage.items import Item
from npu_upgrade.merge.patched import DIFF_LINES
from npu_upgrade.merge.surroundings import surrounding_items
from npu_upgrade.sources.tree import SourceTree, open_source

WORKER = f"{NPU_WORKER}/base.py"
RUNNER = "vllm_ascend/worker/model_runner_v1.py"
HEAD = "from vllm_ascend.worker.worker import NPUWorker\n\n\n"


@pytest.fixture
def world(tmp_path: Path):
    """Builds the three trees from what is special about them, and returns the items."""

    def build(
        omni: Mapping[str, str],
        target: Mapping[str, str],
        base: Mapping[str, str] | None = None,
        copied: set[tuple[str, str]] | None = None,
        **runners: str,
    ) -> list[Item]:
        def tree(name: str, files: Mapping[str, str]) -> SourceTree:
            return open_source(f"dir:{write_tree(tmp_path / name, files)}")

        empty = {"vllm_ascend/__init__.py": "", RUNNER: "class NPUModelRunner:\n    pass\n"}
        old = None if base is None else tree("base", empty | dict(base))
        ours = tree("omni", omni_files(**runners) | dict(omni))
        merged = {runner.path: ours.read(runner.path) for runner in RUNNERS}
        return surrounding_items(ours, merged, old, tree("target", empty | dict(target)), copied or set())

    return build


def upstream(*methods: str, name: str = "NPUWorker", path: str = "worker/worker") -> dict[str, str]:
    body = "\n".join("    " + line for method in methods for line in [*method.split("\n"), ""])
    return {f"vllm_ascend/{path}.py": f"class {name}(WorkerBase):\n{body or '    pass'}\n"}


def omni(*methods: str, head: str = HEAD) -> dict[str, str]:
    body = "\n".join("    " + line for method in methods for line in [*method.split("\n"), ""])
    return {WORKER: f"{head}class OmniWorker(NPUWorker):\n{body or '    pass'}\n"}


def kinds(items: list[Item]) -> list[tuple[str, bool]]:
    return [(item.kind, item.blocking) for item in items]


# -- names that are gone --


def test_nothing_changed_is_no_item(world) -> None:
    same = upstream("def run(self):\n    go()")
    assert world(omni("def run(self):\n    super().run()"), same, same) == []


def test_a_name_that_is_gone_blocks_and_is_followed(world) -> None:
    (item,) = world(omni(), upstream(path="v1/worker") | {"vllm_ascend/worker/worker.py": ""})
    assert (item.kind, item.blocking, item.path) == ("missing-name", True, WORKER)
    assert item.detail == "take NPUWorker from vllm_ascend.v1.worker"


@pytest.mark.parametrize(
    ("files", "advice"),
    [
        ({}, "nothing is called NPUWorker"),
        (upstream(path="a") | upstream(path="b"), "take NPUWorker from vllm_ascend.a or vllm_ascend.b"),
    ],
)
def test_a_name_without_one_new_place(world, files: dict[str, str], advice: str) -> None:
    (item,) = world(omni(), files)
    assert advice in item.detail


def test_imports_inside_functions_and_of_modules_count(world) -> None:
    method = "def run(self):\n    from vllm_ascend.utils import gone\n    import vllm_ascend.nothing"
    items = world(omni(method), upstream() | {"vllm_ascend/utils.py": "here = 1\n"})
    assert [item.title.partition("no ")[2] for item in items] == [
        "`from vllm_ascend.utils import gone`",
        "`import vllm_ascend.nothing`",
    ]


def test_an_import_that_may_fail_does_not_block(world) -> None:
    head = HEAD + "try:\n    from vllm_ascend.utils import gone\nexcept ImportError:\n    gone = None\n\n\n"
    assert kinds(world(omni(head=head), upstream())) == [("missing-name", False)]


def test_a_reexport_and_other_packages_are_no_matter(world) -> None:
    head = "from vllm_ascend.api import NPUWorker\nfrom vllm.gone import x\n\n\n"
    target = upstream() | {"vllm_ascend/api.py": "from .worker.worker import NPUWorker\n"}
    assert world(omni(head=head), target, target) == []


def test_imports_of_the_merged_runners_do_not_block(world) -> None:
    own = (
        "from vllm_ascend.worker.model_runner_v1 import NPUModelRunner\nfrom vllm_ascend.utils import gone\n"
    )
    (item,) = world({}, {}, own_import=own)
    assert (item.path, item.blocking) == (RUNNERS[0].path, False)
    assert "`from vllm_ascend.utils import gone`" in item.title


def test_a_file_that_is_not_python_is_told(world) -> None:
    assert kinds(world({WORKER: "def (:\n"}, upstream())) == [("unreadable", True)]


# -- classes that omni derives from --


def test_overrides_of_workers_are_told_one_by_one(world) -> None:
    before = upstream("def run(self, a):\n    go(a)", "def stop(self):\n    end()", "def old(self):\n    x()")
    after = upstream(
        "def run(self, a, b=1):\n    go(a, b)", "def stop(self):\n    end()", "def new(self):\n    x()"
    )
    mine = "def run(self, *args, **kw):\n    mine()", "def old(self):\n    y()", "def new(self):\n    z()"
    items = world(omni(*mine), after, before)
    assert kinds(items) == [("overridden-changed", False), ("upstream-gone", False), ("upstream-new", False)]
    assert items[0].title == ("OmniWorker.run: the signature of NPUWorker.run, which it overrides, changed")
    assert items[0].detail.startswith("signature changed: run(self, a) -> run(self, a, b=1)")


def test_an_override_that_does_not_take_a_new_parameter_blocks(world) -> None:
    before, after = upstream("def run(self, a):\n    go(a)"), upstream("def run(self, a, b=1):\n    go(a, b)")
    items = world(omni("def run(self, a):\n    mine()"), after, before)
    assert kinds(items) == [("misfit", True)]
    assert "OmniWorker.run does not fit NPUWorker.run: b" in items[0].title
    assert "signature changed: run(self, a) -> run(self, a, b=1)" in items[0].detail


def test_what_did_not_fit_before_is_no_news(world) -> None:
    wrong = upstream("def run(self, a, b=1):\n    go(a, b)")
    assert world(omni("def run(self, a):\n    mine()"), wrong, wrong) == []


def test_without_super_the_lines_that_changed_are_shown(world) -> None:
    before, after = upstream("def run(self):\n    go()"), upstream("def run(self):\n    go()\n    report()")
    shown = world(omni("def run(self):\n    mine()"), after, before)[0].detail
    assert "body changed (+1 -0 lines)" in shown
    assert "+    report()" in shown
    assert "report()" not in world(omni("def run(self):\n    super().run()"), after, before)[0].detail


def test_an_override_that_calls_upstreams_and_does_a_part_itself_is_asked_about_that_part(overridden) -> None:
    last = "    return self.sampler(logits=logits, sampling_metadata=self.metadata)"
    before = f"def draw(self, logits):\n    self.start()\n{last}"
    after = before.replace(last, f"    self.sampler.prepare(logits)\n{last}")
    mine = f"def draw(self, logits):\n    if self.plain:\n    {last}\n    return super().draw(logits)"
    (item,) = overridden(mine, before, after)
    assert item.state == "open"
    assert "does this itself" in item.detail
    assert "+    self.sampler.prepare(logits)" in item.detail
    (item,) = overridden(mine, before, before.replace("    self.start", "    self.count()\n    self.start"))
    assert item.state == "done"


def test_calls_of_heirs_in_other_files_count(world) -> None:
    heir = (
        "from vllm_omni.platforms.npu.worker.base import OmniWorker\n\n\n"
        "class Heir(Mixin, OmniWorker):\n    def start(self):\n        self._init(1)\n"
    )
    files = omni() | {f"{NPU_WORKER}/heir.py": heir}
    before, after = upstream("def _init(self, a):\n    go()"), upstream("def _init(self):\n    go()")
    items = world(files, after, before)
    assert kinds(items) == [("misfit", True)]
    assert "Heir.start calls self._init(), which takes 0 positional arguments, gets 1" in items[0].title
    (gone,) = world(files, upstream("def other(self):\n    go()"), before)
    assert (gone.kind, gone.blocking) == ("upstream-gone", True)
    assert gone.title == "Heir.start calls NPUWorker._init, which upstream removed"


def test_comments_and_docstrings_change_nothing(world) -> None:
    before = upstream("def run(self):\n    # why\n    go( 1 )")
    after = {
        path: text.replace("# why", '"""Doc."""').replace("( 1 )", "(1)") for path, text in before.items()
    }
    assert world(omni("def run(self):\n    mine()"), after, before) == []


def test_a_reexported_base_is_found_where_it_is_defined(world) -> None:
    head = "from vllm_ascend.api import NPUWorker\n\n\n"
    api = {"vllm_ascend/api.py": "from .worker.worker import NPUWorker\n"}
    before, after = upstream("def run(self):\n    go()"), upstream("def run(self):\n    went()")
    (item,) = world(omni("def run(self):\n    mine()", head=head), after | api, before | api)
    assert item.title == "OmniWorker.run: the body of NPUWorker.run, which it overrides, changed"


# -- functions that omni calls --


def called(call: str, before: str, after: str, world) -> list[Item]:
    sides = [{"vllm_ascend/utils.py": f"{text}\n        return 1\n"} for text in (before, after)]
    head = "from vllm_ascend.utils import helper as h\n\n\n"
    user = f"{head}class OmniWorker:\n    def use(self):\n        {call}\n"
    return world({WORKER: user}, sides[1], sides[0])


@pytest.mark.parametrize(
    ("call", "after", "blocking"),
    [
        ("h(1)", "def helper(a, *, mode=None):", False),
        ("h(1)", "def helper():", True),
        ("h(1)", "def helper(a, b):", True),
        ("h(1, b=2)", "def helper(a):", True),
        ("h(1, b=2)", "def helper(a, **rest):", False),
        ("h(*args)", "def helper():", False),
        ("h(1)", "def helper(a, *, mode):", True),
    ],
)
def test_signatures_of_called_functions(world, call: str, after: str, blocking: bool) -> None:
    items = called(call, "def helper(a, b=1):", after, world)
    assert kinds(items) == [("misfit", True) if blocking else ("signature-changed", False)]
    assert "called in base.py: OmniWorker.use" in items[0].detail


@pytest.mark.parametrize(("after", "blocking"), [("a, b=2", False), ("a, b", True)])
def test_signatures_of_constructors(world, after: str, blocking: bool) -> None:
    head = "class helper:\n    def __init__(self, "
    items = called("h(1)", f"{head}a):", f"{head}{after}):", world)
    assert kinds(items) == [("misfit", True)] * blocking + [("signature-changed", False)]


def test_a_function_that_is_not_called_or_only_annotated_is_no_item(world) -> None:
    assert called("pass", "def helper(a):", "def helper(b):", world) == []
    assert called("h(1)", "def helper(a):", "def helper(a: int) -> int:", world) == []


# -- methods that a runner overrides --


@pytest.fixture
def overridden(world):
    """The items of a method of the base runner over one of vllm-ascend's."""

    def build(mine: str, before: str, after: str, copied: set[tuple[str, str]] | None = None) -> list[Item]:
        def indented(text: str) -> str:
            return "\n".join("    " + line for line in (text or "pass").split("\n"))

        sides = [{RUNNER: f"class NPUModelRunner:\n{indented(text)}\n"} for text in (after, before)]
        runner = {"base": indented(mine)}
        return world(omni_files(**runner), *sides, copied=copied)

    return build


def test_an_own_method_whose_upstream_changed(overridden) -> None:
    (item,) = overridden(
        "def run(self):\n    mine()", "def run(self):\n    go()", "def run(self):\n    went()"
    )
    assert (item.kind, item.blocking, item.path) == ("overridden-changed", False, RUNNERS[0].path)
    assert "-    go()\n+    went()" in item.detail
    assert json.loads(json.dumps(item.as_json())) == dataclasses.asdict(item)


def test_copies_and_unchanged_methods_are_left_out(overridden) -> None:
    texts = ("def run(self):\n    mine()", "def run(self):\n    go()", "def run(self):\n    went()")
    assert overridden(*texts, {(RUNNERS[0].path, f"{RUNNERS[0].class_name}.run")}) == []
    assert overridden(texts[0], texts[1], texts[1] + "  # why") == []


@pytest.mark.parametrize(
    ("mine", "blocking"),
    [
        ("def run(self, a):", True),
        ("def run(self, a, **kwargs):", False),
        ("def run(self, a, *, mode=None):", False),
        ("def run(self, *args, **kwargs):", False),
        ("def run(self, a, mode=None):", False),
    ],
)
def test_a_new_parameter_blocks_when_it_is_not_taken(overridden, mine: str, blocking: bool) -> None:
    items = overridden(
        f"{mine}\n    mine()", "def run(self, a):\n    go()", "def run(self, a, *, mode=None):\n    go()"
    )
    assert kinds(items) == [("misfit", True) if blocking else ("overridden-changed", False)]
    assert "the signature of NPUModelRunner.run" in items[0].title + items[0].detail


def test_a_super_call_with_a_parameter_that_is_gone_blocks(overridden) -> None:
    before, after = "def run(self, a, b=1):\n    go()", "def run(self, a):\n    go()"
    for call in ("super().run(a, b=2)", "NPUModelRunner.run(self, a, 2)"):
        item = overridden(f"def run(self, a, b=1):\n    {call}", before, after)[-1]
        assert (item.kind, item.blocking) == ("overridden-changed", True)
        assert call in item.detail
    (item,) = overridden("def run(self, a, b=1):\n    super().run(a)", before, after)
    assert not item.blocking
    assert "--- base" not in item.detail


def test_gone_and_new_upstream_methods(overridden) -> None:
    mine = "def run(self):\n    mine()"
    assert kinds(overridden(mine, "def run(self):\n    go()", "")) == [("upstream-gone", False)]
    assert kinds(overridden(mine, "", "def run(self):\n    go()")) == [("upstream-new", False)]
    assert overridden(mine, "", "") == []


def test_a_long_diff_is_cut(overridden) -> None:
    long = "\n".join(f"    step_{number}()" for number in range(300))
    (item,) = overridden("def run(self):\n    mine()", "def run(self):\n    go()", f"def run(self):\n{long}")
    assert item.detail.count("\n") == DIFF_LINES + 1
    assert item.detail.endswith("more lines")


def test_ids_hold_while_the_texts_do_and_change_with_them(overridden) -> None:
    mine, before = "def run(self):\n    mine()", "def run(self):\n    go()"
    first = overridden(mine, before, "def run(self):\n    went()")[0].id
    assert overridden(mine + "\n    more()", before, "def run(self):\n    # why\n    went( )")[0].id == first
    assert overridden(mine, before, "def run(self):\n    gone()")[0].id != first


FOLLOWING = "def start(self):\n    self.device = find()\n    self.runner = Mine(self.device)"
BEFORE = "def start(self):\n    self.device = find()\n    self.runner = Runner(self.device)"


def test_what_fits_into_an_override_is_proposed(overridden) -> None:
    (item,) = overridden(FOLLOWING, BEFORE, f"{BEFORE}\n    if self.rank == 0:\n        self.report()")
    (change,) = item.changes
    assert item.detail.startswith("body changed (+2 -0 lines), and fits here: accept makes this edit\n")
    assert change.new == change.old + "\n        if self.rank == 0:\n            self.report()"
    assert "Mine" in change.new
    assert item.imports == []


@pytest.mark.parametrize(
    ("mine", "after"),
    [
        ("def start(self):\n    self.own()\n    super().start()", f"{BEFORE}\n    self.report()"),
        ("def start(self):\n    self.own()\n    self.more()", f"{BEFORE}\n    self.report()"),
        (FOLLOWING, BEFORE.replace("find()", "look()").replace("Runner(", "Other(")),
        (FOLLOWING, f"{BEFORE}\n    nobody_knows(self)"),
        (FOLLOWING, f"{BEFORE}\n    super().start()"),
        (FOLLOWING, f"{BEFORE}\n    self.__own(1)"),
        (FOLLOWING, BEFORE.replace("start(self)", "start(self, late=False)") + "\n    self.report()"),
    ],
    ids=[
        "calls it",
        "has little of it",
        "in a conflict",
        "an unknown name",
        "the class above",
        "a name of the class",
        "another signature",
    ],
)
def test_what_does_not_fit_into_an_override_is_only_told(overridden, mine: str, after: str) -> None:
    (item,) = overridden(mine, BEFORE, after)
    assert item.changes == []


@pytest.mark.parametrize(
    ("mine", "theirs", "imports"),
    [
        ("", "from vllm_ascend.tell import report", ["from vllm_ascend.tell import report"]),
        ("from vllm_ascend.tell import report\n", "from vllm_ascend.tell import report", []),
        ("from vllm_ascend.tell import report\n", "from .tell import report", None),
        ("from omni_own import report\n", "from vllm_ascend.tell import report", None),
        ("report = None\n", "from vllm_ascend.tell import report", None),
        ("", "try:\n    from fast import report\nexcept ImportError:\n    report = None", None),
        ("", "report = print", None),
        (
            "",
            "def report(worker):\n    pass",
            ["from vllm_ascend.worker.worker import report"],
        ),
    ],
)
def test_a_name_of_a_proposed_edit_means_what_it_means_upstream(
    world, mine: str, theirs: str, imports: list[str] | None
) -> None:
    def worker(*steps: str) -> str:
        body = "".join(f"        {step}\n" for step in ("self.device = find(1)", *steps))
        return f"class NPUWorker(WorkerBase):\n    def start(self):\n{body}"

    path = "vllm_ascend/worker/worker.py"
    new = worker("self.runner = Runner(self)", "report(self)")
    old = worker("self.runner = Runner(self)")
    ours = (
        HEAD
        + mine
        + worker("self.runner = Mine(self)").replace("NPUWorker(WorkerBase)", "OmniWorker(NPUWorker)")
    )
    found = world({WORKER: ours}, {path: f"{theirs}\n\n\n{new}"}, {path: f"{theirs}\n\n\n{old}"})
    (item,) = (one for one in found if one.kind == "overridden-changed")
    assert (item.imports, bool(item.changes)) == (imports or [], imports is not None)
