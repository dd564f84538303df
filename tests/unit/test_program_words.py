"""Which files hold a word is kept, and is what a look at the texts of today finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from npu_upgrade.program.mentions import Mentions
from npu_upgrade.program.places import files_with
from npu_upgrade.program.program import Program
from npu_upgrade.program.words import Words
from npu_upgrade.sources.tree import SourceTree, open_source, overlay

ONE, TWO, NEW = "vllm/one.py", "vllm/two.py", "vllm/sub/new.py"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def tree_of(folder: Path, **texts: str) -> SourceTree:
    for name, text in ({"vllm/__init__.py": ""} | texts).items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return open_source(f"dir:{folder}")


def test_words_follow_the_edits_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    first = Words(tree_of(folder, **{ONE: "count = counted(größe)\n", TWO: "total = count\n"}))
    assert first.of("count") == [ONE, TWO]
    assert first.of("coun") == []
    assert first.holding("counted(") == [ONE]
    assert first.holding("ount") == [ONE, TWO]
    assert first.of("größe") == [ONE]
    (folder / TWO).unlink()
    after = Words(tree_of(folder, **{ONE: "total = 1\n", NEW: "discount = 1\n"}))
    assert after.of("count") == []
    assert after.of("total") == [ONE]
    assert after.holding("ount") == [NEW]


def test_a_text_of_several_words_is_looked_for_where_all_of_them_are(tmp_path: Path) -> None:
    texts = {ONE: "from vllm.sub import new\n", TWO: "import vllm\nsub = vllm\n", NEW: "sub = 1\n"}
    tree = tree_of(tmp_path / "tree", **texts)
    assert Words(tree).holding("vllm.sub") == [ONE, TWO]
    assert Program({"vllm": tree}).holding("vllm", "vllm.sub") == [ONE]


def test_words_of_a_tree_with_texts_laid_over_it(tmp_path: Path) -> None:
    below = tree_of(tmp_path / "tree", **{ONE: "count = 1\n", TWO: "total = count\n"})
    over = Words(overlay(below, {ONE: "other = 1\n", TWO: None, NEW: "count = total\n"}))
    assert over.of("count") == [NEW]
    assert over.of("other") == [ONE]
    assert over.holding("ota") == [NEW]
    assert Words(below).of("count") == [ONE, TWO]


def test_a_mention_is_a_line_with_the_whole_word(tmp_path: Path) -> None:
    text = "limit = 1\nlimits = limit, limit\n\n\ndef f():\n    return obj.limit"
    program = Program({"vllm": tree_of(tmp_path / "tree", **{ONE: text, TWO: "limits = 2\n"})})
    mentions = Mentions(program)
    lines = [(ONE, 1, "limit = 1"), (ONE, 2, "limits = limit, limit"), (ONE, 6, "    return obj.limit")]
    found = [(one.path, one.line, one.text) for one in mentions.of("limit")]
    assert found == lines
    assert next(mentions.of("limit")).line == 1
    assert [(one.path, one.line, one.text) for one in mentions.of("limit")] == lines
    assert [path for path, _ in files_with(program, "vllm", "limit")] == [ONE, TWO]


def test_an_empty_text_is_in_every_file_and_nothing_in_a_package_that_is_gone(tmp_path: Path) -> None:
    program = Program({"vllm": tree_of(tmp_path / "tree", **{ONE: "count = 1\n"})})
    assert [path for path, _ in files_with(program, "vllm", "")] == ["vllm/__init__.py", ONE]
    assert list(files_with(program, "other", "count")) == []
