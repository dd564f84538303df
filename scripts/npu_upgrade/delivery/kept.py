"""What an edit by hand may do without any gate failing: lose markers, define a method twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from npu_upgrade.code.module import parse_module
from npu_upgrade.code.statements import END, split_statements
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.lineage.marker_places import is_fence
from npu_upgrade.sources.checkout import Checkout


def check_kept(checkout: Checkout, base: str, paths: Iterable[str]) -> None:
    """No Python file of ``base`` lost markers of code that still stands, or defines a method twice now."""
    present = [path for path in paths if path.endswith(".py") and (checkout.root / path).exists()]
    for path in present:
        before = checkout.run("show", f"{base}:{path}")
        if before.returncode != 0:
            continue
        texts = before.stdout, (checkout.root / path).read_text("utf-8")
        if lost := lost_markers(*texts):
            raise BadInput(
                f"{path} has lost markers of omni code in {', '.join(lost)}, and the code still stands",
                expected="the markers kept around the code they are for",
                try_=f"git diff {base} -- {path}; put them back, then run upgrade.py plan and deliver again",
            )
        if twice := defined_twice(*texts):
            raise BadInput(
                f"{path} defines {', '.join(twice)} twice: only the last definition counts",
                expected="one definition of each method",
                try_="merge the definitions, then run upgrade.py plan and deliver again",
            )


def lost_markers(before: str, now: str) -> list[str]:
    """The methods with fewer omni markers than before, though all the code between those stands as it was.

    Where that code changed or went as well, nobody can tell whether its markers should have stayed.
    """
    old, new = parse_module(before).units, parse_module(now).units
    return [name for name in old if name in new and _lost(old[name].source, new[name].source)]


def _lost(before: str, now: str) -> bool:
    markers, held = _marked(before)
    left, _ = _marked(now)
    keys = Counter(statement.key for statement in split_statements(now))
    return left < markers and bool(held) and held <= keys


def _marked(source: str) -> tuple[int, Counter[str]]:
    """How many markers a method has, and the statements between each first and second one."""
    markers, held = 0, Counter[str]()
    for statement in split_statements(source):
        markers += sum(is_fence(comment.text) for comment in statement.comments)
        if markers % 2 and statement.key != END:
            held[statement.key] += 1
    return markers, held


def defined_twice(before: str, now: str) -> list[str]:
    """The methods and functions that are defined more often than before; the first ones never run."""
    return sorted({name.rpartition("@")[0] for name in _overridden(now) - _overridden(before)})


def _overridden(source: str) -> set[str]:
    """The definitions that a later one of the same name replaces (``x@1``, see ``unit_names``).

    A decorator such as ``overload`` is a reason to define a name again.
    """
    units = parse_module(source).units
    return {
        name for name in units if name.rpartition("@")[2].isdigit() and units[name].source.lstrip()[0] != "@"
    }
