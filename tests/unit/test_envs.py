"""Environments are made for real: by this Python's venv and pip, from an index on this machine."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from npu_upgrade.environments import pip_wheel, specs, store, tools, venvs
from npu_upgrade.ground.errors import BadInput, Blocked

SCRIPTS = Path(store.__file__).parents[2]
READ_BY_OLD_PYTHONS = [
    "upgrade.py",
    "npu_upgrade/__init__.py",
    "npu_upgrade/environments/__init__.py",
    "npu_upgrade/environments/__main__.py",
    "npu_upgrade/environments/tools.py",
]
PYPROJECT = """
[project]
dependencies = ["tiny>=1"]
[dependency-groups]
test = []
"""
USE = """
import sys
from npu_upgrade.environments.tools import ensure_tools
ensure_tools()
import os, tiny
left = [name for name in os.environ if "NPU" in name]
print(os.getpid(), sys._xoptions, sys.argv[1:], "tomllib" in sys.modules, left)
"""
# a stand-in for pip that only notes how it was called, inside the environment
FAKE_PIP = (
    "import json, pathlib, sys\n"
    "pathlib.Path(sys.prefix, 'called.json').write_text(json.dumps(sys.argv[1:]))\n"
)


def wheel(name: str, version: str, files: dict[str, str]) -> bytes:
    """The bytes of a pure-Python wheel."""
    info = f"{name}-{version}.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return buffer.getvalue()


@functools.cache
def installed_pip() -> tuple[str, bytes]:
    """This environment's pip as a wheel."""
    pip = importlib.metadata.distribution("pip")
    files = {str(file): file.read_text() for file in pip.files or () if file.suffix in (".py", ".pem")}
    return f"pip-{pip.version}-py3-none-any.whl", wheel("pip", pip.version, files)


class Index:
    """A package index on 127.0.0.1: serves ``files`` and remembers what was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.links: list[str] = []
        self.asked: list[tuple[str, str | None]] = []
        self.hold: threading.Event | None = None
        self.reached = threading.Event()
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.asked.append((self.path, self.headers.get("Authorization")))
                name = self.path.rpartition("/")[2]
                body = index.files.get(name) if name else "\n".join(index.links).encode()
                if index.hold and name.startswith("tiny"):
                    index.reached.set()
                    index.hold.wait(60)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Type", "application/octet-stream" if name else "text/html")
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"

    def add(self, name: str, content: bytes, attributes: str = "", digest: str | None = None) -> None:
        self.files[name] = content
        digest = digest or hashlib.sha256(content).hexdigest()
        self.links.append(f'<a href="../../files/{name}#sha256={digest}" {attributes}>{name}</a>')


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """The only index pip knows; it offers ``tiny`` 1.0, and pip to a Python that comes without it."""
    for name in [name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    index = Index()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    index.add("tiny-1.0-py3-none-any.whl", wheel("tiny", "1.0", {"tiny.py": "SIZE = 1\n"}))
    if importlib.util.find_spec("ensurepip") is None:
        index.add(*installed_pip())
    threading.Thread(target=index.server.serve_forever, args=(0.05,), daemon=True).start()
    yield index
    if index.hold:
        index.hold.set()
    index.server.shutdown()
    index.server.server_close()


TINY = store.EnvSpec("small", ("tiny",), size_mb=1)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Environments without pip and with nothing installed; returns the log of what was made."""
    made: list[str] = []

    def create(folder: Path, lock: int) -> None:
        made.append(folder.name)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)

    monkeypatch.setattr(venvs, "create_venv", create)
    monkeypatch.setattr(venvs, "install", lambda python, requirements, lock: None)
    return made


def ask(spec: store.EnvSpec) -> subprocess.Popen[str]:
    """Another process that asks for the environment and prints its interpreter."""
    code = (
        f"from npu_upgrade.environments.store import EnvSpec, ensure\nprint(ensure(EnvSpec{tuple(spec)!r}))"
    )
    env = os.environ | {"PYTHONPATH": str(SCRIPTS)}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], env=env, stdout=pipe, stderr=pipe, text=True)


def test_two_processes_get_one_working_environment(index: Index, own_home: Path) -> None:
    index.hold = threading.Event()
    first = ask(TINY)
    assert index.reached.wait(60)
    second = ask(TINY)
    assert "waiting" in second.stderr.readline()
    index.hold.set()
    (python, said), (same, _) = first.communicate(timeout=60), second.communicate(timeout=60)

    assert python == same
    assert Path(python.strip()).is_relative_to(own_home / ".cache" / "npu-upgrade" / "envs")
    assert "making the Python environment 'small'" in said
    assert subprocess.check_output([python.strip(), "-c", "import tiny; print(tiny.SIZE)"]) == b"1\n"
    assert len([path for path, _ in index.asked if path.startswith("/files/tiny")]) == 1

    index.asked.clear()
    assert str(store.ensure(TINY)) == python.strip()
    assert index.asked == []


def test_killed_while_making(index: Index) -> None:
    index.hold = threading.Event()
    first = ask(TINY)
    assert index.reached.wait(60)
    first.kill()
    first.communicate(timeout=10)
    second = ask(TINY)
    # pip of the first process is still writing into the folder
    assert "waiting" in second.stderr.readline()
    index.hold.set()
    python, _ = second.communicate(timeout=60)
    assert subprocess.check_output([python.strip(), "-c", "import tiny; print(tiny.SIZE)"]) == b"1\n"


def test_nothing_is_made_twice(quick: list[str]) -> None:
    store.ensure(TINY)
    store.ensure(TINY)
    assert len(quick) == 1


def test_another_requirement_is_another_environment(quick: list[str]) -> None:
    assert TINY.folder != TINY._replace(requirements=("tiny>1",)).folder
    one, other = (store.EnvSpec("small", order) for order in (("a", "b"), ("b", "a")))
    assert one.folder == other.folder


def remove_stamp(folder: Path) -> None:
    (folder / store.STAMP).unlink()


def spoil_stamp(folder: Path) -> None:
    (folder / store.STAMP).write_text("{}")


def remove_python(folder: Path) -> None:
    (folder / "bin" / "python").unlink()
    (folder / "bin" / "python").symlink_to(folder / "gone")


def break_python(folder: Path) -> None:
    (folder / "bin" / "python").unlink()
    (folder / "bin" / "python").write_text("#!/bin/sh\nexit 127\n")
    (folder / "bin" / "python").chmod(0o755)


@pytest.mark.parametrize("damage", [remove_stamp, spoil_stamp, remove_python, break_python])
def test_damaged_is_made_anew(quick: list[str], damage) -> None:
    python = store.ensure(TINY)
    damage(TINY.folder)
    (TINY.folder / "left-over").touch()
    assert store.ensure(TINY) == python
    assert len(quick) == 2
    assert not (TINY.folder / "left-over").exists()
    assert subprocess.check_output([python, "-c", "print(1)"]) == b"1\n"


def test_no_room(quick: list[str]) -> None:
    with pytest.raises(Blocked, match=r"no room.*'small'.* MB free"):
        store.ensure(TINY._replace(size_mb=10**12))
    assert not quick


def test_cache_that_cannot_be_written(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_home / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_home / "file"))
    with pytest.raises(Blocked, match="cannot write") as blocked:
        store.ensure(TINY)
    assert "XDG_CACHE_HOME" in blocked.value.try_


@pytest.fixture
def no_ensurepip(monkeypatch: pytest.MonkeyPatch) -> None:
    """This Python as Debian's without python3-venv."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "ensurepip" else find(name, *rest)
    )


def fake_pip(version: str) -> tuple[str, bytes]:
    return f"pip-{version}-py3-none-any.whl", wheel("pip", version, {"pip/__main__.py": FAKE_PIP})


def test_without_ensurepip_pip_comes_from_the_index(index: Index, no_ensurepip: None, tmp_path: Path) -> None:
    index.links.clear()
    index.add(*fake_pip("9.9"))
    index.add(*fake_pip("25.1"))
    index.add(*fake_pip("26.0b1"))
    index.add(*fake_pip("27.0"), attributes='data-yanked="broken"')
    index.add(*fake_pip("28.0"), attributes='data-requires-python="&gt;=3.99"')
    index.add(*fake_pip("24.0"), attributes='data-requires-python="&gt;=3.7"')
    folder = tmp_path / "env"
    with open(tmp_path / "lock", "w") as lock:
        venvs.create_venv(folder, lock.fileno())
    path = folder / "pip-25.1-py3-none-any.whl"
    assert ast.literal_eval((folder / "called.json").read_text()) == ["install", "--no-index", str(path)]
    assert not path.exists()
    assert not list(folder.glob("lib/python3*/site-packages/pip"))


def test_pip_of_another_content_is_refused(index: Index, tmp_path: Path) -> None:
    index.links.clear()
    index.add(*fake_pip("25.1"), digest="0" * 64)
    with pytest.raises(Blocked, match="SHA-256"):
        pip_wheel.fetch_pip_wheel(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_index_without_pip(index: Index, tmp_path: Path) -> None:
    index.links[:] = ['<a href="pip-26.0-py3-none-any.whl">no digest</a>']
    with pytest.raises(Blocked, match="no pip wheel with a SHA-256") as blocked:
        pip_wheel.fetch_pip_wheel(tmp_path)
    assert "python3-venv" in blocked.value.try_


def test_pip_index_from_the_configuration_file(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.links.clear()
    index.add(*fake_pip("25.1"))
    monkeypatch.delenv("PIP_INDEX_URL")
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nindex-url = {index.url.replace('//', '//me:p%40ss@')}/\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    assert pip_wheel.fetch_pip_wheel(tmp_path).name == "pip-25.1-py3-none-any.whl"
    assert index.asked[0] == ("/simple/pip/", "Basic bWU6cEBzcw==")


def test_password_of_an_index_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://me:secret@127.0.0.1:1/simple")
    with pytest.raises(Blocked, match=r"cannot fetch pip from 127\.0\.0\.1") as blocked:
        pip_wheel.fetch_pip_wheel(tmp_path)
    assert "secret" not in str(blocked.value)


@pytest.mark.network
def test_without_ensurepip_with_the_real_pip(no_ensurepip: None) -> None:
    python = store.ensure(store.EnvSpec("small", ("iniconfig",), size_mb=1))
    subprocess.run([python, "-c", "import iniconfig"], check=True)


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    """An installed skill whose scripts need ``tiny``, with one script that uses it."""
    root = tmp_path / "skill"
    shutil.copytree(SCRIPTS, root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "scripts" / "use.py").write_text(USE)
    return root


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """A Python with no package at all."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return str(tmp_path / "bare" / "bin" / "python")


def test_a_script_starts_over_where_its_requirements_are(
    index: Index, skill: Path, bare_python: str, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a cache behind a link, as on machines whose home is elsewhere
    (own_home / "elsewhere").mkdir()
    (own_home / "link").symlink_to("elsewhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_home / "link"))
    command = [bare_python, "-X", "utf8", str(skill / "scripts" / "use.py"), "a b", "--flag"]
    for _ in range(2):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd="/", text=True)
        out, _ = process.communicate(timeout=60)
        # the same process, options and arguments, nothing read twice, nothing left in the environment
        assert out == f"{process.pid} {{'utf8': True}} ['a b', '--flag'] False []\n"
        assert process.returncode == 0
        index.server.shutdown()
    assert [path.parent for path in skill.rglob("site-packages")] == []


def test_requirements_that_cannot_be_had_and_then_can(skill: Path, bare_python: str, index: Index) -> None:
    link = index.links.pop(0)
    command = [bare_python, str(skill / "scripts" / "use.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 3
    assert '"verdict": "BLOCKED"' in done.stdout
    assert "No matching distribution found for tiny" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    index.links.append(link)
    assert subprocess.run(command, capture_output=True).returncode == 0


def test_skill_without_pyproject(skill: Path, bare_python: str) -> None:
    (skill / "pyproject.toml").unlink()
    done = subprocess.run([bare_python, str(skill / "scripts" / "use.py")], capture_output=True, text=True)
    assert done.returncode == 2
    assert "npx skills add" in done.stdout
    assert '"verdict": "USAGE"' in done.stdout


def test_interpreter_of_an_environment_by_name(index: Index, skill: Path, bare_python: str) -> None:
    command = [bare_python, "-m", "npu_upgrade.environments"]
    done = subprocess.run([*command, "test"], capture_output=True, text=True, cwd=skill / "scripts")
    python = done.stdout.removesuffix("\n")
    assert Path(python).parents[1].name.startswith("test-")
    subprocess.run([python, "-c", "import tiny"], check=True)
    done = subprocess.run([*command, "tset"], capture_output=True, text=True, cwd=skill / "scripts")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "expected: one of: tools, test" in done.stderr


def test_environments_of_this_project() -> None:
    installed = specs.read_spec("tools").requirements
    assert any(requirement.startswith("httpx>=") for requirement in installed)
    assert set(installed) < set(specs.read_spec("test").requirements)
    with pytest.raises(BadInput, match="no environment is called 'nothing'"):
        specs.read_spec("nothing")


@pytest.mark.parametrize(
    ("requirement", "met"),
    [("pytest", True), ("pytest>=1", True), ("pytest>=999", False), ("not-to-be-found", False)],
)
def test_requirements_of_this_interpreter(requirement: str, met: bool) -> None:
    assert specs.is_satisfied([requirement]) is met


def test_old_python_is_told() -> None:
    code = "import sys, runpy; sys.version_info = (3, 9, 2); runpy.run_path(sys.argv[1], run_name='__main__')"
    upgrade = str(SCRIPTS / "upgrade.py")
    done = subprocess.run([sys.executable, "-c", code, upgrade], capture_output=True, text=True)
    assert done.returncode == 2
    assert "Python 3.9 is too old" in done.stderr
    assert '"expected": "Python 3.11 or newer"' in done.stdout


@pytest.mark.parametrize("path", READ_BY_OLD_PYTHONS)
def test_what_an_old_python_reads_first_is_old_python(path: str) -> None:
    tree = ast.parse((SCRIPTS / path).read_text(), feature_version=(3, 6))
    futures = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    assert not futures
    assert not hasattr(tools, "store"), "imported before the version is checked"


def test_uv_is_that_of_tools_where_this_python_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setattr(store, "ensure", lambda spec: Path("/envs") / spec.name / "bin/python")
    assert venvs.find_uv() == "/envs/tools/bin/uv"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("because you require a==1, we conclude that your requirements are unsatisfiable.", "met together"),
        ("ERROR: ResolutionImpossible: for help visit https://pip.pypa.io", "met together"),
        ("error: Request failed after 3 retries", "a package index that answers"),
    ],
)
def test_requirements_that_contradict_each_other_are_no_fault_of_the_index(line: str, expected: str) -> None:
    with pytest.raises(Blocked) as refused:
        venvs.run([sys.executable, "-c", f"print({line!r}); raise SystemExit(1)"], 2, "installing it")
    assert expected in refused.value.expected
    assert line in refused.value.what
