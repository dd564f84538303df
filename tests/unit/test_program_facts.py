"""What a function does with the model, in whichever way it comes to it."""

from __future__ import annotations

import ast
import textwrap
from types import SimpleNamespace
from typing import cast

import pytest

from npu_upgrade.code.signatures import Function
from npu_upgrade.program.facts import MODEL, _Reader
from npu_upgrade.program.program import File


@pytest.mark.parametrize(
    ("body", "asks"),
    [
        ("return self.model_runner.model.encoder_loaded()", True),
        ("model = self.model_runner.model\nreturn model.encoder_loaded()", True),
        ("model = getattr(self.model_runner, 'model', None)\nreturn hasattr(model, 'encoder_loaded')", True),
        ("runner = self.model_runner\nreturn runner.model.encoder_loaded()", True),
        (
            "runner = getattr(self, 'model_runner', None)\nreturn getattr(runner.model, 'encoder_loaded')",
            True,
        ),
        ("if (runner := self.model_runner):\n    return runner.get_model().encoder_loaded()", True),
        ("runner = self.other\nreturn runner.model.encoder_loaded()", False),
        ("return self.parts['model'].encoder_loaded()", False),
    ],
)
def test_the_model_of_the_runner_is_known_under_other_names(body: str, asks: bool) -> None:
    tree = ast.parse(f"def loaded(self):\n{textwrap.indent(body, '    ')}")
    file = SimpleNamespace(resolve=lambda name: None, imports={}, local_imports={}, functions={}, classes={})
    facts = _Reader(cast("File", file), cast("Function", tree.body[0])).read()
    assert ((MODEL, "encoder_loaded") in facts) is asks
