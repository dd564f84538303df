"""references/troubleshooting.md, generated from the signatures."""

from __future__ import annotations

from collections.abc import Sequence

from npu_upgrade.gates.serving.signatures import Signature

NAME = "troubleshooting.md"
_HEAD = """# Troubleshooting a server

Generated from `scripts/npu_upgrade/gates/serving/signatures.yaml` by
`upgrade.py explain --update-references`; edit the data, not this file.

`upgrade.py explain LOG` finds the first root cause of a log by itself. The last lines of a log are nearly
always wrappers (the last table): they pass on an error that stands further up, or in the lines of another
process. `*` stands for anything on the line. Versions: where the text was found or reported, not a
promise about others.
"""
_COLUMNS = "| id | the log says | cause | next step | source | versions |\n|---|---|---|---|---|---|\n"
_TITLES = {
    "memory": "Memory",
    "native": "Native crashes",
    "host": "Host",
    "device": "Device, driver and CANN",
    "versions": "Installed versions that do not go together",
    "model": "The model and its files",
    "quantization": "Quantization and dtype",
    "configuration": "Configuration",
    "network": "Ports, ranks and collectives",
    "graph": "Graphs and compilation",
    "operators": "Operators and kernels",
    "engine": "Runner and engine code",
    "omni": "Stages of vllm-omni",
    "wrapper": "Wrappers: never the cause",
}


def render(signatures: Sequence[Signature]) -> str:
    """The whole page: one table for each area, in the order of the data."""
    areas = dict.fromkeys(one.area for one in signatures)
    tables = [_section(area, [one for one in signatures if one.area == area]) for area in areas]
    roots = sum(not one.wrapper for one in signatures)
    return f"{_HEAD}\n{roots} root causes, {len(signatures) - roots} wrappers.\n\n" + "\n".join(tables)


def _section(area: str, entries: Sequence[Signature]) -> str:
    rows = "".join(_row(one) for one in entries)
    return f"## {_TITLES[area]}\n\n{_COLUMNS}{rows}"


def _row(one: Signature) -> str:
    texts = "<br>".join(f"`{text.removeprefix('^').replace('`', chr(39))}`" for text in one.texts)
    cells = (f"`{one.id}`", texts, one.cause, one.next, "<br>".join(one.source), one.versions)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
