"""How a commit is published: the remote its branch goes to, and with gh the pull request and a comment."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from npu_upgrade.delivery.message import rule_for
from npu_upgrade.delivery.place import Place
from npu_upgrade.ground.command import Command
from npu_upgrade.ground.errors import Blocked

_TEMPLATE = ".github/PULL_REQUEST_TEMPLATE.md"


def push_command(place: Place) -> Command | None:
    """The git command that publishes the branch, None when the checkout has no remote."""
    arguments = _push_arguments(place)
    return Command("git", "-C", (str(place.checkout.root), *arguments)) if arguments else None


def _push_arguments(place: Place) -> list[str]:
    checkout, branch = place.checkout, place.branch
    remotes = checkout.git("remote").split()
    if not remotes:
        return []
    own = f"branch.{branch}"
    keys = (f"{own}.pushRemote", "remote.pushDefault", f"{own}.remote")
    choices = [checkout.config(key) for key in keys]
    remote = next((name for name in (*choices, "origin") if name in remotes), remotes[0])
    # a remote that has an earlier commit of this delivery gets the new one in its place
    return ["push", *(["--force-with-lease"] if place.pushed else ["-u"]), remote, branch]


def request(place: Place, message: str, tags: Sequence[str], tested: str, facing: str) -> str:
    """Push the branch, and the address of its pull request, opened when there is none.

    Its title is the commit's, with the first of ``tags`` where the project wants one. The description stands
    under the headings of the project's own template, where it has one; ``tested`` answers those about tests,
    ``facing`` those about what users see. Raises :class:`Blocked` when git or gh cannot.
    """
    root, arguments = place.checkout.root, _push_arguments(place)
    if not arguments:
        raise Blocked(
            f"{root} has no remote to open a pull request from",
            expected="a fork as a remote",
            try_=f"git -C {root} remote add origin URL, then the same command",
        )
    place.checkout.git(*arguments)
    there = _gh(
        root, "pr", "list", "--head", place.branch, "--state", "open", "--json", "url", "--jq", ".[].url"
    )
    if there.strip():
        return there.split()[0]
    title, _, what = message.partition("\n\n")
    title = rule_for(root).of_request(title, tags)
    try:
        headings = re.findall(r"^#{2,4} .+$", (root / _TEMPLATE).read_text("utf-8"), re.MULTILINE)
    except (OSError, ValueError):
        headings = []
    words = {"test": tested, "user-facing": facing, "what": what.strip(), "": "See above."}
    answers = [
        f"{heading}\n\n{next(text for word, text in words.items() if word in heading.lower())}\n"
        for heading in headings
    ]
    body = "\n".join(answers) or what
    return _gh(root, "pr", "create", "--title", title, "--body-file", "-", text=body).strip()


def comment(folder: Path, issue: str, body: str) -> str:
    """Post a comment on an issue (a number, or an address); returns what gh says of it."""
    return _gh(folder, "issue", "comment", issue, "--body-file", "-", text=body).strip()


def keep_issue(folder: Path, repository: str, marker: str, title: str, body: str) -> str:
    """Write the one open issue whose text holds ``marker``, or open it; returns its address.

    ``repository`` is OWNER/NAME, empty for that of ``folder``. Raises :class:`Blocked` when gh cannot.
    """
    where = ["--repo", repository] if repository else []
    fields = ("--state", "open", "--limit", "500", "--json", "url,body")
    found = json.loads(_gh(folder, "issue", "list", *where, *fields))
    url = next((one["url"] for one in found if marker in (one.get("body") or "")), None)
    if url:
        _gh(folder, "issue", "edit", url, "--body-file", "-", text=body)
        return url
    return _gh(folder, "issue", "create", *where, "--title", title, "--body-file", "-", text=body).strip()


def _gh(folder: Path, *arguments: str, text: str = "") -> str:
    try:
        done = subprocess.run(
            ["gh", *arguments],
            cwd=folder,
            input=text,
            capture_output=True,
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
