"""The delivery of a model: what its gates judged and artifacts wrote, in one commit, and what follows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from npu_upgrade.artifacts.bundle import Bundle, Choices, make_bundle
from npu_upgrade.artifacts.facts import Facts
from npu_upgrade.artifacts.render import COMMENT, REPORT, with_delivery
from npu_upgrade.artifacts.roots import PACKAGES, Root
from npu_upgrade.artifacts.state import Written, load_state
from npu_upgrade.checkpoint.gate_commands import gate_command
from npu_upgrade.delivery import commit, publish
from npu_upgrade.delivery.adaptation_files import Choice, Named, check_patch, choose
from npu_upgrade.delivery.commit import Delivery, Done
from npu_upgrade.delivery.message import Section, compose, counted, evidence
from npu_upgrade.delivery.place import open_place
from npu_upgrade.delivery.refusals import check_contents, check_places, check_staged
from npu_upgrade.evidence.judged import judged
from npu_upgrade.evidence.observed import observed_in
from npu_upgrade.evidence.runs import REAL, Run, standing
from npu_upgrade.ground.command import adapt
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256, write_atomic, write_json
from npu_upgrade.ground.kept import written
from npu_upgrade.ground.tables import count
from npu_upgrade.job.adaptation import DELIVERED
from npu_upgrade.job.tree_form import form_of
from npu_upgrade.job.validation import PENDING, Validation

TAGS = ("feat", "Model", "Feature")  # of the commit's title: the first that the project has
NPU = "npu"  # the requirement that --pending-npu leaves open
_OTHERS = {*PACKAGES.values(), "vllm_omni"}  # compared with their roots


@dataclass(frozen=True)
class Part:
    """One model of a delivery. ``model``: as it was named; ``folder``: its own in the workspace; ``notes``:
    gap -> why a person left it out."""

    facts: Facts
    model: str
    folder: Path
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Order:
    """What a delivery of one or several models is asked for."""

    parts: Sequence[Part]
    repo: Path
    roots: list[Root]
    named: Named
    open_gaps: Sequence[str] = ()
    pending_npu: bool = False
    patch_dir: Path | None = None
    title: str | None = None


@dataclass(frozen=True)
class Adapted:
    """A delivery that is ready; ``code`` are its files but for the generated ones, ``reports`` the texts of
    each model by its folder."""

    delivery: Delivery
    code: list[str]
    patches: dict[Path, bytes]
    runs: list[Run]
    reports: dict[Path, dict[str, str]]
    open_gaps: Sequence[str] = ()

    @property
    def comment(self) -> str:
        return "\n".join(texts[COMMENT] for texts in self.reports.values())


def prepare(order: Order) -> Adapted:
    """Check evidence, documents, checkout and all changes, and write the message; changes nothing.

    Raises :class:`BadInput` for the first thing that stands in the way.
    """
    facts = [one.facts for one in order.parts]
    names = ", ".join(one.name for one in facts)
    runs = {one.name: _check_runs(one) for one in facts}
    every = [run for of_one in runs.values() for run in of_one]
    _check_gaps(order)
    checked = {one.folder: _check_documents(one, order) for one in order.parts}
    place = open_place(order.repo, f"Adapted-Model: {names}", new=f"adapt-{facts[0].name}")
    root = place.checkout.root
    documents = sorted({path for _, one in checked.values() for path in (*one.files, *one.kept)})
    patches = (order.patch_dir or root.parent) / facts[0].name
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
    check_plugins(root, choice.local, every)
    code = [path for path in choice.changed if path not in documents]
    on_npu = all(one.on_npu for one in facts)
    served = [one.served.record.id for one in facts if one.served]
    validation = ", ".join(served) if on_npu and served else PENDING
    sections = _sections(order.parts, choice, len(code), runs)
    text = compose(place, order.title, f"Support {names}", TAGS, sections, validation)
    said = "" if on_npu else Validation().said
    delivery = Delivery(
        place, subject, choice.changed, text, validation, said, choice.incoming, left=choice.left
    )
    reports = {folder: dict(bundle.reports) for folder, (bundle, _) in checked.items()}
    named = [*order.open_gaps, *([NPU] if order.pending_npu else [])]
    return Adapted(delivery, code, choice.patches, every, reports, named)


def carry_out(adapted: Adapted, *, sign: bool | None) -> Done:
    """Make the commit; when it is there, write the patches, the analysis report with it, and that it is."""
    delivery = adapted.delivery
    done = commit.carry_out(delivery, sign=sign)
    if done.sha is None:
        return done
    for path, data in adapted.patches.items():
        check_patch(path)
        write_atomic(path, data)
    for folder, texts in adapted.reports.items():
        report = with_delivery(
            texts[REPORT],
            repo=str(delivery.place.checkout.root),
            branch=delivery.place.branch,
            commit=done.sha,
            validation=delivery.validation,
            patches=[str(path) for path in adapted.patches],
            files=delivery.changed,
        )
        write_atomic(folder / REPORT, report)
        told = {"commit": done.sha, "branch": delivery.place.branch, "open": list(adapted.open_gaps)}
        write_json(folder / DELIVERED, told)
    return done


def request(adapted: Adapted) -> str:
    """Push the branch, and the address of its pull request, opened when there is none."""
    facing = "Yes: a further model is supported, with its tutorial and accuracy config."
    return publish.request(adapted.delivery.place, adapted.delivery.text, TAGS, adapted.comment, facing)


def comment(adapted: Adapted, sha: str, issue: str) -> str:
    """Post the comment on an issue, once; returns what gh says of it.

    ``posted.json`` of the model has the hashes of what was posted on each issue.
    """
    place, path = adapted.delivery.place, next(iter(adapted.reports)) / "posted.json"
    body = f"{adapted.comment}\nCommit {sha} on branch {place.branch}.\n"
    again = "move it away, then the same command; look first whether the issue has the comment"
    posted = written(path, dict[str, list[str]], try_=again) or {}
    if sha256(body) in posted.get(issue, []):
        return "posted before"
    answer = publish.comment(place.checkout.root, issue, body)
    posted[issue] = [*posted.get(issue, []), sha256(body)]
    write_json(path, posted)
    return answer


def _sections(
    parts: Sequence[Part], choice: Choice, code: int, runs: Mapping[str, Sequence[Run]]
) -> list[Section]:
    changed = [f"{count(len(choice.changed), 'file')}, {code} of them code"]
    changed += [choice.moved] if choice.moved else []
    changed += [f"{path.name} (SHA-256 {sha256(data)[:12]})" for path, data in choice.patches.items()]
    models, versions = [], []
    gaps: dict[tuple[str, str, str], list[str]] = {}  # note, id and what it lacks -> the models that have it
    for part in parts:
        facts = part.facts
        best = facts.served or facts.runs[-1]
        architectures = ", ".join(str(one) for one in best.result.get("architectures") or [])
        name = (facts.source.name or facts.name) + (architectures and f" ({architectures})")
        models.append(name + (", experimental" if facts.gaps else ""))
        for gap in facts.gaps:
            gaps.setdefault((part.notes.get(gap.id, ""), gap.id, gap.what), []).append(facts.name)
        versions += facts.versions
    left_out: dict[str, list[str]] = {}  # the reason of several stands once
    for (note, id_, what), of in gaps.items():
        if note:
            left_out.setdefault(note, []).append(_of_some(f"{id_} ({what})", of, parts))
    open_ = [_of_some(f"{id_}: {what}", of, parts) for (note, id_, what), of in gaps.items() if not note]
    return [
        Section("Model", models),
        Section("Changed", changed),
        Section("Versions", list(dict.fromkeys(versions))),
        counted("Open gaps", open_),
        Section("Left out", [f"{', '.join(ids)}: {note}" for note, ids in left_out.items()]),
        evidence([(name if len(parts) > 1 else "", run.record) for name, of in runs.items() for run in of]),
    ]


def _of_some(gap: str, of: Sequence[str], parts: Sequence[Part]) -> str:
    """A gap with the names of the models that have it, where not all have it."""
    return gap if len(of) == len(parts) else f"{', '.join(of)}: {gap}"


def _check_runs(facts: Facts) -> list[Run]:
    """The newest run of every gate and label that judged this code, and of every row of the features.

    :class:`BadInput` where there is none.
    """
    if not facts.current:
        named = ", ".join(sorted({f"{run.gate} ({run.label})" for run in facts.runs}))
        again = gate_command("serve", facts.model).short
        raise BadInput(
            f"the evidence is of other code than what is delivered: {named}: {facts.other}",
            expected="a run of the serve gate on the packages of --vllm and --ascend as they are now, or of"
            " the releases that the plan is for",
            try_=f"{again}, with the interpreter that imports them from there",
        )
    rows = [feature.run for feature in facts.features if feature.run]  # a later run may have tried a few only
    counting = {run.id: run for run in [*standing(facts.current).values(), *rows]}
    return [run for run in facts.current if run.id in counting]


def _check_documents(part: Part, order: Order) -> tuple[Bundle, Written]:
    """What artifacts wrote for this delivery, in the repository or in a root; it has to be up to date."""
    facts, model, repo, roots, folder = part.facts, part.model, order.repo, order.roots, part.folder
    state = load_state(folder)
    places = [repo, *(root.checkout.root for root in roots)]
    tree = next((place for place in places if state.of(place).files), None)
    named = [word for root in roots for word in root.options]  # the report lists what was changed in them
    again = adapt("artifacts", model, "--tree", str(tree or repo), *named).short
    if tree is None:
        raise BadInput(
            f"nothing was generated for {facts.name} in {repo}",
            expected="accuracy config, tutorial and its entries beside the code",
            try_=again,
        )
    before = state.of(tree)
    changes = [one for root in roots for one in root.changed()] if roots else None
    bundle = make_bundle(
        facts, form_of(tree), before, Choices(tuple(before.kept), reports=before.reports), changes
    )
    if bundle.changed:
        raise BadInput(
            f"generated files are not as the evidence says: {', '.join(sorted(bundle.changed))}",
            expected="files that were generated from the runs of this code",
            try_=again,
        )
    for path, new in bundle.written.files.items():
        text = bundle.files[path][1]
        lost = next((gap for gap in facts.gaps if gap.sign in (new or "") and gap.sign not in text), None)
        if lost:
            raise BadInput(
                f"{path} was edited, and does not name the gap {lost.id} any more: {lost.what}",
                expected="every gap named where the model's users read",
                try_=f"put back the line with {lost.sign}, or {lost.command.short}",
            )
    return bundle, before


def _check_gaps(order: Order) -> None:
    """No requirement is refused, every gap is named or was left out with a note, and what is named is one."""
    every = [(part, gap) for part in order.parts for gap in part.facts.gaps]
    refused = next((gap for _, gap in every if gap.refused), None)
    if refused:
        raise BadInput(
            refused.what,
            expected=f"the requirement {refused.id}, which no delivery can leave open",
            try_=f"{refused.command.short}; put right what it names and run the gate again",
        )
    ids = list(dict.fromkeys(gap.id for _, gap in every))
    wrong = next((name for name in order.open_gaps if name not in ids), None)
    if wrong is not None:
        raise BadInput(
            f"there is no gap {wrong!r}",
            expected=f"one of {', '.join(ids)}" if ids else "no gap",
            try_="take --open out",
        )
    named = {*order.open_gaps, *([NPU] if order.pending_npu else [])}
    unnamed = next((gap for part, gap in every if gap.id not in {*named, *part.notes}), None)
    if unnamed:
        noted = {name for part in order.parts for name in part.notes}
        opened = " ".join(f"--open {name}" for name in ids if name not in noted)
        here = "; an NPU elsewhere: adapt.py evidence pack and import carry its runs here, or --pending-npu"
        raise BadInput(
            f"the deliverables have a gap: {unnamed.what}",
            expected="every requirement proven, left out with a note, or the gap named",
            try_=f"{unnamed.command.short}, then adapt.py artifacts{here if unnamed.id == NPU else ''}; or "
            f"{opened}: the commit names what is open",
        )


def check_plugins(repo: Path, paths: Iterable[str], newest: Sequence[Run]) -> None:
    """Raise :class:`BadInput` where ``paths`` are of a plugin that real weights were served by otherwise."""
    runs = [run for run in newest if run.label in REAL and run.verdict == "PASS"]
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
        idle = next((run for run in runs if name in run.judged and not _loaded(run, name)), None)
        if idle:
            raise BadInput(
                f"the plugin {folder} was not loaded by gate {idle.gate} ({idle.label})",
                expected="a run of the code that is delivered",
                try_="leave VLLM_PLUGINS unset, or name the plugin in it, and run the gate again",
            )


def _loaded(run: Run, name: str) -> bool:
    """Whether a process of a run's server loaded a file of the package; true where none tells of itself."""
    processes = [one for seen in observed_in(run.folder) for one in seen.processes]
    return not processes or any(path.startswith(f"{name}/") for one in processes for path in one.files)


def _package(path: str, packages: set[str]) -> str | None:
    """The folder of the outermost of ``packages`` that a file of code lies in."""
    parts = PurePosixPath(path).parts[:-1]
    if not path.endswith(".py") or {"docs", "tests"}.intersection(parts):
        return None
    at = next((number for number, part in enumerate(parts, 1) if part in packages), None)
    return "/".join(parts[:at]) if at else None
