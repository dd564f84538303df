"""What the machine has to offer before an emulated run can be prepared."""

from __future__ import annotations

import platform
import shutil
import sys

from npu_upgrade.ground.errors import Blocked

_TOOLS = {"g++": "g++", "nm": "binutils"}  # command -> Debian package
_PLATFORM = ("Linux", "x86_64")


def check_machine() -> None:
    """Raise :class:`Blocked` naming what this machine lacks for the emulator.

    The disk is checked where something is made, with what that needs.
    """
    here = (platform.system(), platform.machine())
    if here != _PLATFORM:
        raise Blocked(
            f"the emulator does not run on {' '.join(here)}",
            expected="Linux on x86-64: its native parts and the torch-npu wheels are for that",
            try_="run this gate on such a machine (a container will do); the other gates run here",
        )
    if sys.implementation.name != "cpython":
        raise Blocked(
            f"torch-npu has no wheels for {sys.implementation.name}",
            expected="CPython",
            try_="start the command with python3",
        )
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        packages = " ".join(_TOOLS[tool] for tool in missing)
        raise Blocked(
            f"the emulator's native parts need {' and '.join(missing)}, not found on PATH",
            expected="a C++17 compiler and nm",
            try_=f"apt install {packages} (Debian, Ubuntu), dnf install gcc-c++ binutils (Fedora)",
        )
