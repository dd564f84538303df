"""What a person edits by hand who has the next release beside the file: what no answer of `resolve` reaches.

An answer to a finding gives methods of a class. The release may also have dropped the method that is asked
about, or an import of the file with what read it, it may set an attribute in another method, and it may have
other functions and small classes beside its runner classes.
"""

from __future__ import annotations

import ast
import re
import textwrap

from npu_upgrade.code.import_edit import Edit, edit_imports
from npu_upgrade.code.module import Module, insert_lines, parse_module, replace_units, split_lines
from npu_upgrade.code.names import imports_of, names_of, undefined_names


def by_hand(file: str, release: Module, unit: str, asked: str, answer: str) -> str:
    """The text of ``file`` as the release has it where the question reaches; the same text if no different.

    ``unit`` and ``asked`` are the place and the words of the question, ``answer`` the methods that would be
    given for it: the module's own definitions that they name are brought too.
    """
    now = parse_module(file)
    words = {*re.findall(r"\w+", asked)}
    gone = [
        item
        for name, item in imports_of(file).items()
        if name in words and name not in imports_of(release.source)
    ]
    reached = {name for name in now.units if name in re.findall(r"\w+\.\w+", asked)} - {unit}
    reached |= {name for name, one in now.units.items() if _read(one.source) & {one.bound for one in gone}}
    reached |= _setting(release, {*re.findall(r"\bself\.(\w+)", asked)}, file) & {*now.units}
    texts = {name: release.units[name].source for name in reached if name in release.units}
    reached |= {unit} & {*now.units}
    dropped = [name for name in reached if name not in release.units and _has_owner(release, name)]
    file = _without(replace_units(now, texts), dropped)
    brought = "\n".join([*texts.values(), *_of_the_module(release, words), answer])
    file = _with_definitions(file, release, _read(brought) | words)
    needed = undefined_names(file) & {*imports_of(release.source)}
    added = [imports_of(release.source)[name] for name in sorted(needed)]
    left = [item for item in gone if item.bound not in names_of(_without_import(file, item.bound)).read]
    return edit_imports(file, Edit(add=added, drop=left))


def _setting(release: Module, attributes: set[str], file: str) -> set[str]:
    """The release's methods that set these attributes, which nothing in ``file`` does."""

    def sets(text: str, name: str) -> bool:
        return re.search(rf"\bself\.{name}\b(:[^=\n]+)? = ", text) is not None

    lacking = {name for name in attributes if not sets(file, name)}
    return {
        name for name, one in release.units.items() if any(sets(one.source, wanted) for wanted in lacking)
    }


def _has_owner(release: Module, name: str) -> bool:
    """Whether the release has the class of a method; of a class that it moved elsewhere it tells nothing."""
    return "." in name and release.class_def(name.partition(".")[0]) is not None


def _of_the_module(release: Module, words: set[str]) -> list[str]:
    return [one.source for name, one in release.units.items() if name in words and "." not in name]


def _with_definitions(file: str, release: Module, named: set[str]) -> str:
    """With the release's form of its own functions and classes without methods that are named."""
    now = parse_module(file)
    wanted = {name: one.source for name, one in release.units.items() if name in named and "." not in name}
    text = replace_units(now, {name: source for name, source in wanted.items() if name in now.units})
    missing = [source for name, source in wanted.items() if name not in now.top_level_names()]
    for source in missing:
        body = parse_module(text).tree.body
        first = next((node for node in body if isinstance(node, ast.ClassDef)), None)
        if first is None:
            return text
        row = min([first.lineno, *(one.lineno for one in first.decorator_list)]) - 1
        text = insert_lines(text, row, [*source.split("\n"), "", ""])
    return text


def _without(file: str, names: list[str]) -> str:
    """Without these methods and the blank lines before each."""
    units, lines = parse_module(file).units, split_lines(file)
    for one in sorted((units[name] for name in names), key=lambda one: -one.start):
        start = one.start
        while start and not lines[start - 1].strip():
            start -= 1
        del lines[start : one.end]
    return "".join(lines)


def _without_import(file: str, name: str) -> str:
    return edit_imports(file, Edit(drop=[imports_of(file)[name]])) if name in imports_of(file) else file


def _read(source: str) -> set[str]:
    try:
        return {*names_of(textwrap.dedent(source)).read}
    except SyntaxError:  # several methods of a class: indented, with a line of the class before them
        return {*re.findall(r"(?<![\w.])[A-Za-z_]\w*", source)}
