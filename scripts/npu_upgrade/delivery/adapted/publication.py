"""What follows a delivered commit: the report with it, and on request the pull request and the comment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.artifacts.render import COMMENT, REPORT, with_delivery
from npu_upgrade.delivery.adapted import forge
from npu_upgrade.delivery.adapted.delivery import Delivery
from npu_upgrade.delivery.adapted.posted import Posted
from npu_upgrade.ground.files import write_atomic, write_json


@dataclass(frozen=True)
class Publication:
    """``reports``: the texts of the model; ``folder``: its folder in the workspace; ``sha``: the commit."""

    delivery: Delivery
    reports: Mapping[str, str]
    folder: Path
    sha: str

    def write_report(self) -> Path:
        """Write the analysis report again, now with the commit, and that the model is delivered."""
        delivery = self.delivery
        text = with_delivery(
            self.reports[REPORT],
            repo=str(delivery.checkout.root),
            branch=delivery.branch,
            commit=self.sha,
            validation=delivery.proof.validation,
            patches=[str(patch.path) for patch in delivery.chosen.patches],
            files=delivery.chosen.changed,
        )
        write_atomic(self.folder / REPORT, text)
        write_json(self.folder / "delivered.json", {"commit": self.sha, "branch": delivery.branch})
        return self.folder / REPORT

    def request(self) -> str:
        """Push the branch, and the address of its pull request, opened when there is none."""
        delivery = self.delivery
        forge.push(delivery.checkout, delivery.branch, bool(delivery.pushed))
        body = forge.request_body(delivery.checkout.root, delivery.text, self.reports[COMMENT])
        return forge.open_request(delivery.checkout, delivery.branch, delivery.title, body)

    def comment(self, issue: str) -> str:
        """Post the comment on an issue, once; returns what gh says of it."""
        body = f"{self.reports[COMMENT]}\nCommit {self.sha} on branch {self.delivery.branch}.\n"
        posted = Posted(self.folder)
        if posted.has(issue, body):
            return "posted before"
        said = forge.comment(self.delivery.checkout, issue, body)
        posted.add(issue, body)
        return said
