"""The Python package of a source tree as a folder one can import from, in the cache by its content.

``emulation/packages/<hash>/`` holds the package with its data files, what its build would have generated,
and its metadata with the entry points that the tree declares. It appears by one rename when complete.
"""

from __future__ import annotations

import ast
import configparser
import contextlib
import json
import os
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from packaging.version import Version

from npu_upgrade.ground import locks
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.progress import say
from npu_upgrade.sources.archives import cannot_write, scratch_folder
from npu_upgrade.sources.tree import PACKAGES, SourceTree

STAMP = "npu-upgrade-package.json"  # of a folder that is complete, with the sizes of its files
LAYOUT = 1  # raise it when what is written changes
UNKNOWN_VERSION = "0.0.0+unknown"
_COMPILED = (".so", ".pyd", ".o", ".a", ".pyc")  # of a checkout that was built, for another device
_BESIDE = {"vllm_ascend": ("csrc/torch_binding.cpp", "csrc/torch_binding_meta.cpp")}
_OWN_ENTRY_POINTS = {
    "torch.backends": {"npu_emulator": "npu_emulator.autoload:start"},
    "triton.backends": {"npu_emulator": "npu_emulator.triton_kernels"},
    "vllm.general_plugins": {"npu_emulator": "npu_emulator.dry_run.plugin:register"},
}


def materialise(tree: SourceTree, top: str) -> Path:
    """The folder to put on PYTHONPATH for the package ``top`` of ``tree``; made when it is not there.

    Raises :class:`BadInput` when the tree has no such package, :class:`Blocked` when the cache cannot be
    written.
    """
    if not tree.exists(f"{top}/__init__.py"):
        raise BadInput(
            f"{tree.spec} has no package {top}", expected=f"sources of {PACKAGES[top]}", try_="another source"
        )
    paths = _paths(tree, top)
    content = None if _fixed(tree) else tree.contents(paths)
    folder = _store() / f"{top}-{_digest(tree, content)}"

    def fill(into: Path) -> None:
        say(f"unpacking {folder.name}")
        _write(into, content if content is not None else tree.contents(paths))
        version = tree.built_as or UNKNOWN_VERSION
        _write(into, generated_files(top, version, set(paths)))
        _write(into, _info(PACKAGES[top], version, entry_points(tree, top)))

    return kept(folder, fill)


def emulator_info() -> Path:
    """A folder for PYTHONPATH with the emulator's metadata, whose entry points start it in each process."""
    files = _info("npu-emulator", "0", _OWN_ENTRY_POINTS)
    folder = _store() / f"npu_emulator-{sha256(json.dumps(_OWN_ENTRY_POINTS))[:16]}"
    return kept(folder, lambda into: _write(into, files))


def _paths(tree: SourceTree, top: str) -> list[str]:
    package = [path for path in tree.list(top) if not path.endswith(_COMPILED)]
    return package + [path for path in _BESIDE.get(top, ()) if tree.exists(path)]


def _fixed(tree: SourceTree) -> bool:
    """Whether the tree's identity alone tells its content."""
    return not tree.dirty and tree.spec.startswith(("pypi:", "git:"))


def _digest(tree: SourceTree, content: dict[str, bytes] | None) -> str:
    what = [f"{path} {sha256(data)}" for path, data in (content or {}).items()]
    what += [] if content is not None else [tree.archive_sha256 or tree.spec.rpartition("@")[2]]
    return sha256(json.dumps([LAYOUT, tree.built_as, *what]))[:16]


def _info(project: str, version: str, points: dict[str, dict[str, str]]) -> dict[str, bytes]:
    info = f"{project.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"
    texts = {f"{info}/METADATA": metadata, f"{info}/entry_points.txt": entry_points_text(points)}
    return {path: text.encode() for path, text in texts.items()}


def _store() -> Path:
    return (cache_root() / "emulation" / "packages").resolve()  # executed lines come with such paths


def kept(folder: Path, fill: Callable[[Path], object]) -> Path:
    """``folder`` filled by ``fill``, now or before; in use until this process ends."""
    locks.keep(folder, lambda: _complete(folder), lambda _: _publish(folder, fill))
    with contextlib.suppress(OSError):
        os.utime(folder / STAMP)
    return folder


def _complete(folder: Path) -> bool:
    """Whether every file that was written is there whole: a cleaner may have been at the cache."""
    try:
        sizes = json.loads((folder / STAMP).read_text("utf-8"))
        return all(os.stat(f"{folder}/{path}").st_size == size for path, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _publish(folder: Path, fill: Callable[[Path], object]) -> None:
    with scratch_folder(folder.parent) as scratch:
        finished = scratch / "finished"
        try:
            finished.mkdir()
            fill(finished)
            files = [path for path in finished.rglob("*") if path.is_file()]
            for path in files:
                path.chmod(0o444)
            sizes = {path.relative_to(finished).as_posix(): path.stat().st_size for path in files}
            (finished / STAMP).write_text(json.dumps(sizes), "utf-8")
            shutil.rmtree(folder, ignore_errors=True)
            finished.rename(folder)
        except OSError as error:
            raise cannot_write(folder, error) from error


def _write(into: Path, files: dict[str, bytes]) -> None:
    for path, data in files.items():
        target = into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


_BUILD_INFO = "vllm_ascend/_build_info.py"
_DEVICE = "__device_type__ = 'A2'\n__soc_version__ = 'ASCEND910B1'\n"  # releases read the one or the other


def generated_files(top: str, version: str, present: set[str]) -> dict[str, bytes]:
    """The generated files of the package ``top``: its version where it is missing, vllm-ascend's device."""
    texts = {}
    if f"{top}/_version.py" not in present:
        texts[f"{top}/_version.py"] = (
            f"__version__ = version = {version!r}\n"
            f"__version_tuple__ = version_tuple = {Version(version).release!r}\n"
            "__commit_id__ = commit_id = None\n"
        )
    if top == "vllm_ascend":  # a checkout's own may be for another device
        texts[_BUILD_INFO] = _DEVICE
    return {path: text.encode() for path, text in texts.items()}


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
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "setup":
            for keyword in node.keywords:
                if keyword.arg == "entry_points":
                    return _of_literal(keyword.value, spec)
    return {}


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
