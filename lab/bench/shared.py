"""What the benches share: their options, results that outlast a cut, the closing line, sums of scores.

A run is ``default`` (within 30 minutes on two idle cores, each kind of case), ``whole`` (every case), or
``chosen`` (what the options name). A whole run keeps the result of each case in a file that is named by the
case and by the content of everything that makes and judges it; cut short and started again, it goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from npu_upgrade.ground.files import sha256, write_atomic
from npu_upgrade.ground.paths import APP, cache_root

ROOT = Path(__file__).resolve().parents[2]
UPGRADE, ADAPT = (ROOT / "scripts" / name for name in ("upgrade.py", "adapt.py"))
SOURCES = ("scripts", "lab/bench", "lab/runner_checks", "emulator", "runners")
_SUFFIXES = (".py", ".cpp", ".yaml", ".json")
_CACHED = ("archives", "index", "envs", "peeks")
T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """One run of a bench; ``keep`` is the folder of results, None where nothing is kept."""

    name: str
    kind: str
    keep: Path | None = None

    @property
    def whole(self) -> bool:
        return self.kind == "whole"

    @cached_property
    def sources(self) -> str:
        """A digest of what makes and judges results."""
        paths = [path for part in SOURCES for path in sorted((ROOT / part).rglob("*"))]
        texts = [f"{path}\0{sha256(path.read_bytes())}" for path in paths if path.suffix in _SUFFIXES]
        return sha256("\0".join(texts))

    def found(self, case: str, content: Any, kind: type[T]) -> T | None:
        """The kept result of a case, of the same ``content`` (anything JSON can hold)."""
        place = self._place(case, content)
        if place is None or not place.exists():
            return None
        return msgspec.json.decode(place.read_bytes(), type=kind, dec_hook=lambda kind, value: kind(value))

    def store(self, case: str, content: Any, result: Any) -> None:
        """Keep the result of a case."""
        if place := self._place(case, content):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(place, msgspec.json.encode(result, enc_hook=str))

    def result(
        self,
        case: str,
        content: Any,
        kind: type[T],
        play: Callable[..., T],
        *given: Any,
        good: Callable[[T], bool] = lambda _: True,
    ) -> T:
        """The result of a case: the kept one, or what ``play(*given)`` returns, kept when it is ``good``."""
        if (kept := self.found(case, content, kind)) is not None:
            return kept
        result = play(*given)
        if good(result):
            self.store(case, content, result)
        return result

    def _place(self, case: str, content: Any) -> Path | None:
        if self.keep is None:
            return None
        judged = sha256(json.dumps([self.name, self.sources, content], sort_keys=True, default=str))[:16]
        return self.keep / f"{case.replace(' ', '-').replace('/', '-')}-{judged}.json"

    def close(self, figures: Mapping[str, object], missed: Sequence[str]) -> int:
        """Print what was missed and the closing line; the exit code."""
        print("".join(f"not reached: {text}\n" for text in missed), end="", file=sys.stderr, flush=True)
        values = " ".join(f"{key}={value}" for key, value in figures.items())
        print(f"\n{self.name}: run={self.kind} {values}")
        return 1 if missed else 0


def options(doc: str | None) -> argparse.ArgumentParser:
    """A parser with the options that all benches have."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=raw, allow_abbrev=False)
    parser.add_argument("--whole", action="store_true", help="every case; goes on where it was cut")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="results are kept there (--whole: in the cache folder)"
    )
    return parser


def begin(name: str, args: argparse.Namespace, chosen: object = None) -> Run:
    """The run that the options ask for; ``chosen`` is what they name, if anything."""
    kind = "chosen" if chosen else "whole" if args.whole else "default"
    keep = args.keep or (cache_root() / "bench" / name if kind == "whole" else None)
    return Run(name, kind, keep)


def timed(arguments: Sequence[str], cache: str, ends: Sequence[int] = (0,)) -> tuple[float, float]:
    """Seconds and MiB of an upgrade.py command; ``cache``: its XDG_CACHE_HOME, ``ends``: good exit codes."""
    command = [sys.executable, str(UPGRADE), *arguments]
    begun = time.monotonic()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            cwd=cache,
            env=os.environ | {"XDG_CACHE_HOME": cache},
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in ends:
            log.seek(0)
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{log.read().decode()}")
    return seconds, usage.ru_maxrss / 1024


def some(found: Sequence[T], asked: object) -> list[T]:
    """The cases that options name; the bench ends where there are none."""
    if not found:
        raise SystemExit(f"no case fits {asked}; expected the name of one; without it the default is run")
    return list(found)


def each_kind(cases: Sequence[T], kinds: Callable[[T], Iterable[Hashable]]) -> list[T]:
    """The first cases that have all kinds: those of a kind that none before them has."""
    found, known = [], set[Hashable]()
    for one in cases:
        found += [] if known.issuperset(kinds(one)) else [one]
        known.update(kinds(one))
    return found


@dataclass
class Tally:
    """Counts and lists of cases as dataclass fields, which add up."""

    def add(self, other: Self) -> None:
        """Add every field of ``other`` to this one's."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


@contextlib.contextmanager
def own_cache() -> Generator[str]:
    """A folder to give as XDG_CACHE_HOME, where nothing is remembered but what was fetched."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / APP
        cache.mkdir()
        for part in _CACHED:
            if (cache_root() / part).exists():
                (cache / part).symlink_to(cache_root() / part)
        yield folder
