"""What happened in a job, in order: one JSON line an entry, only ever added to.

The journal knows nothing of what an answer means. Whole files as they were before an answer lie beside
it, so that it can be taken back.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from npu_upgrade.evidence.surroundings import utc_now
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.files import write_atomic
from npu_upgrade.ground.locks import locked

KEEP = 60  # copies of files; those of older answers are let go


class Entry(Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """``number`` counts from 1; ``at`` is UTC."""

    number: int
    at: str


class Begun(Entry, frozen=True, tag="begun"):
    """A process began a stage with ``command``; ``born`` tells it from a later one of the same number."""

    stage: str
    command: list[str]
    pid: int
    born: float


class Ended(Entry, frozen=True, tag="ended"):
    """A stage ended. A gate that recorded its verdict names only the record, as ``evidence``."""

    stage: str
    verdict: str = ""
    summary: str = ""
    outputs: dict[str, Any] = {}
    evidence: str = ""


class Answer(Entry, frozen=True, tag="answer"):
    """``before`` and ``after`` are hashes of the file, empty when none was written; ``text`` was put there.

    ``evidence``: the record of the gate that asked; ``marked``: the conflict that ``text`` replaced.
    """

    id: str
    how: str
    note: str = ""
    stage: str = ""
    path: str = ""
    unit: str = ""
    units: list[str] = []
    text: str = ""
    imports: list[str] = []
    marked: str = ""
    before: str = ""
    after: str = ""
    evidence: str = ""


class Undo(Entry, frozen=True, tag="undo"):
    """The answer with the number ``undoes`` was taken back."""

    id: str
    undoes: int


class Continued(Entry, frozen=True, tag="continued"):
    """A person let the job go on after the stop ``id``."""

    id: str
    note: str


class Skipped(Entry, frozen=True, tag="skipped"):
    """A person left a stage or a kind of question out."""

    id: str
    note: str


class Halted(Entry, frozen=True, tag="halted"):
    """The gate ``id`` started nothing, as it was called by ``command``; ``why`` in one sentence.

    ``verdict`` is BLOCKED where it could not begin, FAIL where the plugin does not take part. ``adding``:
    words with which the command would go on.
    """

    id: str
    command: list[str]
    why: str
    verdict: str = "BLOCKED"
    adding: Sequence[str] = ()


_LINE = msgspec.json.Decoder(Begun | Ended | Answer | Undo | Continued | Skipped | Halted)
E = TypeVar("E", bound=Entry)


@dataclass(frozen=True)
class Attempt:
    """The last run of a stage: how it began and ended, and how often it was begun since it last ended."""

    begun: Begun | None
    ended: Ended | None
    tries: int

    @property
    def running(self) -> bool:
        return self.begun is not None and self.tries > 0 and _is_alive(self.begun)

    @property
    def interrupted(self) -> bool:
        return self.tries > 0 and not self.running


class Journal:
    """The entries of the job in ``folder``; the file is made with the first one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "journal.jsonl"

    def entries(self) -> list[Entry]:
        """All entries, oldest first; the half line of a writer that died is left out."""
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            try:
                found.append(_LINE.decode(line))
            except msgspec.MsgspecError:
                continue
        return found

    def of(self, kind: type[E]) -> list[E]:
        """All entries of one kind, oldest first."""
        return [entry for entry in self.entries() if isinstance(entry, kind)]

    def answers(self) -> list[Answer]:
        """The answers that were not taken back."""
        undone = {entry.undoes for entry in self.of(Undo)}
        return [entry for entry in self.of(Answer) if entry.number not in undone]

    def answer(self, id_: str) -> Answer | None:
        """The newest answer of that id that was not taken back."""
        return next((entry for entry in reversed(self.answers()) if entry.id == id_), None)

    def skipped(self) -> dict[str, str]:
        """What a person left out, with the reason."""
        return {entry.id: entry.note for entry in self.of(Skipped)}

    def attempt(self, stage: str, earlier: Sequence[str] = ()) -> Attempt:
        """The last run of a stage since one of the ``earlier`` stages ended with something new."""
        entries = self.entries()
        since = max((_news(entries, name) for name in earlier), default=0)
        entries = [entry for entry in entries if entry.number > since]
        begun = [entry for entry in entries if isinstance(entry, Begun) and entry.stage == stage]
        ended = [entry for entry in entries if isinstance(entry, Ended) and entry.stage == stage]
        last = ended[-1] if ended else None
        tries = sum(last is None or entry.number > last.number for entry in begun)
        return Attempt(begun[-1] if begun else None, last, tries)

    def begin(self, stage: str, command: list[str]) -> None:
        """Note that this process runs a stage; :class:`BadInput` when another live process does."""
        import psutil  # dear to import, and those who only look need it rarely

        with locked(self.folder / "journal.lock"):
            last = self.attempt(stage)
            if last.running and last.begun and last.begun.pid != os.getpid():
                raise BadInput(
                    f"{stage} of job {self.folder.name} is already running in process {last.begun.pid}",
                    expected="one run of a stage at a time",
                    try_=f"wait for it, or end process {last.begun.pid} and run the same command again",
                )
            born = psutil.Process().create_time()
            self._append(Begun, {"stage": stage, "command": command, "pid": os.getpid(), "born": born})

    def add(self, kind: type[E], **fields: Any) -> E:
        """Append an entry; on return it is on disk."""
        with locked(self.folder / "journal.lock"):
            return self._append(kind, fields)

    def keep(self, digest: str, text: str) -> None:
        """Keep a file's text as it was before an answer, by its hash."""
        write_atomic(self._copy(digest), text)
        copies = sorted((self.folder / "answered").iterdir(), key=lambda path: path.stat().st_mtime)
        for old in copies[:-KEEP]:
            old.unlink(missing_ok=True)

    def kept(self, digest: str) -> str | None:
        """The text kept by :meth:`keep`, None when it was let go."""
        path = self._copy(digest)
        return path.read_bytes().decode("utf-8") if path.exists() else None

    def _copy(self, digest: str) -> Path:
        return self.folder / "answered" / f"{digest}.py"

    def _append(self, kind: type[E], fields: dict[str, Any]) -> E:
        number = max((entry.number for entry in self.entries()), default=0) + 1
        value = {"kind": kind.__struct_config__.tag, "number": number, "at": utc_now()} | fields
        entry = msgspec.convert(value, kind)
        try:
            with self.path.open("a+b") as stream:
                if stream.tell() and not self.path.read_bytes().endswith(b"\n"):
                    stream.write(b"\n")  # close the half line of a writer that died
                stream.write(msgspec.json.encode(entry) + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise Blocked(
                f"cannot append to {self.path}: {error.strerror or error}",
                expected="room for one more line",
                try_="free some space and run the command again",
            ) from error
        return entry


def _news(entries: list[Entry], stage: str) -> int:
    """The number of the entry with which a stage last ended otherwise than before; 0 when it never did."""
    ended = [entry for entry in entries if isinstance(entry, Ended) and entry.stage == stage]
    changed = (
        new.number
        for old, new in pairwise(ended)
        if (old.outputs, old.evidence) != (new.outputs, new.evidence)
    )
    return max(changed, default=0)


def _is_alive(begun: Begun) -> bool:
    """Whether the process that began a stage is still there: its number alone may be reused."""
    import psutil

    try:
        return abs(psutil.Process(begun.pid).create_time() - begun.born) < 2.0
    except psutil.NoSuchProcess:
        return False
