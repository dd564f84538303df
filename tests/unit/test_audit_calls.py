"""The check for calls that do not fit what they reach."""

from __future__ import annotations

import inspect
from pathlib import Path
from textwrap import dedent

import pytest
from audit_kit import ASCEND, BASE, make_world, seen

from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import signature
from npu_upgrade.program.constructors import constructor, record_fields
from npu_upgrade.program.self_use import methods_on

CAP = "vllm/captions.py"
CAPTIONS = """
    class Caption:
        def __init__(self, text, size=1):
            pass

    def draw(at, *, colour=0):
        pass
"""


def calls_of(folder: Path, body: str) -> list[tuple[str, str, str]]:
    """The findings on a method of the NPU base runner with this body, ``vllm.captions`` being given."""
    lines = "\n".join(f"        {line}" for line in body.strip().split("\n"))
    runner = (
        "import vllm.captions as captions\n"
        "from vllm.captions import Caption, draw\n"
        "from vllm_ascend.worker.model_runner_v1 import NPUModelRunner\n"
        f"\n\nclass OmniNPUModelRunner(NPUModelRunner):\n    def step(self, xs):\n{lines}\n"
    )
    return seen(make_world(folder, {BASE: runner, CAP: CAPTIONS}), "calls")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("draw()", "needs at"),
        ("draw(1, 2)", "takes 1 positional arguments, gets 2"),
        ("captions.draw(1, shade=2)", "has no parameter shade"),
        ("Caption('a', 1, 2)", "takes 2 positional arguments, gets 3"),
        ("from vllm.captions import draw as paint\npaint()", "needs at"),
        ("xs = dict(xs)\nxs['shade'] = 1\ndraw(1, **xs)", "has no parameter shade"),
        ("xs = dict(xs)\nlog(xs['shade'])\nif xs:\n    draw(1, **xs)", "has no parameter shade"),
        ("more = {'shade': 1}\nwith xs:\n    draw(1, **more)", "has no parameter shade"),
    ],
)
def test_a_call_that_does_not_fit_is_found(tmp_path: Path, body: str, reason: str) -> None:
    ((_, owner, subject),) = calls_of(tmp_path, body)
    assert owner == "OmniNPUModelRunner.step"
    assert subject.endswith(reason)


@pytest.mark.parametrize(
    "body",
    [
        "draw(1)",
        "draw(at=1, colour=2)",
        "Caption('a')",
        "draw(*xs)",
        "draw(1, **self.options)",
        "more = {'shade': 1}\nmore.pop('shade')\ndraw(1, **more)",
        "more = {'shade': 1}\ndel more['shade']\ndraw(1, **more)",
        "more = {'shade': 1}\nclean(more)\ndraw(1, **more)",
        "more = {'shade': 1}\nmore = xs\ndraw(1, **more)",
        "more = {'shade': 1}\ndef inner(more):\n    draw(1, **more)",
        "if xs:\n    xs['shade'] = 1\ndraw(1, **xs)",
        "xs['colour'] = xs.pop('shade')\ndraw(1, **xs)",
        "draw(1, **xs)\nxs['shade'] = 1",
        "draw = xs\ndraw(1, 2, 3)",
        "for draw in xs:\n    draw(1, 2, 3)",
        "try:\n    draw()\nexcept TypeError:\n    draw(1)",
    ],
)
def test_what_fits_or_cannot_be_told_is_left_alone(tmp_path: Path, body: str) -> None:
    assert calls_of(tmp_path, body) == []


@pytest.mark.parametrize("star", ["", "*"])
@pytest.mark.parametrize(
    ("caught", "excused"),
    [
        ("TypeError", True),
        ("builtins.TypeError", True),
        ("(KeyError, TypeError)", True),
        ("ERRORS", True),
        ("(*errors, KeyError)", True),
        ("ValueError", False),
        ("(ValueError, OSError)", False),
        ("TypeErrorOfOurs", False),
        ("Exception", False),
        ("BaseException", False),
        ("", False),
    ],
)
def test_a_call_is_excused_by_a_handler_of_misfits_alone(
    tmp_path: Path, caught: str, excused: bool, star: str
) -> None:
    """A handler of anything is there for any trouble, not for another signature."""
    except_ = f"except{star} {caught}" if caught else "except"
    body = f"try:\n    draw()\n{except_}:\n    draw(1, 2)\n"
    body += "else:\n    draw(3, 4, 5)\nfinally:\n    draw(6, shade=7)"
    gets = [subject.partition(": ")[2] for _, _, subject in calls_of(tmp_path, body)]
    always = ["takes 1 positional arguments, gets 3", "has no parameter shade"]
    expected = always if excused else ["needs at", "takes 1 positional arguments, gets 2", *always]
    assert sorted(gets) == sorted(expected)


def test_the_handler_of_another_error_is_not_excused(tmp_path: Path) -> None:
    body = "try:\n    draw()\nexcept TypeError:\n    draw(1, 2)\nexcept OSError:\n    draw(1, 2, 3)"
    ((_, _, subject),) = calls_of(tmp_path, body)
    assert subject.endswith("gets 3")


def test_what_is_suppressed_is_excused(tmp_path: Path) -> None:
    body = (
        "with contextlib.suppress(TypeError):\n    draw()\nwith contextlib.suppress(OSError):\n    draw(1, 2)"
    )
    ((_, _, subject),) = calls_of(tmp_path, body)
    assert subject.endswith("gets 2")


@pytest.mark.parametrize("part", ["try", "except", "else", "finally"])
@pytest.mark.parametrize("caught", ["TypeError", "ValueError", "Exception"])
def test_a_name_bound_anywhere_in_a_try_is_known(tmp_path: Path, part: str, caught: str) -> None:
    """What is excused still binds its names: the call below is not one of vLLM's function."""
    parts = {name: "draw = xs" if name == part else "pass" for name in ("try", "except", "else", "finally")}
    body = "\n".join(
        f"{name} {caught}:\n    {text}" if name == "except" else f"{name}:\n    {text}"
        for name, text in parts.items()
    )
    assert calls_of(tmp_path, f"{body}\ndraw(1, 2, 3)") == []


def test_a_parent_that_is_called_within_a_try_runs_too(tmp_path: Path) -> None:
    """A call that is excused passes on all the same."""
    method = "    def run(self):\n        {}\n"
    tried = "try:\n            super().run(1)\n        except TypeError:\n            super().run()"
    files = {
        ASCEND: f"class NPUModelRunner:\n{method.format('pass')}",
        BASE: "from vllm_ascend.worker.model_runner_v1 import NPUModelRunner\n\n"
        f"class OmniNPUModelRunner(NPUModelRunner):\n{method.format(tried)}",
    }
    world = make_world(tmp_path, files)
    runner = next(cls for cls in world.classes if cls.name == "OmniNPUModelRunner")
    found = [method.qualname for method in methods_on(runner)]
    assert found == ["OmniNPUModelRunner.run", "NPUModelRunner.run"]


def test_a_branch_for_another_vllm_is_left_alone(tmp_path: Path) -> None:
    version = {"vllm/_version.py": "__version__ = '0.30.0'\n", CAP: "def draw(at):\n    pass\n"}
    runner = """
        from vllm.captions import draw
        from vllm_ascend.utils import vllm_version_is

        def old():
            if vllm_version_is("0.28.0"):
                draw(1, 2)
            else:
                draw()
    """
    world = make_world(tmp_path, version | {BASE: runner})
    assert seen(world, "calls") == [("call", "old", "draw: needs at")]


def test_methods_are_found_by_self_super_and_attribute(tmp_path: Path) -> None:
    files = {
        CAP: "class Table:\n    def fill(self, rows):\n        pass\n",
        ASCEND: """
            from vllm.captions import Table

            class NPUModelRunner:
                def __init__(self):
                    self.table = Table()

                def plan(self, size):
                    pass
        """,
        BASE: """
            from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

            class OmniNPUModelRunner(NPUModelRunner):
                def step(self):
                    self.table.fill()
                    self.plan(1, 2)

                def plan(self, size):
                    super().plan()
        """,
    }
    assert {subject for _, _, subject in seen(make_world(tmp_path, files), "calls")} == {
        "self.table.fill: needs rows",
        "self.plan: takes 1 positional arguments, gets 2",
        "super().plan: needs size",
    }


@pytest.mark.parametrize(
    ("maker", "subjects"),
    [
        ("@classmethod\ndef of(cls, n):\n    return cls()", ["self.table.fill: needs rows"]),
        (
            "@classmethod\ndef of(cls, n):\n    made = cls()\n    made.n = n\n    return made",
            ["self.table.fill: needs rows"],
        ),
        ("@classmethod\ndef of(cls, n) -> 'Self':\n    return n", ["self.table.fill: needs rows"]),
        ("@staticmethod\ndef of(n) -> 'Table | None':\n    return n", ["self.table.fill: needs rows"]),
        ("@classmethod\ndef of(cls, n):\n    return cls() if n else n", []),
        ("@classmethod\ndef of(cls, n):\n    made = cls()\n    made = n\n    return made", []),
        ("@staticmethod\ndef of(n):\n    return n()", []),
        ("@classmethod\ndef of(cls, n):\n    def inner():\n        return cls()\n    return inner", []),
    ],
)
def test_what_a_constructing_method_makes_is_known(tmp_path: Path, maker: str, subjects: list[str]) -> None:
    lines = "\n".join(f"    {line}" for line in maker.split("\n"))
    base = """
        from vllm.captions import Table
        from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

        class OmniNPUModelRunner(NPUModelRunner):
            def __init__(self):
                self.table = Table.of(1)

            def step(self):
                self.table.fill()
    """
    table = f"class Table:\n    def fill(self, rows):\n        pass\n\n{lines}\n"
    world = make_world(tmp_path, {CAP: table, BASE: base})
    assert [subject for _, _, subject in seen(world, "calls")] == subjects


def test_a_call_is_judged_on_every_class_it_runs_on(tmp_path: Path) -> None:
    files = {
        BASE: """
            class OmniNPUModelRunner:
                def step(self):
                    self.plan(size=1)

                def plan(self, size):
                    pass

            class Narrow(OmniNPUModelRunner):
                def plan(self):
                    pass
        """
    }
    ((kind, owner, subject),) = seen(make_world(tmp_path, files), "calls")
    assert (kind, owner) == ("call", "OmniNPUModelRunner.step")
    assert "size" in subject


def test_a_patched_function_counts_as_what_was_put_in_its_place(tmp_path: Path) -> None:
    patch = "import vllm.captions\n\ndef drawn(at, to):\n    pass\n\nvllm.captions.draw = drawn\n"
    files = {
        CAP: "def draw(at):\n    pass\n",
        "vllm_ascend/patch/patch_captions.py": patch,
        BASE: "from vllm.captions import draw\n\ndef go():\n    draw(1, 2)\n\ndef stay():\n    draw(1)\n",
    }
    assert seen(make_world(tmp_path, files), "calls") == [("call", "stay", "draw: needs to")]


@pytest.mark.parametrize(
    ("chosen", "subjects"),
    [
        ("fast if ready() else slow", ["pick: has no parameter best"]),
        ("fast if ready() else (slow if ready() else fast)", ["pick: has no parameter best"]),
        ("fast if ready() else takes", []),  # one of them does
        ("fast if ready() else made()", []),  # nobody knows
        ("made()", []),
    ],
)
def test_a_function_that_is_chosen_when_its_file_is_read_is_known(
    tmp_path: Path, chosen: str, subjects: list[str]
) -> None:
    made = "def fast(at):\n    pass\n\ndef slow(at):\n    pass\n\ndef takes(at, best):\n    pass\n"
    files = {
        CAP: f"{made}\ndef ready():\n    return 1\n\ndef made():\n    return fast\n\npick = {chosen}\n",
        BASE: "from vllm.captions import pick as best_of\n\ndef go():\n    best_of(1, best=2)\n",
    }
    found = [
        subject.replace("best_of", "pick") for _, _, subject in seen(make_world(tmp_path, files), "calls")
    ]
    assert found == subjects


@pytest.mark.parametrize(
    ("heir", "given"),
    [
        ("@dataclass\nclass Framed(Caption):\n    frame: int = 0\n", ["shade"]),
        ("class Framed(Caption):\n    pass\n", []),
        ("class Framed(Caption):\n    def __init__(self, text):\n        pass\n", ["shade"]),
    ],
)
def test_a_patched_parent_counts_until_a_constructor_of_an_heir(
    tmp_path: Path, heir: str, given: list[str]
) -> None:
    patch = """
        from vllm import captions

        def widen():
            caption_cls = captions.Caption
            first = caption_cls.__init__

            def widened(self, *args, shade=None, **kwargs):
                first(self, *args, **kwargs)

            caption_cls.__init__ = widened
    """
    files = {
        CAP: "from dataclasses import dataclass\n\n\n@dataclass\nclass Caption:\n    text: str\n",
        "vllm_ascend/patch/patch_captions.py": patch,
        "vllm_omni/frames.py": "from dataclasses import dataclass\nfrom vllm.captions import Caption\n\n\n"
        + heir,
        BASE: "from vllm_omni.frames import Framed\n\n\ndef go():\n    Framed(text='a', shade=1)\n",
    }
    found = seen(make_world(tmp_path, files), "calls")
    assert [subject.split()[-1] for _, _, subject in found] == given


RECORDS = """
    import msgspec
    from dataclasses import KW_ONLY, dataclass, field
    from typing import ClassVar, NamedTuple

    class Pair(NamedTuple):
        left: int
        right: int = 0

    @dataclass
    class Shape:
        name: str
        kind: ClassVar[str] = "shape"
        size: int = field(default=1)
        cache: dict = field(init=False)

    @dataclass(kw_only=True)
    class Solid(Shape):
        depth: int

    @dataclass
    class Marked(Shape):
        _: KW_ONLY
        mark: str

    class Plain(Shape):
        pass

    @dataclass
    class Own:
        size: int

        def __init__(self, sizes):
            pass

    class Letter(msgspec.Struct, array_like=True):
        sender: str
        stamps: list = msgspec.field(default_factory=list)

    class Parcel(Letter, kw_only=True):
        weight: int
        fragile: bool = False
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Pair", "__init__(self, left, right=...)"),
        ("Shape", "__init__(self, name, size=...)"),
        ("Solid", "__init__(self, name, size=..., *, depth)"),
        ("Marked", "__init__(self, name, size=..., *, mark)"),
        ("Plain", "__init__(self, name, size=...)"),
        ("Own", "__init__(self, sizes)"),
        ("Letter", "__init__(self, sender, stamps=...)"),
        ("Parcel", "__init__(self, sender, stamps=..., *, weight, fragile=...)"),
    ],
)
def test_generated_constructors_are_as_python_makes_them(tmp_path: Path, name: str, expected: str) -> None:
    made: dict = {}
    exec(compile(dedent(RECORDS), "records", "exec", dont_inherit=True), made)
    cls = make_world(tmp_path, {CAP: RECORDS}).program.find_class(CAP, name)
    assert cls is not None
    node = constructor(cls)
    assert node is not None
    assert signature(node) == expected
    if name != "Own":
        parameters = [item for item in record_fields(cls) if item.init]
        assert sorted(p.name for p in parameters) == sorted(inspect.signature(made[name]).parameters)


@pytest.mark.parametrize("base", ["torch.nn.Module", "Struct", "Enum"])
def test_a_constructor_from_outside_the_trees_is_not_known(tmp_path: Path, base: str) -> None:
    world = make_world(tmp_path, {CAP: f"class Thing({base}):\n    size: int\n"})
    cls = world.program.find_class(CAP, "Thing")
    assert cls is not None
    assert constructor(cls) is None


def test_a_class_named_by_the_platform_is_made_as_upstream_makes_it(tmp_path: Path) -> None:
    files = {
        "vllm/platforms/interface.py": "class Platform:\n    pass\n",
        "vllm/links.py": """
            class Group:
                def __init__(self):
                    link_cls = resolve_obj_by_qualname(current_platform.get_link_cls())
                    self.link = link_cls(group=self, wide=True)
        """,
        "vllm_ascend/platform.py": """
            from vllm.platforms.interface import Platform

            class NPUPlatform(Platform):
                def get_link_cls(self):
                    return "vllm_ascend.link.NPULink"
        """,
        "vllm_ascend/link.py": "class NPULink:\n    def __init__(self, group):\n        pass\n",
    }
    world = make_world(tmp_path, files, omni=False)
    assert ("handed-over", "NPULink", "__init__: has no parameter wide") in seen(world, "calls")
    files["vllm_ascend/link.py"] = "class NPULink:\n    def __init__(self, group, **kwargs):\n        pass\n"
    assert seen(make_world(tmp_path, files, omni=False), "calls") == []


def test_a_registered_class_takes_what_upstreams_own_takes(tmp_path: Path) -> None:
    files = {
        "vllm/ops.py": "class Norm:\n    def __init__(self, size, scale=1):\n        pass\n",
        "vllm_ascend/ops.py": """
            from vllm.ops import Norm

            class NPUNorm(Norm):
                def __init__(self, size):
                    pass

            def register():
                for name, cls in {"Norm": NPUNorm}.items():
                    Norm.register_oot(cls, name=name)
        """,
    }
    world = make_world(tmp_path, files, omni=False)
    assert seen(world, "calls") == [("handed-over", "NPUNorm", "__init__: does not take scale")]


def test_a_class_that_makes_objects_of_another_is_left_alone(tmp_path: Path) -> None:
    files = {
        CAP: """
            class Op:
                def __new__(cls, *args, **kwargs):
                    return registered(cls)

            class Norm(Op):
                def __init__(self, size):
                    pass
        """,
        BASE: "from vllm.captions import Norm\n\ndef go():\n    Norm(1, scale=2)\n",
    }
    assert seen(make_world(tmp_path, files), "calls") == []


PLANS = """
    class NPUModelRunner:
        def __init__(self):
            pass

        def plan({parameters}):
            pass
"""
STEPS = """
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    class OmniNPUModelRunner(NPUModelRunner):
        def step(self, n):
            {call}
"""


@pytest.mark.parametrize(
    ("before", "after", "then", "now", "subjects"),
    [
        ("size, pad=0", "start, size=0, pad=0", "n, 1", "n, 1", ["self.plan: size -> start"]),
        ("size, pad=0", "pad, size=0", "n, 1", "n, 1", ["self.plan: size -> pad"]),
        ("size, pad=0", "size, start=0, pad=0", "n, 1", "n, 1", ["self.plan: pad -> start"]),
        ("size: int", "rows: list", "n", "n", ["self.plan: size -> rows"]),
        ("size: int", "rows: int", "n", "n", []),  # only another name
        ("size, pad=0", "start, size=0, pad=0", "n, 1", "self.s, n, 1", []),  # followed
        ("size, pad=0", "start, size=0, pad=0", "self.start", "self.start", []),  # was wrong before
        ("size, pad=0", "size, pad=0, start=0", "n, 1", "n, 1", []),
        # one None of several, which all still have one
        ("size, pad=0", "size, start=0, pad=0", "None, None", "None, None, None", []),
        ("size, pad=0", "start, size=0, pad=0", "None, 1", "None, None, 1", []),
        ("size, pad=0", "start, size=0, pad=0", "n, 1", "n, None, 1", ["self.plan: size -> start"]),
        ("size, pad=0", "start=0, size=0, pad=0", "size=n", "size=n", []),
        ("size, pad=0", "start, size=0, pad=0", "*n", "*n", []),
        ("size, pad=0", "start, size, pad", "n, 1", "n, 1", ["self.plan: needs pad"]),
    ],
)
def test_arguments_that_land_on_another_parameter_than_before(
    tmp_path: Path, before: str, after: str, then: str, now: str, subjects: list[str]
) -> None:
    def world(name: str, parameters: str, call: str, old: World | None = None) -> World:
        ascend = PLANS.format(parameters=f"self, {parameters}")
        files = {ASCEND: ascend, BASE: STEPS.format(call=f"self.plan({call})")}
        return make_world(tmp_path / name, files, old=old)

    old = world("old", before, then)
    assert [subject for _, _, subject in seen(world("new", after, now, old), "calls")] == subjects
    if "needs" not in "".join(subjects):
        assert seen(world("alone", after, now), "calls") == []


def test_a_constructor_whose_fields_changed_places(tmp_path: Path) -> None:
    def world(name: str, fields: str, old: World | None = None) -> World:
        lines = "\n".join(f"    {field}: int" for field in fields.split())
        files = {
            CAP: f"from dataclasses import dataclass\n\n\n@dataclass\nclass Frame:\n{lines}\n",
            BASE: "from vllm.captions import Frame\n\ndef make(a, b):\n    return Frame(a, b)\n",
        }
        return make_world(tmp_path / name, files, old=old)

    found = seen(world("new", "high wide", world("old", "wide high")), "calls")
    assert found == [("shifted", "make", "Frame: wide -> high")]


def test_a_call_that_upstream_itself_makes_has_not_shifted(tmp_path: Path) -> None:
    def world(name: str, parameters: str, old: World | None = None) -> World:
        ascend = PLANS.format(parameters=f"self, {parameters}")
        ascend += "\n        def step(self, n):\n            return self.plan(n, 1)\n"
        return make_world(
            tmp_path / name, {ASCEND: ascend, BASE: STEPS.format(call="self.plan(n, 1)")}, old=old
        )

    assert seen(world("new", "start, size=0", world("old", "size, pad=0")), "calls") == []


@pytest.mark.parametrize(
    ("call", "subjects"),
    [
        ("attend(load, rope=1)", ["attend: has no parameter rope"]),
        ("attend(load, knot=1)", []),
        ("loosely(load, rope=1)", []),
    ],
)
def test_a_call_of_npu_code_from_a_shared_file_is_judged(
    tmp_path: Path, call: str, subjects: list[str]
) -> None:
    shared = "from vllm_omni.platforms.npu.quant.attend import attend\n\n\ndef loosely(load):\n    pass\n\n\n"
    files = {
        "vllm_omni/platforms/npu/quant/attend.py": "def attend(load, knot=0):\n    return load\n",
        "vllm_omni/layers/attention.py": f"{shared}def forward(load):\n    return {call}\n",
    }
    assert [subject for _, _, subject in seen(make_world(tmp_path, files), "calls")] == subjects
