"""The arguments that both versions of the fused attention operator share, under one set of names."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch

from npu_emulator.operators.fused_layouts import LAYOUTS


@dataclass
class Call:
    """One call; what is not given is None, ``before`` and ``after`` are the width of a band."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    layout: str
    heads: int
    kv_heads: int
    scale: float
    lengths: list[int] | None
    kv_lengths: list[int] | None
    block_table: torch.Tensor | None
    block_size: int
    mask: torch.Tensor | None
    sparse_mode: int
    before: int
    after: int
    query_rope: torch.Tensor | None
    key_rope: torch.Tensor | None
    with_lse: bool
    sink: torch.Tensor | None = None

    @property
    def come(self) -> str:
        """The layout of the inputs."""
        return LAYOUTS[self.layout][0]

    @property
    def goes(self) -> str:
        """The layout of the result."""
        return LAYOUTS[self.layout][1]

    @property
    def flat(self) -> bool:
        """Whether the tokens of all sequences lie one after another."""
        return self.come in ("TND", "NTD")

    @property
    def size(self) -> int:
        """The head size of the query."""
        return self.query.shape[-1] // (self.heads if self.come == "BSH" else 1)

    @property
    def batch(self) -> int:
        """The number of sequences."""
        return len(self.lengths) if self.flat else self.query.shape[0]

    @property
    def tokens(self) -> int:
        """Queries of all sequences of a flat layout; else of each."""
        return self.query.shape[self.come.index("T" if self.flat else "S")]

    @property
    def longest_query(self) -> int:
        """The most queries that a sequence has."""
        if not self.flat:
            return self.tokens
        return max((two - one for one, two in itertools.pairwise([0, *self.lengths])), default=0)
