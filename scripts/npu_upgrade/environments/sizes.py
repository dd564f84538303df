"""How much room a folder of the cache takes. Standard library only."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path


def megabytes(folder: Path) -> int:
    """The size of all files in ``folder``, each once, in MB (10^6 bytes)."""
    return _sum(folder, lambda links, named: True)


def freed_megabytes(folder: Path) -> int:
    """The MB that removing ``folder`` frees: files that hard links outside of it keep do not count."""
    return _sum(folder, lambda links, named: named >= links)


def _sum(folder, counts) -> int:
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
    total = sum(size for key, (links, size) in found.items() if counts(links, named[key]))
    return round(total / 1_000_000)
