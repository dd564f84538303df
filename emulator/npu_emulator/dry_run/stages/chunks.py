"""The driver's end of a connector between two stages, for a stage whose neighbour does not run."""

from __future__ import annotations

import os
import time

PATIENCE = 20.0  # seconds until a chunk must have come


def connector(stage: int):
    """The shared-memory connector as stage number ``stage`` opens it."""
    from vllm_omni.distributed.omni_connectors.connectors.shm_connector import SharedMemoryConnector

    return SharedMemoryConnector({"stage_id": stage})


def prefix(probe) -> str:
    """A start for request names that no other process on this machine uses, since keys are made of them."""
    return f"{probe.name} {os.getpid()} ".replace(" ", "-")


def put(ours, name: str, number: int, chunk: dict) -> None:
    """Send chunk ``number`` of request ``name`` from stage 0 to stage 1."""
    sent, *_ = ours.put("0", "1", f"{name}_0_{number}", chunk)
    assert sent, f"chunk {number} of {name} was not sent"


def get(ours, name: str) -> list[dict]:
    """All chunks of request ``name`` from stage 0, up to the one that is marked as the last."""
    chunks, late = [], time.monotonic() + PATIENCE
    while not (chunks and bool(chunks[-1]["meta"]["finished"])) and time.monotonic() < late:
        found = ours.get("0", "1", f"{name}_0_{len(chunks)}")
        if found:
            chunks.append(found[0])
        else:
            time.sleep(0.01)
    return chunks
