"""Files that a delivery takes over from another checkout: worked out there, put in place, taken out again."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.artifacts.roots import Root
from npu_upgrade.evidence.subject import read_bytes
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_atomic
from npu_upgrade.job.changes import changed_since
from npu_upgrade.sources.checkout import Checkout


@dataclass(frozen=True)
class Content:
    """What a file is to hold: its bytes and git mode, or None for one that goes."""

    data: bytes | None
    mode: str = ""


def backport(
    root: Root, paths: Sequence[str], dropped: Sequence[str], repo: Checkout, onto: str
) -> tuple[dict[str, Content], list[str]]:
    """What files hold when the root's change of ``paths`` stands on the commit ``onto`` of ``repo``.

    ``dropped`` are to be as they are in ``onto``. The second value names the files that differ from it.
    Where a file of ``onto`` is not as in the root's base, git merges the two. Raises :class:`BadInput` when
    they contradict each other. Neither checkout is touched.
    """
    with tempfile.TemporaryDirectory(prefix="npu-upgrade-") as folder:
        scratch = Checkout(Path(folder).resolve() / "files")
        scratch.root.mkdir()
        scratch.git("init", "--quiet", "--template=", ".")
        stores = [str(one.git_path("objects").resolve()) for one in (repo, root.checkout)]
        (scratch.root / ".git/objects/info").mkdir(exist_ok=True)
        (scratch.root / ".git/objects/info/alternates").write_text("\n".join(stores) + "\n", "utf-8")
        scratch.git("read-tree", onto)
        if paths:
            patch = Path(folder) / "patch"
            patch.write_bytes(root.diff(paths))
            _apply(scratch, patch, root, repo)
        changed = scratch.git("diff", "--cached", "--name-only", "--no-renames", "-z", onto).split("\0")[:-1]
        return {path: _content(scratch, path) for path in [*paths, *dropped]}, changed


def _apply(scratch: Checkout, patch: Path, root: Root, repo: Checkout) -> None:
    done = scratch.run("apply", "--cached", "--3way", "--whitespace=nowarn", str(patch))
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["git says nothing"]
        why = next((line for line in lines if line.startswith("error") or "conflict" in line), lines[0])
        raise BadInput(
            f"the change of {root.checkout.root} does not fit {repo.root}: {why}",
            expected="files that the two checkouts have in common, or changes that do not meet",
            try_=f"rebase {root.checkout.root} onto the history of {repo.root}, run the gates, then deliver",
        )


def _content(scratch: Checkout, path: str) -> Content:
    listed = scratch.git("ls-files", "--stage", "-z", "--", path).rstrip("\0")
    if not listed:
        return Content(None)
    mode = listed.split(" ", 1)[0]
    if mode not in ("100644", "100755"):
        raise BadInput(
            f"{path} is a link or a submodule",
            expected="changes of plain files",
            try_=f"--leave {path}, and change it in the delivery by hand",
        )
    # as a checkout would have it, with the path's own filters; git's output is read as text elsewhere
    scratch.git("checkout-index", "--force", "--", path)
    return Content((scratch.root / path).read_bytes(), mode)


def check_free(checkout: Checkout, incoming: Mapping[str, Content]) -> None:
    """Raise :class:`BadInput` when a file that is to be written has changes that would be lost."""
    for path in changed_since(checkout, "HEAD", incoming):
        if read_bytes(checkout.root / path) != incoming[path].data:
            raise BadInput(
                f"{path} has changes in {checkout.root} and in the implementation root",
                expected="the change in one of the two",
                try_=f"git -C {checkout.root} stash, or --leave {path}",
            )


@contextlib.contextmanager
def in_place(root: Path, incoming: Mapping[str, Content]) -> Generator[Callable[[], object]]:
    """Write ``incoming`` below ``root``; unless the given function is called, it is all taken back."""
    modes = {path: (root / path).stat().st_mode & 0o7777 for path in incoming if (root / path).exists()}
    before = {path: (read_bytes(root / path), modes.get(path, 0o644)) for path in incoming}
    folders = {parent for path in incoming for parent in (root / path).parents if not parent.exists()}
    with contextlib.ExitStack() as undo:
        for folder in sorted(folders):
            undo.callback(_remove, folder)
        for path, (data, mode) in before.items():
            undo.callback(_put, root / path, data, mode)
        for path, content in incoming.items():
            _put(root / path, content.data, 0o755 if content.mode == "100755" else 0o644)
        yield undo.pop_all


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _put(path: Path, data: bytes | None, mode: int) -> None:
    if data is None:
        path.unlink(missing_ok=True)
        return
    write_atomic(path, data)
    os.chmod(path, mode)
