"""What of the GPU side's method is not brought to the NPU side as a whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from npu_upgrade.code.module import parse_module
from npu_upgrade.code.statements import split_statements
from npu_upgrade.lineage.downstream import Runner
from npu_upgrade.lineage.marking import MARKER
from npu_upgrade.port import draft
from npu_upgrade.port.draft import (
    Draft,
    _belonging,
    _calling_what_lacks,
    _less_kept,
    _less_replaced,
    _new_steps,
    _of_rewritten,
    _sides,
    _without,
)
from npu_upgrade.port.hunks import Hunk
from npu_upgrade.port.marked import comments_behind, marked_pieces
from npu_upgrade.port.npu_side import NpuSide
from npu_upgrade.port.unit_diff import diff_units
from npu_upgrade.threeway.pieces import Conflict, render_pieces

BEFORE = "def run(self, batch):\n    return self.forward(batch)\n"


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("self.mark(batch)\nif self.late:\n    self.receive()\n", "self.mark(batch)\n"),
        # a name of it is read
        ("fits = self.fits(batch)\nself.mark(fits)\n", "fits = self.fits(batch)\nself.mark(fits)\n"),
        # only a part of a block is vLLM's
        (
            "if self.late:\n    self.mark(batch)\n    self.receive()\n",
            "if self.late:\n    self.mark(batch)\n",
        ),
        # a block may not be empty
        ("with self.timed:\n    self.receive()\n", "with self.timed:\n    self.receive()\n"),
    ],
)
def test_what_vllm_has_and_vllm_ascend_does_without_is_left_out(body: str, left: str) -> None:
    theirs = BEFORE.replace(
        "    return", "".join(f"    {line}\n" for line in body.splitlines()) + "    return"
    )
    wanted = BEFORE.replace(
        "    return", "".join(f"    {line}\n" for line in left.splitlines()) + "    return"
    )
    keys = {"if self.late:", "self.receive()", "fits = self.fits(batch)", "return self.forward(batch)"}
    found = _without(*(split_statements(text) for text in (BEFORE, theirs)), keys)
    assert [one.key for one in found] == [one.key for one in split_statements(wanted)]


def test_a_condition_that_is_held_already_comes_with_the_block_that_is_lacking() -> None:
    """The condition alone would be no Python, and the block no longer under it."""
    held, gained = "    seen = None\n", "    if self.sees:\n        seen = self.see()\n"
    new = BEFORE.replace("    return", f"{held}{gained}    return")
    diff = diff_units(*map(split_statements, (BEFORE, new)))
    (gain,) = diff.pieces
    parts = [gain._replace(b0=n, b1=n + 1) for n in range(gain.b0, gain.b1)]
    diff = replace(diff, pieces=parts)
    before, after = _sides(diff, [cast("Hunk", SimpleNamespace(pieces=parts[-1:]))], [])
    assert [one.key for one in after] == [one.key for one in split_statements(new)]
    old = split_statements(BEFORE.replace("    return", f"{held}    return"))
    assert [one.key for one in before] == [one.key for one in old]


@pytest.mark.parametrize(
    ("step", "there", "comes"),
    [
        ("self.begin(batch)", "", True),
        ("self.begin(batch)", "    self.begin(1)\n", False),  # made already
        ("self.begin(batch)", "    self.cache.drain()\n", False),  # the NPU side had what was before
        ("self.finish(batch)", "", False),  # a method that its class does not have
        ("self.rows = self.begin(batch)", "", False),
    ],
)
def test_a_new_step_of_the_gpu_side_has_a_place_where_nothing_stood_before(
    step: str, there: str, comes: bool
) -> None:
    old = BEFORE.replace("    return", "    self.cache.drain()\n    return")
    new = BEFORE.replace("    return", f"    {step}\n    return")
    ours = BEFORE.replace("    return", f"{there}    return")
    diff = diff_units(*map(split_statements, (old, new)))
    runner = SimpleNamespace(path="a.py", class_name="Runner")
    cls = SimpleNamespace(lookup=lambda name: name == "begin")
    npu = cast("NpuSide", SimpleNamespace(cls=lambda runner: cls, texts={"a.py": ours}))
    steps = _new_steps(diff, diff.pieces, cast("Runner", runner), npu)
    left = _less_replaced(split_statements(old), split_statements(ours), steps)
    assert ("self.cache.drain()" not in [one.key for one in left]) is comes


@pytest.mark.parametrize(
    ("new", "upstream", "stays"),
    [
        ("", "    self.cache.drain()\n", True),
        ("", "", False),  # vllm-ascend went the same way
        ("    self.cache.drain(batch)\n", "    self.cache.drain()\n", False),  # the GPU side has another
    ],
)
def test_what_the_gpu_side_took_out_with_vllm_stays_where_vllm_ascend_has_it(
    new: str, upstream: str, stays: bool
) -> None:
    old = BEFORE.replace("    return", "    self.cache.drain()\n    return")
    texts = [BEFORE.replace("    return", f"{part}    return") for part in (new, upstream)]
    diff = diff_units(*map(split_statements, (old, texts[0])))
    left = _less_kept(split_statements(old), diff, split_statements(texts[1]))
    assert ("self.cache.drain()" not in [one.key for one in left]) is stays


def _npu_side(monkeypatch: pytest.MonkeyPatch, texts: dict[str, str], gpu: str) -> NpuSide:
    kinds = {path.removesuffix(".py"): parse_module(text) for path, text in texts.items()}
    runners = [SimpleNamespace(path=f"{kind}.py", kind=kind, gpu_path="gpu.py") for kind in kinds]
    npu = SimpleNamespace(runners=runners, modules=kinds, texts=texts, gpu_texts={"gpu.py": gpu})
    npu.upstream_file = npu.ascend = npu.tree = None
    monkeypatch.setattr(
        draft, "derive_imports", lambda texts, *_: dict.fromkeys(texts, SimpleNamespace(added=[]))
    )
    return cast("NpuSide", npu)


def test_a_file_that_only_takes_the_state_apart_comes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    state = "class State(NamedTuple):\n    rows: int\n"
    step = "    def step(self):\n        self.state = State(rows)"
    texts = {
        "ar.py": f"{state}\n\nclass Runner:\n{step}\n",
        "generation.py": "class Other:\n    def sample(self):\n        (rows,) = self.state\n",
        "base.py": "class Base:\n    pass\n",
    }
    npu = _npu_side(monkeypatch, texts, state + "    size: int | None = None\n")
    given = step.replace("(rows)", "(rows, size)")
    files = draft.put([Draft("ar.py", "Runner.step", "ar.step", (), given, 0)], npu)
    assert files.keys() == {"ar.py", "generation.py"}
    assert "        (rows, _size,) = self.state\n" in files["generation.py"]


@pytest.mark.parametrize(("both", "comes"), [(False, False), (True, True)])
def test_the_fields_come_that_are_given_whatever_the_answers_to_conflicts_are(
    monkeypatch: pytest.MonkeyPatch, both: bool, comes: bool
) -> None:
    state = "class State(NamedTuple):\n    rows: int\n"
    step = "class Runner:\n    def step(self):\n        return State(rows)\n"
    texts = dict.fromkeys(("ar.py", "base.py"), f"{state}\n\n{step}")
    npu = _npu_side(monkeypatch, texts, state + "    size: int | None = None\n")
    given = "    def step(self):\n        return State(rows, size)"
    ours = "self.end()\n        return State(rows, size)" if both else "return State(rows)"
    theirs = "return State(rows, size)"
    sides = f"<<<<<<< NPU side\n        {ours}\n||||||| base\n=======\n        {theirs}\n>>>>>>> GPU side"
    chosen = [
        Draft("ar.py", "Runner.step", "ar.step", (), given, 0),
        Draft("base.py", "Runner.step", "base.step", (), f"    def step(self):\n{sides}", 1),
    ]
    files = draft.put(chosen, npu)
    assert "    rows: int\n    size: int | None = None\n" in files["ar.py"]
    assert "<<<<<<< NPU side" in files["base.py"]
    assert ("    rows: int\n    size: int | None = None\n" in files["base.py"]) is comes


def test_what_belongs_to_what_the_gpu_side_wrote_anew_stays_out_with_it() -> None:
    """Else the NPU side's own would lose what it reads, or get what only the GPU side's new text reads."""
    ours = split_statements(
        BEFORE.replace("    return", "    rows = self.rows(batch)\n    self.own(rows)\n    return")
    )
    theirs = split_statements("    built = self.builder(batch)\n    built()\n")[:2]
    anew = Conflict((), tuple(ours[2:3]), tuple(theirs), "-")

    def hunk(added: str = "", removed: str = "") -> Hunk:
        sides = {"added": Counter(filter(None, [added])), "removed": Counter(filter(None, [removed]))}
        return cast("Hunk", SimpleNamespace(**sides))

    inside, reader = hunk("built()"), hunk("self.send(built)")
    taken_out, apart = hunk(removed="rows = self.rows(batch)"), hunk("self.mark(batch)")
    pieces = [ours[0], anew, *ours[3:]]
    known = {"self", "batch", "rows"}
    found = _of_rewritten([inside, reader, taken_out, apart], [anew], pieces, ours, known)
    assert [one for one in (inside, reader, taken_out, apart) if one in found] == [inside, reader, taken_out]


def test_calls_of_a_method_that_was_left_out_are_known_by_their_hunks() -> None:
    """Its classes have no such method, nor does what was put into their files before."""

    def hunk(name: str, *added: str) -> Hunk:
        runner = SimpleNamespace(gpu_path="gpu.py", gpu_class="GPURunner", kind="ar", class_name="Runner")
        return cast("Hunk", SimpleNamespace(id=name, runner=runner, added=Counter(added)))

    mixin = SimpleNamespace(name="SinkMixin", methods=dict.fromkeys(["sink", "begin"]))
    methods = dict.fromkeys(["begin", "assist", "merge", "end"])
    gpu = SimpleNamespace(mro=[SimpleNamespace(name="GPURunner", methods=methods), mixin])
    own = SimpleNamespace(lookup=lambda name: name == "begin", mro=[SimpleNamespace(name="Runner")])
    npu = SimpleNamespace(
        program=SimpleNamespace(find_class=lambda path, name: gpu),
        cls=lambda runner: own,
        modules={"ar": parse_module("class Runner:\n    def merge(self):\n        pass\n")},
    )
    hunks = [
        hunk("has", "self.begin(batch)"),
        hunk("lacks", "rows = self.assist(batch)"),
        hunk("came", "self.merge(rows)"),
        hunk("attribute", "self.sampler(rows)"),
    ]
    assert _calling_what_lacks(hunks, cast("NpuSide", npu)) == {"lacks": "self.assist()"}
    sinks = [hunk("sinks", "self.sink(rows)")]
    assert _calling_what_lacks(sinks, cast("NpuSide", npu)) == {"sinks": "self.sink()"}
    npu.modules = {"ar": parse_module("class Runner(mixins.SinkMixin):\n    pass\n")}
    assert _calling_what_lacks(sinks, cast("NpuSide", npu)) == {}, "it is derived from by now"
    reader = hunk("reads", "self.end(rows)")
    assert _belonging(hunks[1:2], [*hunks, reader], {"batch"}) == [hunks[1], hunks[2], hunks[3], reader]
    assert _belonging(hunks[1:2], [*hunks, reader], {"batch", "rows"}) == [hunks[1]]


def test_what_a_whole_method_gains_is_marked_but_for_what_ends_in_a_conflict() -> None:
    """A marker that ends in one side of a conflict would go with the other."""
    upstream = split_statements("def run(self, batch):\n    self.begin(batch)\n    self.end(batch)\n")
    begin, end = (replace(one) for one in upstream[1:3])
    gained = split_statements("    self.mark(batch)\n    self.note(batch)\n")[:2]
    sides = [tuple(split_statements(f"    self.ends = {n}\n")[:1]) for n in range(3)]
    conflict = Conflict(*sides, "-")
    pieces = marked_pieces([upstream[0], *gained, begin, conflict, end], upstream, upstream)
    text = render_pieces(pieces, ("ours", "base", "theirs"))
    assert text.count(MARKER) == 2
    assert text.split(MARKER)[1].split() == ["self.mark(batch)", "self.note(batch)"]
    body = f"    def run(self):\n        {MARKER}\n        self.mark()\n        {MARKER}\n"
    file = parse_module(f"class A:\n{body}\n    x = 1\n")
    behind = comments_behind(file, file.units["A.run"])
    assert [(one.indent, one.text) for one in behind] == [(8, MARKER)]
    whole = split_statements(file.units["A.run"].source)
    held = [*whole, *split_statements("        self.note()")]
    assert marked_pieces(held, whole, [], behind) == held, (
        "the marker behind the method ends what is new, too"
    )
    assert marked_pieces(held, whole, []) != held
    before_conflict = [upstream[0], begin, *gained, conflict, end]
    assert marked_pieces(before_conflict, upstream, upstream) == before_conflict
