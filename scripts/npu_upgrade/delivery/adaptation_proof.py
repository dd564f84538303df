"""Whether evidence and deliverables of a model allow its delivery, for exactly the code that is delivered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from npu_upgrade.artifacts.bundle import Bundle, Choices, make_bundle
from npu_upgrade.artifacts.facts import Facts
from npu_upgrade.artifacts.roots import PACKAGES, Root
from npu_upgrade.artifacts.state import Written, load_state
from npu_upgrade.artifacts.tree_form import form_of
from npu_upgrade.checkpoint.gaps import gate_command
from npu_upgrade.evidence.judged import judged
from npu_upgrade.evidence.runs import REAL, Run
from npu_upgrade.ground.command import adapt
from npu_upgrade.ground.errors import BadInput

_OTHERS = {*PACKAGES.values(), "vllm_omni"}  # compared with their roots


def check_runs(facts: Facts, *, pending_npu: bool) -> tuple[list[Run], Run]:
    """The newest run of every gate and label that judged this code, and the one that served real weights.

    Raises :class:`BadInput` for evidence that is missing, failed, of other code, of dummy weights only, or
    of a CPU only when that was not agreed to.
    """
    again = gate_command("serve", facts.model)
    if not facts.current:
        named = ", ".join(sorted({f"{run.gate} ({run.label})" for run in facts.runs}))
        raise BadInput(
            f"the evidence is of other code than what is delivered: {named}",
            expected="a run of the serve gate on the packages of --vllm and --ascend as they are now",
            try_=f"{again}, with the interpreter that imports them from there",
        )
    standing = list({(run.gate, run.label): run for run in facts.current}.values())
    failed = next((run for run in standing if run.verdict == "FAIL"), None)
    if failed:
        raise BadInput(
            f"gate {failed.gate} ({failed.label}) failed for this code: {failed.record.summary}",
            expected="no gate whose newest verdict is FAIL",
            try_=f"{adapt('evidence', 'show', failed.id).short}; correct it and run the gate again",
        )
    passed = {run.label: run for run in standing if run.gate == "serve" and run.verdict == "PASS"}
    real = next((passed[label] for label in REAL if label in passed), None)
    if real is None:
        seen = ", ".join(sorted(passed)) or "no serve gate passed"
        raise BadInput(
            f"there is no proof with real weights for this code ({seen})",
            expected="a PASS of the serve gate with real weights: dummy weights never sign off",
            try_=f"{again} --load-format real",
        )
    if real.label != "NPU real" and not pending_npu:
        raise BadInput(
            "real weights were served on a CPU only",
            expected="a PASS of the serve gate with real weights on an NPU",
            try_=f"{again} on the machine with the NPU (adapt.py evidence pack and import carry it here), or "
            "--pending-npu: the commit then says that it is pending",
        )
    return standing, real


def check_documents(
    facts: Facts, model: str, repo: Path, roots: list[Root], folder: Path
) -> tuple[Bundle, Written]:
    """What artifacts wrote for this delivery, in the repository or in a root; it has to be up to date.

    ``folder`` is the model's in the workspace.
    """
    state = load_state(folder)
    places = [repo, *(root.checkout.root for root in roots)]
    tree = next((place for place in places if state.of(place).files), None)
    again = adapt("artifacts", model, "--tree", str(tree or repo)).short
    if tree is None:
        raise BadInput(
            f"nothing was generated for {facts.name} in {repo}",
            expected="accuracy config, tutorial and its entries beside the code",
            try_=again,
        )
    written = state.of(tree)
    changes = [one for root in roots for one in root.changed()] if roots else None
    bundle = make_bundle(facts, form_of(tree), written, Choices(keep=tuple(written.kept)), changes)
    if bundle.changed:
        raise BadInput(
            f"generated files are not as the evidence says: {', '.join(sorted(bundle.changed))}",
            expected="files that were generated from the runs of this code",
            try_=again,
        )
    return bundle, written


def check_gaps(facts: Facts, named: Sequence[str]) -> None:
    """Every gap of the deliverables is among those ``named``, and each of these is a gap."""
    ids = [gap.id for gap in facts.gaps]
    wrong = next((name for name in named if name not in ids), None)
    if wrong is not None:
        raise BadInput(
            f"there is no gap {wrong!r}",
            expected=f"one of {', '.join(ids)}" if ids else "no gap",
            try_="take --open out",
        )
    unnamed = next((gap for gap in facts.gaps if gap.id not in named), None)
    if unnamed:
        raise BadInput(
            f"the deliverables have a gap: {unnamed.what}",
            expected="every measurement there, or the gap named",
            try_=f"{unnamed.command}, then adapt.py artifacts; or --open {unnamed.id}: the commit names it",
        )


def check_plugins(repo: Path, paths: Iterable[str], standing: Sequence[Run]) -> None:
    """Raise :class:`BadInput` where ``paths`` are of a plugin that real weights were served by otherwise."""
    runs = [run for run in standing if run.label in REAL and run.verdict == "PASS"]
    packages = {name for run in runs for name in run.judged} - _OTHERS
    for package in sorted({found for path in paths if (found := _package(path, packages))}):
        folder, name = repo / package, package.rpartition("/")[2]
        now = judged({name: folder})[0].files[name] if folder.is_dir() else None
        other = next((run for run in runs if run.judged.get(name, now) != now), None)
        if other:
            raise BadInput(
                f"the plugin {folder} is not what gate {other.gate} ({other.label}) judged",
                expected="a plugin that is delivered as it was served",
                try_=f"pip install -e {folder.parent}, and run the gate again",
            )


def _package(path: str, packages: set[str]) -> str | None:
    """The folder of the outermost of ``packages`` that a file of code lies in."""
    parts = PurePosixPath(path).parts[:-1]
    if not path.endswith(".py") or {"docs", "tests"}.intersection(parts):
        return None
    at = next((number for number, part in enumerate(parts, 1) if part in packages), None)
    return "/".join(parts[:at]) if at else None
