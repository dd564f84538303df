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
    """``checkpoint``: one of ``bench.adapt_checkpoints``; ``base``: the sound one of the same weights that
    Transformers knows, where it does not know this one. ``decisions``: answers to what its plan
    asks; ``left_out``: stages that are skipped, each once;
    ``cause``: words of the finding that a broken one has to be stopped by."""

    name: str
    checkpoint: str = ""
    base: str = ""
    default: bool = False
    decisions: tuple[str, ...] = ()
    left_out: tuple[str, ...] = tuple(LEFT_OUT)
    cause: str = ""

    @property
    def of(self) -> str:
        return self.checkpoint or self.name


CASES = (
    Case("dense", default=True, left_out=("accuracy",)),
    Case("dense-renamed", base="dense", default=True),
    Case("mixture"),
    Case("mixture-renamed", base="mixture"),
    Case("latent"),
    Case("latent-renamed", base="latent"),
    Case("hybrid"),
    Case("hybrid-renamed", base="hybrid"),
    Case("multimodal"),
    Case("multimodal-renamed", base="multimodal"),
)
BROKEN = (
    Case("broken-prefix", cause="module.layers.1", default=True),
    Case("broken-shard", cause="model-00002-of-00002.safetensors", default=True),
    Case("broken-scales", cause="scale", default=True),
    Case("broken-rope", cause="rope", default=True),
    Case("broken-tokenizer", cause="tokenizer", default=True),
    Case("broken-code", cause="modeling_lattice.py", default=True),
)
