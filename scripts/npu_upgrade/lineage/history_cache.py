"""What was read of upstream's versions, kept between runs.

Everything is keyed by content (a blob or the hash of a text). A file that cannot be read,
or that another Python or another way of reading statements made, is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from npu_upgrade.code import module, outline, portable, statements
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256, write_atomic
from npu_upgrade.ground.paths import cache_root

SCHEMA = 1
Outline = dict[str, str]


class HistoryCache:
    """``outlines``: blob -> {qualified name: text hash}. ``keys``: text hash -> statement keys.

    ``place`` is the file below the cache folder; outlines are stored with one table of
    (name, hash) pairs, since neighbouring versions share nearly all of them.
    """

    def __init__(self, name: str) -> None:
        self.place: Path = cache_root() / "lineage" / f"{sha256(name)[:16]}.json"
        self.outlines: dict[str, Outline] = {}
        self.keys: dict[str, list[int]] = {}
        self._saved = (0, 0)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            self._load(json.loads(self.place.read_text("utf-8")))

    def save(self) -> None:
        """Write what was added; a cache that cannot be written is no reason to fail."""
        size = (len(self.outlines), len(self.keys))
        if size == self._saved:
            return
        numbers: dict[tuple[str, str], int] = {}
        blobs = {
            blob: [numbers.setdefault(unit, len(numbers)) for unit in outline.items()]
            for blob, outline in self.outlines.items()
        }
        stored = {"made_by": _maker(), "units": list(numbers), "blobs": blobs, "keys": self.keys}
        with contextlib.suppress(BadInput):
            write_atomic(self.place, json.dumps(stored, separators=(",", ":")))
            self._saved = size

    def _load(self, stored: Any) -> None:
        if stored["made_by"] != _maker():
            return
        units = [(str(name), str(digest)) for name, digest in stored["units"]]
        outlines = {
            blob: dict(units[number] for number in numbers) for blob, numbers in stored["blobs"].items()
        }
        keys = {digest: [int(key) for key in row] for digest, row in stored["keys"].items()}
        self.outlines, self.keys = outlines, keys
        self._saved = (len(outlines), len(keys))


def _maker() -> str:
    """What the stored keys depend on besides the texts: our code, and what syntax this Python reads."""
    code = [Path(part.__file__).read_bytes() for part in (module, outline, portable, statements)]
    return sha256(b"".join(code) + f"{SCHEMA} {sys.version_info[:2]}".encode())[:16]


def text_hash(text: str) -> str:
    """What a text is filed under."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def key_hash(key: str) -> int:
    """A number for a statement key: shorter to keep, and as good for comparing."""
    return int.from_bytes(
        hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=6).digest(), "big"
    )
