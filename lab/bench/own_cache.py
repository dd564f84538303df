"""A cache folder of a command's own, so that what it remembers starts empty."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Generator
from pathlib import Path

from npu_upgrade.ground.paths import APP, cache_root

_SHARED = ("archives", "index", "envs")


@contextlib.contextmanager
def own_cache() -> Generator[str]:
    """The folder to give as XDG_CACHE_HOME; archives, index pages and environments stay where they are."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / APP
        cache.mkdir()
        for part in _SHARED:
            if (cache_root() / part).exists():
                (cache / part).symlink_to(cache_root() / part)
        yield folder
