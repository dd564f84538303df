"""What an answer must not do to a runner file: break it, use unknown names, lose methods or markers.

Works on texts with conflicts left in them: every other conflict is read both ways.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Set as AbstractSet

from npu_upgrade.code.conflict_text import answers, marker
from npu_upgrade.code.module import comments_below, parse_module, split_lines
from npu_upgrade.code.names import undefined_names
from npu_upgrade.code.statements import END, split_statements
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.job.conflicts import OpenConflict
from npu_upgrade.lineage.marker_places import is_fence
from npu_upgrade.merge.conflict_identity import identity


def problems(before: str, after: str, first: str = "") -> list[str]:
    """What is wrong with ``after`` that was not wrong with ``before``, in sentences; else empty.

    ``first`` is the file before the merge: what it had is not lost in two steps either.
    """
    try:
        readings = [side.text for side in answers(after)]
    except BadInput as error:
        return [error.what]
    for text in readings:
        try:
            ast.parse(text)
        except (SyntaxError, ValueError) as error:
            line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            said = error.msg if isinstance(error, SyntaxError) else str(error)
            return [f"the file does not parse with it: {said}{line}"]
    was = _readings(before)
    names = sorted(_undefined(readings) - _undefined(was))
    found = [f"nothing defines {', '.join(names)}"] if names else []
    found += [f"the method {name} would be gone" for name in sorted(_units(was) - _units(readings))]
    found += _odd_markers(was, readings)
    known = unkept(first, was[0]) if first and was else []
    lost = [*unkept(was[0], readings[0]), *(unkept(first, readings[0]) if first else ())] if was else []
    return found + [one for one in dict.fromkeys(lost) if one not in known]


def unkept(before: str, now: str) -> list[str]:
    """What a file may not lose against ``before``: markers of code that stands, a name's only definition."""
    lost, twice = lost_markers(before, now), defined_twice(before, now)
    found = [f"{', '.join(lost)} lost markers of omni code that still stands"] if lost else []
    return found + (
        [f"{', '.join(twice)} is defined twice: only the last definition counts"] if twice else []
    )


def of_answer(conflict: OpenConflict, answer: str) -> list[str]:
    """What is wrong with an answer by itself: conflict markers in it, or omni code without its markers."""
    if any(map(marker, split_lines(answer))):
        return ["the answer holds conflict markers"]
    marked = conflict.marked
    if not marked.has_base or not _fences(marked.ours) or _fences(answer):
        return []
    base = {str(key) for key in _keys(marked.base)}
    omni = [key for key in _keys(marked.ours) if str(key) not in base]
    kept = [key for key in _keys(answer) if key in omni]
    return ["omni code is kept and its Omni-new markers are not"] if kept else []


def with_marker(ours: str, text: str) -> str:
    """What comes in the place of ``ours`` with the marker that opens or closes omni code there, and nowhere
    else in it: what the GPU side has there is omni code too."""
    lines = ours.split("\n")
    fences = [number for number, line in enumerate(lines) if is_fence(line.strip())]
    if len(fences) % 2 == 0 or _fences(text) % 2:
        return text
    line = lines[fences[0]]
    if all(one.strip()[:1] in ("", "#") for one in lines[: fences[0]]):
        return f"{line}\n{text}"
    return "\n".join([*text.rstrip("\n").split("\n"), line, ""])


def _readings(text: str) -> list[str]:
    """A file with all its conflicts read as ours, and as theirs; less those that are not Python."""
    good = []
    for side in answers(text):
        try:
            ast.parse(side.text)
        except (SyntaxError, ValueError):
            continue
        good.append(side.text)
    return good


def _undefined(readings: list[str]) -> AbstractSet[str]:
    return set.intersection(*(undefined_names(text) for text in readings)) if readings else set()


def _units(readings: list[str]) -> set[str]:
    """The methods that all readings have."""
    return set.intersection(*(set(parse_module(text).units) for text in readings)) if readings else set()


def _odd_markers(was: list[str], readings: list[str]) -> list[str]:
    """The methods in which markers paired before and do not any more."""
    if not was:
        return []
    old, new = map(_fences_of, (was[0], readings[0]))
    odd = [name for name, count in new.items() if count % 2 and name in old and not old[name] % 2]
    return [f"the Omni-new markers of {name} do not pair any more" for name in odd]


def _fences(text: str) -> int:
    return sum(is_fence(line.strip()) for line in text.split("\n"))


def _fences_of(text: str) -> dict[str, int]:
    """How many markers there are of each method, those included that close it behind its last statement."""
    lines = split_lines(text)
    units = parse_module(text).units.items()
    ends = {name: (unit.start, comments_below(lines, unit)) for name, unit in units}
    return {name: sum(is_fence(one.strip()) for one in lines[slice(*span)]) for name, span in ends.items()}


def _keys(text: str) -> list[str]:
    return [str(item[1] if isinstance(item, list) else item) for item in identity(text)]


def lost_markers(before: str, now: str) -> list[str]:
    """The methods with fewer omni markers than before, though all the code between those stands as it was.

    Where that code changed or went as well, nobody can tell whether its markers should have stayed.
    """
    old, new = parse_module(before).units, parse_module(now).units
    lost = []
    for name in old.keys() & new.keys():
        (markers, held), (left, _) = _marked(old[name].source), _marked(new[name].source)
        keys = Counter(statement.key for statement in split_statements(new[name].source))
        lost += [name] if left < markers and held and held <= keys else []
    return sorted(lost, key=list(old).index)


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
