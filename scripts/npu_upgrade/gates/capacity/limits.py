"""The limits that a start that failed tells: how long a context would have fit."""

from __future__ import annotations

import re
from collections.abc import Iterable

from npu_upgrade.gates.serving.log_lines import LogLine

_ESTIMATED = re.compile(r"estimated maximum model length is ([\d,]+)")
_DERIVED = re.compile(r"greater than the derived max_model_len \((?P<named>[^)]*)\)")
_NUMBER = re.compile(r"=\s*(\d[\d,]*)")


def fitting(lines: Iterable[LogLine]) -> int | None:
    """The longest context, in tokens, that the log says would fit; None when it names none.

    The memory's limit, and the configuration's; the lower one where both are said.
    """
    found: list[int] = []
    for line in lines:
        if estimated := _ESTIMATED.search(line.text):
            found.append(_integer(estimated[1]))
        if derived := _DERIVED.search(line.text):
            found += [_integer(number) for number in _NUMBER.findall(derived["named"])]
    return min((number for number in found if number > 0), default=None)


def _integer(text: str) -> int:
    return int(text.replace(",", ""))
