"""The list of what the files lack of the GPU side, made anew: the commit names it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

from npu_upgrade.ground.command import answered, upgrade
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.progress import say
from npu_upgrade.job.ask import port_survey
from npu_upgrade.job.job import Job, naming
from npu_upgrade.job.plan_file import load_plan


def list_gains(job: Job) -> None:
    """List again, when there is a list and files changed since."""
    listed_for = port_survey(job.folder).get("tree")
    if listed_for and listed_for != load_plan(job).subject(job.root).tree:
        say("listing what the files lack of the GPU side now")
        _, said = answered(upgrade("port", *naming(job)), whole=False)
        if why := said.get("error"):
            say(f"note: listing failed; the commit names what was lacking before: {why}")


def _list_if_possible(job: Job) -> None:
    """As ``list_gains``; where the job cannot be read, the command beside it says so in its own words."""
    with suppress(UpgradeError):
        list_gains(job)


@contextmanager
def listing_beside(job: Job) -> Generator[None]:
    """List again while something longer runs, so that the delivery finds it done."""
    beside = threading.Thread(target=_list_if_possible, args=[job])
    beside.start()
    try:
        yield
    finally:
        beside.join()
