"""What the tests of ``npu_upgrade.sources`` share: a clean machine, archives, a small index server.

PYTEST_DONT_REWRITE: the tests import it before pytest takes its fixtures from it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from npu_upgrade.ground import pipconfig
from npu_upgrade.sources import fetch

SOURCES = {
    "vllm_ascend/__init__.py": "",
    "vllm_ascend/worker/model_runner_v1.py": "class NPUModelRunner:\n    pass\n",
    "README.md": "read me\n",
    "vllm_ascend/kernels.so": "not a source",
}


@pytest.fixture
def clean_machine(tmp_path, monkeypatch):
    """No configuration of this machine is seen; the cache is in tmp_path; tries do not wait."""
    for name in list(os.environ):
        if name.upper().startswith(("PIP_", "UV_", "GIT_", "XDG_")) or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "NETRC"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    monkeypatch.setattr(pipconfig, "SYSTEM_FILE", home / "none")
    monkeypatch.setattr(sys, "prefix", str(home))
    monkeypatch.setattr(fetch, "WAITS", (0.0, 0.0))
    fetch._client.cache_clear()
    yield home
    fetch._client.cache_clear()


def cache_files(tmp_path: Path) -> list[str]:
    """Everything in the cache of archives."""
    top = tmp_path / "cache" / "npu-upgrade" / "archives"
    return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


def sha(data: bytes, name: str = "sha256") -> str:
    return hashlib.new(name, data).hexdigest()


def wheel(files: dict[str, str], name: str = "vllm_ascend", version: str = "1.0", lie: str = "") -> bytes:
    """A wheel with a RECORD; ``lie`` names a member whose recorded hash is wrong."""
    buffer = io.BytesIO()
    info = f"{name}-{version}.dist-info"
    rows = []
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in files.items():
            archive.writestr(path, text)
            digest = hashlib.sha256((text + "x" * (path == lie)).encode()).digest()
            rows.append(f"{path},sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')},{len(text)}")
        archive.writestr(f"{info}/METADATA", f"Name: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")
    return buffer.getvalue()


def sdist(
    files: dict[str, str | tarfile.TarInfo], top: str = "vllm_ascend-1.0/", mode: str = "w:gz"
) -> bytes:
    """A compressed tar; a TarInfo as value is added as it is."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for path, value in files.items():
            info = value if isinstance(value, tarfile.TarInfo) else tarfile.TarInfo(top + path)
            data = b"" if isinstance(value, tarfile.TarInfo) else value.encode()
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def html(*links: str) -> bytes:
    return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()


def link(filename: str, data: bytes | None = None, href: str | None = None, attributes: str = "") -> str:
    fragment = f"#sha256={sha(data)}" if data is not None else ""
    return f'<a href="{href or "/files/" + filename}{fragment}" {attributes}>{filename}</a>'


@dataclass
class Server:
    """Answers by path, or path and query; ``requests`` has (path, headers); ``ranges``: 206 is answered."""

    url: str = ""
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    sent: int = 0
    ranges: bool = True

    def page(self, project: str, body: bytes, content_type: str = "text/html") -> None:
        self.answers[f"/simple/{project}/"] = (200, {"Content-Type": content_type}, body)

    def file(self, filename: str, data: bytes) -> None:
        self.answers[f"/files/{filename}"] = (200, {"Content-Type": "application/octet-stream"}, data)

    def json(self, path: str, value: object, **headers: str) -> None:
        self.answers[path] = (200, {"Content-Type": "application/json"} | headers, json.dumps(value).encode())

    def index(self, project: str, *uploads: tuple[str, str, bool]) -> None:
        """A PEP 691 page with one wheel for each (version, date, yanked)."""
        files = [
            {
                "filename": f"{project.replace('-', '_')}-{version}-py3-none-any.whl",
                "url": f"{self.url}/{project}-{version}.whl",
                "hashes": {"sha256": "0" * 64},
                "upload-time": f"{date}T00:00:00Z",
                "size": 1,
                "yanked": yanked,
            }
            for version, date, yanked in uploads
        ]
        self.json(f"/simple/{project}/", {"meta": {"api-version": "1.1"}, "name": project, "files": files})

    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append((self.path, dict(self.headers)))
            path = self.path if self.path in state.answers else self.path.partition("?")[0]
            status, headers, body = state.answers.get(path, (404, {}, b"{}"))
            total, asked = len(body), re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            if asked and state.ranges and status == 200:
                first, last = asked.groups()
                start = int(first) if first else max(0, total - int(last))
                end = int(last) + 1 if first and last else total
                status, body = 206, body[start:end]
                headers = headers | {"Content-Range": f"bytes {start}-{start + len(body) - 1}/{total}"}
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            state.sent += len(body)
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def server(clean_machine, monkeypatch):
    """A running index that is the one configured."""
    with serving() as running:
        monkeypatch.setenv("PIP_INDEX_URL", f"{running.url}/simple")
        yield running


DATE = "2026-01-02T03:04:05Z"
QUICK = ("maintenance.auto=false", "init.templateDir=")
"""Where a test sees no configuration (``clean_machine``)."""


def git(folder: Path, *args: str, date: str = DATE) -> str:
    """Run git in ``folder`` with an identity and a date of its own."""
    values = ("user.name=T", "user.email=t@example.com", "protocol.file.allow=always", *QUICK)
    settings = [word for value in values for word in ("-c", value)]
    env = os.environ | {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    command = ["git", *settings, "-C", str(folder), *args]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, files: Mapping[str, str], message: str = "change", date: str = DATE) -> str:
    """Write files and commit all; make the clone when it is none. Returns the SHA."""
    write_tree(folder, files)
    if not (folder / ".git").exists():
        git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message, date=date)
    return git(folder, "rev-parse", "HEAD")


def write_tree(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files (path -> text) below ``folder``, which is made when it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder
