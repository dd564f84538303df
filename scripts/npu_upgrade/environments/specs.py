"""Which environments there are: ``tools`` and one for each dependency group of pyproject.toml.

pyproject.toml is the one place where requirements are written. Standard library only.
"""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Iterable

from npu_upgrade.environments.store import EnvSpec
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.paths import SKILL

PYPROJECT = SKILL / "pyproject.toml"


def read_spec(name: str) -> EnvSpec:
    """The environment ``name``: the project's dependencies, with those of the group of that name.

    Raises :class:`BadInput` when pyproject.toml is missing or has no such group.
    """
    try:
        pyproject = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(
            f"{PYPROJECT} cannot be read: {error.strerror}",
            expected="the whole repository, as the skill's installer copies it",
            try_="install the skill again (npx skills add REPOSITORY), or run from a git clone",
        ) from error
    groups = {"tools": []} | pyproject["dependency-groups"]
    if name not in groups:
        raise BadInput(
            f"no environment is called {name!r}",
            expected=f"one of: {', '.join(groups)}",
            try_="one of those names",
        )
    return EnvSpec(name, (*pyproject["project"]["dependencies"], *groups[name]))


def is_satisfied(requirements: Iterable[str]) -> bool:
    """Whether the running interpreter has distributions of the required versions."""
    # packaging, needed to compare versions, is itself one of the requirements
    if importlib.util.find_spec("packaging") is None:
        return False
    from importlib.metadata import PackageNotFoundError, version

    from packaging.requirements import Requirement

    try:
        return all(
            requirement.specifier.contains(version(requirement.name), prereleases=True)
            for requirement in map(Requirement, requirements)
        )
    except PackageNotFoundError:
        return False
