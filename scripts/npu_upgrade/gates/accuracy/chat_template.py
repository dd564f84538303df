"""Which chat template a served model is asked with: another template gives other values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npu_upgrade.ground.files import read_object, sha256

_OPTION = "--chat-template"
NONE = "none in the checkpoint: vLLM's own for this architecture, where it has one"


def template(model: Path, arguments: Sequence[str], cwd: Path) -> dict[str, Any]:
    """``from``: where the server takes it from; ``sha256`` of its text, None where that is not known here.

    ``arguments`` are those of vllm serve, started in ``cwd``; they may name another than the checkpoint's.
    """
    if given := _given(arguments):
        path = cwd / given
        text = path.read_text("utf-8", "replace") if path.is_file() else given
        return {"from": f"{_OPTION} {given if path.is_file() else 'as text'}", "sha256": sha256(text)}
    for name, text in _of_checkpoint(model):
        if text:
            return {"from": name, "sha256": sha256(text)}
    if not model.is_dir():
        return {"from": "the model by its id: not looked at", "sha256": None}
    return {"from": NONE, "sha256": None}


def _given(arguments: Sequence[str]) -> str:
    for word, following in zip(arguments, [*arguments, ""][1:], strict=True):
        name, equals, value = word.partition("=")
        if name == _OPTION:
            return value if equals else following
    return ""


def _of_checkpoint(model: Path) -> list[tuple[str, str]]:
    """The places in the order in which Transformers takes them: a processor's before a tokenizer's."""
    whole = model / "chat_template.jinja"
    found = [(whole.name, whole.read_text("utf-8", "replace"))] if whole.is_file() else []
    for name in ("chat_template.json", "processor_config.json", "tokenizer_config.json"):
        value = read_object(model / name).get("chat_template")
        found.append((name, value if isinstance(value, str) else json.dumps(value) if value else ""))
    return found
