"""Bring a generated file up to date without losing what people wrote into it.

What this command wrote last is kept in the workspace; the difference to it is the person's, and is merged
with the new text by git. Where the two touch the same lines, nothing is written.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from npu_upgrade.ground.errors import BadInput, Blocked, UpgradeError
from npu_upgrade.sources.checkout import Checkout, open_checkout


def merged(path: Path, current: str | None, written: str | None, new: str) -> str:
    """The text for ``path``: ``new``, with a person's edits since ``written``.

    ``current`` is None for a file that is not there, ``written`` when this command wrote none. Raises
    :class:`BadInput` for a file of somebody else, and for edits that the new text contradicts.
    """
    if current is None or current in (new, written):
        return new
    if written is None:
        raise BadInput(
            f"{path} is there, and this command did not write it in this workspace",
            expected="no file yet, or the one that was generated here",
            try_=f"--keep {path.name} leaves it as it is; --replace {path.name} generates it anew, "
            "when git has the present text",
        )
    if written == new:
        return current
    text = _three_way(current, written, new)
    if text is None:
        raise BadInput(
            f"{path} was edited in lines that have to change now",
            expected="edits beside the generated lines, or none",
            try_=f"--keep {path.name} leaves it as it is; or take the edits out, generate, and put them back",
        )
    return text


def check_replaceable(path: Path) -> None:
    """Raise :class:`BadInput` unless git has the present text of ``path``, so that nothing gets lost."""
    try:
        checkout = _around(path)
        name = path.resolve().relative_to(checkout.root).as_posix()
        known = checkout.ask("rev-parse", f"HEAD:{name}") is not None
        clean = known and checkout.run("diff", "--quiet", "--no-ext-diff", "HEAD", "--", name).returncode == 0
    except UpgradeError:
        clean = False
    if not clean:
        raise BadInput(
            f"{path} has text that git does not have",
            expected="a file that is committed as it is",
            try_=f"commit it first, or --keep {path.name}",
        )


def _around(path: Path) -> Checkout:
    folder = path.resolve().parent
    top = next((up for up in (folder, *folder.parents) if (up / ".git").exists()), folder)
    return open_checkout(top)


def _three_way(current: str, written: str, new: str) -> str | None:
    with tempfile.TemporaryDirectory(prefix="npu-upgrade-") as folder:
        names = {"current": current, "written": written, "new": new}
        for name, text in names.items():
            (Path(folder) / name).write_text(text, "utf-8", newline="")
        try:
            done = subprocess.run(
                ["git", "merge-file", "-p", *names], cwd=folder, capture_output=True, check=False
            )
        except FileNotFoundError as error:
            raise Blocked("git is not installed", expected="git on PATH", try_="install git") from error
    return done.stdout.decode("utf-8") if done.returncode == 0 else None
