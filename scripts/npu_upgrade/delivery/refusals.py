"""Why files are not committed: checks that read the checkout.

Each raises :class:`BadInput` and changes nothing.
"""

from __future__ import annotations

import ast
import shlex
import warnings
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import yaml

from npu_upgrade.code.conflict_text import marker_rows
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.tables import shortened
from npu_upgrade.job.answer_checks import defined_twice, lost_markers
from npu_upgrade.sources.checkout import Checkout


def check_places(checkout: Checkout, files: Mapping[str, bool]) -> None:
    """Every file is where git can commit it from: in no submodule, sparse path, link or folder.

    ``files``: path -> whether it has to be there.
    """
    folders = {parent.as_posix() for path in files for parent in Path(path).parents} - {"."}
    listed = checkout.git("ls-tree", "-z", "--full-tree", "HEAD", "--", *sorted(folders)) if folders else ""
    modules = {line.partition("\t")[2] for line in listed.split("\0") if line.startswith("160000")}
    modules |= {folder for folder in folders if (checkout.root / folder / ".git").exists()}
    for path, kept in files.items():
        file = checkout.root / path
        problem = None
        if any(parent.as_posix() in modules for parent in Path(path).parents):
            problem = "is inside a submodule", "deliver in the submodule's own checkout"
        elif file.parent.resolve() != file.parent or file.is_symlink() or file.is_dir():
            problem = "is a link or a folder, or behind a link", "put the file itself there"
        elif kept and not file.exists():
            sparse = checkout.git("ls-files", "-t", "--", path).startswith("S")
            way = f"git sparse-checkout add {Path(path).parent}" if sparse else "upgrade.py merge --apply"
            problem = (
                ("is left out by the sparse checkout" if sparse else "is missing"),
                f"{way}, then deliver",
            )
        if problem:
            raise BadInput(
                f"{path} {problem[0]}", expected=f"a plain file in {checkout.root}", try_=problem[1]
            )


def check_staged(checkout: Checkout, files: Collection[str]) -> None:
    """Nothing but ``files`` is staged."""
    staged = checkout.git("diff", "--cached", "--name-only", "--no-renames", "--no-ext-diff", "-z", "HEAD")
    others = sorted(set(staged.split("\0")[:-1]) - set(files))
    if others:
        raise BadInput(
            f"other changes are staged: {shortened(others)}",
            expected="an index with nothing but the delivery's own files staged",
            try_=f"{shlex.join(['git', 'restore', '--staged', *others[:5]])} (the files keep their changes)",
        )


def check_contents(root: Path, paths: Iterable[str]) -> None:
    """No file has a conflict marker left, and each parses."""
    for path in paths:
        file = root / path
        data = file.read_bytes() if file.exists() else b""
        if markers := marker_rows(data.decode("utf-8", "replace")):
            raise BadInput(
                f"{path} line {min(markers) + 1} still has a conflict marker",
                expected="every conflict decided",
                try_="edit the file, then run upgrade.py plan and deliver again",
            )
        if problem := _syntax_problem(file, data):
            raise BadInput(
                f"{path} does not parse: {problem}",
                expected="a file its language accepts",
                try_="correct it, then run upgrade.py plan and deliver again",
            )


def _syntax_problem(file: Path, data: bytes) -> str | None:
    try:
        if file.suffix == ".py":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an invalid escape in the user's file is not our news
                ast.parse(data)
        elif file.suffix in (".yaml", ".yml"):
            list(yaml.compose_all(data, Loader=yaml.SafeLoader))
    except (SyntaxError, ValueError, RecursionError, yaml.YAMLError) as error:
        return " ".join(str(error).split())
    return None


def check_kept(checkout: Checkout, base: str, paths: Iterable[str]) -> None:
    """No Python file of ``base`` lost markers of code that still stands, or defines a method twice now."""
    present = [path for path in paths if path.endswith(".py") and (checkout.root / path).exists()]
    for path in present:
        before = checkout.run("show", f"{base}:{path}")
        if before.returncode != 0:
            continue
        texts = before.stdout, (checkout.root / path).read_text("utf-8")
        if lost := lost_markers(*texts):
            raise BadInput(
                f"{path} has lost markers of omni code in {', '.join(lost)}, and the code still stands",
                expected="the markers kept around the code they are for",
                try_=f"git diff {base} -- {path}; put them back, then run upgrade.py plan and deliver again",
            )
        if twice := defined_twice(*texts):
            raise BadInput(
                f"{path} defines {', '.join(twice)} twice: only the last definition counts",
                expected="one definition of each method",
                try_="merge the definitions, then run upgrade.py plan and deliver again",
            )
