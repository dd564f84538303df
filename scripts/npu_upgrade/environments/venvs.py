"""Create a virtual environment with pip, and install into it, with whatever this Python came with.

A ``python3`` of Debian or Ubuntu lacks ``ensurepip`` until python3-venv is installed; pip then comes from
the configured package index. Standard library only.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from npu_upgrade.environments.pip_wheel import fetch_pip_wheel
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.pipconfig import redact
from npu_upgrade.ground.progress import say

_SHOWN = ("Downloading ", "Building ", "Installing collected ", "Resolved ", "Prepared ", "Installed ")


def create_venv(folder: Path, lock: int) -> None:
    """Make a virtual environment with pip in ``folder``. Raises :class:`Blocked`.

    ``lock`` is a descriptor every child process keeps open (see :func:`run`).
    """
    create = [sys.executable, "-I", "-m", "venv"]
    if importlib.util.find_spec("ensurepip"):
        run([*create, str(folder)], lock, "making a virtual environment")
        return
    say("this Python has no ensurepip; taking pip from the package index")
    run([*create, "--without-pip", str(folder)], lock, "making a virtual environment")
    wheel = fetch_pip_wheel(folder)
    python = str(folder / "bin" / "python")
    # a wheel is a zip archive, and pip can run from inside its own
    run([python, f"{wheel}/pip", "install", "--no-index", str(wheel)], lock, "installing pip")
    wheel.unlink()


def install(python: Path, requirements: Sequence[str], lock: int) -> None:
    """Install PEP 508 requirements with the environment's own pip. Raises :class:`Blocked`."""
    pip = [str(python), "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    run([*pip, *requirements], lock, f"installing {', '.join(requirements)}")


def run(command: list[str], lock: int, doing: str, variables: dict[str, str] | None = None) -> None:
    """Run to the end, with downloads as progress. Raises :class:`Blocked` with the last lines of its output.

    The child inherits the lock: should this process be killed, no other one starts until the child ended.
    ``variables`` is the child's whole environment, this process's own by default.
    """
    lines: list[str] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=[lock],
        env=variables,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            if line.lstrip().startswith(_SHOWN):
                say(f"  {line.strip()}")
    if process.returncode != 0:
        tail = "\n    ".join(redact(line) for line in lines[-12:] if line)
        raise Blocked(
            f"{doing} failed (exit {process.returncode}):\n    {tail}",
            expected="a package index that answers, and room on the disk",
            try_="check the network, proxy and pip settings (PIP_INDEX_URL, pip.conf), then repeat the "
            "command: finished downloads are kept",
        )
