"""The serve gate on real vLLM on this CPU: a part of ``make bench-gates``, seven servers in all.

Everything else is the bench. Two of them compute something else than their checkpoint says; the two sound
ones with real weights equal Transformers.
"""

from __future__ import annotations

import os
import socket
import sys

import pytest

from bench.gates_cases import CASES, Case
from bench.gates_run import faults, play
from bench.wrong_weights import CASES as WRONG

NAMES = (
    "sound, dummy weights",
    "sound, real weights",
    "sound, with images",
    "engine killed after ready",
    "corrupt shard",
)
WRONG_NAMES = (
    "swapped-gate-up: mixture",
    "picture-scale: looker",
)
BY_NAME = {one.name: one for one in (*CASES, *WRONG)}

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(
        sys.platform != "linux" or os.uname().machine != "x86_64", reason="no vLLM for this CPU"
    ),
]


@pytest.mark.parametrize("name", [*NAMES, *WRONG_NAMES])
def test_the_gate_judges_right_and_leaves_nothing(name: str) -> None:
    case = BY_NAME[name]
    seen = play(case, None)
    assert faults(case, seen) == [], seen
    if case.fit:  # None: nobody else looks at it
        assert set(seen.observers.values()) == {"ready"}


def test_a_port_that_somebody_holds_is_refused_before_anything_starts() -> None:
    case: Case = BY_NAME["stale server on the port"]
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        seen = play(case, holder.getsockname()[1])
    assert faults(case, seen) == [], seen
