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


READS_FIRST = """def inner(self):
        winch = self.winch
        self.winch = winch
        return winch
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
        (f"{READS_FIRST}    cranes.Crane.lift = inner", "lacking"),
        ("cranes.Crane.heave = lift; key = 'heave' + HOME", "unread-name"),
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
        "def inner(self, load): self.winch = load; return self.winch\n    cranes.Crane.lift = inner",
        "cranes.Crane.heave = lift; getattr(cranes.Crane(), 'heave')",
        "cranes.Crane.forward = lift",  # which torch calls
    ],
)
def test_a_replacement_that_fits_is_silent(tmp_path: Path, line: str) -> None:
    assert told(tmp_path, line) == []


YARD = "vllm_omni/harbour/yard.py"
TAKES = "from vllm_omni.harbour.cranes import Crane\n\n\ndef build():\n    return Crane()\n"


@pytest.mark.parametrize(
    ("lines", "yard", "found"),
    [
        # Set where it is defined, when the yard has its own name for it already.
        ("cranes.Crane = Other", TAKES, ["Crane in vllm_omni.harbour.yard"]),
        ("cranes.Crane = Other; yard.Crane = Other", TAKES, []),
        ("cranes.Crane = Other", TAKES.replace("from", "def late():\n    from"), []),
        ("cranes.Crane = Other", "from vllm_omni.harbour import cranes\n\nCRANE = cranes.Crane()\n", []),
    ],
)
def test_a_name_that_its_users_have_taken_before(
    tmp_path: Path, lines: str, yard: str, found: list[str]
) -> None:
    patch = f"""
        from vllm_omni.harbour import cranes, yard

        class Other(cranes.Crane):
            pass

        def apply():
            {lines}
    """.replace("class Other(cranes.Crane)", "class Other")
    files = {PATCH: patch, CRANES: HOME, YARD: yard}
    assert [subject for _, _, subject in seen(make_world(tmp_path, files), "patches-unseen")] == found


LATE = """
    from vllm_omni.harbour.cranes import Crane

    class Yard(Crane):
        pass
"""


@pytest.mark.parametrize(
    ("yard", "other", "found"),
    [
        # The yard took the crane as its base while it was loaded.
        (LATE, "", ["Crane of vllm_omni.harbour.yard"]),
        (f"{LATE}\n    def build():\n        return Crane()\n", "", []),
        (LATE, "from vllm_omni.harbour.yard import Crane\n", []),
        (LATE, "from vllm_omni.harbour import yard\n\n\ndef build():\n    return yard.Crane()\n", []),
        (LATE, "ENTRY = ('harbour', 'yard', 'Crane')\n", []),
    ],
)
def test_a_name_that_the_module_itself_has_taken_before(
    tmp_path: Path, yard: str, other: str, found: list[str]
) -> None:
    patch = """
        from vllm_omni.harbour import yard

        class Other:
            pass

        def apply():
            yard.Crane = Other
    """
    files = {PATCH: patch, CRANES: HOME, YARD: yard, "vllm_omni/harbour/quay.py": other}
    assert [subject for _, _, subject in seen(make_world(tmp_path, files), "patches-unseen")] == found


@pytest.mark.parametrize(
    ("scale", "at", "found"),
    [
        ("factor", "hoist", ["hoist.__code__: factor"]),
        ("2", "hoist", []),
        ("use()", "hoist", []),  # which the cranes have, too
        ("own()", "hoist", ["hoist.__code__: own"]),
        ("own()", "found", ["found.__code__: own"]),
        ("len(load)", "found", []),
    ],
)
def test_a_code_object_that_misses_names_where_it_is_put(
    tmp_path: Path, scale: str, at: str, found: list[str]
) -> None:
    patch = f"""
        from vllm_omni.harbour import cranes
        from vllm_omni.harbour.cranes import hoist

        def own():
            return 1

        def apply(factor):
            def inner(load, height):
                return load * {scale}

            found = getattr(cranes, "hoist", None)
            {at}.__code__ = inner.__code__
    """
    world = make_world(tmp_path, {PATCH: patch, CRANES: HOME})
    assert [subject for _, _, subject in seen(world, "patches")] == found
