"""How a branch is published: which remote it goes to, and how."""

from __future__ import annotations

from npu_upgrade.sources.checkout import Checkout


def push_arguments(checkout: Checkout, branch: str, pushed: bool) -> list[str] | None:
    """The arguments of the git command that publishes ``branch``, None when there is no remote.

    ``pushed``: a remote has an earlier commit of this delivery, which the new one replaces.
    """
    remotes = checkout.git("remote").split()
    if not remotes:
        return None
    own = f"branch.{branch}"
    keys = (f"{own}.pushRemote", "remote.pushDefault", f"{own}.remote")
    choices = [checkout.config(key) for key in keys]
    remote = next((name for name in (*choices, "origin") if name in remotes), remotes[0])
    return ["push", *(["--force-with-lease"] if pushed else ["-u"]), remote, branch]
