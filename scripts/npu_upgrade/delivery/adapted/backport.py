"""A root's change on top of another commit, worked out away from both checkouts."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.artifacts.roots import Root
from npu_upgrade.delivery.changes import GONE
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources.checkout import Checkout


@dataclass(frozen=True)
class Content:
    """What a file is to hold: its bytes and git mode, or None for one that goes."""

    data: bytes | None
    mode: str


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
        patch = Path(folder) / "patch"
        patch.write_bytes(root.diff(paths))
        if paths:
            _apply(scratch, patch, root, repo)
        changed = scratch.git("diff", "--cached", "--name-only", "--no-renames", "-z", onto).split("\0")[:-1]
        return {path: _content(scratch, path) for path in [*paths, *dropped]}, changed


def _apply(scratch: Checkout, patch: Path, root: Root, repo: Checkout) -> None:
    done = scratch.run("apply", "--cached", "--3way", "--whitespace=nowarn", str(patch))
    if done.returncode != 0:
        raise BadInput(
            f"the change of {root.checkout.root} does not fit {repo.root}: {_first(done.stderr)}",
            expected="files that the two checkouts have in common, or changes that do not meet",
            try_=f"rebase {root.checkout.root} onto the history of {repo.root}, run the gates, then deliver",
        )


def _content(scratch: Checkout, path: str) -> Content:
    listed = scratch.git("ls-files", "--stage", "-z", "--", path).rstrip("\0")
    if not listed:
        return Content(None, GONE)
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


def _first(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("error") or "conflict" in line]
    return (lines or text.strip().splitlines() or ["git says nothing"])[0]
