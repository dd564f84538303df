"""Structural edits of a source text: they change their place and nothing else, or they are refused."""

from __future__ import annotations

from typing import Any

import pytest

from bench.edits import apply
from npu_upgrade.ground.errors import BadInput

SOURCE = '''"""A worker."""

from harbour.cranes import Crane, Hook  # kept
import weather


class State(NamedTuple):
    load: int
    wind: float


class Base:
    pass


class Worker(Base, Mixin):
    limit: int = 3

    def lift(self, load, *, fast=False) -> tuple[int, int]:
        """Lift it."""
        # a marker
        crane, hook = self.find(load, fast=fast)
        if load and self.ready and not fast:
            self.note(load)
        for item in load:
            if item is None:
                raise ValueError("é")
            self.note(item)
        return crane, hook

    def find(self, load, fast=True):
        return Crane(load, kind="big"), Hook(load)

    @staticmethod
    def rest():
        return {"a", "b"}
'''


def edit(do: str, at: str = "", **args: Any) -> str:
    return apply("worker.py", SOURCE, {"do": do, "at": at, "path": "worker.py", **args})


def changed(result: str) -> tuple[list[str], list[str]]:
    """The lines that went and those that came."""
    before, after = SOURCE.split("\n"), result.split("\n")
    return [x for x in before if x not in after], [x for x in after if x not in before]


# (do, at, arguments, lines that go, lines that come)
EXAMPLES = [
    ("rename-definition", "Worker.find", {"to": "seek"},
     ["    def find(self, load, fast=True):"], ["    def seek(self, load, fast=True):"]),
    ("change-bases", "Worker", {"to": "Base, Other"},
     ["class Worker(Base, Mixin):"], ["class Worker(Base, Other):"]),
    ("delete-statement", "State", {"assigns": "wind"}, ["    wind: float"], []),
    ("delete-statement", "Worker.lift", {"tests": "item is None"},
     ["            if item is None:", '                raise ValueError("é")'], []),
    ("replace-name", "Worker.lift", {"name": "self.find", "to": "self.seek"},
     ["        crane, hook = self.find(load, fast=fast)"],
     ["        crane, hook = self.seek(load, fast=fast)"]),
    ("rename-keyword", "Worker.find", {"call": "Crane", "keyword": "kind", "to": "size"},
     ['        return Crane(load, kind="big"), Hook(load)'],
     ["        return Crane(load, size='big'), Hook(load)"]),
    ("drop-keyword", "Worker.lift", {"call": "find", "keyword": "fast"},
     ["        crane, hook = self.find(load, fast=fast)"], ["        crane, hook = self.find(load)"]),
    ("add-keyword", "Worker.find", {"call": "Hook", "keyword": "size", "value": "1"},
     ['        return Crane(load, kind="big"), Hook(load)'],
     ['        return Crane(load, kind="big"), Hook(load, size=1)']),
    ("drop-item", "Worker.find", {"of": "arguments", "call": "Hook", "index": 0},
     ['        return Crane(load, kind="big"), Hook(load)'],
     ['        return Crane(load, kind="big"), Hook()']),
    ("add-item", "Worker.find", {"of": "arguments", "call": "Hook", "item": "fast"},
     ['        return Crane(load, kind="big"), Hook(load)'],
     ['        return Crane(load, kind="big"), Hook(load, fast)']),
    ("drop-parameter", "Worker.lift", {"parameter": "fast"},
     ["    def lift(self, load, *, fast=False) -> tuple[int, int]:"],
     ["    def lift(self, load) -> tuple[int, int]:"]),
    ("add-parameter", "Worker.lift", {"parameter": "high: int", "before": "load"},
     ["    def lift(self, load, *, fast=False) -> tuple[int, int]:"],
     ["    def lift(self, high: int, load, *, fast=False) -> tuple[int, int]:"]),
    ("add-parameter", "Worker.find", {"parameter": "out", "keyword_only": True},
     ["    def find(self, load, fast=True):"], ["    def find(self, load, fast=True, *, out):"]),
    ("change-import", "", {"module": "harbour.cranes", "name": "Hook", "to_name": "Claw"},
     ["from harbour.cranes import Crane, Hook  # kept"],
     ["from harbour.cranes import Claw as Hook", "from harbour.cranes import Crane  # kept"]),
    ("change-import", "", {"module": "harbour.cranes", "to_module": "harbour.old"},
     ["from harbour.cranes import Crane, Hook  # kept"], ["from harbour.old import Crane, Hook  # kept"]),
    ("drop-item", "Worker.lift", {"of": "operands", "item": "self.ready"},
     ["        if load and self.ready and not fast:"], ["        if load and (not fast):"]),
    ("add-item", "Worker.lift", {"of": "targets", "call": "self.find", "item": "rope"},
     ["        crane, hook = self.find(load, fast=fast)"],
     ["        (crane, hook, rope) = self.find(load, fast=fast)"]),
    ("drop-item", "Worker.lift", {"of": "targets", "call": "self.find", "index": 1},
     ["        crane, hook = self.find(load, fast=fast)"],
     ["        (crane,) = self.find(load, fast=fast)"]),
    ("add-item", "Worker.lift", {"of": "returned", "item": "load"},
     ["        return crane, hook"], ["        return (crane, hook, load)"]),
    ("replace-expression", "Worker.lift", {"expression": "item   is None", "to": "not item"},
     ["            if item is None:"], ["            if not item:"]),
    ("insert", "Worker.lift", {"code": "log()\nmore()", "before": {"calls": "self.find"}},
     [], ["        log()", "        more()"]),
    ("insert", "Worker.rest", {"code": "log()", "place": "start"}, [], ["        log()"]),
]  # fmt: skip


@pytest.mark.parametrize(("do", "at", "args", "gone", "new"), EXAMPLES)
def test_an_edit_changes_exactly_its_place(
    do: str, at: str, args: dict[str, Any], gone: list[str], new: list[str]
) -> None:
    assert changed(edit(do, at, **args)) == (gone, new)


def test_a_deleted_definition_takes_its_decorators_along() -> None:
    assert "staticmethod" not in edit("delete-definition", "Worker.rest")


def test_a_block_that_would_be_empty_passes() -> None:
    source = "def f(x):\n    if x:\n        log()\n    return x\n"
    expected = "def f(x):\n    if x:\n        pass\n    return x\n"
    assert apply("a.py", source, {"do": "delete-statement", "at": "f", "calls": "log"}) == expected


def test_a_parameter_is_renamed_with_its_uses() -> None:
    result = edit("replace-name", "Worker.find", name="load", to="cargo")
    assert "def find(self, cargo, fast=True)" in result
    assert 'Crane(cargo, kind="big"), Hook(cargo)' in result


REFUSED = [
    ("delete-definition", "Worker.gone", {}, "no gone"),
    ("delete-statement", "Worker.lift", {"calls": "self.note"}, "2 times statement"),
    ("delete-statement", "Worker.lift", {"calls": "self.note", "nth": 3}, "only 2 times"),
    ("delete-statement", "Worker.lift", {"calls": "self.gone"}, "no statement"),
    ("drop-keyword", "Worker.lift", {"call": "self.find", "keyword": "slow"}, "no keyword slow"),
    ("drop-item", "Worker.find", {"of": "arguments", "call": "Hook", "index": 1}, "has 1 items"),
    ("drop-parameter", "Worker.lift", {"parameter": "slow"}, "no parameter slow"),
    ("drop-item", "Worker.lift", {"of": "operands", "item": "self.gone"}, "no list of operands self.gone"),
    ("change-bases", "Base", {"to": "Gone"}, "no class with bases"),
    ("change-import", "", {"module": "harbour", "name": "Hook", "to_name": "Claw"}, "no import"),
    ("replace-name", "Worker.lift", {"name": "self.find", "to": "self.find"}, "changes nothing"),
    ("insert", "Worker.lift", {"code": "not python!"}, "leaves no Python"),
    ("delete-everything", "", {}, "no edit"),
]


@pytest.mark.parametrize(("do", "at", "args", "reason"), REFUSED)
def test_an_edit_without_its_place_is_refused(do: str, at: str, args: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason) as error:
        edit(do, at, **args)
    assert do == "delete-everything" or "worker.py" in error.value.what
