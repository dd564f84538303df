"""A statement that both sides changed is laid out as people write it."""

from __future__ import annotations

import ast

import pytest

from npu_upgrade.threeway.layout import as_lines

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
