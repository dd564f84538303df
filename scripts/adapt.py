#!/usr/bin/env python3
"""Adapt a Hugging Face model to vllm-ascend: one subcommand per runbook step."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

if __name__ == "__main__":
    sys.dont_write_bytecode = True  # nothing is written into the skill; ensure_tools sends it to the cache
    from npu_upgrade.environments.tools import ensure_tools

    ensure_tools()
    from npu_upgrade.cli.main import adapt

    sys.exit(adapt())
