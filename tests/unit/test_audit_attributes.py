"""The check for attributes that nothing defines, with the small type inference behind it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from audit_kit import AR, ASCEND, BASE, GPU_AR, GPU_BASE, VLLM, findings, make_world, seen
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from npu_upgrade.code.walk import reached
from npu_upgrade.program.mentions import Mentions
from npu_upgrade.program.self_use import self_use
from npu_upgrade.program.version_guards import without_dead

HEAD = f"from {BASE[:-3].replace('/', '.')} import OmniNPUModelRunner\n"
SHAPES = """
    from dataclasses import dataclass

    import torch


    @dataclass
    class Crate:
        width: int = 0
        lid: "Lid | None" = None


    class Lid:
        def __init__(self):
            self.weight = 1


    class HeavyLid(Lid):
        def __init__(self):
            super().__init__()
            self.handles = 2


    class Pair:
        def __init__(self):
            self.left = torch.zeros(1)
            self.right = torch.zeros(1)

        def swap(self):
            return self.left

        @classmethod
        def of(cls, size):
            return cls()
"""
PARENT = """
    import torch

    from vllm.shapes import Crate, Lid, Pair


    class GPUModelRunner:
        def __init__(self, crate: Crate):
            self.crate = crate
            self.rows = Pair()
            self.columns = torch.zeros(1)
            self.lids: dict[str, Lid] = {}

        def step(self):
            return self.budget

        def fill(self):
            self.budget = 1

        def run(self):
            self.fill()
            return self.step()

        def turn(self):
            return self.rows.left
"""


def ar(body: str) -> str:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    names = "Crate, Lid, HeavyLid, Pair"
    head = f"from vllm.shapes import {names}\n{HEAD}\n\nclass NPUARModelRunner(OmniNPUModelRunner):"
    return f"{head}\n{lines}\n"


def on_ar(folder: Path, body: str, **more: str) -> list[tuple[str, str]]:
    """(kind, subject) of what is found with ``body`` in the AR runner's class."""
    files = {"vllm/shapes.py": SHAPES, VLLM: PARENT, AR: ar(body)} | {
        path.replace("__", "/") + ".py": text for path, text in more.items()
    }
    return [(kind, subject) for kind, _, subject in seen(make_world(folder, files), "attributes")]


def method(*lines: str) -> str:
    """A method that something calls."""
    inner = "\n".join(f"    {line}" for line in lines)
    return f"def work(self):\n{inner}\n\ndef start(self):\n    self.work()\n"


GETTERS = """
    from vllm.shapes import Crate, Pair

    _held: Crate | None = None
    _made = None

    def get_held():
        if _held is None:
            raise RuntimeError
        return _held

    def get_made():
        global _made
        if _made is None:
            _made = Crate()
        return _made

    def put(made):
        global _other
        _other = made

    _other = Crate()

    def get_other():
        return _other

    def make(wide):
        fresh = Crate()
        return fresh

    def either(wide):
        return Crate() if wide else Pair()

    def rows():
        yield Crate()
        return Crate()
"""


@pytest.mark.parametrize(
    ("made", "known"),
    [
        ("get_held()", True),
        ("get_made()", True),
        ("make(1)", True),
        ("self.ready()", True),
        ("get_other()", False),
        ("either(1)", False),
        ("rows()", False),
        ("self.odd()", False),
    ],
)
def test_what_a_function_without_annotation_gives(tmp_path: Path, made: str, known: bool) -> None:
    body = f"""
def __init__(self):
    self.held = {made}

def ready(self):
    return make(0)

def odd(self):
    return self.unknown_thing
"""
    body += method("self.unknown_thing = print()", "return self.held.lid.colour, self.held.left")
    head = "from vllm.getters import get_held, get_made, get_other, make, either, rows\n"
    files = {"vllm/shapes.py": SHAPES, "vllm/getters.py": GETTERS, VLLM: PARENT, AR: head + ar(body)}
    found = [subject for _, _, subject in seen(make_world(tmp_path, files), "attributes")]
    assert sorted(found) == (["Lid.colour", "held.left"] if known else [])


class TestOnSelf:
    def test_what_nothing_sets_is_found(self, tmp_path: Path) -> None:
        assert on_ar(tmp_path, method("return self.missing")) == [("undefined", "NPUARModelRunner.missing")]

    def test_a_method_that_does_not_exist_is_found(self, tmp_path: Path) -> None:
        assert on_ar(tmp_path, method("self.vanish()")) == [("undefined", "NPUARModelRunner.vanish")]

    @pytest.mark.parametrize(
        "lines",
        [
            ["self.other = 1", "return self.other"],
            ["setattr(self, 'other', 1)", "return self.other"],
            ["for self.other in (1, 2):", "    pass", "return self.other"],
            ["if hasattr(self, 'other'):", "    return self.other"],
            ["return getattr(self, 'other', None)"],
            ["try:", "    return self.other", "except AttributeError:", "    return None"],
            ["return self.budget, self.crate, self.__class__"],
            ["class Inner:", "    def go(self):", "        return self.other"],
        ],
    )
    def test_what_is_set_or_asked_for_is_not(self, tmp_path: Path, lines: list[str]) -> None:
        assert on_ar(tmp_path, method(*lines)) == []

    def test_what_others_assign_on_the_runner_is_not(self, tmp_path: Path) -> None:
        other = "def attach(runner):\n    runner.other = 1\n"
        assert on_ar(tmp_path, method("return self.other"), vllm_ascend__patch=other) == []

    def test_what_a_patch_sets_on_its_self_is_not(self, tmp_path: Path) -> None:
        other = "def fill(self):\n    self.other = 1\n"
        assert on_ar(tmp_path, method("return self.other"), vllm_ascend__patch=other) == []

    def test_what_others_assign_on_something_else_does_not_help(self, tmp_path: Path) -> None:
        other = (
            "def attach(batch):\n    batch.other = 1\n\nclass A:\n    def go(self):\n        self.other = 1\n"
        )
        assert len(on_ar(tmp_path, method("return self.other"), vllm_ascend__patch=other)) == 1

    def test_a_comparison_elsewhere_is_no_assignment(self, tmp_path: Path) -> None:
        other = "def look(runner):\n    runner.other == 1\n"
        assert len(on_ar(tmp_path, method("return self.other"), vllm_ascend__patch=other)) == 1

    def test_a_method_that_nothing_calls_says_nothing(self, tmp_path: Path) -> None:
        assert on_ar(tmp_path, "def idle(self):\n    return self.missing\n") == []

    def test_an_override_that_hides_the_only_assignment(self, tmp_path: Path) -> None:
        found = findings(
            make_world(
                tmp_path,
                {"vllm/shapes.py": SHAPES, VLLM: PARENT, AR: ar("def fill(self):\n    pass\n")},
            ),
            "attributes",
        )
        assert [(f.kind, f.subject) for f in found] == [("never-initialised", "GPUModelRunner.budget")]
        assert "NPUARModelRunner.fill overrides" in found[0].what
        assert found[0].there is not None
        assert found[0].there.path == VLLM
        assert found[0].here.path == AR

    def test_not_when_it_calls_on(self, tmp_path: Path) -> None:
        assert on_ar(tmp_path, "def fill(self):\n    super().fill()\n") == []
        assert on_ar(tmp_path, "def fill(self):\n    GPUModelRunner.fill(self)\n") == []

    def test_what_another_method_asks_for_first(self, tmp_path: Path) -> None:
        asks = "\ndef ask(self):\n    return hasattr(self, 'other')\n"
        assert on_ar(tmp_path, method("return self.other") + asks) == []

    def test_super_that_is_asked_first(self, tmp_path: Path) -> None:
        lines = "def launch(self):\n    if hasattr(super(), 'launch'):\n        super().launch()\n"
        assert on_ar(tmp_path, lines + "\ndef go(self):\n    self.launch()\n") == []

    def test_super_that_reaches_nothing(self, tmp_path: Path) -> None:
        found = on_ar(
            tmp_path, "def launch(self):\n    super().launch()\n\ndef go(self):\n    self.launch()\n"
        )
        assert found == [("no-parent", "NPUARModelRunner.launch")]

    def test_branches_for_another_vllm_do_not_count(self, tmp_path: Path) -> None:
        branch = method("if vllm_version_is('0.1.0'):", "    return self.missing")
        both = method("return vllm_version_is('0.1.0') and self.missing")
        either = method("return not vllm_version_is('0.1.0') or self.missing")
        for text in (branch, both, either):
            tree = ast.parse(text).body[0]
            assert isinstance(tree, ast.FunctionDef)
            assert "missing" in self_use(without_dead(tree, Version("0.1.0"))).reads
            assert "missing" not in self_use(without_dead(tree, Version("0.2.0"))).reads

    def test_one_finding_for_what_both_runners_inherit(self, tmp_path: Path) -> None:
        base = f"""
            from {ASCEND[:-3].replace("/", ".")} import NPUModelRunner
            from {GPU_BASE[:-3].replace("/", ".")} import OmniGPUModelRunner

            class OmniNPUModelRunner(OmniGPUModelRunner, NPUModelRunner):
                def work(self):
                    return self.missing

                def start(self):
                    return self.work()
        """
        assert seen(make_world(tmp_path, {BASE: base}), "attributes") == [
            ("undefined", "OmniNPUModelRunner", "OmniNPUModelRunner.missing")
        ]


class TestOnKnownObjects:
    @pytest.mark.parametrize(
        ("lines", "subject"),
        [
            (["return self.crate.depth"], "crate.depth"),
            (["crate = self.crate", "return crate.depth"], "Crate.depth"),
            (["return self.crate.lid.colour"], "Lid.colour"),
            (["for name, lid in self.lids.items():", "    print(lid.colour)"], "Lid.colour"),
            (["return self.lids['a'].colour"], "Lid.colour"),
            (["return Crate().depth"], "Crate.depth"),
            (["return Pair.of(1).middle"], "Pair.middle"),
            (["return self.columns.left"], "columns.left"),
            (["return self.rows[0]"], "rows.[...]"),
            (["return self.rows.fill_(0)"], "rows.fill_"),
        ],
    )
    def test_what_the_class_lacks_is_found(self, tmp_path: Path, lines: list[str], subject: str) -> None:
        assert [found[1] for found in on_ar(tmp_path, method(*lines))] == [subject]

    @pytest.mark.parametrize(
        "lines",
        [
            ["return self.crate.width"],
            ["return self.crate.lid.weight"],
            ["return self.columns.abs()"],
            ["return self.crate.lid.handles"],  # an heir has it
            ["self.crate.colour = 1", "return self.crate.colour"],
            ["box = self.crate", "box.colour = 1", "return box.colour"],
            ["if isinstance(self.crate, HeavyLid):", "    return self.crate.depth"],
            ["return self.crate.depth if hasattr(self.crate, 'depth') else 0"],
            ["crate = unknown() or self.crate", "return crate.depth"],
            ["crate = self.crate", "assert isinstance(crate, HeavyLid)", "return crate.depth"],
            ["known = hasattr(self.crate, 'depth')", "return known and self.crate.depth"],
            ["crate = self.crate", "crate = unknown()", "return crate.depth"],
            ["try:", "    return self.crate.depth", "except AttributeError:", "    return 0"],
        ],
    )
    def test_what_it_has_or_may_have_is_not(self, tmp_path: Path, lines: list[str]) -> None:
        assert on_ar(tmp_path, method(*lines)) == []

    def test_an_inherited_read_of_what_the_npu_side_put_elsewhere(self, tmp_path: Path) -> None:
        lines = "def __init__(self, crate):\n    super().__init__(crate)\n    self.rows = Lid()\n"
        assert on_ar(tmp_path, lines) == [("missing-attribute", "rows.left")]

    def test_an_assignment_before_the_parents_does_not_last(self, tmp_path: Path) -> None:
        lines = "def __init__(self, crate):\n    self.rows = Lid()\n    super().__init__(crate)\n"
        assert on_ar(tmp_path, lines) == []


SWITCH = """
    from dataclasses import dataclass
    from functools import cached_property


    @dataclass
    class Switch:
        level: int = 0
        hook: "object" = None

        @property
        def is_on(self) -> bool | None:
            return self.level > 0

        @cached_property
        def is_high(self):
            return self.level > 9

        @property
        def handler(self):
            return self.hook

        @property
        def maker(self) -> "type":
            return int

        def is_low(self):
            return self.level < 3
"""


def on_switch(folder: Path, *lines: str, more: str = "") -> list[tuple[str, str]]:
    """What is found in a method of the AR runner that gets a ``switch``."""
    inner = "\n".join(f"        {line}" for line in lines)
    runner = (
        f"from vllm.switch import Switch\n{HEAD}\n\nclass NPUARModelRunner(OmniNPUModelRunner):\n"
        f"    def work(self, switch: Switch):\n{inner}\n\n    def start(self):\n        self.work(1)\n"
    )
    files = {"vllm/switch.py": SWITCH, AR: runner, "vllm/more.py": more}
    return [(kind, subject) for kind, _, subject in seen(make_world(folder, files), "attributes")]


class TestUses:
    @pytest.mark.parametrize(
        ("line", "found"),
        [
            ("return switch.is_on()", ("called-value", "Switch.is_on")),
            ("return switch.is_high()", ("called-value", "Switch.is_high")),
            ("return switch.level()", ("called-value", "Switch.level")),
            ("return 1 if switch.is_low else 2", ("tested-method", "Switch.is_low")),
            ("return not switch.is_low", ("tested-method", "Switch.is_low")),
            ("return switch.is_low and 1", ("tested-method", "Switch.is_low")),
            ("return 1 if (switch.is_on or switch.is_low) else 2", ("tested-method", "Switch.is_low")),
            ("return [x for x in (1, 2) if switch.is_low]", ("tested-method", "Switch.is_low")),
            ("return switch.is_low == 3", ("tested-method", "Switch.is_low")),
        ],
    )
    def test_a_value_that_is_called_and_a_method_that_is_tested(
        self, tmp_path: Path, line: str, found: tuple[str, str]
    ) -> None:
        assert on_switch(tmp_path, line) == [found]

    @pytest.mark.parametrize(
        "line",
        [
            "return switch.is_on, switch.level > 2, switch.is_low()",
            "return 1 if switch.is_low() else 2",
            "return switch.handler(), switch.maker()",
            "return switch.is_low or 1",
            "return switch.is_low is None",
            "return 1 if switch.is_on and switch.level else 2",
            "callback = switch.is_low",
            "if hasattr(switch, 'is_on'):\n            switch.is_on()",
        ],
    )
    def test_fit_uses(self, tmp_path: Path, line: str) -> None:
        assert on_switch(tmp_path, line) == []

    def test_an_heir_that_has_it_otherwise(self, tmp_path: Path) -> None:
        heir = "from vllm.switch import Switch\n\nclass Loud(Switch):\n    def is_on(self):\n        pass\n"
        assert on_switch(tmp_path, "return switch.is_on()", more=heir) == []

    def test_on_self(self, tmp_path: Path) -> None:
        lines = "@property\ndef ready(self) -> bool:\n    return True\n\n" + method("return self.ready()")
        assert on_ar(tmp_path, lines) == [("called-value", "NPUARModelRunner.ready")]


def on_machine(folder: Path, line: str, getter: str = "getattr(torch, self.kind, None)") -> list[str]:
    """What is found in a method of the AR runner that uses a global which a plugin's class makes."""
    runner = (
        f"from vllm.machines import machine\n{HEAD}\n\nclass NPUARModelRunner(OmniNPUModelRunner):\n"
        f"    def work(self):\n        {line}\n\n    def start(self):\n        self.work()\n"
    )
    machines = """
        from typing import TYPE_CHECKING

        from vllm.machine import Machine

        _machine = None
        if TYPE_CHECKING:
            machine: Machine

        def __getattr__(name):
            return _machine
    """
    machine = f"""
        import torch

        class Machine:
            kind = "none"

            def start_up(self):
                pass

            def __getattr__(self, key):
                own = {getter}
                return getattr(own, key, None)
    """
    mine = """
        from vllm.machine import Machine

        class Mine(Machine):
            def cool_down(self):
                pass
    """
    plugin = "def register():\n    return 'vllm_ascend.machine.Mine'\n"
    files = {
        "vllm/machines/__init__.py": machines,
        "vllm/machine.py": machine,
        "vllm_ascend/machine.py": mine,
        "vllm_ascend/__init__.py": plugin,
        AR: runner,
    }
    return [found.subject for found in findings(make_world(folder, files), "attributes")]


class TestPluginsGlobal:
    @pytest.mark.parametrize(
        "line", ["machine.warm_up()", "from vllm.machines import machine as m\n        m.warm_up()"]
    )
    def test_what_the_plugins_class_lacks(self, tmp_path: Path, line: str) -> None:
        assert on_machine(tmp_path, line) == ["Mine.warm_up"]

    @pytest.mark.parametrize(
        "line", ["machine.start_up()", "machine.cool_down()", "machine.kind", "machine.empty_cache()"]
    )
    def test_what_it_or_the_devices_module_has(self, tmp_path: Path, line: str) -> None:
        assert on_machine(tmp_path, line) == []

    def test_a_getter_that_may_give_anything(self, tmp_path: Path) -> None:
        assert on_machine(tmp_path, "machine.warm_up()", "self.table") == []


class TestWithoutOmni:
    def test_vllm_ascends_own_workers_are_audited(self, tmp_path: Path) -> None:
        ascend = f"""
            from {VLLM[:-3].replace("/", ".")} import GPUModelRunner

            class NPUModelRunner(GPUModelRunner):
                def run(self):
                    return self.missing

                def start(self):
                    return self.run()
        """
        assert seen(make_world(tmp_path, {ASCEND: ascend}, omni=False), "attributes") == [
            ("undefined", "NPUModelRunner", "NPUModelRunner.missing")
        ]


UNKNOWN_BASE = """
    from outside import Base

    class Crane(Base):
        def __init__(self):
            super().__init__()
            self.rope = 1

        def lift(self):
            {line}

        def start(self):
            self.lift()
"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("return self.rope_old", ["Crane.rope_old"]),
        ("return self.rope_old or self.rope_old", ["Crane.rope_old"]),
        ("return self.rope_old or self.rope_old or self.rope_old", []),  # the base may well have it
        ("return self.of_comment", ["Crane.of_comment"]),
        ("return self.rope", []),
        ("return hasattr(self, 'rope_old') and self.rope_old", []),
        ("return self.of_outside", []),  # vllm has the name: the base may have it too
    ],
)
def test_a_name_that_stands_nowhere_else_is_wrong_whatever_the_base(
    tmp_path: Path, line: str, told: list[str]
) -> None:
    files = {"vllm_omni/platforms/npu/crane.py": UNKNOWN_BASE.replace("{line}", line)}
    beside = "# It has of_comment.\ndef look(one):\n    return one.of_outside\n"
    world = make_world(tmp_path, files | {"vllm/a.py": beside})
    assert [subject for *_, subject in seen(world, "attributes")] == told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("self.lids.get(1).colour", ["Lid.colour"]),
        ("self.lids.pop(1, Crate()).colour", ["Crate.colour"]),
        ("self.lids.setdefault(1, Lid()).weight", []),
        ("self.lids.pop(1, self.budget).colour", []),
        ("self.lids.get(1, Crate()).weight", []),  # a lid has it
    ],
)
def test_what_a_dictionary_of_known_values_gives(tmp_path: Path, line: str, told: list[str]) -> None:
    assert [subject for _, subject in on_ar(tmp_path, method(f"return {line}"))] == told


@given(st.lists(st.sampled_from(["a = 1", "return a", "if a:\n    pass", "raise b"]), max_size=6))
def test_nothing_after_a_return_is_reached(lines: list[str]) -> None:
    tree = ast.parse("\n".join(lines))
    kept = [ast.unparse(node) for node in reached(tree.body)]
    leaving = [place for place, line in enumerate(lines) if line.startswith(("return", "raise"))]
    assert len(kept) == (leaving[0] + 1 if leaving else len(lines))


def test_mentions_are_whole_words_with_their_lines(tmp_path: Path) -> None:
    world = make_world(tmp_path, {"vllm/a.py": "x = 1\n\nbudget = budget_of(budget)\nmybudget = 2\n"})
    found = Mentions(world.program)
    assert [(mention.path, mention.line) for mention in found.of("budget")] == [("vllm/a.py", 3)]


def test_what_a_lacking_base_would_bring_is_one_finding(tmp_path: Path) -> None:
    files = {
        "vllm_omni/sending.py": """
            class Sending:
                def send(self):
                    pass

                def flush(self):
                    pass
        """,
        GPU_AR: f"""
            from {GPU_BASE[:-3].replace("/", ".")} import OmniGPUModelRunner
            from vllm_omni.sending import Sending

            class GPUARModelRunner(OmniGPUModelRunner, Sending):
                pass
        """,
        AR: ar(method("self.send()", "self.flush()", "self.elsewhere()")),
        "vllm/shapes.py": SHAPES,
    }
    found = {one.subject: one for one in findings(make_world(tmp_path, files), "attributes")}
    assert set(found) == {"Sending.flush/send", "NPUARModelRunner.elsewhere"}
    assert "derive NPUARModelRunner from Sending" in found["Sending.flush/send"].todo


WRAPPERS = """
    class NPUWrapper:
        def __init__(self):
            self.size = 1

        def decode(self, x):
            return x
"""
SHARED = """
    class Wrapper:
        def __init__(self):
            self.size, self.ready = 1, True

        def decode(self, x, y=0):
            return x

    class Session:
        def __init__(self, device):
            self.wrapper: Wrapper | None = None
            if device == "npu":
                from vllm_omni.platforms.npu.models.wrapper import NPUWrapper

                self.wrapper = NPUWrapper()
            else:
                self.wrapper = Wrapper()

        def run(self, x):
            {line}
"""


@pytest.mark.parametrize(
    ("line", "check", "told"),
    [
        ("return self.wrapper.ready", "attributes", ["wrapper.ready"]),
        ("return self.wrapper.size", "attributes", []),
        ("return self.wrapper.nothing", "attributes", ["wrapper.nothing"]),
        ("return hasattr(self.wrapper, 'ready') and self.wrapper.ready", "attributes", []),
        ("return self.wrapper.decode(x, 1)", "calls", ["takes 1 positional arguments, gets 2"]),
        ("return self.wrapper.decode(x)", "calls", []),
    ],
)
def test_shared_code_uses_what_the_npu_class_in_the_place_of_the_other_has(
    tmp_path: Path, line: str, check: str, told: list[str]
) -> None:
    files = {
        "vllm_omni/platforms/npu/models/wrapper.py": WRAPPERS,
        "vllm_omni/models/session.py": SHARED.replace("{line}", line),
    }
    found = [subject.rpartition(": ")[2] for *_, subject in seen(make_world(tmp_path, files), check)]
    assert found == told


@pytest.mark.parametrize(
    ("lines", "set_before", "told"),
    [
        (("if self.scales:", "    self.scales = False"), False, True),
        (("if self.scales and more:", "    self.scales = False"), False, True),
        (("if self.scales:", "    self.scales = False"), True, False),
        (("if more:", "    self.scales = False", "return self.scales"), False, False),
        (("if getattr(self, 'scales', None):", "    self.scales = False"), False, False),
    ],
)
def test_what_is_only_set_below_its_own_test_is_set_by_nobody(
    tmp_path: Path, lines: tuple[str, ...], set_before: bool, told: bool
) -> None:
    body = "\n".join(f"                {line}" for line in lines)
    runner = f"""
        from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

        class OmniNPUModelRunner(NPUModelRunner):
            def step(self, more):
{body}
    """
    parent = f"""
        class GPUModelRunner:
            def __init__(self):
                self.{"scales" if set_before else "rows"} = 1

            def run(self):
                return self.step(1)

            def step(self, more):
                return more
    """
    found = findings(make_world(tmp_path, {BASE: runner, VLLM: parent}), "attributes")
    assert any("self.scales" in one.what for one in found) is told
