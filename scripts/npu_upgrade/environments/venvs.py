"""Make an environment and install into it: with pip, or one of several GB with uv.

A ``python3`` of Debian or Ubuntu lacks ``ensurepip`` until python3-venv is installed; pip then comes from
the configured package index. uv gets the indexes and certificates that pip is configured with, and nothing of
the user's own uv; it links files from one package cache. Standard library only.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from npu_upgrade.environments.pip_wheel import fetch_pip_wheel
from npu_upgrade.environments.store import EnvSpec
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.paths import cache_root, python_of
from npu_upgrade.ground.pipconfig import Index, ca_bundle, indexes, pip_settings, redact
from npu_upgrade.ground.progress import say

_SHOWN = ("Downloading ", "Building ", "Installing collected ", "Resolved ", "Prepared ", "Installed ")


def create_venv(folder: Path, lock: int) -> None:
    """Make a virtual environment with pip in ``folder``. Raises :class:`Blocked`.

    ``lock`` is a descriptor every child process keeps open (see :func:`run`).
    """
    create = [sys.executable, "-I", "-m", "venv"]
    if importlib.util.find_spec("ensurepip"):
        run([*create, str(folder)], lock, "making a virtual environment")
        return
    say("this Python has no ensurepip; taking pip from the package index")
    run([*create, "--without-pip", str(folder)], lock, "making a virtual environment")
    wheel = fetch_pip_wheel(folder)
    python = str(python_of(folder))
    # a wheel is a zip archive, and pip can run from inside its own
    run([python, f"{wheel}/pip", "install", "--no-index", str(wheel)], lock, "installing pip")
    wheel.unlink()


def install(python: Path, requirements: Sequence[str], lock: int) -> None:
    """Install PEP 508 requirements with the environment's own pip. Raises :class:`Blocked`."""
    pip = [str(python), "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    run([*pip, *requirements], lock, f"installing {', '.join(requirements)}")


def run(command: list[str], lock: int, doing: str, variables: dict[str, str] | None = None) -> None:
    """Run to the end, with downloads as progress. Raises :class:`Blocked` with the last lines of its output.

    The child inherits the lock: should this process be killed, no other one starts until the child ended
    (on Windows it cannot be inherited so).
    ``variables`` is the child's whole environment, this process's own by default.
    """
    lines: list[str] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        pass_fds=[lock] if os.name == "posix" else (),
        env=variables,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            if line.lstrip().startswith(_SHOWN):
                say(f"  {line.strip()}")
    if process.returncode != 0:
        tail = "\n    ".join(redact(line) for line in lines[-12:] if line)
        if any(_CONTRADICT.search(line) for line in lines):
            raise Blocked(
                f"{doing} failed: what is asked for contradicts itself:\n    {tail}",
                expected="versions whose requirements can be met together",
                try_="other versions of what the last lines name, such as the vllm of that vllm-ascend",
            )
        raise Blocked(
            f"{doing} failed (exit {process.returncode}):\n    {tail}",
            expected="a package index that answers, and room on the disk",
            try_="check the network, proxy and pip settings (PIP_INDEX_URL, pip.conf), then repeat the "
            "command: finished downloads are kept",
        )


_CONTRADICT = re.compile(r"requirements are unsatisfiable|ResolutionImpossible|are incompatible\.?$")
_LISTS = ("requirements.txt", "overrides.txt")


def create_heavy(spec: EnvSpec, lock: int) -> None:
    """Make the environment of ``spec``, without its stamp. Raises :class:`Blocked`.

    ``lock`` is a descriptor every child process keeps open.
    """
    uv, variables = find_uv(), uv_variables()
    run([uv, "venv", "--quiet", "--python", sys.executable, str(spec.folder)], lock, "uv venv", variables)
    for name, lines in zip(_LISTS, (spec.requirements, spec.overrides), strict=True):
        (spec.folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
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


def _tell(spec: EnvSpec, name: str, version: str) -> None:
    """Metadata of a distribution that is there under another name."""
    (packages,) = spec.folder.glob("lib/python3*/site-packages")
    info = packages / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(text, encoding="utf-8")


def find_uv() -> str:
    """The uv of this interpreter's environment, else of ``tools``, made for it. Raises :class:`Blocked`."""
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        from npu_upgrade.environments.specs import read_spec
        from npu_upgrade.environments.store import ensure

        return str(ensure(read_spec("tools")).with_name("uv"))


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


def megabytes(folder: Path, *, freed: bool = False) -> int:
    """The size of all files in ``folder``, each once, in MB (10^6 bytes).

    ``freed``: what removing it frees, so that files that hard links outside of it keep do not count.
    """
    named: Counter[tuple[int, int]] = Counter()
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for top, _, names in os.walk(folder):
        for name in names:
            try:
                entry = os.lstat(os.path.join(top, name))
            except OSError:  # gone meanwhile
                continue
            key = (entry.st_dev, entry.st_ino)
            named[key] += 1
            found[key] = (entry.st_nlink, entry.st_blocks * 512)
    total = sum(size for key, (links, size) in found.items() if not freed or named[key] >= links)
    return round(total / 1_000_000)
