"""What an NPU method had before an upgrade, and what it follows still has."""

from __future__ import annotations

import pytest
from audit_kit import seen
from parity_kit import runners

from npu_upgrade.audit.world import World

STEP = """
def step(self, count, seat):
    if count and seat is not None and self.is_open:
        self.belt.push(count)
    self.buzzer.ring()
    return self.serve(count, seat=seat)
"""
OPERAND = (" and seat is not None", "", "parity-conditions", "seat in step")
KEYWORD = (", seat=seat", "", "parity-kwargs", "serve(seat=) in step")
CALL = ("    self.buzzer.ring()\n", "", "parity-hooks", "buzzer.ring in step")


def _world(folder, *, npu: str, now: str, gpu: str = STEP, old: str = STEP, new: str = STEP):
    """The NPU method ``npu`` before and ``now``; ``old`` and ``new`` are vllm's and vllm-ascend's of it."""
    before = runners(folder / "old", gpu=gpu, npu=npu, vllm=old, ascend=old)
    after = runners(folder / "new", gpu=gpu, npu=now, vllm=new, ascend=new)
    return World(after.triple, before)


def _lost(world: World, check: str) -> list[tuple[str, str]]:
    return [(owner, subject) for kind, owner, subject in seen(world, check) if kind == "lost"]


@pytest.mark.parametrize(("gone", "instead", "check", "subject"), [OPERAND, KEYWORD])
def test_what_an_upgrade_lost(tmp_path, gone, instead, check, subject):
    world = _world(tmp_path, npu=STEP, now=STEP.replace(gone, instead))
    assert _lost(world, check) == [("NPUARModelRunner", subject)]


def test_a_step_that_an_upgrade_lost_is_told_where_only_vllm_ascend_has_it(tmp_path):
    had = "    self.buzzer.ring()\n"
    world = _world(tmp_path, npu=STEP, now=STEP.replace(had, ""), gpu=STEP.replace(had, ""))
    assert _lost(world, "parity-hooks") == [("NPUARModelRunner", "buzzer.ring in step")]


def test_a_step_that_puts_what_it_makes_in_the_place_of_a_name(tmp_path):
    had = "    count = self.gather(count)\n"
    step = STEP.replace("    self.buzzer.ring()\n", had)
    world = _world(tmp_path, npu=step, now=step.replace(had, ""), gpu=STEP, old=step, new=step)
    assert _lost(world, "parity-hooks") == [("NPUARModelRunner", "gather in step")]


@pytest.mark.parametrize(("value", "told"), [("None", False), ("[]", False), ("True", True)])
def test_leaving_out_an_empty_value_is_no_loss(tmp_path, value, told):
    had = STEP.replace("seat=seat", f"seat={value}")
    world = _world(tmp_path, npu=had, now=STEP.replace(", seat=seat", ""), gpu=had, old=had, new=had)
    assert bool(_lost(world, "parity-kwargs")) is told


@pytest.mark.parametrize(("gone", "instead", "check", "subject"), [OPERAND, KEYWORD])
def test_what_it_never_had_is_not_lost(tmp_path, gone, instead, check, subject):
    lacking = STEP.replace(gone, instead)
    world = _world(tmp_path, npu=lacking, now=lacking + "    # told apart\n    self.more()\n")
    assert _lost(world, check) == []


@pytest.mark.parametrize(("gone", "instead", "check", "subject"), [OPERAND, KEYWORD, CALL])
def test_what_vllm_ascend_gave_up_too_was_followed(tmp_path, gone, instead, check, subject):
    lacking = STEP.replace(gone, instead)
    assert _lost(_world(tmp_path, npu=STEP, now=lacking, new=lacking), check) == []


@pytest.mark.parametrize(
    ("had", "has", "check"),
    [
        ("seat is not None", "place is not None", "parity-conditions"),
        ("seat=seat", "place=seat", "parity-kwargs"),
        ("count, seat=seat", "count, seat", "parity-kwargs"),
        ("seat=seat", "**self.seats(seat)", "parity-kwargs"),
        ("self.buzzer.ring()", "self.buzz()", "parity-hooks"),
    ],
)
def test_what_has_another_name_or_way_is_not_lost(tmp_path, had, has, check):
    assert _lost(_world(tmp_path, npu=STEP, now=STEP.replace(had, has)), check) == []


def test_what_moved_to_a_helper_is_not_lost(tmp_path):
    head = STEP.replace(
        "    self.buzzer.ring()\n    return self.serve(count, seat=seat)",
        "    return self._rest(count, seat)",
    )
    rest = "def _rest(self, count, seat):\n    self.buzzer.ring()\n    return self.serve(count, seat=seat)\n"
    world = _world(tmp_path, npu=STEP, now=head + rest)
    assert [_lost(world, check) for check in ("parity-kwargs", "parity-hooks")] == [[], []]


@pytest.mark.parametrize(("gone", "instead", "check", "subject"), [OPERAND, KEYWORD, CALL])
def test_what_vllm_does_and_vllm_ascend_does_not_is_not_lost(tmp_path, gone, instead, check, subject):
    lacking = STEP.replace(gone, instead)
    before = runners(tmp_path / "old", gpu=STEP, npu=STEP, vllm=STEP, ascend=lacking)
    after = runners(tmp_path / "new", gpu=STEP, npu=lacking, vllm=STEP, ascend=lacking)
    assert _lost(World(after.triple, before), check) == []


@pytest.mark.parametrize(("made", "told"), [("", False), ("def hush(self):\n    pass\n", True)])
def test_a_method_that_is_asked_for_and_nothing_makes_is_not_lost(tmp_path, made, told):
    had = 'if count and hasattr(self.buzzer, "hush"):\n        self.buzzer.hush()\n    self.buzzer.ring()'
    asked = STEP.replace("self.buzzer.ring()", had)
    world = _world(tmp_path, npu=asked, now=STEP, gpu=asked + made)
    assert [bool(_lost(world, check)) for check in ("parity-conditions", "parity-hooks")] == [told, told]


@pytest.mark.parametrize(("made", "told"), [("", False), ("def open(self):\n    self._hatch = 1\n", True)])
def test_a_condition_that_nothing_can_meet_is_not_lost(tmp_path, made, told):
    had = STEP.replace("and self.is_open", "and hasattr(self, '_hatch')")
    lacking = had.replace(" and hasattr(self, '_hatch')", "")
    world = _world(tmp_path, npu=had, now=lacking, gpu=had + made)
    assert bool(_lost(world, "parity-conditions")) is told


@pytest.mark.parametrize(("name", "told"), [("returns_routed_seats", False), ("returns_no_seats", True)])
def test_an_attribute_that_is_tested_in_a_helper_is_not_lost(tmp_path, name, told):
    had = STEP.replace("self.is_open", "self.config.model.returns_routed_seats")
    now = had.replace("self.config.model.returns_routed_seats", "self._returns()")
    helper = f"def _returns(self):\n    return getattr(self.config.model, '{name}', False)\n"
    before = runners(tmp_path / "old", gpu=now + helper, npu=had, vllm=STEP, ascend=had)
    after = runners(tmp_path / "new", gpu=now + helper, npu=now + helper, vllm=STEP, ascend=had)
    assert bool(_lost(World(after.triple, before), "parity-conditions")) is told
