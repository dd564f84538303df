"""The cases of ``bench.adapt``: which checkpoint, what may be left out, what stops a broken one."""

from __future__ import annotations

from dataclasses import dataclass

LEFT_OUT = {
    "accuracy": "the public tasks cannot be fetched here",
    "capacity": "one model shows it",
    "performance": "one model shows it",
    "serve emulated": "one model of each kind shows it",
    "features emulated": "one model of each kind shows it",
}


@dataclass(frozen=True)
class Case:
    """``checkpoint``: one of ``bench.adapt_checkpoints``. ``decisions``: answers to what its plan asks;
    ``left_out``: stages that are skipped, each once; ``cause``: words of the finding that a broken one has to
    be stopped by."""

    name: str
    checkpoint: str = ""
    default: bool = False
    decisions: tuple[str, ...] = ()
    left_out: tuple[str, ...] = tuple(LEFT_OUT)
    cause: str = ""

    @property
    def of(self) -> str:
        return self.checkpoint or self.name


CASES = (
    Case("dense", default=True, left_out=("accuracy",)),
    Case("dense-renamed", default=True),
    Case("mixture"),
    Case("mixture-renamed"),
    Case("latent"),
    Case("latent-renamed"),
    Case("hybrid"),
    Case("hybrid-renamed"),
    Case("multimodal"),
    Case("multimodal-renamed"),
)
BROKEN = (
    Case("broken-prefix", cause="module.layers", default=True),
    Case("broken-shard", cause="model-00002-of-00002.safetensors", default=True),
    Case("broken-scales", cause="scale", default=True),
    Case("broken-rope", cause="rope", default=True),
    Case("broken-tokenizer", cause="tokenizer", default=True),
    Case("broken-code", cause="modeling_lattice.py", default=True),
)
