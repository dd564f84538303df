"""The message of the commit that delivers a model: what, on which evidence, and what is still open."""

from __future__ import annotations

from collections.abc import Sequence

from npu_upgrade.artifacts.facts import Facts, Gap
from npu_upgrade.delivery.adapted.export import Patch
from npu_upgrade.delivery.adapted.proof import Proof
from npu_upgrade.delivery.message import VALIDATION, count, entry, evidence
from npu_upgrade.delivery.title import TitleRule

MODEL = "Adapted-Model"
HEADINGS = ("Model:", "Changed:", "Versions:", "Open gaps ", "Evidence for ")


def default_title(rule: TitleRule, name: str) -> str:
    """A title by the rule of the project, which may have a tag for models or only one for features."""
    tags = {prefix.lower(): prefix for prefix in rule.prefixes}
    tag = next((tags[name] for name in ("model", "feature") if name in tags), None)
    return f"[{tag or 'Model'}] Support {name}"


def compose(
    facts: Facts,
    proof: Proof,
    title: str,
    changed: Sequence[str],
    code: Sequence[str],
    patches: Sequence[Patch],
    gaps: Sequence[Gap],
    *,
    moved: str | None,
    kept_text: Sequence[str] = (),
    kept_trailers: Sequence[str] = (),
) -> str:
    """The whole message but for the sign-off, which git adds as the last trailer.

    ``code`` are those of ``changed`` that are no generated documents; ``moved`` says where the judged code
    stood when it is not exactly what is committed.
    """
    best = facts.served or facts.runs[-1]
    architectures = ", ".join(str(one) for one in best.result.get("architectures") or [])
    lines = [
        f"- {facts.source.name or facts.name} ({architectures})"
        if architectures
        else f"- {facts.source.name or facts.name}"
    ]
    said = [f"- {count(len(changed), 'file')}, {len(code)} of them code"]
    said += [entry(f"- {moved}")] if moved else []
    said += [
        entry(f"- {patch.project}: {patch.path.name} (SHA-256 {patch.sha256[:12]})") for patch in patches
    ]
    versions = [f"- {name} {version}" for name, version in best.map("versions").items() if version]
    parts = [title, "\n".join([HEADINGS[0], *lines]), "\n".join([HEADINGS[1], *said])]
    parts += ["\n".join([HEADINGS[2], *versions])] if versions else []
    parts += (
        ["\n".join([f"{HEADINGS[3]}({len(gaps)}):", *[entry(f"- {g.id}: {g.what}") for g in gaps]])]
        if gaps
        else []
    )
    parts += [evidence([run.record for run in proof.standing]), *kept_text]
    trailers = [f"{VALIDATION}: {proof.validation}", f"{MODEL}: {facts.name}", *kept_trailers]
    return "\n\n".join([*parts, "\n".join(trailers)]) + "\n"
