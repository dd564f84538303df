"""Which package indexes the user configured for pip or uv, read without pip or uv.

Credentials in an index URL are kept out of everything that is stored or shown:
:attr:`Index.url` has none, and :func:`credentials_for` gives them back by host.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

DEFAULT_INDEX = "https://pypi.org/simple"
SYSTEM_FILE = Path("/etc/pip.conf")
_USERINFO = re.compile(r"(?<=://)[^/\s]*@")


@dataclass(frozen=True)
class Index:
    """One index: its URL without credentials or trailing slash, and the credentials."""

    url: str
    credentials: tuple[str, str] | None = field(default=None, repr=False)


class Anchors(HTMLParser):
    """Collects the attributes of every ``<a href>`` of an index page, and the first ``<base href>``."""

    def __init__(self) -> None:
        super().__init__()
        self.base: str | None = None
        self.anchors: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "base" and self.base is None:
            self.base = attributes.get("href")
        elif tag == "a" and attributes.get("href"):
            self.anchors.append(attributes)


def redact(text: str) -> str:
    """``text`` with the user and password of every URL in it replaced by ``***``."""
    return _USERINFO.sub("***@", text)


def without_credentials(url: str) -> str:
    """``url`` without its user and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def indexes() -> list[Index]:
    """The configured indexes, main one first, without duplicates; empty under ``no-index``.

    The environment (``PIP_*``, then ``UV_*``) wins over pip's configuration files.
    """
    settings = pip_settings()
    env = os.environ
    main = env.get("PIP_INDEX_URL") or env.get("UV_DEFAULT_INDEX") or env.get("UV_INDEX_URL")
    urls = [main or settings.get("index-url") or DEFAULT_INDEX]
    switch = env.get("PIP_NO_INDEX") or settings.get("no-index", "")
    if switch.strip().lower() in ("1", "y", "yes", "t", "true", "on"):
        return []
    extra = env.get("PIP_EXTRA_INDEX_URL") or settings.get("extra-index-url", "")
    urls += [*extra.split(), *env.get("UV_EXTRA_INDEX_URL", "").split(), *env.get("UV_INDEX", "").split()]
    found: dict[str, Index] = {}
    for index in map(_index, urls):
        if index.credentials or index.url not in found:
            found[index.url] = index
    return list(found.values())


def ca_bundle() -> str | None:
    """The certificate file configured for pip, or None to use the system's usual ones."""
    return os.environ.get("PIP_CERT") or pip_settings().get("cert") or None


def credentials_for(url: str) -> tuple[str, str] | None:
    """The user and password of the configured index on the same scheme, host and port."""
    parts = urlsplit(url)
    for index in indexes():
        other = urlsplit(index.url)
        if index.credentials and (other.scheme, other.netloc) == (parts.scheme, parts.netloc):
            return index.credentials
    return None


def pip_settings() -> dict[str, str]:
    """pip's settings from its configuration files, later files and ``[install]`` winning."""
    settings: dict[str, str] = {}
    for path in config_files():
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue  # pip itself reports a broken file; a wrong index here shows up as "not found"
        for section in ("global", "install"):
            if parser.has_section(section):
                settings |= {key.replace("_", "-"): value for key, value in parser.items(section)}
    return settings


def config_files() -> list[Path]:
    """pip's configuration files in reading order (global, user, environment's, PIP_CONFIG_FILE)."""
    chosen = os.environ.get("PIP_CONFIG_FILE")
    if chosen == os.devnull:
        return []
    home = Path(os.environ.get("HOME") or Path.home())
    folders = [Path(part) for part in os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":") if part]
    files = [folder / "pip" / "pip.conf" for folder in reversed(folders)] + [SYSTEM_FILE]
    user = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    if sys.platform == "darwin":
        files = [Path("/Library/Application Support/pip/pip.conf")]
        library = home / "Library" / "Application Support"
        user = library if (library / "pip").is_dir() else home / ".config"
    if not (chosen and Path(chosen).is_file()):
        files += [home / ".pip" / "pip.conf", user / "pip" / "pip.conf"]
    files.append(Path(sys.prefix) / "pip.conf")
    return files + ([Path(chosen)] if chosen else [])


def _index(text: str) -> Index:
    # uv lets an index be named: NAME=URL.
    url = re.sub(r"^[\w-]+=(?=\w+://)", "", text).rstrip("/")
    if "://" not in url:
        url = Path(url).absolute().as_uri()
    parts = urlsplit(url)
    credentials = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    return Index(without_credentials(url), credentials)
