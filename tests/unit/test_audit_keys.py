"""The check for dictionaries that are asked by a key of another kind than they are declared with."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_kit import AR, BASE, make_world, seen

METHODS = "vllm_ascend/ops/methods.py"
KINDS = """
import enum


class Kind(enum.Enum):
    ONE = 1


METHODS: {annotation} = {{}}
"""
HEAD = """
from vllm_ascend.ops.methods import METHODS, Kind
from {base} import OmniNPUModelRunner


def choose(config) -> Kind | None:
    return Kind.ONE


def both(config) -> tuple[Kind, int]:
    return Kind.ONE, 1


class NPUARModelRunner(OmniNPUModelRunner):
    def run(self, config, given):
        kind, pair = None, None
        method = {lookup}
"""
TUPLES = "dict[tuple[Kind | None, int], object]"


def asked(folder: Path, annotation: str, lookup: str, before: str = "") -> list[str]:
    text = HEAD.replace("{lookup}", lookup).replace("{base}", BASE[:-3].replace("/", "."))
    text = text.replace("        kind, pair = None, None\n", before)
    files = {AR: text, METHODS: KINDS.format(annotation=annotation)}
    return [subject for _, _, subject in seen(make_world(folder, files), "keys")]


@pytest.mark.parametrize(
    ("annotation", "lookup", "before"),
    [
        (TUPLES, "METHODS.get(choose(config))", ""),
        (TUPLES, "METHODS[kind]", "        kind = choose(config)\n"),
        (TUPLES, "METHODS.get(config.kind)", "        config.kind = choose(config)\n"),
        ("dict[Kind, object]", "METHODS[both(config)]", ""),
        ("dict[str, object]", "METHODS.get(('one', 1))", ""),
    ],
)
def test_another_kind_of_key_is_found(tmp_path: Path, annotation: str, lookup: str, before: str) -> None:
    assert len(asked(tmp_path, annotation, lookup, before)) == 1


@pytest.mark.parametrize(
    ("annotation", "lookup", "before"),
    [
        (TUPLES, "METHODS.get(both(config))", ""),
        (TUPLES, "METHODS.get((Kind.ONE, 1))", ""),
        (TUPLES, "METHODS.get(given)", ""),
        (TUPLES, "METHODS.get(kind)", "        kind = choose(config)\n        kind = both(config)\n"),
        (TUPLES, "METHODS.get(unknown(config))", ""),
        ("dict[Kind, object]", "METHODS.get(choose(config))", ""),
        ("dict", "METHODS.get(choose(config))", ""),
    ],
)
def test_what_fits_or_is_unknown_is_silent(tmp_path: Path, annotation: str, lookup: str, before: str) -> None:
    assert asked(tmp_path, annotation, lookup, before) == []
