"""What the scripted walk edits by hand, from the release that answers."""

from __future__ import annotations

from bench.walk_by_hand import by_hand
from npu_upgrade.code.module import parse_module

FILE = """from package.cache import Gone, Kept

LIMIT = 1


class State:
    a: int


class Runner:
    def first(self):
        return Gone(self)

    def second(self):
        return self.gone_too()

    def third(self):
        return State(1), Kept
"""
RELEASE = """import time

from package.cache import Kept


class State:
    a: int
    b: int


def _helper():
    return time.time()


class Runner:
    def first(self):
        return _helper()

    def third(self):
        return State(1, 2), Kept
"""


def edited(unit: str, asked: str, answer: str = "") -> str:
    return by_hand(FILE, parse_module(RELEASE), unit, asked, answer)


def test_a_method_that_the_release_dropped_goes() -> None:
    text = edited("Runner.second", "Runner.second uses self.gone_too, which nothing defines")
    assert text == FILE.replace("    def second(self):\n        return self.gone_too()\n\n", "")


def test_an_import_that_the_release_dropped_goes_with_what_read_it() -> None:
    text = edited("", "package has no Gone in package.cache")
    assert "Gone" not in text
    assert "return _helper()" in text
    assert text.startswith("import time\n")
    assert text.index("def _helper") < text.index("class Runner")


def test_a_small_class_that_is_asked_about_gets_its_form() -> None:
    text = edited("Runner.third", "Runner.third calls State(), which takes 1 positional argument, gets 2")
    assert text == FILE.replace("    a: int\n", "    a: int\n    b: int\n")


def test_what_an_answer_names_is_brought_for_it() -> None:
    text = edited("", "", "    def first(self):\n        return _helper()\n")
    assert "def _helper" in text
    assert "import time" in text
    assert "return Gone(self)" in text


def test_the_method_that_sets_what_is_read_is_taken() -> None:
    release = parse_module("class Runner:\n    def __init__(self):\n        self.chunk = 1\n")
    run = "\n    def run(self):\n        return self.chunk\n"
    file = f"class Runner:\n    def __init__(self):\n        pass\n{run}"
    text = by_hand(file, release, "", "Runner reads self.chunk, which no class of Runner defines", "")
    assert text == file.replace("pass", "self.chunk = 1")


def test_nothing_is_edited_where_the_release_says_nothing_else() -> None:
    assert edited("Runner.third", "Runner.third computes something, and nothing reads it") == FILE
    assert edited("Other.second", "Other.second is not of this file") == FILE
