"""What a piece of evidence is about: the exact content of a set of files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, structs

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256

ABSENT = "absent"  # stands for the hash of a file that is not there (deleted by the change)


class Subject(Struct, frozen=True):
    """``files``: repo-relative POSIX path -> SHA-256 of the bytes on disk, or ``absent``.

    ``tree``: SHA-256 over the sorted lines ``PATH HASH\\n``: equal exactly when all files are equal.
    """

    files: dict[str, str]
    tree: str = ""

    def __post_init__(self) -> None:
        if not self.tree:
            lines = (f"{path} {digest}\n" for path, digest in sorted(self.files.items()))
            structs.force_setattr(self, "tree", sha256("".join(lines)))


def subject_of(root: Path, paths: Iterable[str]) -> Subject:
    """The present content of ``paths`` below ``root``.

    Raises :class:`BadInput` for an unreadable file and for a path that is not plainly below ``root``.
    """
    paths = list(paths)
    for path in paths:
        check_path(path)
    return Subject({path: file_digest(root / path) for path in sorted(set(paths))})


def check_path(path: str) -> None:
    """Raise :class:`BadInput` unless ``path`` is a plain POSIX path below a repository's root."""
    parts = path.split("/")
    if not path.isprintable() or any(part in ("", ".", "..", ".git") for part in parts):
        raise BadInput(
            f"not a file of the repository: {path!r}",
            expected="a path below the repository's root, such as vllm_omni/platforms/npu/worker.py",
            try_="correct the path in plan.json (merge writes it)",
        )


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes, or ``absent``; raises :class:`BadInput` when it cannot be read."""
    data = read_bytes(path)
    return ABSENT if data is None else sha256(data)


def read_bytes(path: Path) -> bytes | None:
    """The bytes of a file, None where there is none; raises :class:`BadInput` when it cannot be read."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadInput(
            f"cannot read {path}: {error.strerror or error}",
            expected="a readable file",
            try_="check its permissions, and that no folder took its name",
        ) from error
