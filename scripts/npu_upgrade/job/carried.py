"""The options that go from one gate's command to the next: where it is served, and how."""

from __future__ import annotations

from collections.abc import Sequence

from npu_upgrade.evidence.redaction import MARK

# option -> whether a value follows
_CARRIED = {
    "--python": True,
    "--omni": False,
    "--emulated": False,
    "--work-dir": True,
    "--port": True,
    "--env": True,
    "--expect-import": True,
    "--keep-pythonpath": False,
}
# options of vllm serve that a gate sets itself
_OWN = {"capacity": ("--max-model-len", "--max-num-seqs")}


def carried(command: Sequence[str], gate: str) -> tuple[list[str], list[str]]:
    """The options of ``command`` that hold for ``gate`` too, and what goes on to vllm serve."""
    at = list(command).index("--") if "--" in command else len(command)
    found = [word for part in _parts(command[:at]) for word in part]
    own = _OWN.get(gate, ())
    passed, skip = [], False
    for word in command[at + 1 :]:
        name, equals, _ = word.partition("=")
        if MARK in word:
            passed = passed if equals else passed[:-1]
        elif not skip and name not in own:
            passed.append(word)
        skip = name in own and not equals
    return found, passed


def _parts(words: Sequence[str]) -> list[list[str]]:
    found = []
    for at, word in enumerate(words):
        name, equals, _ = word.partition("=")
        if name not in _CARRIED:
            continue
        part = [word, *words[at + 1 : at + 2]] if _CARRIED[name] and not equals else [word]
        if not any(MARK in one for one in part):  # a secret that the evidence does not hold
            found.append(part)
    return found
