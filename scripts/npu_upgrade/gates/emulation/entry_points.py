"""The entry points a tree declares: in its metadata, its pyproject.toml or its setup.py. Nothing is run."""

from __future__ import annotations

import ast
import configparser
import tomllib
from typing import Any

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources.tree import SourceTree

Points = dict[str, dict[str, str]]  # group -> name -> "module:attribute"


def entry_points(tree: SourceTree, top: str) -> Points:
    """The entry points of the package ``top``, by group; empty when the tree declares none."""
    for path in tree.list():
        folder, _, name = path.rpartition("/")
        if name == "entry_points.txt" and folder.startswith(f"{top}-") and folder.endswith(".dist-info"):
            return _of_text(tree.read(path))
    found = _of_pyproject(tree.read("pyproject.toml")) if tree.exists("pyproject.toml") else {}
    if tree.exists("setup.py"):
        found = _of_setup(tree.read("setup.py"), tree.spec) | found
    return found


def entry_points_text(points: Points) -> str:
    """The content of an ``entry_points.txt``."""
    groups = (
        [f"[{group}]", *(f"{name} = {value}" for name, value in named.items()), ""]
        for group, named in points.items()
        if named
    )
    return "\n".join(line for group in groups for line in group)


def _of_text(text: str) -> Points:
    parser = configparser.RawConfigParser(delimiters=("=",))
    parser.optionxform = lambda optionstr: optionstr  # names keep their case
    parser.read_string(text)
    return {group: dict(parser.items(group)) for group in parser.sections()}


def _of_pyproject(text: str) -> Points:
    project: dict[str, Any] = tomllib.loads(text).get("project", {})
    scripts = {"console_scripts": project["scripts"]} if "scripts" in project else {}
    return scripts | project.get("entry-points", {})


def _of_setup(text: str, spec: str) -> Points:
    """``entry_points=`` of the call of setup(), which has to be written out."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and _name(node.func) == "setup":
            for keyword in node.keywords:
                if keyword.arg == "entry_points":
                    return _of_literal(keyword.value, spec)
    return {}


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _of_literal(node: ast.expr, spec: str) -> Points:
    try:
        value = ast.literal_eval(node)
    except ValueError as error:
        raise BadInput(
            f"the entry points in setup.py of {spec} are computed",
            expected="entry_points={...} written out, or in pyproject.toml",
            try_="an installed or released copy of it (its metadata has them)",
        ) from error
    if isinstance(value, str):
        return _of_text(value)
    pairs = {
        group: [line.partition("=") for line in ([lines] if isinstance(lines, str) else lines)]
        for group, lines in value.items()
    }
    return {group: {name.strip(): what.strip() for name, _, what in lines} for group, lines in pairs.items()}
