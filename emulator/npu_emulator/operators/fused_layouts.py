"""The layouts of the fused attention operators: from each to one sequence at a time, and back.

B sequences, S tokens of each, N heads, D values of a head, H = N * D, T tokens of all sequences together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from npu_emulator.operators.attention import paged
from npu_emulator.problems import lacking, require

# input_layout -> how the queries come, how the result goes
LAYOUTS = {name: (name, name) for name in ("BSH", "BSND", "BNSD", "TND")} | {
    name: tuple(name.split("_"))
    for name in ("BNSD_BSND", "BSH_NBSD", "BSND_NBSD", "BNSD_NBSD", "TND_NTD", "NTD_TND")
}
_FLAT = ("TND", "NTD")


@dataclass
class Queries:
    """Queries as rows (T, N, D) of all sequences; sequence i has ``bounds[i]``; ``shape`` (B, S), or none."""

    rows: torch.Tensor
    bounds: list[tuple[int, int]]
    shape: tuple[int, int] | None


def plain(tensor, layout, heads):
    """``tensor`` as (B, S, N, D), or (T, N, D) of a flat layout."""
    if layout == "BSH":
        return tensor.reshape(*tensor.shape[:2], heads, -1)
    return tensor.transpose(-3, -2) if layout in ("BNSD", "NTD") else tensor


def queries(query, layout, heads, lengths) -> Queries:
    """The queries of each sequence; ``lengths`` running sums (T layouts), or tokens of each, or nothing."""
    states = plain(query, layout, heads)
    if layout in _FLAT:
        starts = [0, *lengths[:-1]]
        return Queries(states, list(zip(starts, lengths, strict=True)), None)
    batch, tokens = states.shape[:2]
    used = [tokens] * batch if lengths is None or tokens == 1 else spread(lengths, batch)
    bounds = [(row * tokens, row * tokens + length) for row, length in enumerate(used)]
    return Queries(states.reshape(batch * tokens, *states.shape[2:]), bounds, (batch, tokens))


def spread(lengths, batch):
    """One length for each sequence: a list of one holds for all."""
    return [int(one) for one in (list(lengths) * batch if len(lengths) == 1 else lengths)][:batch]


def contexts(states, layout, heads, lengths, batch):
    """Keys or values (context, N, D) of each sequence from a contiguous tensor."""
    states = plain(states, layout, heads)
    if layout in _FLAT:
        return [states[one:two] for one, two in zip([0, *lengths[:-1]], lengths, strict=True)]
    used = [states.shape[1]] * batch if lengths is None else spread(lengths, batch)
    return [states[row, :length] for row, length in enumerate(used)]


def paged_contexts(operator, cache, heads, block_size, lengths, block_table):
    """Keys or values of each sequence from a cache (blocks, block size, H) or (blocks, N, block size, D)."""
    if cache.dim() == 5:
        raise lacking(operator, "a cache in the NZ layout")
    if cache.dim() == 4:
        require(
            cache.shape[1] == heads and cache.shape[2] == block_size,
            operator,
            f"a cache of four dimensions is (blocks, {heads} kv heads, block size {block_size}, D), "
            f"got {tuple(cache.shape)}",
        )
        cache = cache.transpose(1, 2)
    else:
        require(
            cache.dim() == 3 and cache.shape[1] == block_size,
            operator,
            f"a cache of three dimensions is (blocks, block size {block_size}, H), got {tuple(cache.shape)}",
        )
        cache = cache.unflatten(2, (heads, -1))
    return [paged(cache, block_table[row], length) for row, length in enumerate(lengths)]


def arranged(rows, layout, shape):
    """The result (T, N, D) in the layout asked for."""
    if layout in _FLAT:
        return rows.transpose(0, 1).contiguous() if layout == "NTD" else rows
    states = rows.reshape(*shape, *rows.shape[1:])
    if layout == "BSH":
        return states.flatten(2)
    order = {"BSND": (0, 1, 2, 3), "BNSD": (0, 2, 1, 3), "NBSD": (2, 0, 1, 3)}[layout]
    return states.permute(order).contiguous()
