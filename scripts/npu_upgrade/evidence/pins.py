"""Exact pins: what a verdict was reached against, never a name that moves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from npu_upgrade.ground.errors import BadInput

_CHECKS = {
    # Stricter than packaging.Version, which reads the branch v0.11.0-dev as a version.
    "version": re.compile(r"v?\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?"),
    "sha": re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}"),
    "tree": re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}"),
    "archive_sha256": re.compile(r"[0-9a-f]{64}"),
}


def check_pins(pins: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise :class:`BadInput` unless each project has an exact version, a full SHA or a content hash.

    A pin is the identity of a source: ``version``, ``sha`` (git commit), ``archive_sha256`` and ``tree``
    (content) are looked at, the rest are notes. ``dirty`` content is pinned by ``tree`` alone.
    """
    for project, pin in pins.items():
        keys = ("tree",) if pin.get("dirty") else tuple(_CHECKS)
        exact = {key: pin[key] for key in keys if pin.get(key)}
        wrong = [f"{key} {value!r}" for key, value in exact.items() if not _CHECKS[key].fullmatch(str(value))]
        if wrong or not exact:
            raise BadInput(
                f"{project} is not pinned: {', '.join(wrong) or _nothing(pin)}",
                expected="an exact version (0.22.1rc1) or a full SHA, not a branch or a short SHA",
                try_="name a released version, or a commit of a clone (git:PATH@REF)",
            )


def _nothing(pin: Mapping[str, Any]) -> str:
    return "it has uncommitted changes" if pin.get("dirty") else f"none of {', '.join(_CHECKS)}"


def short_pin(pin: Mapping[str, Any]) -> str:
    """A pin for people: ``0.22.1rc1 (1a2b3c4d5e6f)``, or whichever part there is."""
    digest = str(pin.get("sha") or pin.get("tree") or "")[:12]
    version = str(pin.get("version") or "")
    return f"{version} ({digest})" if version and digest else version or digest or "unknown"
