"""What the patches of vllm-ascend and vllm-omni put in place of upstream's methods, functions and classes."""

from __future__ import annotations

import re

from npu_upgrade.program.program import Program

# A class (empty for a module or an object) and a name set on it -> files, and the name put there.
Patched = dict[tuple[str, str], list[tuple[str, str]]]
_SET = re.compile(r"^[ \t]*(?!self\.)([A-Za-z_][\w.]*)\.(\w+)\s*=(?!=)[ \t]*(\w*)[ \t]*(.*)$", re.MULTILINE)
_SETATTR = re.compile(r"\bsetattr\(\s*([\w.]+)\s*,\s*[\"'](\w+)[\"']")
_ALIAS = re.compile(r"^[ \t]*(\w+)\s*=\s*[\w.]+\.(\w+)[ \t]*$", re.MULTILINE)


def patched_names(program: Program) -> Patched:
    """What is put where, read as text from all files that have ``patch`` in their path.

    The name put there is empty where it is anything but a plain name.
    """
    found: Patched = {}
    for package, tree in program.trees.items():
        paths = tree.list(package) if package != "vllm" else []
        for path in paths:
            if "patch" in path and path.endswith(".py"):
                for key, name in _patches_in(tree.read(path)):
                    found.setdefault(key, []).append((path, name))
    return found


def _patches_in(text: str) -> list[tuple[tuple[str, str], str]]:
    aliases = dict(_ALIAS.findall(text))
    found = [
        (target, name, "" if rest.partition("#")[0].strip() else value)
        for target, name, value, rest in _SET.findall(text)
    ]
    found += [(target, name, "") for target, name in _SETATTR.findall(text)]
    return [((_class_name(target, aliases), name), value) for target, name, value in found]


def _class_name(target: str, aliases: dict[str, str]) -> str:
    last = target.rpartition(".")[2]
    last = aliases.get(last, last)
    return last if last.lstrip("_")[:1].isupper() else ""
