"""``flock`` by LockFileEx, for Windows, which has no ``fcntl``; the lock of a process that ended is free."""

from __future__ import annotations

import ctypes
import importlib
from typing import IO, Any

LOCK_SH, LOCK_EX, LOCK_NB = 1, 2, 4
_FAIL_IMMEDIATELY, _EXCLUSIVE, _VIOLATION = 1, 2, 33
_FAR = 0x4000_0000
"""Far behind what a file holds: there, a lock keeps nobody from reading and writing."""


class _Overlapped(ctypes.Structure):
    _fields_ = (
        ("internal", ctypes.c_void_p),
        ("internal_high", ctypes.c_void_p),
        ("offset", ctypes.c_uint32),
        ("offset_high", ctypes.c_uint32),
        ("event", ctypes.c_void_p),
    )


def flock(handle: IO[Any], kind: int) -> None:
    """As ``fcntl.flock``: raises :class:`BlockingIOError` with ``LOCK_NB`` when another one holds it."""
    system = vars(ctypes)["WinDLL"]("kernel32", use_last_error=True)
    place = _Overlapped(offset_high=_FAR)
    file = vars(importlib.import_module("msvcrt"))["get_osfhandle"](handle.fileno())
    flags = (_EXCLUSIVE if kind & LOCK_EX else 0) | (_FAIL_IMMEDIATELY if kind & LOCK_NB else 0)
    if system.LockFileEx(ctypes.c_void_p(file), flags, 0, 1, 0, ctypes.byref(place)):
        return
    code = vars(ctypes)["get_last_error"]()
    if code == _VIOLATION:
        raise BlockingIOError(code, "another process holds the lock")
    raise OSError(code, f"LockFileEx failed with {code}")
