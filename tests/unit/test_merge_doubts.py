"""A base that is not sure: what another one would have given is shown as whole statements."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from npu_upgrade.code.module import parse_module
from npu_upgrade.code.statements import split_statements, statements_of
from npu_upgrade.merge.runners import merge_unit
from npu_upgrade.threeway.statements import Context

RUN = """def run(batch):
    sizes = count(
        batch,
        1,
    )
    forward(sizes)
"""
EXTRA = """    extra(
        sizes,
        1,
    )
"""


def test_another_base_is_shown_in_whole_statements() -> None:
    bases = SimpleNamespace(
        statements=lambda entry, own, version=None: split_statements(RUN if version else RUN + EXTRA),
        version=lambda entry: SimpleNamespace(label="0.1.0"),
        is_sure=lambda entry: False,
    )
    entry = SimpleNamespace(rival=SimpleNamespace(label="0.2.0"))
    theirs = RUN.replace("forward", "forward_all") + EXTRA
    outcome = merge_unit(
        cast(Any, entry), parse_module(RUN).units["run"], theirs, cast(Any, bases), Context()
    )
    assert outcome.merged
    (flag,) = (flag for flag in outcome.merged.flags if flag.kind == "base")
    assert [s.key for s in statements_of(flag.theirs)] == ["extra(sizes, 1)"]
    assert flag.ours == ""
