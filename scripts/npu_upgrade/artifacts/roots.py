"""The checkouts in which a model was implemented, and what was changed there."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources.checkout import Checkout, open_checkout

PACKAGES = {"vllm": "vllm", "vllm-ascend": "vllm_ascend"}


@dataclass(frozen=True)
class Changed:
    """One changed file; the numbers are ``-`` for a file that is not text."""

    project: str
    path: str
    added: str
    removed: str


@dataclass(frozen=True)
class Root:
    """One implementation root. ``base`` is the commit its changes are counted from, as a full SHA."""

    project: str
    checkout: Checkout
    base: str

    @property
    def package(self) -> Path:
        """The folder that is imported."""
        return self.checkout.root / PACKAGES[self.project]

    @property
    def options(self) -> list[str]:
        """The options that name it to a command."""
        option = "--vllm" if self.project == "vllm" else "--ascend"
        return [option, str(self.checkout.root), f"{option}-base", self.base]

    def changed(self) -> list[Changed]:
        """Every file that differs from the base, new ones included, ignored ones not."""
        said = self._compared("--numstat", "-z")
        rows = [line.split("\t", 2) for line in said.split("\0")[:-1]]
        return [Changed(self.project, path, added, removed) for added, removed, path in rows]

    def diff(self, paths: Sequence[str]) -> bytes:
        """The change of ``paths`` as a patch that git applies, whatever is in the files."""
        if not paths:
            return b""
        exact = (
            "--binary",
            "--full-index",
            "--no-color",
            "--no-textconv",
            "--src-prefix=a/",
            "--dst-prefix=b/",
        )
        with tempfile.TemporaryDirectory(prefix="npu-upgrade-") as folder:
            # through a file: the output of git is read as text, and line ends would not survive that
            out = Path(folder).resolve() / "patch"
            self._compared(*exact, f"--output={out}", paths=paths)
            return out.read_bytes()

    def _compared(self, *options: str, paths: Sequence[str] = ()) -> str:
        with self.checkout.scratch_index() as index:
            store = index.parent / "objects"
            store.mkdir()
            self.checkout.git("add", "--all", ".", index=index, objects=store)
            how = ("diff", "--cached", "--no-renames", "--no-ext-diff", *options, self.base, "--", *paths)
            return self.checkout.git(*how, index=index, objects=store)


def open_root(project: str, path: Path, base: str | None) -> Root:
    """The checkout of ``project`` at ``path``; raises :class:`BadInput` for anything else."""
    option = "--vllm" if project == "vllm" else "--ascend"
    checkout = open_checkout(path, option)
    if not (checkout.root / PACKAGES[project]).is_dir():
        raise BadInput(
            f"{path} is no checkout of {project}",
            expected=f"a folder {PACKAGES[project]} in it",
            try_=f"{option} DIR of the clone in which the model was implemented",
        )
    sha = checkout.ask("rev-parse", "--verify", "--quiet", f"{base or 'HEAD'}^{{commit}}")
    if sha is None:
        raise BadInput(
            f"{path} has no commit {base or 'HEAD'}",
            expected="the commit the implementation started from",
            try_=f"{option}-base REF (default: HEAD, for changes that are not committed there)",
        )
    return Root(project, checkout, sha)
