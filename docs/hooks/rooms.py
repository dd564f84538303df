"""Draws the rooms of the code and who imports whom, as ``docs/source/images/rooms.svg``.

``python3 docs/hooks/rooms.py`` writes it. The order is import-linter's contract in pyproject.toml, a room's
sentence is its package's docstring, and a dot stands for an import that is in the code.
"""

from __future__ import annotations

import ast
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "scripts" / "npu_upgrade"
PICTURE = ROOT / "docs" / "source" / "images" / "rooms.svg"
_ROW, _LEFT, _TEXT, _DOTS, _TOP = 30, 10, 134, 704, 96


def rooms() -> list[str]:
    """The rooms from the roof down, as the contract has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(one["layers"] for one in contracts if one["type"] == "layers")
    return [room.strip() for layer in layers for room in layer.split("|")]


def sentence(room: str) -> str:
    """What a room is for."""
    said = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text("utf-8")))
    return (said or "").split("\n")[0]


def imports(room: str) -> set[str]:
    """The other rooms that the modules of a room import."""
    found = set()
    for path in (PACKAGE / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            parts = [name.split(".") for name in names if name.startswith("npu_upgrade.")]
            found |= {one[1] for one in parts}
    return (found & set(rooms())) - {room}


def draw() -> str:
    """The picture as SVG."""
    order = rooms()
    width, height = _DOTS + 24 * len(order) + 10, _TOP + _ROW * len(order) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-labelledby="t" font-family="system-ui, sans-serif">',
        '<title id="t">The rooms of the code, from the roof down, and which room imports which</title>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for number, room in enumerate(order):
        x, y = _DOTS + 24 * number, _TOP + _ROW * number
        parts += [
            f'<rect x="{_LEFT}" y="{y}" width="{width - 20}" height="{_ROW - 4}" rx="4" fill="#eef3f8"/>',
            f'<text x="{_LEFT + 8}" y="{y + 18}" font-size="14" font-weight="600" fill="#123">{room}</text>',
            f'<text x="{_TEXT}" y="{y + 18}" font-size="12" fill="#345">{escape(sentence(room))}</text>',
            f'<text transform="translate({x + 4},{_TOP - 8}) rotate(-60)" font-size="12" fill="#345">'
            f"{room}</text>",
            f'<rect x="{x - 5}" y="{y + 8}" width="10" height="10" fill="#b8c7d6"/>',
        ]
        uses = imports(room)
        parts += [
            f'<circle cx="{_DOTS + 24 * at}" cy="{y + 13}" r="5" fill="#1f6fb2"/>'
            for at, other in enumerate(order)
            if other in uses
        ]
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(draw(), "utf-8")
