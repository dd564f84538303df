"""Ray beside an environment that has none: its own package alone, since what it requires comes with vLLM."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from npu_upgrade.environments.store import EnvSpec, ensure

RAY = EnvSpec("ray", ("ray==2.60.0",), size_mb=300)


@contextmanager
def ray_alone() -> Generator[Path]:
    """A folder for PYTHONPATH that has nothing but Ray. Raises :class:`Blocked`."""
    (packages,) = (ensure(RAY).parents[1] / "lib").glob("python*/site-packages")
    with tempfile.TemporaryDirectory(prefix="bench-runners-") as folder:
        for found in [packages / "ray", *packages.glob("ray-*.dist-info")]:
            (Path(folder) / found.name).symlink_to(found)
        yield Path(folder)
