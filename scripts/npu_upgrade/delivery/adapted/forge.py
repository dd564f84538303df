"""What is published with gh, on request: the pull request, and the comment on the issue."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

from npu_upgrade.delivery.publish import push_arguments
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.sources.checkout import Checkout

_TEMPLATE = ".github/PULL_REQUEST_TEMPLATE.md"


def push(checkout: Checkout, branch: str, pushed: bool) -> None:
    """Publish the branch; raises :class:`Blocked` when there is nowhere to, or git cannot."""
    arguments = push_arguments(checkout, branch, pushed)
    if arguments is None:
        raise Blocked(
            f"{checkout.root} has no remote to open a pull request from",
            expected="a fork as a remote",
            try_=f"git -C {checkout.root} remote add origin URL, then the same command",
        )
    checkout.git(*arguments)


def open_request(checkout: Checkout, branch: str, title: str, body: str) -> str:
    """The address of the branch's pull request, opened when there is none."""
    there = _gh(
        checkout.root, "pr", "list", "--head", branch, "--state", "open", "--json", "url", "--jq", ".[].url"
    )
    if there.strip():
        return there.split()[0]
    return _gh(checkout.root, "pr", "create", "--title", title, "--body-file", "-", text=body).strip()


def comment(checkout: Checkout, issue: str, body: str) -> str:
    """Post a comment on an issue (a number, or an address); returns what gh says of it."""
    return _gh(checkout.root, "issue", "comment", issue, "--body-file", "-", text=body).strip()


def request_body(root: Path, message: str, tested: str) -> str:
    """The description of the request: under the headings of the project's own template, where it has one."""
    what = message.partition("\n\n")[2].strip()
    try:
        headings = re.findall(r"^#{2,4} .+$", (root / _TEMPLATE).read_text("utf-8"), re.MULTILINE)
    except (OSError, ValueError):
        headings = []
    if not headings:
        return f"{what}\n"
    return "\n".join(f"{heading}\n\n{_answer(heading.lower(), what, tested)}\n" for heading in headings)


def _answer(heading: str, what: str, tested: str) -> str:
    if "test" in heading:
        return tested
    if "user-facing" in heading:
        return "Yes: a further model is supported, with its tutorial and accuracy config."
    return what if "what" in heading else "See above."


def _gh(folder: Path, *arguments: str, text: str = "") -> str:
    try:
        done = subprocess.run(
            ["gh", *arguments],
            cwd=folder,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            encoding="utf-8",
        )
    except FileNotFoundError as error:
        raise Blocked(
            "gh is not installed",
            expected="GitHub's command line, logged in",
            try_="install gh and run gh auth login; the commit is made, the same command goes on from there",
        ) from error
    if done.returncode != 0:
        raise Blocked(
            f"{shlex.join(['gh', *arguments[:2]])} failed: {done.stderr.strip() or done.stdout.strip()}",
            expected="gh to be logged in, and the network",
            try_="put right what gh names; the commit is made, the same command goes on from there",
        )
    return done.stdout
