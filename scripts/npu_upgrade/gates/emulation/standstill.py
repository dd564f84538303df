"""Whether a run stood still: it recorded nothing for long, though it had the processor."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct, convert, to_builtins

from npu_upgrade.ground.files import read_object, write_json

_LONG = 60.0  # seconds; the tiny models' steps take less than one
_BUSY = 0.25  # of a core; what computes less may get no more of a machine with too much to do


class Quiet(Struct, frozen=True):
    """The longest time in which a run recorded nothing, and what its processes computed in it; seconds."""

    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def stands_still(self) -> bool:
        return self.seconds >= _LONG and self.cpu >= _BUSY * self.seconds


UNSEEN = Quiet()


@dataclass
class _Seen:
    size: int
    at: float
    cpu: float
    longest: Quiet


class Watch:
    """Asked again and again while runs are at work; ``out`` has their records, one file for each process."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._seen: dict[str, _Seen] = {}

    def look(self, names: Iterable[str]) -> None:
        """Look at the records of runs."""
        for name in names:
            files = list((self._out / f"{name}.record").glob("*.jsonl"))
            size, now, cpu = sum(map(_size, files)), time.monotonic(), _cpu_seconds(files)
            seen = self._seen.setdefault(name, _Seen(size, now, cpu, Quiet()))
            if size != seen.size:
                seen.size, seen.at, seen.cpu = size, now, cpu
            elif now - seen.at > seen.longest.seconds and cpu >= seen.cpu:  # else some have ended since
                seen.longest = Quiet(now - seen.at, cpu - seen.cpu)

    def ended(self, name: str) -> None:
        """Write down what was seen of a run."""
        if seen := self._seen.pop(name, None):
            write_json(_file(self._out, name), to_builtins(seen.longest))


def quiet(out: Path, name: str) -> Quiet:
    """What was written down of a run; nothing where nothing was."""
    return convert(read_object(_file(out, name)), Quiet)


def _file(out: Path, name: str) -> Path:
    return out / f"{name}.quiet.json"


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # a run begins without the records of the one before
        return 0


def _cpu_seconds(files: Iterable[Path]) -> float:
    import psutil  # dear to import

    found = 0.0
    for one in files:
        with contextlib.suppress(psutil.Error, ValueError):
            spent = psutil.Process(int(one.stem)).cpu_times()
            found += spent.user + spent.system
    return found
