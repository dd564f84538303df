"""Record what Transformers answers with a model's weights, for a serving machine that lacks the memory.

Transformers runs on this CPU, in float32 and again in bfloat16: fixed text prompts, and images where the
model takes them, with their greedy tokens and log-probabilities. The file holds the digest of the whole
checkpoint; serve --reference FILE refuses it for other weights. BLOCKED says what is missing, such as memory.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from npu_upgrade.commands.arguments import option
from npu_upgrade.gates.reference.reference import NoReference, make
from npu_upgrade.gates.serving.session import named_python
from npu_upgrade.ground.command import Command, program
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.files import write_atomic
from npu_upgrade.ground.verdict import Result, Verdict

EXAMPLES = """/models/Qwen3-235B-A22B --out reference.json
./new-model --python /venv/bin/python --trust-remote-code --out reference.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", help="the folder of the checkpoint, or a cached Hugging Face id"
    )
    option(parser, "--out FILE", "where the reference goes", type=Path, required=True)
    option(
        parser,
        "--python PYTHON",
        "the interpreter with Transformers; cpu (default) or cpu:VERSION: that of our own vLLM",
        default="cpu",
    )
    option(parser, "--trust-remote-code", "let the checkpoint's own code run; a person has to agree")


def run(args: argparse.Namespace) -> Result:
    """PASS with the file; BLOCKED where Transformers cannot compute it here."""
    try:
        reference, kept = make(args.model, named_python(args.python), trust=args.trust_remote_code)
    except NoReference as none:
        raise Blocked(
            f"no reference for {args.model}: {none}",
            expected="a checkpoint in safetensors that Transformers knows and this machine's memory holds",
            try_="a machine with more memory, or --python with a newer Transformers",
        ) from none
    write_atomic(args.out, kept.read_bytes())
    count = len(reference.prompts)
    said = f"Transformers {reference.transformers}: {count} prompts of {args.model}, written to {args.out}"
    data = {"reference": str(args.out), "digest": reference.digest, "transformers": reference.transformers}
    after = Command(program(), "serve", (args.model, "--reference", str(args.out)))
    return Result(Verdict.PASS, said, data | {"without": reference.without}, next=after)
