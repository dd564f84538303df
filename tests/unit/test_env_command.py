"""Listing and pruning a store; what heavy environments are installed with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_kit import called

from npu_upgrade.environments import store, venvs
from npu_upgrade.ground import locks
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.paths import cache_root

DAY = 24 * 3600.0
HEAVY = store.EnvSpec(
    "big", ("tiny",), size_mb=1, heavy=True, overrides=("a==1",), aliases=(("b-c", "2+cpu"),)
)


def put(path: str, days: float, stamp: str | None = store.STAMP) -> Path:
    folder = cache_root() / path
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(b"x" * 3_000_000)
    marked = folder / (stamp or "file")
    if stamp:
        marked.write_text(json.dumps({"size_mb": 7}))
    for each in (marked, folder):
        os.utime(each, (time.time() - days * DAY,) * 2)
    return folder


@pytest.fixture
def kept() -> dict[str, Path]:
    return {
        "fresh": put("envs/fresh-1", 1),
        "old": put("envs/old-1", 40),
        "broken": put("envs/broken-1", 1, None),
        "package": put("emulation/packages/vllm-1", 40, "npu-upgrade-package.json"),
    }


def call(*arguments: str) -> tuple[int, dict]:
    return called("upgrade.py", "env", *arguments)[:2]


def test_list(kept: dict[str, Path]) -> None:
    code, said = call("list")
    assert code == 0
    rows = {row["name"]: row for row in said["environments"]}
    assert {name: row["complete"] for name, row in rows.items()} == {
        "fresh": True,
        "old": True,
        "broken": False,
        "vllm": True,
    }
    assert (rows["fresh"]["size_mb"], rows["broken"]["size_mb"], rows["vllm"]["size_mb"]) == (7, None, 3)
    assert rows["fresh"]["path"] == str(kept["fresh"])


def test_prune_takes_incomplete_and_old(kept: dict[str, Path]) -> None:
    code, said = call("prune", "--dry-run")
    assert (code, said["freed_mb"]) == (0, 9)
    assert all(path.exists() for path in kept.values())
    code, said = call("prune")
    assert {row["name"] for row in said["removed"]} == {"old", "broken", "vllm"}
    assert [name for name, path in kept.items() if path.exists()] == ["fresh"]
    assert call("prune", "--older-than", "0.5")[1]["removed"][0]["name"] == "fresh"


def test_prune_leaves_a_running_build_alone() -> None:
    running = put("emulation/native/.unfinished-a", 0.1, None)
    abandoned = put("emulation/native/.unfinished-b", 2, None)
    call("prune", "--all")
    assert running.exists()
    assert not abandoned.exists()


def test_prune_all_takes_the_package_cache(kept: dict[str, Path]) -> None:
    cache = put("uv", 1, None)
    # a hard link: removing the environment alone frees nothing
    os.link(cache / "file", kept["fresh"] / "linked")
    code, said = call("prune", "--all")
    assert (code, said["freed_mb"]) == (0, 15)
    assert not cache.exists()
    assert not any(path.exists() for path in kept.values())


def test_prune_keeps_what_is_in_use(kept: dict[str, Path]) -> None:
    code = "import sys\nfrom pathlib import Path\nfrom npu_upgrade.ground import locks\n"
    code += "locks.use(Path(sys.argv[1]))\nprint(flush=True)\nsys.stdin.read()"
    scripts = str(Path(store.__file__).parents[2])
    user = subprocess.Popen(
        [sys.executable, "-c", code, str(kept["old"])],
        env=os.environ | {"PYTHONPATH": scripts},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert user.stdout
    assert user.stdout.readline()
    _, said = call("prune", "--all")
    assert said["in_use"] == [str(kept["old"])]
    assert kept["old"].exists()
    user.communicate(b"", timeout=30)
    _, said = call("prune", "--all")
    assert not kept["old"].exists()


def test_prune_keeps_what_runs_without_a_lock(kept: dict[str, Path]) -> None:
    program = kept["old"] / "sleep"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"]) as process:
        _, said = call("prune")
        process.kill()
    assert said["in_use"] == [str(kept["old"])]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("make", "nothing"), "no environment is called 'nothing'"),
        (("make",), "needs a name"),
        (("make", "emulation"), "no vllm-ascend given"),
        (("make", "emulation", "--background"), "no vllm-ascend given"),
        (("list", "--background"), "env list has no --background"),
        (("list", "tools"), "takes no name"),
        (("prune", "--older-than", "-1"), "negative"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], error: str) -> None:
    code, said = call(*arguments)
    assert code == 2
    assert error in said["error"]


def test_an_environment_in_use_is_waited_for_by_its_maker(tmp_path: Path) -> None:
    folder = tmp_path / "env"
    locks.use(folder)
    with locks.alone_now(folder) as alone:
        assert not alone
    with locks.alone(folder):  # the own use of it does not count
        pass


def test_uv_gets_the_settings_of_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:p%40ss@one.example/simple/")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://two.example/simple file:///three/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels https://links.example/x")
    monkeypatch.setenv("PIP_CERT", "/ca.pem")
    monkeypatch.setenv("UV_OFFLINE", "1")
    got = venvs.uv_variables()
    assert got["UV_DEFAULT_INDEX"] == "https://me:p%40ss@one.example/simple"
    main = "https://me:p%40ss@one.example/simple"
    assert got["UV_INDEX"].split() == [main, "https://two.example/simple", "file:///three/simple"]
    assert got["UV_FIND_LINKS"] == "/wheels,https://links.example/x"
    assert got["SSL_CERT_FILE"] == "/ca.pem"
    assert Path(got["UV_CACHE_DIR"]) == cache_root() / "uv"
    assert "UV_OFFLINE" not in got
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert venvs.uv_variables()["UV_NO_INDEX"] == "1"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """uv's calls, of which the first one makes a virtual environment by hand."""
    made: list[list[str]] = []

    def run(command: list[str], lock: int, doing: str, variables: dict[str, str]) -> None:
        made.append(command)
        if command[1] == "venv":
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", command[-1]], check=True)

    monkeypatch.setattr(venvs, "run", run)
    monkeypatch.setattr(venvs, "find_uv", lambda: "uv")
    return made


def test_heavy_environment(calls: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    spec = HEAVY._replace(size_mb=12, duration="long")
    python = store.ensure(spec)
    assert "about 0.0 GB on disk, long" in capsys.readouterr().err
    assert [command[1] for command in calls] == ["venv", "pip"]
    assert (spec.folder / "overrides.txt").read_text() == "a==1\n"
    code = "from importlib.metadata import version; print(version('b-c'))"
    assert subprocess.check_output([python, "-c", code], text=True) == "2+cpu\n"
    stamp = store.read_stamp(spec.folder)
    assert (stamp["overrides"], stamp["size_mb"] >= 0) == (["a==1"], True)
    store.ensure(spec)
    assert len(calls) == 2


@pytest.mark.parametrize("changed", [{"overrides": ()}, {"aliases": ()}, {"requirements": ("b",)}])
def test_heavy_identity(changed: dict) -> None:
    assert HEAVY._replace(**changed).folder != HEAVY.folder
    assert HEAVY._replace(size_mb=5, duration="x").folder == HEAVY.folder


def test_failed_install_shows_no_password(tmp_path: Path) -> None:
    code = "print('error: https://me:secret@host/simple'); raise SystemExit(2)"
    with open(tmp_path / "lock", "w") as lock, pytest.raises(Blocked) as blocked:
        venvs.run([sys.executable, "-c", code], lock.fileno(), "installing")
    assert "***@host" in blocked.value.what
    assert "secret" not in blocked.value.what
