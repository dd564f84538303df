"""A statement that both sides changed is laid out as people write it."""

from __future__ import annotations

import ast

import pytest

from npu_upgrade.code.statements import Statement, render, split_statements
from npu_upgrade.threeway.layout import as_lines
from npu_upgrade.threeway.method import merge_method

LONG = "shown_in_the_batch_of_this_step"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("x = f(a, b)", ["x = f(a, b)"]),
        (
            f"a, b, {LONG} = self.states.unpack_what_was_kept(first={LONG}, second={LONG})",
            [
                f"(a, b, {LONG}) = self.states.unpack_what_was_kept(",
                f"    first={LONG},",
                f"    second={LONG},",
                ")",
            ],
        ),
        (
            f"{LONG}_1, {LONG}_2, {LONG}_3 = self.execute_model_state",
            ["(", f"    {LONG}_1,", f"    {LONG}_2,", f"    {LONG}_3,", ") = self.execute_model_state"],
        ),
        (
            f"if self.takes({LONG}, [{LONG}, {LONG}, {LONG}], also=(1, 2)):",
            [
                "if self.takes(",
                f"    {LONG},",
                f"    [{LONG}, {LONG}, {LONG}],",
                "    also=(1, 2),",
                "):",
            ],
        ),
        (
            f"f([{LONG}, {LONG}, {LONG}, {LONG}], 1)",
            ["f(", "    [", *[f"        {LONG},"] * 4, "    ],", "    1,", ")"],
        ),
        ("def f(a: int=1, b=2, *, c: dict=d) -> None:", ["def f(a: int = 1, b=2, *, c: dict = d) -> None:"]),
        ("def f(a=lambda x: x == 1, b: bool=g(c=1)):", ["def f(a=lambda x: x == 1, b: bool = g(c=1)):"]),
        ("x: int = f(a=1)", ["x: int = f(a=1)"]),
        (
            f"with self.seeds({LONG}, first={LONG}), self.context({LONG}) as {LONG}:",
            [
                "with (",
                f"    self.seeds({LONG}, first={LONG}),",
                f"    self.context({LONG}) as {LONG},",
                "):",
            ],
        ),
        (
            f"with self.context({LONG}, {LONG}, {LONG}):",
            ["with self.context(", *[f"    {LONG},"] * 3, "):"],
        ),
        (
            f"while {LONG} and (not {LONG} or f({LONG} and {LONG})) and not {LONG}:",
            [
                "while (",
                f"    {LONG}",
                f"    and (not {LONG} or f({LONG} and {LONG}))",
                f"    and not {LONG}",
                "):",
            ],
        ),
        # no comma may stand behind these, or none parts what is theirs
        (f"f({LONG} for {LONG} in {LONG * 3})", [f"f({LONG} for {LONG} in {LONG * 3})"]),
        (f"x = '{LONG * 4}'", [f"x = '{LONG * 4}'"]),
    ],
)
def test_what_is_too_long_has_one_part_a_line(text: str, lines: list[str]) -> None:
    found = as_lines(text, 4, ())
    assert list(found) == lines
    whole = "\n".join(found) + ("\n    pass" if text.endswith(":") else "")
    plain = text + (" pass" if text.endswith(":") else "")
    assert ast.dump(ast.parse(whole)) == ast.dump(ast.parse(plain))


def test_strings_keep_the_quotes_of_a_side() -> None:
    assert as_lines("f('a', 'b', 'it\\\\n')", 0, ('f("a")', "f('b')")) == ("f(\"a\", 'b', 'it\\\\n')",)


UNPACKED = """
    (
        scheduler_output_of_this_step,
        hidden_states_of_this_step,
        cudagraph_stats_of_this_step,  # of this rank
    ) = self.execute_model_state
"""


@pytest.mark.parametrize("theirs_changed", ["hidden_states_of_this_step", "cudagraph_stats_of_this_step"])
def test_a_comment_behind_a_part_of_a_statement_stays_with_it(theirs_changed: str) -> None:
    own = "        multimodal_outputs_of_this_step,  # Omni-Specific\n    ) ="
    ours = UNPACKED.replace("    ) =", own)
    theirs = UNPACKED.replace(f"{theirs_changed},", f"{theirs_changed},\n        slot_mappings_of_this_step,")
    merged = merge_method(*map(split_statements, (UNPACKED, ours, theirs)))
    lines = render([one for one in merged.pieces if isinstance(one, Statement)]).split("\n")
    assert not merged.conflicts
    assert "        multimodal_outputs_of_this_step,  # Omni-Specific" in lines
    assert any("slot_mappings_of_this_step" in line for line in lines)
    assert sum("# of this rank" in line for line in lines) == 1
    assert not any(line.strip() in ("# Omni-Specific", "# of this rank") for line in lines)
