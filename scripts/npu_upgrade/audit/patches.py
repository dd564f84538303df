"""What the patches of vllm-ascend and vllm-omni put in place of upstream's methods, functions and classes."""

from __future__ import annotations

import re

from npu_upgrade.audit.program import Program

_SET = re.compile(r"^[ \t]*(?!self\.)([A-Za-z_][\w.]*)\.(\w+)\s*=(?!=)", re.MULTILINE)
_SETATTR = re.compile(r"\bsetattr\(\s*([\w.]+)\s*,\s*[\"'](\w+)[\"']")
_ALIAS = re.compile(r"^[ \t]*(\w+)\s*=\s*[\w.]+\.(\w+)[ \t]*$", re.MULTILINE)


def patched_names(program: Program) -> frozenset[tuple[str, str]]:
    """Pairs of a class and a name set on it; the class is empty for a module or an object.

    Read as text from all files that have ``patch`` in their path.
    """
    found: set[tuple[str, str]] = set()
    for package, tree in program.trees.items():
        if package == "vllm":
            continue
        for path in tree.list(package):
            if "patch" in path and path.endswith(".py"):
                found |= _patched_in(tree.read(path))
    return frozenset(found)


def _patched_in(text: str) -> set[tuple[str, str]]:
    aliases = dict(_ALIAS.findall(text))
    pairs = [*_SET.findall(text), *_SETATTR.findall(text)]
    return {(_class_name(target, aliases), name) for target, name in pairs}


def _class_name(target: str, aliases: dict[str, str]) -> str:
    last = target.rpartition(".")[2]
    last = aliases.get(last, last)
    return last if last.lstrip("_")[:1].isupper() else ""
