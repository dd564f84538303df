"""Runs a command of a program in this process."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from npu_upgrade.cli import main as cli
from npu_upgrade.cli import programs

NAMES = {"upgrade.py": programs.UPGRADE, "adapt.py": programs.ADAPT}


def called(program: str, *words: str | Path) -> tuple[int, dict[str, Any], str]:
    """The exit code of one command, the JSON on stdout, and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.main(program, "", NAMES[program], [*map(str, words), "--format", "json"])
    return code, json.loads(out.getvalue()), err.getvalue()
