"""Notes to remove something with a version that the given trees have reached."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.workarounds.needless import around, needless
from npu_upgrade.audit.world import World
from npu_upgrade.program.program import File
from npu_upgrade.program.version_guards import version_of

_NOTE = re.compile(
    r"\b(?P<project>vllm[-_ ]ascend|vllm)\b\s*(?:version|release)?\s*(?:>=|==|=|>|is|to|at)?\s*v?"
    r"(?P<version>\d+\.\d+(?:\.\d+)?(?:rc\d+|\.post\d+)?)",
    re.IGNORECASE,
)
_REMOVE = re.compile(
    r"\b(remove|drop|delete|revert|clean ?up|get rid|not needed|no longer needed)\b", re.IGNORECASE
)
_WHEN = re.compile(
    r"\b(when|once|after|until|as soon as|if|upgrad\w+|bump\w*|moves? to|with)\b", re.IGNORECASE
)


def reached_notes(world: World, file: File) -> Iterator[Finding]:
    """Comments that tell to remove something with a version that the given trees have reached."""
    for line, text in _comments(file.source):
        found = _NOTE.search(text)
        if not found or not (_REMOVE.search(text) and _WHEN.search(text)):
            continue
        project = "vllm-ascend" if "ascend" in found["project"].lower() else "vllm"
        tree = world.triple.ascend if project == "vllm-ascend" else world.triple.vllm
        named, have = version_of(found["version"]), version_of(tree.version)
        if named and have and have >= named:
            what = f"a note wants something removed with {project} {named}, and the tree has {have}"
            here = Side(file.project, file.path, line, f"note about {project} {named}")
            yield needless(
                "reached-note", around(file, line), f"{project} {named}", what, here, None,
                "the reason for it is gone", "do what the note says, or correct it",
            )  # fmt: skip


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments with the line they begin in; those on lines that follow one another are one."""
    start, last, parts = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1 and parts:
            yield start, " ".join(parts)
            parts = []
        start = start if parts else token.start[0]
        last = token.start[0]
        parts.append(token.string.lstrip("# "))
    if parts:
        yield start, " ".join(parts)
