#!/usr/bin/env python3
"""Adapt a Hugging Face model to vllm-ascend: one subcommand per runbook step."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

# "adapt.NAME" is the module commands/adapt/NAME.py, "NAME" one that upgrade.py has too
COMMANDS = [
    "adapt.analyze",
    "adapt.plan",
    "status",
    "next",
    "serve",
    "accuracy",
    "features",
    "capacity",
    "adapt.artifacts",
    "adapt.deliver",
    "report",
    "validate",
    "explain",
    "evidence",
    "env",
]

if __name__ == "__main__":
    sys.dont_write_bytecode = True  # nothing is written into the skill; ensure_tools sends it to the cache
    from npu_upgrade.environments.tools import ensure_tools

    ensure_tools()
    from npu_upgrade.cli.main import main

    sys.exit(main("adapt.py", __doc__, COMMANDS))
