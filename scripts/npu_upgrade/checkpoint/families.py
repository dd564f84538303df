"""The families that vLLM and Transformers both have: what a checkpoint of each holds, and its keys."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

FAMILIES = Path(__file__).with_name("families.json")


class Family(msgspec.Struct, frozen=True):
    """A tiny model of one architecture; ``config``: its class in Transformers.

    ``tensors``: pattern of names (numbers as ``*``) -> shape; ``optional``: those that some configurations
    leave out. ``sizes``: dotted key -> the number that stands for it in shapes. ``keys``: dotted keys of its
    own; ``types``: dotted key -> model type of a part.
    """

    model_type: str
    config: str
    sizes: dict[str, int]
    keys: list[str]
    types: dict[str, str]
    tensors: dict[str, tuple[int, ...]]
    optional: list[str] = []


@functools.cache
def families() -> dict[str, Family]:
    """The families by architecture, as shipped with the skill."""
    return msgspec.json.decode(FAMILIES.read_bytes(), type=dict[str, Family])
