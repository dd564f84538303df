"""The tasks of evals.json, and the folder that one of them is worked on in."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

FILE = Path(__file__).resolve().parents[1] / "evals.json"
TASK = "task.json"
ANSWER = "answer.md"
CHECKOUT = "checkout"


class Assertion(Struct, frozen=True):
    """A grader of :mod:`graders` by name, the least value that meets it, and what it says."""

    grader: str
    at_least: float
    text: str


class Setup(Struct, frozen=True):
    """How the workspace is made and what is true of it.

    ``kind``: upgrade, taken over, adapt or log. ``omni``: the release whose NPU side the checkout has,
    ``gpu`` that of everything else; ``ascend`` the target; ``human`` the release in which the maintainers
    had made the same upgrade. ``files``: globs of what a commit may hold. ``models``: folder of the
    checkout -> the checkpoint in it: a folder of evals/files,
    ``tiny:NAME`` of the product's own, ``bench:NAME`` of the adaptation bench. ``log``: a log of
    tests/fixtures/serve_logs.
    ``named``: patterns, each of which a right answer has to match; ``artifacts``: globs of what an
    adaptation has to leave.
    """

    kind: str
    files: tuple[str, ...] = ()
    omni: str = ""
    gpu: str = ""
    ascend: str = ""
    human: str = ""
    models: dict[str, str] = {}
    log: str = ""
    named: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()


class Task(Struct, frozen=True):
    """One task: what an agent is asked for, in which workspace, and what is looked at afterwards."""

    id: str
    prompt: str
    expected_output: str
    setup: Setup
    assertions: tuple[Assertion, ...]
    files: tuple[str, ...] = ()


class Tasks(Struct, frozen=True):
    skill_name: str
    evals: tuple[Task, ...]


class Handed(Struct, frozen=True):
    """``task.json`` of a prepared folder: what was handed over, and the commit it began with."""

    id: str
    base: str
    prepared: str
    skill: str


def tasks() -> dict[str, Task]:
    """Id -> task."""
    return {one.id: one for one in msgspec.json.decode(FILE.read_bytes(), type=Tasks).evals}


def handed(folder: Path) -> Handed:
    """What was handed over in a prepared folder."""
    return msgspec.json.decode((folder / TASK).read_bytes(), type=Handed)
