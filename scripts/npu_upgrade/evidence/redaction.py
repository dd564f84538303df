"""Keep secrets out of what is written down: variables, arguments, addresses, headers, logs.

Two nets: the values of secretly named variables and arguments of this run, wherever they turn up, and
the shapes of well-known tokens. Of other variables only those that can change a run keep their values.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO
from urllib.parse import quote, quote_plus

MARK = "[redacted]"
NOT_KEPT = "[not kept]"
_CHUNK = 1 << 20  # bytes of a line without an end that are looked at together
_SHORTEST = 6  # shorter values would blot out ordinary text
_SECRET_NAME = re.compile(
    r"token(?!s\b|iz|_ids|_num)|secret|passw|passphrase|credential|api[-_]?key|access[-_]?key|private[-_]?key"
    r"|authorization|cookie|session[-_]?id|(?:^|[-_])(?:auth|pwd|dsn|key)$",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(
    r"tokenizers?|(?:max|min|num|total|prompt|completion|generation|cached|batched|reasoning)[-_\w]*tokens?\w*"
    r"|\w*tokens?[-_](?:id|ids|count|details|usage|total|per)\w*(?::\d+)?|(?:stop|eos|bos|pad|image)_token\w*"
    r"|[\w./+-]+\.(?:py|so|c|cc|cpp|cu|h|hpp|sh|jinja|ya?ml|json)",  # a file of code
    re.IGNORECASE,
)
_FOLDERS = ("PWD", "OLDPWD")  # a shell's folders, no passwords
CHANGES_A_RUN = re.compile(
    r"(?:VLLM|OMNI|ASCEND|ACL|HCCL|NPU|TORCH|PYTORCH|TORCHDYNAMO|TORCHINDUCTOR|TRITON|OMP|MKL|GLOO|NCCL|CUDA|RAY|ATB|LCCL|TASK"
    r"|INF_NAN|COMBINED|MULTI_STREAM|CPU_AFFINITY|HF_HUB_OFFLINE|TRANSFORMERS_OFFLINE)(?:_\w+)?"
    r"|PATH|PYTHONPATH|PYTHONHASHSEED|LD_LIBRARY_PATH|LD_PRELOAD|LANG|TMPDIR"
)
_SHAPES = [
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
        ),
        MARK,
    ),
    (re.compile(r"(?i)\b((?:bearer|basic|token)\s+)[A-Za-z0-9._~+/=-]{8,}"), rf"\1{MARK}"),
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s@'\"]+@", re.IGNORECASE), rf"\1{MARK}@"),
    (re.compile(r"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abp]-|AKIA|ASIA)[A-Za-z0-9_-]{12,}"), MARK),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"), MARK),
    (
        re.compile(
            r"(?i)((?:^|[\s?&;,{('\"-])(?:[\w-]*(?:api[-_]?key|secret|password|passwd|access[-_]?key)[\w-]*|[\w-]*token|auth)"
            r"['\"]?\s*[=:]\s*['\"]?)(?!\[redacted)[^\s'\"&,;)}]{6,}"
        ),
        rf"\1{MARK}",
    ),
]


def is_secret_name(name: str) -> bool:
    """Whether a value of that name is a secret: HF_TOKEN and --api-key, not max_tokens and --tokenizer."""
    plain = name.lstrip("-")
    if plain in _FOLDERS:
        return False
    return bool(_SECRET_NAME.search(plain)) and not _NO_SECRET.fullmatch(plain)


def _is_secret(name: str, value: Any) -> bool:
    """The same of an entry; the token of a chat's log-probabilities is ``token_id:5``."""
    return value is not None and is_secret_name(name) and not re.fullmatch(r"token_id:\d+", str(value))


class Redactor:
    """Redacts everything of one run; made from its environment and arguments."""

    def __init__(self, environment: Mapping[str, str] | None = None, argv: Sequence[str] = ()) -> None:
        values = {value for name, value in (environment or {}).items() if is_secret_name(name)}
        values |= set(_secret_arguments(argv))
        forms = {form for value in values if len(value) >= _SHORTEST for form in _forms(value)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def text(self, text: str) -> str:
        if self._known:
            text = self._known.sub(MARK, text)
        for shape, mark in _SHAPES:
            text = shape.sub(mark, text)
        return text

    def argv(self, argv: Sequence[str]) -> list[str]:
        """Arguments; what follows a secretly named option is gone whatever it looks like."""
        redacted, secret = [], False
        for one in argv:
            name, equals, _ = one.partition("=")
            if secret:
                redacted.append(MARK)
            elif equals and name.startswith("-") and is_secret_name(name):
                redacted.append(f"{name}={MARK}")
            else:
                redacted.append(self.text(one))
            secret = not secret and not equals and one.startswith("-") and is_secret_name(one)
        return redacted

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Every name; values of those that can change a run."""
        return {name: self._variable(name, environment[name]) for name in sorted(environment)}

    def _variable(self, name: str, value: str) -> str:
        if is_secret_name(name):
            return MARK
        return self.text(value) if CHANGES_A_RUN.fullmatch(name) else NOT_KEPT

    def value(self, value: Any) -> Any:
        """JSON-able data; under a secret key nothing stays."""
        if isinstance(value, Mapping):
            return {
                self.text(str(key)): MARK if _is_secret(str(key), one) else self.value(one)
                for key, one in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(one) for one in value]
        return self.text(value) if isinstance(value, str) else value

    def log(self, stream: BinaryIO) -> Iterator[bytes]:
        """A log, piece by piece; a private key that spans lines is one piece."""
        held = ""
        for piece in _pieces(stream):
            held += piece
            if "PRIVATE KEY-----" in held and "-----END" not in held and len(held) < _CHUNK:
                continue
            yield self.text(held).encode()
            held = ""
        if held:
            yield self.text(held).encode()


def _pieces(stream: BinaryIO) -> Iterator[str]:
    """Lines; one without an end is cut between words, so that no secret is cut through."""
    rest = b""
    while chunk := stream.readline(_CHUNK):
        chunk = rest + chunk
        rest = b""
        if not chunk.endswith(b"\n") and len(chunk) >= _CHUNK:
            cut = chunk.rfind(b" ") + 1
            if cut or len(chunk) < 8 * _CHUNK:
                chunk, rest = chunk[:cut], chunk[cut:]
        if chunk:
            yield chunk.decode("utf-8", errors="replace")
    if rest:
        yield rest.decode("utf-8", errors="replace")


def _secret_arguments(argv: Sequence[str]) -> Iterator[str]:
    for one, following in zip(argv, [*argv, ""][1:], strict=True):
        name, equals, value = one.partition("=")
        if name.startswith("-") and is_secret_name(name):
            yield value if equals else following


def _forms(value: str) -> Iterable[str]:
    """How a value may be written: plain, in an address, in JSON, in basic authentication."""
    escaped = json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]
    quoted = [
        quote(value, safe=safe, errors="surrogateescape") for safe in ("", "/", ":/", "~:/?#[]@!$&'()*+,;=")
    ]
    encoded = base64.b64encode(value.encode("utf-8", "surrogateescape")).decode().rstrip("=")
    return {value, *quoted, quote_plus(value, errors="surrogateescape"), *escaped, encoded}
