"""How much room a folder of the cache takes. Standard library only."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path


def megabytes(folder: Path, *, freed: bool = False) -> int:
    """The size of all files in ``folder``, each once, in MB (10^6 bytes).

    ``freed``: what removing it frees, so that files that hard links outside of it keep do not count.
    """
    named: Counter[tuple[int, int]] = Counter()
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for top, _, names in os.walk(folder):
        for name in names:
            try:
                entry = os.lstat(os.path.join(top, name))
            except OSError:  # gone meanwhile
                continue
            key = (entry.st_dev, entry.st_ino)
            named[key] += 1
            found[key] = (entry.st_nlink, entry.st_blocks * 512)
    total = sum(size for key, (links, size) in found.items() if not freed or named[key] >= links)
    return round(total / 1_000_000)
