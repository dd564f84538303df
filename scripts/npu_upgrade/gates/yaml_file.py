"""Files in YAML that people write for the gates, read strictly into their types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from npu_upgrade.ground.errors import BadInput

T = TypeVar("T")


def read_yaml(path: Path, kind: type[T], wrong: Callable[[Path, str], BadInput]) -> T:
    """The content of a file as ``kind``; raises what ``wrong`` makes of the place and the trouble there."""
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError) as error:
        raise wrong(path, " ".join(str(error).split())) from error
