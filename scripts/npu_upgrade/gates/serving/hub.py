"""What a hub is asked for before anything is made or started, where it cannot answer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import httpx

from npu_upgrade.checkpoint.locate import hub_caches, hub_home
from npu_upgrade.ground.errors import Blocked

_HUB = "https://huggingface.co"
_SECONDS = 10.0


def check_reachable(model: str) -> None:
    """Raise :class:`Blocked` for an id of a hub that is neither here nor can be fetched now."""
    if Path(model).is_dir() or "/" not in model or model.startswith(("/", ".", "~")):
        return
    name = f"models--{model.replace('/', '--')}"
    known = any((cache / name).is_dir() for cache in hub_caches())
    if known or os.environ.get("VLLM_USE_MODELSCOPE", "").lower() in ("1", "true"):
        return
    if why := _unanswered(f"{model}/resolve/main/config.json"):
        raise Blocked(
            f"{model} is no folder here, and cannot be fetched: {why}",
            expected="the weights on this machine, or a hub that answers",
            try_="the folder of the weights as MODEL; HF_ENDPOINT for a mirror",
        )


def check_questions(tasks: Sequence[str]) -> None:
    """Raise :class:`Blocked` where there is no dataset here and no hub to fetch those of ``tasks`` from."""
    kept = Path(os.environ.get("HF_DATASETS_CACHE") or hub_home() / "datasets")
    if any(kept.glob("*/*")) or any(list(cache.glob("datasets--*")) for cache in hub_caches()):
        return  # which of them a task needs is known to lm_eval alone
    if why := _unanswered("api/datasets?limit=1"):
        raise Blocked(
            f"the questions of {', '.join(tasks)} cannot be fetched: {why}",
            expected="their datasets in the cache, or a hub that answers",
            try_="HF_ENDPOINT for a mirror, HF_HOME for a cache that has them, or --include-path",
        )


def _unanswered(place: str) -> str:
    """Why the hub gives nothing for a place; empty where it answers."""
    address = f"{os.environ.get('HF_ENDPOINT') or _HUB}/{place}"
    try:
        answer = httpx.head(address, timeout=_SECONDS, follow_redirects=True)
        return "" if answer.status_code < 400 else f"{address} answers {answer.status_code}"
    except httpx.HTTPError as error:
        return f"{address} does not answer: {error}"
