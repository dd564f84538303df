"""Give the scripts their run-time requirements on any Python >= 3.11, before a third-party import.

This file has to parse on Python 3.6, to say that it is too old, and has to be quick in an interpreter
that has everything: nothing is imported before it is needed.
"""

import os
import sys

STARTED_IN = "NPU_UPGRADE_STARTED_IN"
_PROGRAMS = ("ruff", "uv")  # imported by nothing; who needs one makes the environment then


def ensure_tools():
    """Return when this interpreter has the run-time requirements; else start over in one that has.

    The same command line goes on, in the same process, in the ``tools`` environment. An error is printed
    like that of any command, and ends the process with its exit code.
    """
    require_python()
    _keep_byte_code_outside()
    if os.environ.pop(STARTED_IN, None) == sys.prefix:
        return

    from npu_upgrade.ground.errors import UpgradeError, report

    try:
        from npu_upgrade.environments.specs import is_satisfied, read_spec
        from npu_upgrade.environments.store import ensure

        spec = read_spec("tools")
        if is_satisfied(one for one in spec.requirements if not one.startswith(_PROGRAMS)):
            return
        python = str(ensure(spec, inherited=True))
    except UpgradeError as error:
        sys.exit(report(error, as_text=sys.stdout.isatty()))
    os.environ[STARTED_IN] = str(spec.folder)
    if os.name == "posix":
        os.execv(python, [python, *sys.orig_argv[1:]])
    import subprocess

    sys.exit(subprocess.call([python, *sys.orig_argv[1:]]))  # an exec of Windows's would not be waited for


def _keep_byte_code_outside():
    """Send byte code to the cache folder when this is an installed skill, in whose folder nothing is written.

    A script turns byte code off (``sys.dont_write_bytecode``) for the imports that lead here. A checkout
    keeps its byte code beside the sources: with a prefix, that of all packages would be made anew as well.
    """
    if sys.flags.dont_write_bytecode:
        return
    from npu_upgrade.ground.paths import cache_root

    sys.dont_write_bytecode = False
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
    if not os.path.exists(os.path.join(root, ".git")):
        sys.pycache_prefix = sys.pycache_prefix or str(cache_root() / "pycache")


def require_python():
    """End the process with exit code 2 when this Python is too old for the rest of the project."""
    if sys.version_info < (3, 11):  # noqa: UP036 - no installer has checked it before us
        print('{"verdict": "USAGE", "error": "this Python is too old", "expected": "Python 3.11 or newer"}')
        sys.stderr.write(
            "error: Python {}.{} is too old\n  expected: Python 3.11 or newer\n  try: the same command with"
            " a newer one, such as python3.11 (with make: PYTHON=python3.11)\n".format(*sys.version_info[:2])
        )
        sys.exit(2)
