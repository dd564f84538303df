"""What every test gets: a home of its own, and no network unless it is marked for it."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


# a clone of a test's is thrown away: no process looks after it, and it gets no examples of hooks
GIT_CONFIG = "[maintenance]\n\tauto = false\n[gc]\n\tauto = 0\n[init]\n\ttemplateDir =\n"


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the homes are, and git's configuration. Pytest's own numbering reads all folders beside each."""
    folder = tmp_path_factory.mktemp("homes")
    (folder / "gitconfig").write_text(GIT_CONFIG)
    return folder


_numbers = itertools.count()


@pytest.fixture(autouse=True)
def own_home(homes: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A fresh home and cache folder, without the user's or the system's git configuration.

    Tests marked ``network`` keep the real home, where pip's configuration may be.
    """
    home = homes / str(next(_numbers))
    home.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(homes / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    if request.node.get_closest_marker("network") is None:
        monkeypatch.setenv("HOME", str(home))
        for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
            monkeypatch.delenv(name, raising=False)
    return home


def pytest_sessionstart() -> None:
    """Refuse two test files of one name: pytest imports by it, which only a run of all folders would show."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise pytest.UsageError(f"two test files of one name: {', '.join(twice)}; rename one of each")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep", action="store_true", help="leave out what passed before with the same files")


ENGINES = tuple(f"tests/{name}/" for name in ("emulator", "runners", "serve", "e2e"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadgroup`` one worker starts all engines: two at once make each other time out."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class OneEngine(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "engines" if nodeid.startswith(ENGINES) else nodeid

    return OneEngine(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what an earlier run with ``--keep`` saw pass, of exactly these files."""
    if not config.getoption("--keep"):
        return
    passed = set(_passed(config).read_text("utf-8").split("\n")) if _passed(config).is_file() else set()
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
    items[:] = [item for item in items if item.nodeid not in passed]


class _Keeper:
    """Writes down each test that passed, so that a run which is cut short goes on where it was."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with open(self.file, "a", encoding="utf-8") as stream:
                stream.write(f"{report.nodeid}\n")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--keep") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Keeper(_passed(config)))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Nothing left to run is no failure of a run that goes on."""
    if session.config.getoption("--keep") and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


@functools.cache
def _passed(config: pytest.Config) -> Path:
    names = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(names, cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    digest = hashlib.sha256()
    for name in sorted(set(files) - {b""}):
        path = ROOT / os.fsdecode(name)
        digest.update(name + (path.read_bytes() if path.is_file() else b""))
    return ROOT / ".pytest_cache" / "passed" / digest.hexdigest()[:16]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked ``network`` where the index does not answer; in CI they run and fail."""
    if item.get_closest_marker("network") and not os.environ.get("CI") and not _index_answers():
        pytest.skip("the package index does not answer")


@functools.cache
def _index_answers() -> bool:
    from npu_upgrade.ground.pipconfig import indexes

    try:
        with urllib.request.urlopen(f"{indexes()[0].url}/pip/", timeout=10):
            return True
    except (OSError, ValueError, IndexError):
        return False
