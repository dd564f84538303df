"""What the discovery tests share: a local server that is GitHub or an index, and tagged clones."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import threading
from pathlib import Path

import pytest


class Server:
    """A local HTTP server; ``answers`` maps a path (or a path and query) to (status, headers, body)."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.seen.append((self.path, dict(self.headers)))
                path = self.path if self.path in outer.answers else self.path.partition("?")[0]
                status, headers, body = outer.answers.get(path, (404, {}, b"{}"))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

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
        page = {"meta": {"api-version": "1.1"}, "name": project, "files": files}
        kind = "application/vnd.pypi.simple.v1+json"
        self.answers[f"/simple/{project}/"] = (200, {"Content-Type": kind}, json.dumps(page).encode())


def use_as_index(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the server the only package index, and reachable without a proxy."""
    for name in ("PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX", "PIP_NO_INDEX", "GITHUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def clone_with_tags(path: Path, *tags: str) -> Path:
    """A repository with one commit per tag, a day apart from 2026-08-01 on; annotated every second."""
    env = os.environ | {
        f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    for number, tag in enumerate(tags):
        date = {
            f"GIT_{who}_DATE": f"2026-08-{number + 1:02} 12:00:00 +0000" for who in ("AUTHOR", "COMMITTER")
        }
        commit = ["git", "-C", str(path), "commit", "-q", "--allow-empty", "-m", tag]
        subprocess.run(commit, check=True, env=env | date)
        annotate = ["-a", "-m", tag] if number % 2 else []
        subprocess.run(["git", "-C", str(path), "tag", *annotate, tag], check=True, env=env | date)
    return path
