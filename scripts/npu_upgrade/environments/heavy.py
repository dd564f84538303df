"""Make an environment of several GB with uv: fast, and with hard links into one package cache.

uv gets the indexes and certificates that pip is configured with, and nothing of the user's own uv.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from urllib.parse import quote

from npu_upgrade.environments.store import EnvSpec
from npu_upgrade.environments.venvs import run
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.pipconfig import Index, ca_bundle, indexes, pip_settings

_LISTS = ("requirements.txt", "overrides.txt")


def make(spec: EnvSpec, lock: int) -> None:
    """Make the environment of ``spec``, without its stamp. Raises :class:`Blocked`.

    ``lock`` is a descriptor every child process keeps open.
    """
    uv, variables = find_uv(), uv_variables()
    run([uv, "venv", "--quiet", "--python", sys.executable, str(spec.folder)], lock, "uv venv", variables)
    _write_lists(spec)
    install = [uv, "pip", "install", "--python", str(spec.python)]
    doing = f"installing the environment {spec.name!r} with uv"
    run([*install, *arguments(spec.folder)], lock, doing, variables)
    for name, version in spec.aliases:
        _tell(spec, name, version)


def arguments(folder: Path) -> list[str]:
    """uv's arguments for the two lists in ``folder``."""
    requirements, overrides = (str(folder / name) for name in _LISTS)
    # like pip, which looks at all indexes and takes the best version
    return ["--index-strategy", "unsafe-best-match", "--requirements", requirements, "--overrides", overrides]


def _write_lists(spec: EnvSpec) -> None:
    for name, lines in zip(_LISTS, (spec.requirements, spec.overrides), strict=True):
        (spec.folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _tell(spec: EnvSpec, name: str, version: str) -> None:
    """Metadata of a distribution that is there under another name."""
    (packages,) = spec.folder.glob("lib/python3*/site-packages")
    info = packages / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(text, encoding="utf-8")


def find_uv() -> str:
    """The uv of this interpreter's environment. Raises :class:`Blocked` when it has none."""
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError) as error:
        raise Blocked(
            f"this Python has no uv: {error}",
            expected="the package uv, as in the environment the commands start in",
            try_="start it by scripts/upgrade.py, which sees to that, or install uv into this Python",
        ) from error


def uv_cache() -> Path:
    """uv's package cache for all heavy environments; environments link to its files."""
    return cache_root().absolute() / "uv"


def uv_variables() -> dict[str, str]:
    """The environment for uv: pip's indexes, links and certificates; of uv's own variables none."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "VIRTUAL_ENV"))}
    found = indexes()
    own = {"UV_CACHE_DIR": str(uv_cache()), "UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never"}
    own |= {"NO_COLOR": "1", "UV_HTTP_TIMEOUT": "180", "UV_LOCK_TIMEOUT": "3600"}
    if found:
        own["UV_DEFAULT_INDEX"] = _url(found[0])
        # uv looks at its default index last: named once more, the main one comes first, as people mean it
        own["UV_INDEX"] = " ".join(map(_url, found))
    else:
        own["UV_NO_INDEX"] = "1"
    links = os.environ.get("PIP_FIND_LINKS") or pip_settings().get("find-links", "")
    own["UV_FIND_LINKS"] = ",".join(links.split())
    if bundle := ca_bundle():
        own["SSL_CERT_FILE"] = bundle
    return kept | {name: value for name, value in own.items() if value}


def _url(index: Index) -> str:
    if not index.credentials:
        return index.url
    scheme, _, rest = index.url.partition("://")
    user, password = (quote(part, safe="") for part in index.credentials)
    return f"{scheme}://{user}:{password}@{rest}"
