"""Start a server's engine processes from a warm fork: their imports are paid already.

A server starts them with multiprocessing's spawn: a new interpreter, then a pickled process object. Here that
object, the server's variables and its process group go to a fork of the dry run's process instead, by the
standard library's own fork server.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from multiprocessing import forkserver, spawn, util

ADDRESS = "NPU_EMULATOR_WARM"  # the socket of the warm fork
_OURS = "npu_emulator"  # what is handed over beside multiprocessing's own preparation data
_KNOWN = sys.version_info < (3, 14)  # whose fork server authenticates


def offer() -> dict[str, str]:
    """Fork a process that waits for engine processes to start; the variables that let a server find it.

    It ends with this process.
    """
    if not _KNOWN:
        return {}
    listener, name = socket.socket(socket.AF_UNIX), f"npu-emulator-{secrets.token_hex(16)}"
    listener.bind(f"\0{name}")  # of Linux: no file is left behind
    listener.listen()
    alive, _ours = os.pipe()  # closed when this process ends
    if os.fork() == 0:
        os.close(_ours)
        _take_over()
        try:
            forkserver.main(listener.fileno(), alive, [])
        finally:
            os._exit(0)
    os.close(alive)
    listener.close()
    return {ADDRESS: name}


def _take_over() -> None:
    """Let each new process begin with the variables, the group and the models of the server that wants it."""
    prepare = spawn.prepare

    def prepared(data):
        variables, group = data.pop(_OURS)
        os.environ.clear()
        os.environ.update(variables)
        os.setpgid(0, group)
        util._finalizer_registry.clear()  # as of any fork: a spawned process object does not do it
        util._run_after_forkers()
        prepare(data)
        from npu_emulator.dry_run import plugin

        plugin.make_models_known()

    spawn.prepare = prepared


def use() -> None:
    """In a server's process: spawn from the warm fork, where one was offered."""
    name = os.environ.get(ADDRESS)
    if not name:
        return
    from multiprocessing import context, popen_forkserver

    one = forkserver._forkserver
    one._forkserver_address, one._forkserver_alive_fd = f"\0{name}", os.open(os.devnull, os.O_RDONLY)
    one.ensure_running = lambda: None
    plain = spawn.get_preparation_data
    spawn.get_preparation_data = lambda name: plain(name) | {_OURS: (dict(os.environ), os.getpgrp())}
    context.SpawnProcess._Popen = staticmethod(popen_forkserver.Popen)
