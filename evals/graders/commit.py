"""One signed-off commit, and nothing else touched."""

from __future__ import annotations

from fnmatch import fnmatch

from graders.score import Score
from graders.task import Task
from graders.workspace import Workspace


def one_commit(workspace: Workspace, task: Task) -> Score:
    """Exactly one commit on top of the base; two are half a point."""
    number = len(workspace.commits)
    value = 1.0 if number == 1 else 0.5 if number == 2 else 0.0
    return Score("one_commit", value, f"{number} commits on top of {workspace.base}")


def signed_off(workspace: Workspace, task: Task) -> Score:
    """Every commit carries the sign-off of its author."""
    if not workspace.commits:
        return Score("signed_off", 0.0, "no commit")
    good = 0
    for commit in workspace.commits:
        author = workspace.git("show", "-s", "--format=%an <%ae>", commit).strip()
        good += f"Signed-off-by: {author}" in workspace.message(commit).splitlines()
    return Score(
        "signed_off", good / len(workspace.commits), f"{good} of {len(workspace.commits)} signed off"
    )


def nothing_else(workspace: Workspace, task: Task) -> Score:
    """Only files that the task is about are in the commit, and the working tree is clean."""
    allowed = task.setup.files
    others = [path for path in workspace.changed if not any(fnmatch(path, one) for one in allowed)]
    left = [line for line in workspace.dirty if ".npu-upgrade" not in line]
    value = max(0.0, 1.0 - 0.5 * len(others) - 0.5 * bool(left))
    said = [f"also in the commit: {', '.join(others[:5])}"] if others else []
    said += [f"left in the working tree: {', '.join(left[:5])}"] if left else []
    if not workspace.changed:
        return Score("nothing_else", 0.0, "nothing was committed")
    return Score("nothing_else", value, "; ".join(said) or f"{len(workspace.changed)} files, all expected")
