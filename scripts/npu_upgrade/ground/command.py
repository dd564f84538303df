"""A command to run, as a value: made where it is decided, rendered once where it is shown."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from npu_upgrade.ground.paths import FROM_WHEEL, SKILL
from npu_upgrade.ground.progress import OF

UPGRADE, ADAPT = "upgrade.py", "adapt.py"
_WITHIN = "NPU_UPGRADE_WITHIN"
_PRINTED = ".printed"
_PROGRAM = re.compile(r"(?<![\w./-])(upgrade|adapt)\.py(?= )")
_REFERENCE = re.compile(r"(?<![\w./-])references/[\w-]+\.md")


@dataclass(frozen=True, slots=True)
class Command:
    """``PROGRAM NAME ARGUMENTS [-- PASSED_ON]``; FILE, WHY and the like among the arguments are for a person.

    ``str()`` is what a shell runs from any folder: the interpreter and the script's own place, or the console
    script of a wheel; quoted words.
    ``short`` is for sentences.
    """

    program: str
    name: str
    arguments: tuple[str, ...] = ()
    passed_on: tuple[str, ...] = ()

    @classmethod
    def of(cls, argv: Sequence[str]) -> Command:
        """The command that an argv ran, as :attr:`argv` gives it."""
        at = list(argv).index("--") if "--" in argv else len(argv)
        argv = list(argv) or [UPGRADE]
        return cls(argv[0], argv[1] if at > 1 else "", tuple(argv[2:at]), tuple(argv[at + 1 :]))

    @property
    def argv(self) -> list[str]:
        """The words, the program by its plain name."""
        tail = ["--", *self.passed_on] if self.passed_on else []
        return [self.program, self.name, *self.arguments, *tail]

    @property
    def short(self) -> str:
        return called_here(shlex.join(self.argv))

    def adding(self, *arguments: str) -> Command:
        """The same command with more arguments."""
        return replace(self, arguments=(*self.arguments, *arguments))

    def __str__(self) -> str:
        if FROM_WHEEL:
            name = called_here(self.program + " ").strip()
            place = Path(sys.executable).with_name(name)
            on_path = shutil.which(name)
            known = on_path is not None and Path(on_path).resolve() == place.resolve()
            return shlex.join([name if known else str(place), *self.argv[1:]])
        script = Path(sys.argv[0])
        beside = script.resolve().with_name(self.program)
        if script.name not in (UPGRADE, ADAPT) or not beside.is_file():
            return self.short
        return shlex.join(["python3", str(beside), *self.argv[1:]])


def upgrade(name: str, *arguments: str) -> Command:
    """A command of ``upgrade.py``, or of the program that was called, where that has it too."""
    return Command(program() if name in _shared else UPGRADE, name, arguments)


def answered(command: Command, *, whole: bool = True) -> tuple[int, dict[str, Any]]:
    """Run a command of ours in a process of its own: its exit code, and its result or its error.

    The result is the ``whole`` one, or what an agent would read of it; empty where the process gave none.
    """
    return answered_together([command], whole=whole)[0]


def answered_together(
    commands: Sequence[Command], *, whole: bool = True, of: Sequence[str] = ()
) -> list[tuple[int, dict[str, Any]]]:
    """The same for several commands that run at the same time; ``of``: what each says its progress is of."""
    with tempfile.TemporaryDirectory(prefix="npu-upgrade-") as scratch:
        places = [Path(scratch) / f"{number}.json" for number in range(len(commands))]
        running: list[subprocess.Popen[bytes]] = []
        try:
            for at, (command, place) in enumerate(zip(commands, places, strict=True)):
                running.append(_started(command, place, whole, of[at] if of else ""))
            codes = [one.wait() for one in running]
        except BaseException:
            for one in running:
                one.terminate()  # where the interruption was not for all of us: it heeds one of both
            for one in running:
                one.wait()  # it ends what it started first
            raise
        return [(code, _said(place)) for code, place in zip(codes, places, strict=True)]


def _started(command: Command, place: Path, whole: bool, of: str) -> subprocess.Popen[bytes]:
    """The process, whose result is at ``place``, or beside it what it printed, where it left none."""
    options = command.adding("--format", "json", "--output", str(place)) if whole else command
    argv = [sys.executable, str(SKILL / "scripts" / command.program), *options.argv[1:]]
    with place.with_suffix(_PRINTED).open("wb") as printed:
        environment = os.environ | {_WITHIN: "1"} | ({OF: of} if of else {})
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=printed, env=environment)


def _said(place: Path) -> dict[str, Any]:
    text = (place if place.exists() else place.with_suffix(_PRINTED)).read_text("utf-8")
    try:
        found = json.loads(text)  # an error has no whole result
    except ValueError:
        found = {}
    return found if isinstance(found, dict) else {}


def within_another() -> bool:
    """Whether this command is a part of another one, by :func:`answered`."""
    return _WITHIN in os.environ


def adapt(name: str, *arguments: str) -> Command:
    """A command of ``adapt.py``."""
    return Command(ADAPT, name, arguments)


def called_here(text: str) -> str:
    """``text`` with the programs and references as they are found here.

    Of a wheel: ``npu-upgrade plan`` for ``upgrade.py plan``, and the whole path of a reference.
    """
    if not FROM_WHEEL:
        return text
    return _REFERENCE.sub(lambda found: str(SKILL / found[0]), _PROGRAM.sub(r"npu-\1", text))


def program() -> str:
    """The program that was called, by its plain name; ``upgrade.py`` when another one imported this."""
    return _called[0] if _called and _called[0] in (UPGRADE, ADAPT) else UPGRADE


def current() -> list[str]:
    """The command that is being run, as argv, its program by its plain name."""
    return list(_called) or [Path(sys.argv[0]).name, *sys.argv[1:]]


def note(prog: str, argv: Sequence[str], shared: Iterable[str] = ()) -> None:
    """Remember the command that is being run, and which commands its program shares with the other one."""
    _called[:] = [prog, *argv]
    _shared.clear()
    _shared.update(shared)


_called: list[str] = []
_shared: set[str] = set()
