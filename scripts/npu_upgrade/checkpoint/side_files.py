"""What lies beside configuration and weights: tokenizer, processor, and code of the checkpoint's own."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.checkpoint.config import Config
from npu_upgrade.checkpoint.reading import Finding, error, listed, note, read_object, regular
from npu_upgrade.ground.tables import shortened

_TOKENIZERS = (
    *("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tiktoken.model", "tekken.json"),
    *("spiece.model", "sentencepiece.bpe.model", "qwen.tiktoken", "vocab.bpe"),
)
_PROCESSORS = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
_ENCODERS = ("bert", "roberta", "distilbert", "camembert", "xlnet", "albert", "xlm-roberta")
_TEMPLATES = ("chat_template.jinja", "chat_template.json")


class Files(msgspec.Struct):
    """``code``: each Python file with the names it takes from transformers; ``auto_map``: what names it."""

    tokenizer: list[str] = []
    processor: list[str] = []
    chat_template: bool = False
    code: dict[str, list[str]] = {}
    auto_map: dict[str, Any] = {}


class SideFiles(Files):
    """With what only the analysis needs. ``video``: keys of the processor about videos, as ``FILE: KEY``."""

    tokenizer_length: int | None = None
    encoder_length: int | None = None
    video: list[str] = []
    findings: list[Finding] = []


def read_side_files(folder: Path, config: Config) -> SideFiles:
    """What is there; code is parsed for the names it imports, and never run."""
    found = SideFiles()
    found.tokenizer = [name for name in _TOKENIZERS if (folder / name).exists()]
    found.processor = [name for name in _PROCESSORS if (folder / name).exists()]
    found.video = [one for name in found.processor for one in _about_video(folder / name)]
    found.chat_template = any((folder / name).exists() for name in _TEMPLATES)
    _read_tokenizer(found, folder)
    _check_vocabulary(found, folder, config)
    _read_encoder(found, folder)
    auto_map = config.raw.get("auto_map")
    found.auto_map = auto_map if isinstance(auto_map, dict) else {}
    for path in sorted(folder.glob("*.py")):
        found.code[path.name] = _imports(found, path)
    _check_auto_map(found, folder)
    return found


def _read_tokenizer(found: SideFiles, folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    if not path.exists():
        return
    value, problems = read_object(path)
    found.findings += problems
    found.chat_template |= "chat_template" in value
    length = value.get("model_max_length")
    found.tokenizer_length = int(length) if isinstance(length, int) and 0 < length < 10**9 else None


def _check_vocabulary(found: SideFiles, folder: Path, config: Config) -> None:
    """A tokenizer's own words have rows in the embedding; tokens added to it later may have none."""
    path, rows = folder / "tokenizer.json", config.text.number("vocab_size")
    model = read_object(path)[0].get("model") if rows and path.is_file() else None
    words = model.get("vocab") if isinstance(model, dict) else None
    ids = words.values() if isinstance(words, dict) else range(len(words or ()))
    largest = max((one for one in ids if type(one) is int), default=0)
    if largest >= rows > 0:
        what = f"tokenizer.json has a word with the number {largest}, vocab_size is {rows}"
        found.findings.append(error("tokenizer-size", what, "tokenizer.json"))


def _about_video(path: Path) -> list[str]:
    if path.name.startswith("video_"):
        return [path.name]
    return [f"{path.name}: {key}" for key, value in read_object(path)[0].items() if "video" in key and value]


def _read_encoder(found: SideFiles, folder: Path) -> None:
    paths = (folder / f"sentence_{kind}_config.json" for kind in _ENCODERS)
    if path := next((one for one in paths if one.exists()), None):
        value, problems = read_object(path)
        found.findings += problems
        length = value.get("max_seq_length")
        found.encoder_length = length if type(length) is int and length > 0 else None


def _imports(found: SideFiles, path: Path) -> list[str]:
    """Names a file takes from transformers: what an installed version has to have."""
    if problem := regular(path):
        found.findings.append(note("code-unreadable", f"{path.name} {problem}", path.name))
        return []
    try:
        parsed = ast.parse(path.read_bytes()[: 4 * 1024 * 1024])
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        found.findings.append(note("code-unparsable", f"{path.name} does not parse: {problem}", path.name))
        return []
    taken = set()
    for node in ast.walk(parsed):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "transformers":
            taken |= {f"{node.module}.{alias.name}" for alias in node.names}
    return sorted(taken)


def _check_auto_map(found: SideFiles, folder: Path) -> None:
    named = set()
    for value in found.auto_map.values():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) and "--" not in one and "." in one:
                named.add(one.rpartition(".")[0].replace(".", "/") + ".py")
    missing = [name for name in named if ".." in name or not (folder / name).is_file()]
    found.findings += listed("code-missing", "auto_map names files that are not there", missing, most=5)
    if found.code:
        what = f"code of its own, not run here: {shortened(sorted(found.code))}"
        found.findings.append(note("code-own", what, min(found.code)))
