"""The delivery of a model: what its gates judged and artifacts wrote, in one commit, and what follows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from npu_upgrade.artifacts.facts import Facts
from npu_upgrade.artifacts.render import COMMENT, REPORT, with_delivery
from npu_upgrade.artifacts.roots import Root
from npu_upgrade.delivery import commit, publish
from npu_upgrade.delivery.adaptation_files import Choice, Named, Patch, choose
from npu_upgrade.delivery.adaptation_proof import check_documents, check_gaps, check_plugins, check_runs
from npu_upgrade.delivery.commit import PENDING, Delivery, Done
from npu_upgrade.delivery.message import Section, compose, count, counted, evidence
from npu_upgrade.delivery.place import open_place
from npu_upgrade.delivery.refusals import check_contents, check_places, check_staged
from npu_upgrade.delivery.title import rule_for
from npu_upgrade.evidence.runs import Run
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256, write_atomic


@dataclass(frozen=True)
class Order:
    """What a delivery is asked for; ``folder`` is the model's in the workspace."""

    model: str
    repo: Path
    roots: list[Root]
    folder: Path
    named: Named
    open_gaps: Sequence[str] = ()
    pending_npu: bool = False
    patch_dir: Path | None = None
    title: str | None = None


@dataclass(frozen=True)
class Adapted:
    """A delivery that is ready; ``code`` are its files but for the generated ones, ``reports`` the texts."""

    delivery: Delivery
    code: list[str]
    patches: list[Patch]
    runs: list[Run]
    reports: dict[str, str]
    folder: Path


class Delivered(msgspec.Struct, frozen=True):
    """``delivered.json`` of a model: the commit that delivers it."""

    commit: str
    branch: str


def prepare(facts: Facts, order: Order) -> Adapted:
    """Check evidence, documents, checkout and all changes, and write the message; changes nothing.

    Raises :class:`BadInput` for the first thing that stands in the way.
    """
    runs, real = check_runs(facts, pending_npu=order.pending_npu)
    bundle, written = check_documents(facts, order.model, order.repo, order.roots, order.folder)
    check_gaps(facts, order.open_gaps)
    place = open_place(order.repo, f"Adapted-Model: {facts.name}", new=f"adapt-{facts.name}")
    root, documents = place.checkout.root, sorted({*written.files, *written.kept})
    patches = (order.patch_dir or root.parent) / facts.name
    choice = choose(place, order.roots, order.named, documents, patches)
    subject = choice.subject(root)
    check_staged(place.checkout, subject.files)
    check_places(place.checkout, dict.fromkeys(subject.files, False))
    if not choice.changed:
        raise BadInput(
            "nothing to commit: neither code nor documents of the model differ from the history",
            expected="changes in --vllm or --ascend, or generated documents",
            try_="adapt.py artifacts MODEL --tree REPO; --ascend-base REF for work that is committed already",
        )
    check_contents(root, [path for path in choice.changed if path in choice.local])
    check_plugins(root, choice.local, runs)
    for patch in choice.patches:
        patch.check()
    code = [path for path in choice.changed if path not in documents]
    validation = real.record.id if real.label == "NPU real" else PENDING
    sections = _sections(facts, choice, len(code), runs)
    text = compose(place, order.title, default_title(root, facts.name), sections, validation)
    delivery = Delivery(place, subject, choice.changed, text, validation, choice.incoming)
    return Adapted(delivery, code, choice.patches, runs, dict(bundle.reports), order.folder)


def carry_out(adapted: Adapted, *, sign: bool | None) -> Done:
    """Make the commit; when it is there, write the patches, the analysis report with it, and that it is."""
    delivery = adapted.delivery
    done = commit.carry_out(delivery, sign=sign)
    if done.sha is None:
        return done
    for patch in adapted.patches:
        patch.write()
    report = with_delivery(
        adapted.reports[REPORT],
        repo=str(delivery.place.checkout.root),
        branch=delivery.place.branch,
        commit=done.sha,
        validation=delivery.validation,
        patches=[str(patch.path) for patch in adapted.patches],
        files=delivery.changed,
    )
    write_atomic(adapted.folder / REPORT, report)
    delivered = Delivered(done.sha, delivery.place.branch)
    write_atomic(adapted.folder / "delivered.json", msgspec.json.encode(delivered))
    return done


def request(adapted: Adapted) -> str:
    """Push the branch, and the address of its pull request, opened when there is none."""
    publish.push(adapted.delivery.place)
    return publish.open_request(adapted.delivery.place, adapted.delivery.text, adapted.reports[COMMENT])


def comment(adapted: Adapted, sha: str, issue: str) -> str:
    """Post the comment on an issue, once; returns what gh says of it.

    ``posted.json`` of the model has the hashes of what was posted on each issue.
    """
    place, path = adapted.delivery.place, adapted.folder / "posted.json"
    body = f"{adapted.reports[COMMENT]}\nCommit {sha} on branch {place.branch}.\n"
    posted = _posted(path)
    if sha256(body) in posted.get(issue, []):
        return "posted before"
    answer = publish.comment(place.checkout.root, issue, body)
    posted[issue] = [*posted.get(issue, []), sha256(body)]
    write_atomic(path, msgspec.json.encode(posted))
    return answer


def _posted(path: Path) -> dict[str, list[str]]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, list[str]])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise BadInput(
            f"cannot read which comments were posted from {path}: {error}",
            expected="the file as this tool wrote it",
            try_="move it away, then the same command; look first whether the issue has the comment",
        ) from error


def default_title(root: Path, name: str) -> str:
    """The title by the rule of the project at ``root``, which may have a tag for models or for features."""
    return f"[{rule_for(root).tag('Model', 'Feature')}] Support {name}"


def _sections(facts: Facts, choice: Choice, code: int, runs: list[Run]) -> list[Section]:
    best = facts.served or facts.runs[-1]
    architectures = ", ".join(str(one) for one in best.result.get("architectures") or [])
    changed = [f"{count(len(choice.changed), 'file')}, {code} of them code"]
    changed += [choice.moved] if choice.moved else []
    changed += [f"{p.project}: {p.path.name} (SHA-256 {sha256(p.data)[:12]})" for p in choice.patches]
    versions = [f"{name} {version}" for name, version in best.map("versions").items() if version]
    return [
        Section("Model", [(facts.source.name or facts.name) + (architectures and f" ({architectures})")]),
        Section("Changed", changed),
        Section("Versions", versions),
        counted("Open gaps", [f"{gap.id}: {gap.what}" for gap in facts.gaps]),
        evidence([run.record for run in runs]),
    ]
