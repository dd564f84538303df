"""The statements of methods, and how much of one stands in another."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from npu_upgrade.audit.program import File
from npu_upgrade.port.dialect import translate
from npu_upgrade.pycode.statements import END, Statement, split_statements
from npu_upgrade.upgrade.align import weight
from npu_upgrade.upgrade.signatures import Function

_TELLING = 3


@functools.lru_cache(maxsize=4096)  # files and nodes are their own keys
def statements_of(file: File, node: Function) -> tuple[Statement, ...]:
    """The statements of a function's body in the words of the NPU side; empty where that cannot be told."""
    start = node.body[0].lineno - 1
    source = "\n".join(file.source.split("\n")[start : node.end_lineno])
    try:
        wrapped = translate("if 1:\n" + source)
        return tuple(s for s in split_statements(wrapped)[1:] if s.key != END)
    except (SyntaxError, ValueError):
        return ()


def share_within(file: File, node: Function, others: Iterable[tuple[File, Function]]) -> float:
    """The share of a function's telling statements that stand in one of the others too."""
    own = {s.key for s in statements_of(file, node) if weight(s.key) >= _TELLING}
    there = {s.key for other in others for s in statements_of(*other)}
    return len(own & there) / len(own) if own else 0.0
