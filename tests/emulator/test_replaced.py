"""What the NPU platform puts in the place of a model's own function is compared with that function."""

import json
import sys
import types
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run in the interpreter of an emulated environment")

MODEL = """
import torch


def turned(one, by=2):
    return one * by


def counted(one):
    counts.append(1)
    return one


def noisy(one):
    return one + torch.rand_like(one)


def partly(one):
    return torch.cat((one, left_over()))


def unable(one):
    raise RuntimeError("not on this device")


class Base:
    def base(self, one):
        return one + 1


class Layer(Base):
    bias = 2

    def forward(self, one: "Missing") -> "Missing":
        return super().base(one) + self.bias

    def kept(self, one):
        self.last = one
        return one
"""


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Put a function in the place of one of the model's, call it, and say what was recorded."""
    file = tmp_path / "model.py"
    file.write_text(MODEL)

    def played(name, new, *arguments, owner=None):
        from npu_emulator import record
        from npu_emulator.dry_run import replaced

        folder = tmp_path / "record"
        folder.mkdir(exist_ok=True)
        monkeypatch.setenv(record.FOLDER, str(folder))
        module = types.ModuleType("package.model")
        module.__file__, module.counts, module.left_over = str(file), [], lambda: torch.rand(1)
        exec(compile(MODEL, str(file), "exec"), vars(module))
        monkeypatch.setitem(sys.modules, "package.model", module)
        new.__module__ = "package.platforms.npu.models"
        place = getattr(module, owner) if owner else module
        setattr(place, name, new)
        replaced.observe("package", "package.platforms.npu")
        result = getattr(place() if owner else place, name)(*arguments)
        lines = [line for one in folder.glob("*.jsonl") for line in Path(one).read_text().splitlines()]
        events = [json.loads(line) for line in lines]
        played.not_compared = [event["why"] for event in events if event["event"] == "not compared"]
        return result, [event["why"] for event in events if event["event"] == "replaced"]

    return played


def test_the_same_is_told_as_compared(play):
    one = torch.tensor([1.0, 2.0])
    assert play("turned", lambda one, by=2: one + one, one)[1] == [""]


def test_something_else_is_told_with_how_far_it_is(play):
    one = torch.tensor([1.0, 2.0])
    result, (why,) = play("turned", lambda one, by=2: one * 3, one)
    assert result.tolist() == [3.0, 6.0]
    assert why == "is 2 away from what it replaces, whose values go up to 4"


def test_another_shape_is_told(play):
    (why,) = play("turned", lambda one, by=2: one[:1], torch.ones(2))[1]
    assert why == "gives [(1,)] for [(2,)]"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("counted", []),
        ("noisy", ["what it replaces gives another result each time"]),
        ("unable", ["what it replaces fails: RuntimeError: not on this device"]),
    ],
)
def test_what_changes_things_is_random_or_cannot_be_is_not_compared(play, name, why):
    assert play(name, lambda one: one * 3, torch.ones(2))[1] == []
    assert play.not_compared == why


def test_a_method_is_compared_with_that_of_its_class(play):
    one = torch.ones(2)
    assert play("forward", lambda self, one: one + 3, one, owner="Layer")[1] == [""]
    assert play("forward", lambda self, one: one, one, owner="Layer")[1][-1].startswith("is 3 away")
    assert len(play("kept", lambda self, one: one * 3, one, owner="Layer")[1]) == 2  # it sets something


def test_an_object_of_the_models_own_is_not_compared(play):
    assert play("turned", lambda one, by=2: one, types.SimpleNamespace(part=torch.ones(2)))[1] == []
    assert play.not_compared == ["its arguments hold objects of the model's own"]


def test_what_the_original_leaves_as_memory_was_is_no_result(play):
    one = torch.ones(3)
    assert play("partly", lambda one: torch.cat((one, torch.full((1,), 9.0))), one)[1] == [""]
    assert play("partly", lambda one: torch.full((4,), 3.0), one)[1][-1].startswith("is 2 away")


def test_a_shared_buffer_keeps_what_the_replacement_gave(play):
    buffer = torch.zeros(2)

    def new(one, by=2):
        return buffer.copy_(one * 2)

    assert play("turned", new, torch.ones(2))[0].tolist() == [2.0, 2.0]
