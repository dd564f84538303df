"""Registration, tables and page text: each edit changes its own lines, for any text."""

from __future__ import annotations

import ast
import inspect
import shlex
import string
from types import SimpleNamespace

import model_kit
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from npu_upgrade.artifacts.bundle import merged
from npu_upgrade.artifacts.registration import in_index, in_nav, in_titles, in_toctree, nav_pages
from npu_upgrade.artifacts.render import cell, code, tidy, without_macros
from npu_upgrade.artifacts.view import ModelView, quoted, shell_lines
from npu_upgrade.checkpoint.analysis import analyse
from npu_upgrade.checkpoint.analysis_file import described
from npu_upgrade.checkpoint.serving import Sources
from npu_upgrade.ground.errors import BadInput

NAMES = st.text(string.ascii_letters + string.digits + "._+-", min_size=1, max_size=20).filter(
    lambda text: text[0].isalnum()
)


@given(st.lists(NAMES, unique=True, max_size=4), NAMES, st.booleans())
def test_a_nav_gets_one_line_and_keeps_the_others(others: list[str], name: str, titled: bool) -> None:
    pages = [f"tutorials/models/{other}.md" for other in others if other != name]
    lines = [f"    - {'T ' + page[17:19] + ': ' if titled else ''}{page}" for page in pages]
    text = "\n".join(
        ["a: !ENV [X, 'y']", "nav:", "  - index.md", "  - Models:", "    - x.md", *lines, "b: 1", ""]
    )
    changed = in_nav(text, name, f"{name} (Experimental)")
    page = f"tutorials/models/{name}.md"
    assert nav_pages(changed) == {*nav_pages(text), page, *(() if pages else ("tutorials/models/index.md",))}
    assert [line for line in changed.splitlines() if line in text.splitlines()] == text.splitlines()
    assert in_nav(changed, name, "Other") == changed


@pytest.mark.parametrize("text", ["a: 1\n", "nav: [index.md]\n", "nav:\n  {a: b\n", ""])
def test_a_nav_that_cannot_take_a_line_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        in_nav(text, "x", "x")


@given(NAMES, st.lists(NAMES, unique=True, max_size=3))
def test_titles_stay_a_dict_of_the_same_entries(name: str, others: list[str]) -> None:
    entries = "".join(
        f'    "tutorials/models/{o}.md": {{"en": "{o}", "zh": "{o}"}},\n' for o in others if o != name
    )
    head = 'import os\nTITLES: dict = {\n    "index.md": {"en": "H"},\n'
    text = f"{head}{entries}}}\n\n\ndef f():\n    return 1\n"
    changed = in_titles(text, name, f"{name} (Experimental)")
    before, after = (ast.literal_eval(ast.parse(t).body[1].value) for t in (text, changed))
    assert after.pop(f"tutorials/models/{name}.md")["en"] == f"{name} (Experimental)"
    assert after == {key: value for key, value in before.items() if key != f"tutorials/models/{name}.md"}
    assert all(len(line) <= 120 for line in changed.splitlines())
    assert in_titles(changed, name, "Other") == changed


@pytest.mark.parametrize("text", ["", "TITLES = make()\n", "def (:\n"])
def test_titles_in_another_form_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        in_titles(text, "x", "x")


def test_an_index_gets_a_list_and_a_toctree_a_line() -> None:
    text = "# Models\n\n- [A](a.md)\n\nText.\n"
    assert in_index(text, "b", "B") == "# Models\n\n- [A](a.md)\n- [B](b.md)\n\nText.\n"
    assert in_index("# Models\n\nText.\n", "a", "A") == "# Models\n\nText.\n"  # the navigation has it
    assert in_index(text, "a", "A") == text
    tree = "# M\n\n```{toctree}\n:maxdepth: 1\na.md\n```\n"
    assert in_toctree(tree, "b") == "# M\n\n```{toctree}\n:maxdepth: 1\na.md\nb.md\n```\n"
    assert in_toctree(tree, "a") == tree
    with pytest.raises(BadInput):
        in_toctree("# M\n", "a")


@given(st.text())
def test_text_of_a_run_stays_in_its_cell_and_its_code(text: str) -> None:
    assert "\n" not in cell(text)
    assert "|" not in cell(text).replace("\\|", "")
    assert "\n" not in code(text)
    shown = code(f"x{text}")
    marks = len(shown) - len(shown.lstrip("`"))
    inside = shown[marks:-marks]
    assert "`" * marks not in inside or inside.strip("`") != inside
    assert "\n" not in quoted(text)


@given(st.text("{}%#a ", max_size=30), st.text("{}%#a ", max_size=30))
def test_no_macro_gets_into_a_page(one: str, two: str) -> None:
    jinja = pytest.importorskip("jinja2")
    verbatim = "{{ version }}"
    page = without_macros(f"{one}\n{verbatim}\n{two}\n", verbatim)
    assert jinja.Template(page, keep_trailing_newline=True).render(version="V") == f"{one}\nV\n{two}\n"


@given(st.lists(st.text("-=ab {}'\"$\n", min_size=1, max_size=8), max_size=6))
def test_a_command_has_the_words_it_was_given(words: list[str]) -> None:
    line = f"vllm serve X{shell_lines(words)}".replace(" \\\n", " ")
    assert shlex.split(line) == ["vllm", "serve", "X", *words]


def test_tidy_leaves_code_alone() -> None:
    page = "a\n\n\n\nb  \n\n````text\nx\n\n\n```\n\n\n````\n\n\n\nc\n\n\n"
    assert tidy(page) == "a\n\nb\n\n````text\nx\n\n\n```\n\n\n````\n\nc\n"


def test_edits_and_news_are_merged_or_refused(tmp_path) -> None:
    page = tmp_path / "page.md"
    old, new = "a\nb\nc\nd\ne\n", "a\nb\nc\nd\nE\n"
    assert merged(page, None, None, new) == new
    assert merged(page, old, old, new) == new
    assert merged(page, "A\nb\nc\nd\ne\n", old, new) == "A\nb\nc\nd\nE\n"
    assert merged(page, "mine\n", new, new) == "mine\n"
    for written in (None, old):
        with pytest.raises(BadInput):
            merged(page, "a\nb\nc\nd\nmine\n", written, new)


def test_a_checkpoint_is_described_as_far_as_its_analysis_goes(tmp_path) -> None:
    config = model_kit.LLAMA | {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe"}
    config |= {"num_experts": 128, "num_experts_per_tok": 8, "head_dim": 4}
    rows = described(analyse(model_kit.checkpoint(tmp_path / "full", config), Sources()).file)
    assert rows.pop("Weights").startswith("30 tensors in 1 file,")
    assert rows == {
        "Model type": "qwen3_moe",
        "Layers": "3 full",
        "Attention": "mqa, 2 heads, 1 of keys and values of size 4",
        "Experts": "128, 8 per token",
        "MTP": "none",
        "Served by": "native",
        "Longest context by configuration": "128",
    }
    empty = described(analyse(model_kit.checkpoint(tmp_path / "empty", {"x": 1}, {}), Sources()).file)
    assert set(empty) == {"Attention", "MTP", "Served by", "Longest context by configuration"}


def test_the_chinese_words_cover_what_is_shown() -> None:
    from npu_upgrade.artifacts import facts, render

    words = yaml.safe_load((render._TEMPLATES / "zh.yaml").read_text("utf-8"))
    assert {*facts.STATUSES, ""} == set(words["status"])
    source = inspect.getsource(described)
    assert all(f'"{name}"' in source for name in words["description"])
    assert source.count('": ') == len(words["description"])


def test_a_check_that_neither_stage_ran_is_not_called_incomparable() -> None:
    run = SimpleNamespace(many=lambda _: [{"name": "images", "state": "SKIPPED"}])
    view = SimpleNamespace(facts=SimpleNamespace(dummy=run, served=run))
    assert [row["note"] for row in ModelView.comparison.fget(view)] == ["neither"]
