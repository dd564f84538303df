"""``python -m npu_emulator.dry_run.models NAME FOLDER``: a tiny checkpoint below FOLDER; prints where it is.

Needs torch, safetensors and tokenizers, as the environment of any vLLM has them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from npu_emulator.dry_run.models import NAMES, checkpoint

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in NAMES:
        sys.exit(
            f"usage: python -m npu_emulator.dry_run.models NAME FOLDER; NAME is one of {', '.join(NAMES)}"
        )
    print(checkpoint(sys.argv[1], Path(sys.argv[2])))
