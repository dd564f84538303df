"""All deliverables of one model for one tree, as texts: nothing is written here.

What people wrote into a generated file stays: what was generated last is kept in the workspace, the
difference to it is theirs, and git merges it with the new text. Where both touch the same lines, the run is
refused.
"""

from __future__ import annotations

import contextlib
import difflib
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from npu_upgrade.artifacts import registration, render
from npu_upgrade.artifacts.accuracy_config import FOLDER, LIST, config_text, consumer_of
from npu_upgrade.artifacts.facts import Facts
from npu_upgrade.artifacts.naming import check_case
from npu_upgrade.artifacts.roots import Changed
from npu_upgrade.artifacts.state import Written
from npu_upgrade.artifacts.view import ModelView
from npu_upgrade.ground.errors import BadInput, Blocked, UpgradeError
from npu_upgrade.job.tree_form import MATRIX, MODELS, NAV, TITLES, TreeForm
from npu_upgrade.sources.checkout import open_checkout

_NEW_INDEX = "# Model Tutorials\n\nHow to serve each model, and what was measured.\n"


@dataclass(frozen=True)
class Choices:
    """Files that stay as they are, and files that are generated anew although they are not ours.

    ``reports``: report and runbook go into the tree, too.
    """

    keep: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    reports: bool = False

    def check(self, paths: Iterable[str]) -> None:
        """Raise :class:`BadInput` for a choice that names no file."""
        for pattern in (*self.keep, *self.replace):
            if not any(_named(path, [pattern]) for path in paths):
                raise BadInput(
                    f"{pattern} is no file that is generated",
                    expected=f"one of {', '.join(sorted(paths))}",
                    try_="correct --keep or --replace",
                )


@dataclass
class Bundle:
    """``files``: path in the tree -> its text now and the text it gets; ``reports``: name -> text."""

    form: TreeForm
    files: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    reports: dict[str, str] = field(default_factory=dict)
    written: Written = field(default_factory=Written)

    @property
    def changed(self) -> dict[str, str]:
        return {path: new for path, (old, new) in self.files.items() if old != new}

    def diff(self) -> str:
        """What writing the tree's files changes."""
        parts = []
        for path, (old, new) in self.files.items():
            lines = difflib.unified_diff(
                (old or "").splitlines(keepends=True),
                new.splitlines(keepends=True),
                f"a/{path}" if old is not None else "/dev/null",
                f"b/{path}",
            )
            parts.append("".join(lines))
        return "".join(parts)


def make_bundle(
    facts: Facts, form: TreeForm, before: Written, choices: Choices, changes: list[Changed] | None
) -> Bundle:
    """The deliverables; raises :class:`BadInput` where a person's text stands in the way."""
    consumer = consumer_of(form.root)
    config = config_text(facts, consumer)
    view = ModelView(facts, changes, set(consumer.options) if config else None, form.root)
    bundle = Bundle(form, reports=render.reports(view), written=Written(title=view.title))
    pages = {f"{MODELS}/{facts.name}.md": render.tutorial(view, form)}
    pages |= {f"{FOLDER}/{facts.name}.yaml": config} if config else {}
    pages |= render.reports_for_all(view) if choices.reports else {}
    entries = _entries(facts, form, before, view.title, bundle.written, config is not None)
    choices.check([*pages, *entries])
    bundle.written.kept = [path for path in (*pages, *entries) if _named(path, choices.keep)]
    for path, new in pages.items():
        if not _named(path, choices.keep):
            check_case(form.root / Path(path).parent, Path(path).name)
            bundle.files[path] = _page(
                form.root / path, before.files.get(path), new, _named(path, choices.replace)
            )
            bundle.written.files[path] = new
    for path, edit in entries.items():
        if not _named(path, choices.keep):
            now = _read(form.root / path)
            bundle.files[path] = (now, edit(now if now is not None else _NEW_INDEX))
            bundle.written.files[path] = None
    return bundle


def _page(path: Path, written: str | None, new: str, replace: bool) -> tuple[str | None, str]:
    current = _read(path)
    if replace and current is not None and current not in (new, written):
        check_replaceable(path)
        return current, new
    return current, merged(path, current, written, new)


def _entries(
    facts: Facts, form: TreeForm, before: Written, title: str, written: Written, has_config: bool
) -> dict[str, Callable[[str], str]]:
    """Path of a file of the tree's own -> what puts the model's entry into its text."""
    name, old = facts.name, before.title

    def row(text: str) -> str:
        changed, written.row = registration.with_row(text, facts, before.row)
        return changed

    index = f"{MODELS}/index.md"
    entries: dict[str, Callable[[str], str]] = {}
    if form.kind == "myst":
        entries[index] = lambda text: registration.in_toctree(text, name)
    else:
        entries[NAV] = lambda text: registration.in_nav(text, name, title, old)
        entries[index] = lambda text: registration.in_index(text, name, title, old)
        if (form.root / TITLES).is_file():
            entries[TITLES] = lambda text: registration.in_titles(text, name, title, old)
    if (form.root / MATRIX).is_file():
        entries[MATRIX] = row
    if has_config and (form.root / LIST).is_file():
        entries[LIST] = lambda text: registration.in_list(text, f"{name}.yaml")
    return entries


def _named(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(path, pattern) or Path(path).name == pattern for pattern in patterns)


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadInput(
            f"cannot read {path}: {error}",
            expected="a text file in UTF-8",
            try_="check the file and its permissions",
        ) from error


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
    clean = False
    with contextlib.suppress(UpgradeError):
        folder = path.resolve().parent
        checkout = open_checkout(
            next((up for up in path.resolve().parents if (up / ".git").exists()), folder)
        )
        name = path.resolve().relative_to(checkout.root).as_posix()
        known = checkout.ask("rev-parse", f"HEAD:{name}") is not None
        clean = known and checkout.run("diff", "--quiet", "--no-ext-diff", "HEAD", "--", name).returncode == 0
    if not clean:
        raise BadInput(
            f"{path} has text that git does not have",
            expected="a file that is committed as it is",
            try_=f"commit it first, or --keep {path.name}",
        )


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
