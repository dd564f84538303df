"""The runners are small, and no run of statements in them is vLLM's, vllm-ascend's or vllm-omni's."""

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import omni_runners
from npu_upgrade.sources.tree import open_source

FOLDER = Path(omni_runners.__file__).parent
MOST_LINES = {"core": 900, ".": 1700, "../omni_stages": 360}  # of code, in a folder and below
STAGES = FOLDER.with_name("omni_stages")
RUN = 4
UPSTREAM = {
    "pypi:vllm==0.30.0": ("vllm/v1/worker", "vllm/v1/core", "vllm/v1/sample", "vllm/v1/spec_decode"),
    "pypi:vllm==0.32.0": ("vllm/v1/worker", "vllm/v1/core", "vllm/v1/sample"),
    "pypi:vllm-ascend==0.30.0rc2": ("vllm_ascend/worker", "vllm_ascend/sample", "vllm_ascend/core"),
    "pypi:vllm-omni==0.30.0": (
        *("vllm_omni/worker", "vllm_omni/worker_v2", "vllm_omni/platforms/npu", "vllm_omni/core"),
    ),
}


def code_lines(source: str) -> int:
    """Lines without blanks, comments and docstrings."""
    lines = set()
    skipped = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def runs(source: str) -> Iterator[tuple[str, ...]]:
    """Every run of statements inside a function, each statement without its block, docstrings and imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            keys = list(statements(node.body))
            yield from zip(*(keys[start:] for start in range(RUN)), strict=False)


def statements(body: list[ast.stmt]) -> Iterator[str]:
    """The statements of a block in source order, a compound one by its header."""
    for node in body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        blocks = [getattr(node, name, []) for name in ("body", "handlers", "orelse", "finalbody")]
        if not any(blocks):
            yield ast.unparse(node)
            continue
        yield ast.unparse(node).partition("\n")[0]
        for block in blocks:
            yield from statements(
                [part for one in block for part in (one.body if hasattr(one, "type") else [one])]
            )


def test_the_runners_are_small():
    for folder, most in MOST_LINES.items():
        sizes = {path.name: code_lines(path.read_text()) for path in (FOLDER / folder).rglob("*.py")}
        assert sum(sizes.values()) <= most, sizes
        assert min(sizes.values()) < max(sizes.values()), "the count counts"


def test_statements_are_counted_as_described():
    assert code_lines('"""Doc."""\n\n# why\nx = (\n    1\n)\n') == 3
    source = (
        'def f(a):\n    """Doc."""\n    if a:\n        b = 1\n    for c in a:\n        d = c\n    return b\n'
    )
    assert list(runs(source)) == [
        ("if a:", "b = 1", "for c in a:", "d = c"),
        ("b = 1", "for c in a:", "d = c", "return b"),
    ]


@pytest.mark.network
def test_nothing_is_copied():
    ours = {
        run: path for path in (*FOLDER.rglob("*.py"), *STAGES.rglob("*.py")) for run in runs(path.read_text())
    }
    assert len(ours) > 200
    for spec, folders in UPSTREAM.items():
        tree = open_source(spec)
        paths = [path for folder in folders for path in tree.list(folder) if path.endswith(".py")]
        assert len(paths) > 5, spec
        for path in paths:
            shared = ours.keys() & set(runs(tree.read(path)))
            assert not shared, f"{spec} {path}: {[(ours[run].name, run) for run in shared]}"


@pytest.mark.network
def test_a_copy_would_be_found():
    tree = open_source("pypi:vllm==0.30.0")
    path = "vllm/v1/worker/gpu_worker.py"
    source = tree.read(path)
    method = next(node for node in ast.walk(ast.parse(source)) if getattr(node, "name", "") == "init_device")
    method.name = "renamed"
    assert set(runs(ast.unparse(method))) & set(runs(source))
