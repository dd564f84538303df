"""Which changes of the checkouts belong to the delivery of a model, and where each of them goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import msgspec

from npu_upgrade.artifacts.roots import PACKAGES, Root
from npu_upgrade.delivery.incoming import Content, backport, check_free
from npu_upgrade.delivery.place import Place
from npu_upgrade.evidence.subject import ABSENT, Subject, check_path, subject_of
from npu_upgrade.gates.plugin import BUILDS, METADATA
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.kept import kept
from npu_upgrade.ground.tables import shortened

_HEAD = b"# adapt.py deliver:"


@dataclass(frozen=True)
class Named:
    """``planned`` and ``include`` go in, ``leave`` stays out: paths, folders or patterns."""

    planned: tuple[str, ...]
    include: tuple[str, ...]
    leave: tuple[str, ...]

    def chosen(self, root: Root, own: Iterable[str] = ()) -> list[str]:
        """The changes of ``root`` that go in; ``own`` are files that the delivery itself wrote there.

        Raises :class:`BadInput` for a change that nobody named, and for code that is to stay out although
        the gates judged it.
        """
        changed = _without_leftovers([one.path for one in root.changed()], root)
        left = {path for path in changed if _fits(path, self.leave)}
        judged = next((path for path in changed if path in left and _is_code(path, root)), None)
        if judged:
            raise BadInput(
                f"{judged} is to stay out, and the gates judged {root.project} with it",
                expected="evidence of exactly the code that is delivered",
                try_=f"take it out of {root.checkout.root} (git stash) and run the gates again",
            )
        known, named = set(own), (*self.planned, *self.include)
        goes = [path for path in changed if path not in left and (path in known or _fits(path, named))]
        others = [path for path in changed if path not in left and path not in goes]
        if others:
            raise BadInput(
                f"{root.checkout.root} has changes that nobody named: {shortened(others)}",
                expected="changes of the model only: planned by adapt.py, or named",
                try_=f"--include {others[0]} to deliver it, --leave {others[0]} to leave it where it is",
            )
        return goes


class _File(msgspec.Struct):
    path: str
    root: str = ""


class _Step(msgspec.Struct):
    files: list[_File]


class _Tree(msgspec.Struct):
    root: str
    test: str | None = None


class _Plan(msgspec.Struct):
    steps: list[_Step]
    trees: dict[str, _Tree] = {}


def planned_files(plan: Path, repo: Path) -> tuple[str, ...]:
    """The files and folders of the trees that the plan of the model changes, none when there is no plan.

    Those of a plugin, and its unit test, belong to ``repo`` where they lie in it.
    """
    if (found := kept(plan, _Plan)) is None:
        return ()
    plugin, root = found.trees.get("plugin"), repo.resolve()
    places = [Path(one).resolve() for one in (plugin.root, plugin.test) if one] if plugin else []
    own = [one.relative_to(root) for one in places if one.is_relative_to(root)]
    changed = (file.path for step in found.steps for file in step.files if file.root != "plugin")
    return (*changed, *(path.as_posix() for path in own))


@dataclass(frozen=True)
class Choice:
    """``local`` files are changed in the repository itself, ``incoming`` ones come from a root.

    ``changed`` are those of both that differ from the base. ``patches`` are changes for the other project,
    which git apply takes; ``moved`` says where the judged code stood when the commit stands on other code;
    ``left`` are changes of the repository that stay where they are.
    """

    local: list[str]
    incoming: dict[str, Content]
    changed: list[str]
    patches: dict[Path, bytes]
    moved: str | None
    left: list[str]

    def subject(self, root: Path) -> Subject:
        """All files as they will be below ``root``."""
        digests = dict(subject_of(root, self.local).files)
        for path, content in self.incoming.items():
            check_path(path)
            digests[path] = ABSENT if content.data is None else sha256(content.data)
        return Subject(digests)


def choose(place: Place, roots: Sequence[Root], named: Named, documents: list[str], patches: Path) -> Choice:
    """Sort all changes of ``roots`` and of the repository.

    ``documents`` are files of the repository that artifacts wrote; ``patches`` is where the other project's
    patch goes, and the beginning of its name. Raises :class:`BadInput` where a change has no right place.
    """
    checkout, base = place.checkout, place.base
    delivered = place.earlier.files if place.earlier else []
    here = next((root for root in roots if (checkout.root / PACKAGES[root.project]).is_dir()), None)
    same = here is not None and here.checkout.root == checkout.root
    incoming: dict[str, Content] = {}
    differing: list[str] = []
    if here and same:
        _check_uncommitted(here, place)
    elif here:
        names = named.chosen(here, documents)
        # code of an earlier delivery that the root changes no longer
        dropped = [path for path in delivered if path not in names and _is_code(path, here)]
        incoming, differing = backport(here, names, dropped, checkout, base)
        check_free(checkout, incoming)
    repository = Root(here.project if here and same else "", checkout, base)
    own = [*documents, *incoming, *delivered]
    local = [path for path in named.chosen(repository, own) if path not in incoming]
    if here and not same:
        _check_judged(here, place, local)
    others = [(root, named.chosen(root)) for root in roots if root is not here]
    return Choice(
        local=sorted({*local, *delivered} - set(incoming)),
        incoming=incoming,
        changed=sorted({*local, *differing}),
        patches=dict(_patch(root, names, patches) for root, names in others if names),
        moved=_moved(here, place) if here and differing else None,
        left=sorted({one.path for one in repository.changed() if _fits(one.path, named.leave)}),
    )


def _patch(root: Root, names: list[str], place: Path) -> tuple[Path, bytes]:
    path = place.with_name(f"{place.name}-{root.project}.patch")
    check_patch(path)
    # git skips the first line
    head = _HEAD + f" {root.project}, on {root.base}; git apply takes this file as it is\n".encode()
    return path, head + root.diff(names)


def check_patch(path: Path) -> None:
    """Raise :class:`BadInput` when a file of somebody else is where a patch is to be written."""
    if path.exists() and not path.read_bytes().startswith(_HEAD):
        raise BadInput(
            f"{path} is there, and not a patch that was exported",
            expected="no file of that name, or an exported patch",
            try_="--patch-dir DIR, or move the file away",
        )


def _check_uncommitted(root: Root, place: Place) -> None:
    if root.base not in (place.base, place.head):
        raise BadInput(
            f"{root.checkout.root} is the checkout to deliver in, and its work is committed already",
            expected="one commit, made by this command",
            try_=f"git reset --soft {root.base[:12]}, then the same command without a base",
        )


def _check_judged(root: Root, place: Place, local: list[str]) -> None:
    """Code that is changed in the repository only was judged by no gate."""
    path = next((path for path in local if _is_code(path, root)), None)
    if path:
        there, repo = root.checkout.root, place.checkout.root
        raise BadInput(
            f"{path} is changed in {repo}, and the gates judged {there}",
            expected="the code of the delivery as it was judged",
            try_=f"make it in {there} and run the gates, or git -C {repo} stash",
        )


def _moved(root: Root, place: Place) -> str | None:
    package = PACKAGES[root.project]
    judged = root.checkout.ask("rev-parse", f"{root.base}:{package}")
    if judged == place.checkout.ask("rev-parse", f"{place.base}:{package}"):
        return None
    return f"judged on {root.project} {root.base[:12]}, backported onto {place.base[:12]}"


def _is_code(path: str, root: Root) -> bool:
    package = PACKAGES.get(root.project)
    return package is not None and path.startswith(f"{package}/")


def _without_leftovers(paths: Sequence[str], root: Root) -> list[str]:
    """Those that no build and no import left beside the sources."""
    parts = {path: PurePosixPath(path).parts for path in paths}
    sources = [
        path for path in paths if not any(fnmatch(one, form) for one in parts[path] for form in METADATA)
    ]
    folders = {one for path in sources for one in PurePosixPath(path).parents if one.name in BUILDS}
    made = {folder for folder in folders if _is_made(folder, root)}
    return [path for path in sources if made.isdisjoint(PurePosixPath(path).parents)]


def _is_made(folder: PurePosixPath, root: Root) -> bool:
    """Whether a folder that is called like a build's is one: beside a pyproject.toml, and not in the base."""
    beside = (root.checkout.root / folder).with_name("pyproject.toml").is_file()
    return beside and root.checkout.ask("rev-parse", "--quiet", "--verify", f"{root.base}:{folder}") is None


def _fits(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(path, one) or path.startswith(one.rstrip("/") + "/") for one in patterns)
