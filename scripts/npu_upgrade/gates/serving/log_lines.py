"""A serve log as lines: which process says it, at which level, and the bare text.

Reads any size in bounded memory. Knows the headers that vLLM, torch, uvicorn and Python's logging write;
nothing of what the texts mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

LONGEST = 16 * 1024  # bytes of a line that are looked at
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07)")
_PROGRESS = re.compile(r"(?<=it/s\])|(?<=s/it\])|\r")
_HEADER = re.compile(
    r"(?:\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\s)?"  # what a container runtime puts in front
    r"(?P<who>(?:\([^()]*pid=\d+[^()]*\)\s?|\[(?:rank\d+|Stage-\d+)\]:?\s?)*)"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\s\d\d-\d\d\s[\d:.]+\s\[?(?P<place>[^\]\s]+:\d+)\]\s?"
    r"|\[(?P<letter>[DIWEF])\d{3,4}\s[\d:.]+\s(?P<file>[^\]]+)\]\s?"
    r"|(?P<word>DEBUG|INFO|WARNING|ERROR|CRITICAL):(?:[\w.]+:|\s+))?"
)
_LETTERS = {"D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}


class LogLine(NamedTuple):
    """``who``: the prefix that names the process. ``level`` and ``place`` (file:line) are empty if unsaid."""

    number: int
    who: str
    level: str
    place: str
    text: str


def read(path: Path) -> Iterator[LogLine]:
    """The lines of a log file, numbered from 1."""
    with open(path, "rb") as stream:
        yield from parse(_bounded(stream))


def lines_until(path: Path, size: int) -> int:
    """How many lines of a log are complete in its first ``size`` bytes."""
    count = 0
    with open(path, "rb") as stream:
        while size > 0 and (part := stream.read(min(size, 1 << 20))):
            count += part.count(b"\n")
            size -= len(part)
    return count


def parse(raw: Iterable[str]) -> Iterator[LogLine]:
    """Lines of text as log lines. A progress bar and what was written behind it are lines of one number."""
    for number, line in enumerate(raw, start=1):
        plain = _ANSI.sub("", line) if "\x1b" in line else line
        plain = plain.rstrip("\r\n")
        glued = "\r" in plain or "it/s]" in plain or "s/it]" in plain
        for piece in _PROGRESS.split(plain) if glued else (plain,):
            yield _line(number, piece)


def _line(number: int, text: str) -> LogLine:
    found = _HEADER.match(text)
    assert found is not None  # every part of it may be absent
    who, level, place, letter, file, word = found.groups()
    level = level or word or _LETTERS.get(letter or "", "")
    return LogLine(number, who.strip(), level, place or file or "", text[found.end() :])


def _bounded(stream: BinaryIO) -> Iterator[str]:
    while line := stream.readline(LONGEST):
        yield line.decode("utf-8", errors="replace")
        while len(line) == LONGEST and not line.endswith(b"\n"):  # the rest of an endless line
            line = stream.readline(LONGEST)


_CACHE = re.compile(r"KV cache size: ([\d,]+) tokens")
_CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")


def kv_cache(log: Path) -> dict[str, Any] | None:
    """Tokens that fit into the cache, and how many requests of full length at once, as vLLM logged them."""
    found: dict[str, Any] = {}
    with open(log, encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if "KV cache size" in line and (size := _CACHE.search(line)):
                found["tokens"] = int(size[1].replace(",", ""))
            if "Maximum concurrency" in line and (most := _CONCURRENCY.search(line)):
                found |= {"per_request": int(most[1].replace(",", "")), "max_concurrency": float(most[2])}
    return found or None
