"""Whether what the first tier offers leaves the runner files as good as they were.

Each hunk of the first tier is applied alone, and all of them together. The files that come out are
judged by others than the port itself: Python's parser, the type checker (names that may have no value),
the formatter at the line length that the file had, and the tests that stand above a statement on the
GPU side.
"""

from __future__ import annotations

import ast
import difflib
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from npu_upgrade.code.formatting import formatted
from npu_upgrade.commands.port_inputs import Inputs
from npu_upgrade.port.apply import apply
from npu_upgrade.port.survey import Survey

_BIN = Path(sys.executable).parent
_LENGTHS = (88, 100, 110, 119, 120)
_UNBOUND = ("unresolved-reference", "possibly-unresolved-reference")
Files = dict[str, str]


def judge(inputs: Inputs, found: Survey) -> tuple[int, list[str]]:
    """How many times hunks were applied, and what was wrong."""
    npu, top = inputs.npu, [entry.hunk.id for entry in found.left if entry.tier == 1]
    problems: list[str] = []
    results: dict[str, Files] = {}
    for name, ids in {**{one: [one] for one in top}, "all": top}.items():
        done = apply(ids, found.left, npu, inputs.new)
        problems += [f"{name}: refused: {done.refused[one]}" for one in done.refused if name != "all"]
        results[name] = {path: _as_taken(path, npu.texts[path], text) for path, text in done.files.items()}
    problems += [f"{name}: {what}" for name, files in results.items() for what in _of_text(npu.texts, files)]
    gpu = {runner.path: inputs.new.modules[runner.kind].source for runner in npu.runners}
    for name, files in results.items():
        for path, text in files.items():
            problems += [f"{name}: {what}" for what in _lost_tests(npu.texts[path], text, gpu[path])]
    return len(results), problems + _unbound(npu.texts, results)


def _of_text(before: Files, after: Files) -> Iterator[str]:
    for path, text in after.items():
        try:
            ast.parse(text)
        except SyntaxError as error:
            yield f"{path}: no Python: {error}"
            continue
        length = _length(before[path])
        if length and (wanted := _formatted(text, length)) != text:
            yield f"{path}: the formatter changes {_first_change(text, wanted)}"
        for at in _blank_noise(before[path], text):
            yield f"{path}:{at}: blank lines change beside what was taken"


def _length(text: str) -> int | None:
    """The line length at which the formatter leaves a file alone."""
    return next((n for n in _LENGTHS if _formatted(text, n) == text), None)


def _as_taken(path: str, before: str, text: str) -> str:
    """The file as `port` writes it into a project whose formatter is set to the length of the file."""
    if not (length := _length(before)):
        return text
    with tempfile.TemporaryDirectory() as folder:
        settings = f"[tool.ruff]\nline-length = {length}\n[tool.ruff.format]\n"
        (Path(folder) / "pyproject.toml").write_text(settings)
        return formatted(Path(folder), path, before, text)


def _formatted(text: str, length: int) -> str:
    command = [str(_BIN / "ruff"), "format", "--isolated", f"--line-length={length}", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False).stdout


def _first_change(text: str, wanted: str) -> str:
    lines = difflib.unified_diff(text.split("\n"), wanted.split("\n"), n=0, lineterm="")
    return " | ".join(list(lines)[2:6])


def _blank_noise(before: str, after: str) -> Iterator[int]:
    """The lines where only blank ones came or went."""
    sides = before.split("\n"), after.split("\n")
    for what, a0, a1, b0, b1 in difflib.SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
        if what != "equal" and not any(line.strip() for line in (*sides[0][a0:a1], *sides[1][b0:b1])):
            yield b0 + 1


def _lost_tests(before: str, after: str, gpu: str) -> Iterator[str]:
    """Statements that came and do not stand below a test that they stand below on the GPU side.

    A test that the unit of the NPU side spells in its own way has nothing to be compared with.
    """
    had, has, there = (_tests(text) for text in (before, after, gpu))
    known = {test for tests in has.values() for one in tests for test in one}
    for key, places in has.items():
        came = len(places) > len(had.get(key, []))
        wanted = [one & known for one in there.get(key, [])]
        if came and wanted and not any(one <= place for one in wanted for place in places):
            yield f"{key[1][:80]} without {min(min(wanted, key=len))}"


def _tests(text: str) -> dict[tuple[str, str], list[set[str]]]:
    """The statements by method and text, each with the tests of the ``if`` above it."""
    found: dict[tuple[str, str], list[set[str]]] = {}

    def visit(node: ast.AST, owner: str, above: set[str]) -> None:
        for name, value in ast.iter_fields(node):
            below = above | (
                {ast.unparse(node.test)} if isinstance(node, ast.If) and name == "body" else set()
            )
            for child in value if isinstance(value, list) else []:
                if isinstance(child, ast.stmt):
                    if not hasattr(child, "body"):
                        found.setdefault((owner, ast.unparse(child)), []).append(below)
                    inner = child.name if isinstance(child, ast.FunctionDef) and not owner else owner
                    visit(child, inner, below)
                elif isinstance(child, ast.ExceptHandler):
                    visit(child, owner, below)

    visit(ast.parse(text), "", set())
    return found


def _unbound(before: Files, results: dict[str, Files]) -> list[str]:
    """Names without a value, by the type checker, that the files did not read so before."""
    with tempfile.TemporaryDirectory() as folder:
        for name, files in {**results, "before": before}.items():
            for path, text in files.items():
                place = Path(folder, name, Path(path).name)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, "utf-8")
        found = _checked(Path(folder))
    return [
        f"{name}: {file}: {what}"
        for (name, file), said in sorted(found.items())
        for what in said - found.get(("before", file), Counter())
        if name != "before"
    ]


def _checked(folder: Path) -> dict[tuple[str, str], Counter[str]]:
    rules = [f"--error={rule}" for rule in _UNBOUND]
    command = [str(_BIN / "ty"), "check", "--ignore=all", *rules, "--output-format=concise", "."]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if said.returncode not in (0, 1):
        raise RuntimeError(f"ty ended with {said.returncode}: {said.stderr[-500:]}")
    found: dict[tuple[str, str], Counter[str]] = {}
    for line in said.stdout.splitlines():
        if match := re.match(r"(?:\./)?([^/]+)/([^:]+):\d+:\d+: \S+ (.*)", line):
            found.setdefault((match[1], match[2]), Counter())[match[3]] += 1
    return found
