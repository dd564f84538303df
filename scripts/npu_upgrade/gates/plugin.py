"""The plugin of a model as part of its job: what of it is undecided, and where it is installed.

It is installed into an environment of the job's own, which lies over the interpreter that serves: that one
may be shared with others and stays as it is. What is installed is a copy, so that no build leaves anything
beside the sources.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.environments.venvs import find_uv, uv_variables
from npu_upgrade.evidence.judged import judged
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.files import read_object, sha256, write_json
from npu_upgrade.ground.locks import locked
from npu_upgrade.ground.progress import say

METADATA = ("*.egg-info", "__pycache__", "*.pyc")  # what a build or an import leaves beside sources
BUILDS = ("build", "dist")  # and its folders, which may be somebody's own
_GROUP = "vllm.general_plugins"
_STAMP = "npu-upgrade-plugin.json"
_SITES = "import json, site, sys; print(json.dumps([*site.getsitepackages(), sys.version_info[:2]]))"
_CHECK = """
import importlib, json, sys
from importlib.metadata import entry_points
package, architecture, test = sys.argv[1:]
points = [one for one in entry_points(group="vllm.general_plugins")
          if one.value.partition(":")[0].partition(".")[0] == package]
if not points:
    sys.exit(f"it has no entry point in the group vllm.general_plugins that names {package}")
for one in points:
    one.load()()
from vllm import ModelRegistry
known = ModelRegistry.models.get(architecture)
if known is None:
    sys.exit(f"its register() registers no {architecture}")
if getattr(known, "module_name", "").partition(".")[0] == package:
    getattr(importlib.import_module(known.module_name), known.class_name)
if test:
    import importlib.util, io, unittest
    def fails(why):
        print(why, file=sys.stderr)
        sys.exit(3)
    spec = importlib.util.spec_from_file_location("test_of_the_plugin", test)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        if getattr(error, "name", "") == "pytest":  # somebody wrote it for pytest, which does not serve
            sys.exit(0)
        fails(f"it cannot be imported: {type(error).__name__}: {error}")
    found = unittest.TextTestRunner(io.StringIO()).run(unittest.defaultTestLoader.loadTestsFromModule(module))
    wrong = [*found.failures, *found.errors]
    if wrong:
        case, text = wrong[0]
        fails(f"{len(wrong)} cases, {case}: {text.strip().splitlines()[-1]}")
    print(found.testsRun)
"""
_TEST_FAILS = 3  # the exit status that says so
_SECONDS = 300


class Unfit(BadInput):
    """A plugin that was installed and does not take part."""


@dataclass(frozen=True)
class Plugin:
    """``root``: the folder with its pyproject.toml; ``package``: what is imported; ``architecture``: what it
    registers; ``home``: where the environments for it are kept; ``test``: its unit test, run in them."""

    root: Path
    package: str
    architecture: str
    home: Path
    test: Path | None = None

    @property
    def digest(self) -> str:
        """Of everything that is installed, and of what tests it."""
        project = self.root / "pyproject.toml"
        text = project.read_bytes() if project.is_file() else b""
        text += self.test.read_bytes() if self.test and self.test.is_file() else b""
        return sha256(text + judged({self.package: self.root / self.package})[0].files[self.package].encode())


def undecided(path: Path) -> list[str]:
    """The decisions that a file of a scaffold leaves open, as ``file:line what``.

    Open is a constant that may be None and is, an entry None of a table, and a function that only raises.
    """
    try:
        module = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        return [f"{path.name} cannot be read as Python: {error}"]
    found: list[tuple[int, str]] = []
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            name = next((one.id for one in targets if isinstance(one, ast.Name)), "")
            if name.isupper() and _is_none(node.value):
                found.append((node.lineno, name))
            elif name.isupper() and isinstance(node.value, ast.Dict):
                pairs = zip(node.value.keys, node.value.values, strict=True)
                found += [
                    (one.lineno, f"{name}[{ast.unparse(key)}]") for key, one in pairs if key and _is_none(one)
                ]
    for function in ast.walk(module):
        if isinstance(function, ast.FunctionDef) and (last := function.body[-1]) and _is_decision(last):
            found.append((last.lineno, f"{function.name}()"))
    return [f"{path.name}:{line} {what}" for line, what in sorted(found)]


def _is_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_decision(node: ast.stmt) -> bool:
    """Whether it raises what an unwritten part of a scaffold raises."""
    return isinstance(node, ast.Raise) and "NotImplementedError('decide" in ast.unparse(node)


def python_with(base: Path, plugin: Plugin, variables: Mapping[str, str]) -> Path:
    """The interpreter of the job's own environment over ``base``, with the plugin as it is now installed.

    ``variables``: the whole environment that it is loaded with, to see that it does. Raises
    :class:`Unfit` for a plugin that does not load or registers something else, :class:`BadInput` for one with
    open decisions, :class:`Blocked` when it cannot be installed here.
    """
    folder = plugin.home / f"env-{sha256(str(base.absolute()))[:8]}"
    python, stamp = folder / "bin" / "python", folder / _STAMP
    wanted = {"digest": plugin.digest, "base": str(base), "architecture": plugin.architecture}
    plugin.home.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        if read_object(stamp).items() >= wanted.items() and python.exists():
            return python
        if left := [
            place
            for path in sorted((plugin.root / plugin.package).rglob("*.py"))
            for place in undecided(path)
        ]:
            raise BadInput(
                f"{len(left)} decisions of the plugin are open: {', '.join(left[:5])}",
                expected="every decision of the scaffold taken before anything is started",
                try_=f"take them in {plugin.root / plugin.package}",
            )
        if not python.exists():
            _make(base, folder)
        say(f"installing the plugin {plugin.package} into {folder}")
        _install(python, plugin)
        write_json(stamp, wanted | {"unit_test": _check(python, plugin, variables)})
    return python


def unit_test_of(python: Path) -> str:
    """What the unit test of a plugin said in the job's environment, with the command to run it by hand."""
    return str(read_object(python.parents[1] / _STAMP).get("unit_test", ""))


def _make(base: Path, folder: Path) -> None:
    """An empty environment that sees everything that ``base`` has."""
    shutil.rmtree(folder, ignore_errors=True)
    _run([find_uv(), "venv", "-q", "--python", str(base), str(folder)], "making the job's environment")
    *sites, version = json.loads(_run([str(base), "-P", "-c", _SITES], "asking the interpreter that serves"))
    own = folder / "lib" / f"python{version[0]}.{version[1]}" / "site-packages"
    # a folder that is only named would not have its own .pth files read, as those of editable installs
    lines = [f"import site; site.addsitedir({site!r})\n" for site in sites]
    (own / "npu_upgrade_base.pth").write_text("".join(lines), "utf-8")


def _install(python: Path, plugin: Plugin) -> None:
    with tempfile.TemporaryDirectory(prefix="npu-upgrade-") as scratch:
        copy = Path(scratch) / plugin.root.name
        shutil.copytree(plugin.root, copy, ignore=shutil.ignore_patterns(*BUILDS, *METADATA, ".git"))
        # without the network, where the interpreter below has what builds it
        has = subprocess.run([str(python), "-c", "import setuptools"], capture_output=True).returncode == 0
        own = ["--no-build-isolation"] if has else []
        command = [find_uv(), "pip", "install", "-q", "--python", str(python), "--no-deps", "--reinstall"]
        _run([*command, *own, str(copy)], f"installing the plugin {plugin.root}")


def _check(python: Path, plugin: Plugin, variables: Mapping[str, str]) -> str:
    """Load it as vLLM does, and see what it registers; no server is needed to find out that it does not.

    Returns what its unit test said; empty without one.
    """
    test = str(plugin.test) if plugin.test and plugin.test.is_file() else ""
    # -B: nothing is left beside the test
    command = [str(python), "-P", "-B", "-c", _CHECK, plugin.package, plugin.architecture, test]
    done = subprocess.run(command, env=dict(variables), capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1]
        code = plugin.root / plugin.package
        if done.returncode == _TEST_FAILS:
            raise Unfit(
                f"the plugin {plugin.root} fails its unit test: {why}",
                expected=f"all cases of {plugin.test} to pass",
                try_=f"correct {code}, or the test, then the same command",
            )
        raise Unfit(
            f"the plugin {plugin.root} does not take part: {why}",
            expected=f"an entry point in {_GROUP} whose function registers {plugin.architecture}",
            try_=f"correct {code}, then the same command",
        )
    if not (count := done.stdout.strip().rpartition("\n")[2]).isdigit():
        return ""
    emulated = "NPU_EMULATOR_NATIVE" in variables  # which the interpreter alone does not know
    by_hand = "" if emulated else f" (by hand: {python} -B {plugin.test})"
    told = f"all {count} cases of its unit test pass{by_hand}"
    say(f"{plugin.package}: {told}")
    return told


def _run(command: list[str], doing: str, variables: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, env=variables or uv_variables(), capture_output=True, text=True)
    if done.returncode:
        tail = "\n    ".join(done.stderr.strip().splitlines()[-6:])
        raise Blocked(
            f"{doing} failed (exit {done.returncode}):\n    {tail}",
            expected="a plugin that pip can build, and setuptools in the interpreter or on the package index",
            try_="look at its pyproject.toml and at the network, then the same command",
        )
    return done.stdout
