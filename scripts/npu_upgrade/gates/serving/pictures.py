"""Pictures to ask about: plain PNGs, made without an imaging library."""

from __future__ import annotations

import base64
import struct
import zlib

SIDE = 112  # pixels


def picture(seed: int, side: int = SIDE) -> str:
    """A data URL of coloured squares, other ones for every seed."""
    rows = []
    for y in range(side):
        line = bytearray(b"\0")
        for x in range(side):
            line += _colour(seed, x * 4 // side, y * 4 // side)
        rows.append(bytes(line))
    data = _chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    data += _chunk(b"IDAT", zlib.compress(b"".join(rows))) + _chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + data).decode()


def _colour(seed: int, column: int, row: int) -> bytes:
    return zlib.crc32(bytes((seed, column, row))).to_bytes(4, "big")[:3]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
