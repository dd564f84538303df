"""Markers around the omni code that a port brought into methods copied from vllm-ascend."""

from __future__ import annotations

from collections.abc import Mapping

from npu_upgrade.code.module import parse_module, replace_units
from npu_upgrade.code.statements import render, split_statements
from npu_upgrade.lineage.marker_places import omni_code
from npu_upgrade.lineage.marking import add_markers
from npu_upgrade.port.npu_side import NpuSide


def marked(npu: NpuSide, files: Mapping[str, str]) -> dict[str, str]:
    """The changed runner files of ``npu`` with a marker before and after all such code that has none.

    What stood there without markers before stays so, and so do omni's own methods.
    """
    upstream = npu.upstream
    theirs = parse_module(npu.ascend.read(upstream.path)).units
    found = {}
    for path, text in files.items():
        before, after = parse_module(npu.texts[path]).units, parse_module(text)
        units = {}
        for name, unit in after.units.items():
            was = before.get(name)
            copied = theirs.get(f"{upstream.class_name}.{name.rpartition('.')[2]}")
            if was and copied and was.source != unit.source:
                units[name] = _marked(unit.source, was.source, copied.source)
        found[path] = replace_units(after, units)
    return found


def _marked(text: str, before: str, upstream: str) -> str:
    statements, had = split_statements(text), {one.key for one in split_statements(before)}
    omni = omni_code(statements, split_statements(upstream))
    new = [own and one.key not in had for own, one in zip(omni, statements, strict=True)]
    return render(add_markers(statements, new))
