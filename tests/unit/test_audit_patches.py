"""The check for functions that are put in place of others."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_kit import make_world, seen

CRANES = "vllm_omni/harbour/cranes.py"
PATCH = "vllm_omni/platforms/npu/patch_cranes.py"
HOME = """
from torch import nn


def hoist(load, height):
    return load * height


def use():
    return hoist(1, 2)


class Crane(nn.Module):
    def __init__(self):
        self.rope = 1

    @staticmethod
    def weigh(load, scale):
        return load

    def lift(self, load):
        return self.weigh(load, 1)

    def swing(self, load, arc=None):
        return load

    def work(self):
        return self.swing(1, arc=2)
"""
HEAD = """
from vllm_omni.harbour import cranes


def fits(load, height):
    return height


def asks_more(load, height, slowly):
    return load


def returns_nothing(load, height):
    print(load)


def turned_round(height, load):
    return load


def lift(self, load):
    return self.rope


def lift_by_hook(self, load):
    return self.hook


def weigh(load, scale):
    return load


def forgets_to_return(load, height):
    if height:
        return load
    with open(load):
        print(load)


def returns_everywhere(load, height):
    with open(load):
        if height:
            return load
        else:
            raise ValueError


def swing(self, load):
    return load


def swing_any(self, load, **more):
    return load


def apply():
    {line}
"""


def told(folder: Path, line: str) -> list[str]:
    world = make_world(folder, {PATCH: HEAD.replace("{line}", line), CRANES: HOME})
    return [kind for kind, _, _ in seen(world, "patches")]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("cranes.hoist = asks_more", "replacement"),
        ("setattr(cranes, 'hoist', asks_more)", "replacement"),
        ("cranes.hoist = returns_nothing", "no-result"),
        ("cranes.hoist = forgets_to_return", "no-result"),
        ("cranes.Crane.swing = swing", "caller"),
        ("cranes.hoist_old = fits", "unread-name"),
        ("cranes.hoist = turned_round", "replacement"),
        ("cranes.Crane.lift = lift_by_hook", "lacking"),
        ("cranes.Crane.weigh = weigh", "plain-for-static"),
        ("crane = cranes.Crane\n    crane.swing = swing", "caller"),
        ("def inner(self, load): return self.winch\n    cranes.Crane.lift = inner", "lacking"),
        ("def inner(self): self.rope = self.winch\n    cranes.Crane.__init__ = inner", "lacking"),
    ],
)
def test_a_replacement_that_does_not_fit_is_found(tmp_path: Path, line: str, kind: str) -> None:
    assert told(tmp_path, line) == [kind]


@pytest.mark.parametrize(
    "line",
    [
        "cranes.hoist = fits",
        "cranes.hoist = returns_everywhere",
        "cranes.Crane.swing = swing_any",
        "cranes.Crane.lift = lift",
        "cranes.Crane.weigh = staticmethod(weigh)",
        "cranes.marked = True; print(cranes.marked)",
        "crane = cranes.Crane\n    crane.swing = swing_any",
        "crane = print\n    crane = cranes.Crane\n    crane.swing = swing",
        "def inner(self, load): return self.rope\n    cranes.Crane.lift = inner",
    ],
)
def test_a_replacement_that_fits_is_silent(tmp_path: Path, line: str) -> None:
    assert told(tmp_path, line) == []
