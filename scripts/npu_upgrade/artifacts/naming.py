"""The name that files of a model carry, and the id its weights are published under."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from npu_upgrade.evidence.manifest import is_plain
from npu_upgrade.evidence.runs import Run
from npu_upgrade.ground.errors import BadInput

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,95}")
_ID = re.compile(r"[\w.-]+/[\w.-]+")


def check_name(name: str) -> str:
    """``name`` when it can be a file name, a page and a heading everywhere; else :class:`BadInput`."""
    if (
        not _NAME.fullmatch(name)
        or name.endswith(".")
        or name.lower() in ("index", "con", "nul", "aux", "prn")
    ):
        raise BadInput(
            f"{name!r} cannot name files: they would not open on every system",
            expected="letters, digits and . _ + -, beginning with a letter or digit (not index)",
            try_="--name NAME, as the model is called where it is published",
        )
    return name


def check_id(text: str) -> str:
    """``text`` when it is an id of a hub; else :class:`BadInput`."""
    if not _ID.fullmatch(text):
        raise BadInput(
            f"{text!r} is no id of published weights", expected="ORG/NAME", try_="--hf-id Qwen/Qwen3-8B"
        )
    return text


class Source(msgspec.Struct, frozen=True):
    """Where the weights are: ``hf_id`` on a hub, or ``place`` for those that are published nowhere."""

    hf_id: str | None = None
    place: str | None = None

    @property
    def name(self) -> str | None:
        """What a config calls them."""
        return self.hf_id or self.place


def check_place(path: str | None) -> str | None:
    """``path`` when it means the same on every machine; else :class:`BadInput`."""
    if path is None or is_plain(path):
        return path
    raise BadInput(
        f"{path!r} is a place of one machine",
        expected="a relative path",
        try_="--unpublished checkpoints/NAME",
    )


def hf_id_of(runs: list[Run]) -> str | None:
    """The id of the weights, when a gate was given the model by it."""
    given = [str(run.result.get("model") or "") for run in reversed(runs)]
    return next((text for text in given if _ID.fullmatch(text) and not Path(text).exists()), None)


def check_case(folder: Path, file: str) -> None:
    """Refuse a file whose name differs from one in ``folder`` in case only."""
    if not folder.is_dir():
        return
    twin = next((p.name for p in folder.iterdir() if p.name.lower() == file.lower() and p.name != file), None)
    if twin:
        raise BadInput(
            f"{folder / twin} differs from {file} in upper and lower case only",
            expected="names that stay apart on every file system",
            try_=f"--name {Path(twin).stem}, when it is the same model, or another --name",
        )
