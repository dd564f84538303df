"""What an adapted model has to have shown, one rule for each requirement, judged from the runs that count.

Commit, pages, report, status and ``next`` all say what these rules say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion

from npu_upgrade.checkpoint.analysis_file import BY_AN_ADAPTER, AnalysisFile
from npu_upgrade.checkpoint.memory import BASELINE_LEN, BASELINE_SEQS
from npu_upgrade.evidence.observed import Observed, observed_in
from npu_upgrade.evidence.runs import REAL, Run, features_of, mapping, standing
from npu_upgrade.evidence.store import DRY_RUN, NPU_REAL
from npu_upgrade.gates.performance import loads_of
from npu_upgrade.gates.serving.launch import given
from npu_upgrade.ground.command import Command, adapt
from npu_upgrade.ground.files import read_object
from npu_upgrade.ground.paths import WORK_DIR

STATES = ("refused", "gap", "proven", "not needed")
"""What can become of a requirement, the worst first."""

ON_NPU = ("npu", "throughput", "pins")
"""The requirements that nothing but an NPU shows."""

PINNED = ("transformers", "torch", "torch-npu", "cann")
_MODALITIES = ("image", "video", "audio")
_NO_DYNAMO = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
_ERRORS = 2  # standard errors that a value has to be above chance by


@dataclass(frozen=True)
class Proven:
    """``run`` shows it, None where a file does; without ``needed`` the model does not ask for it."""

    run: Run | None = None
    words: str = ""
    needed: bool = True


def _needless(why: str) -> Proven:
    return Proven(words=why, needed=False)


@dataclass(frozen=True)
class Gap:
    """It is not shown: ``what`` in one sentence, ``command`` fills it, ``id`` names it (``deliver --open``).

    ``refused``: it is shown to be otherwise, or nothing may be delivered without it, named or not.
    ``elsewhere``: the device of the runs cannot show it, however often it is asked.
    """

    what: str
    command: Command
    refused: bool = False
    id: str = ""
    elsewhere: bool = False

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, "what": self.what, "command": str(self.command), "refused": self.refused}

    @property
    def sign(self) -> str:
        """How an English document names it."""
        return f"**GAP ({self.id})**"

    @property
    def marker(self) -> str:
        """The gap as it shows in an English document."""
        return f"{self.sign}: {self.what}. It is filled by `{self.command.short}`."


Outcome = Proven | Gap


@dataclass(frozen=True)
class Known:
    """What the rules read. ``counted``: the runs that count, oldest first.

    ``ask`` gives the command of a gate, with the options it is to have.
    """

    counted: Sequence[Run]
    analysis: AnalysisFile | None
    model: str
    ask: Callable[..., Command]

    @cached_property
    def newest(self) -> dict[tuple[str, str], Run]:
        return standing(self.counted)

    @cached_property
    def served(self) -> Run | None:
        """The run that shows best that real weights are served."""
        found = (self.newest.get(("serve", label)) for label in REAL)
        return next((run for run in found if run and run.verdict == "PASS"), None)

    @property
    def label(self) -> str:
        """Whose runs count: those on the device of the served run."""
        labels = [label for label in REAL if any(one == label for _, one in self.newest)]
        return self.served.label if self.served else next(iter(labels), REAL[0])

    @cached_property
    def observed(self) -> Observed | None:
        return next(iter(observed_in(self.served.folder)), None) if self.served else None

    @cached_property
    def declared(self) -> set[str]:
        """What the model takes beside text: by its analysis, else pictures where the engine says so."""
        if self.analysis:
            return set(self.analysis.modalities)
        return {"image"} if self.served and self.served.map("resolved").get("is_multimodal") else set()

    def of(self, gate: str) -> Run | None:
        return self.newest.get((gate, self.label))

    def feature(self, name: str) -> tuple[Run | None, dict[str, Any]]:
        """The row of a feature, and the run that has it."""
        return features_of(self.counted, self.label).get(name, (None, {}))

    def emulated(self, name: str) -> str:
        """The status of a feature on the emulated NPU; empty where no run there tells it."""
        _, row = features_of(self.counted, DRY_RUN).get(name, (None, {}))
        return str(row.get("status") or "")


@dataclass(frozen=True)
class Rule:
    """One requirement: ``sentence`` says it, ``gate`` is what can show it."""

    id: str
    sentence: str
    gate: str
    judge: Callable[[Known], Outcome]


@dataclass(frozen=True)
class Judged:
    """A requirement and what became of it."""

    rule: Rule
    outcome: Outcome

    @property
    def state(self) -> str:
        if isinstance(self.outcome, Gap):
            return "refused" if self.outcome.refused else "gap"
        return "proven" if self.outcome.needed else "not needed"

    @property
    def words(self) -> str:
        """Why, or the run that shows it."""
        if isinstance(self.outcome, Gap):
            return self.outcome.what
        run = self.outcome.run
        return "; ".join(filter(None, (run.id if run else "", self.outcome.words)))

    def as_json(self) -> dict[str, str]:
        return {"id": self.rule.id, "sentence": self.rule.sentence, "state": self.state, "words": self.words}


def judge(known: Known) -> list[Judged]:
    """All requirements in order; what only a served model can show is left out while none is."""
    rules = (one for one in RULES if known.served or one.gate != "serve" or one.id in ("failed", "serve"))
    return [Judged(rule, rule.judge(known)) for rule in rules]


def gaps(judged: Iterable[Judged]) -> list[Gap]:
    """What is open."""
    return [replace(one.outcome, id=one.rule.id) for one in judged if isinstance(one.outcome, Gap)]


def _failed(known: Known) -> Outcome:
    # what fails on the emulated NPU may lack an operator there only; the commit lists it
    failed = (run for run in known.newest.values() if run.verdict == "FAIL" and run.label != DRY_RUN)
    run = next((run for run in failed if not (run.gate == "features" and run.names_unsupported)), None)
    if run is None:
        return Proven()
    what = f"gate {run.gate} ({run.label}) failed for this code: {run.record.summary}"
    return Gap(what, adapt("evidence", "show", run.id), refused=True)


def _analysed(known: Known) -> Outcome:
    command, found = adapt("analyze", known.model), known.analysis
    if found is None:
        return Gap("the checkpoint was not analysed", command)
    # names without a place are what an adapter gives them
    verdict = found.judge(ignored=BY_AN_ADAPTER).value
    worst = next((one.what for one in found.findings if one.severity != "note"), "vLLM itself disagrees")
    if verdict == "FAIL":
        return Gap(f"the checkpoint is inconsistent: {worst}", command, refused=True)
    return Proven() if verdict == "PASS" else Gap(f"the analysis could not judge: {worst}", command)


def _served(known: Known) -> Outcome:
    if known.served and known.observed and known.observed.dummy:
        what = f"run {known.served.id} is labelled {known.served.label}, and loaded dummy weights"
        return Gap(what, known.ask("serve", "--load-format", "real"), refused=True)
    if known.served:
        return Proven(known.served)
    seen = ", ".join(sorted({label for (gate, label), run in known.newest.items() if gate == "serve"}))
    what = f"there is no proof with real weights for this code ({seen or 'no serve gate ran'})"
    return Gap(what, known.ask("serve", "--load-format", "real"), refused=True)


def _on_npu(known: Known) -> Outcome:
    run, seen, command = known.served, known.observed, known.ask("serve")
    if run is None or run.label != NPU_REAL:
        as_well = ", and in an emulated dry-run" if ("serve", DRY_RUN) in known.newest else ""
        return Gap(f"real weights were served on a CPU only{as_well}", command)
    if seen is None:
        return Gap(f"run {run.id} does not tell which device its tensors lived on", command)
    if seen.devices != {"npu"}:
        on = ", ".join(sorted(seen.devices)) or "no device that is told"
        return Gap(f"run {run.id} is labelled NPU real, and its tensors lived on {on}", command, refused=True)
    return Proven(run)


def _right(known: Known) -> Outcome:
    run, command = known.served, known.ask("serve")
    reference = run.map("reference") if run else {}
    state, why = reference.get("state"), str(reference.get("why") or "")
    because = f": {why}" if why else ""
    if state == "equal" and "image" in known.declared and "image" not in (reference.get("kinds") or ()):
        return Gap(f"the model takes image, and no picture was compared with Transformers{because}", command)
    told = [str(one) for one in reference.get("assumed") or ()]
    assumed = f" (taken as the names say, shown by no shape: {'; '.join(told)})" if told else ""
    if state == "equal" and (planned := reference.get("planned")):
        return Gap(
            f"its answers are those of {planned} in Transformers, its weights placed by this job's plan; "
            "the served model was made by the same plan, so only answers of the model's own code would show "
            f"that a decision in it is wrong{assumed}{because}",
            command.adding("--reference", "FILE"),
        )
    if state == "equal":
        return Proven(run, "; ".join(filter(None, (why, str(reference.get("label") or "")))))
    if state == "differs":
        return Gap(f"its answers are not those of the same weights in Transformers{because}", command, True)
    return Gap(f"it loads and answers; nothing says that the answers are right{because}", command)


def _modality(kind: str) -> Callable[[Known], Outcome]:
    def judged(known: Known) -> Outcome:
        run = known.served
        if kind not in known.declared:
            return _needless(f"it takes no {kind}")
        asked = (
            [one for one in run.many("checks") if one.get("name") in (kind, f"semantic:{kind}")]
            if run
            else []
        )
        if any(one.get("state") == "PASS" for one in asked):
            return Proven(run)
        why = next((f": {one['why']}" for one in asked if one.get("why")), "")
        command = _dropping(known.ask("serve"), "--limit-mm-per-prompt")
        return Gap(f"the model takes {kind}, and no {kind} was asked and answered{why}", command)

    return judged


def _graph(known: Known) -> Outcome:
    run, seen = known.served, known.observed
    if run:
        eager = bool(run.map("resolved").get("enforce_eager"))
        eager |= any(process.config.get("enforce_eager") for process in seen.processes) if seen else False
        switches = {**run.map("environment"), **(seen.variables if seen else {})}
        how = ["eager"] * eager
        how += [f"with {name}" for name in _NO_DYNAMO if str(switches.get(name, "0")) not in ("", "0")]
        if not how and seen and seen.config.get("cudagraph_mode") == "NONE" and run.label == NPU_REAL:
            how = ["resolved to cudagraph_mode NONE"]
        if how:
            command = _dropping(known.ask("serve"), "--enforce-eager", *_NO_DYNAMO)
            return Gap(f"run {run.id} was {' and '.join(how)}: it shows nothing of graphs", command)
    return _feature("graph", known, needed=False)


def _experts(name: str) -> Callable[[Known], Outcome]:
    def judged(known: Known) -> Outcome:
        if known.analysis and known.analysis.properties.experts < 2:
            return _needless("the model has no experts")
        _, row = known.feature("expert_parallel")
        if not known.analysis and row.get("status") == "not applicable":
            return _needless(str(row.get("why") or "the model has no experts"))
        found = _feature(name, known, needed=known.analysis is not None)
        if not isinstance(found, Gap):
            return found
        # a CPU spreads no experts as an NPU does: two ranks of it take minutes and show nothing of that
        elsewhere = found.elsewhere or known.label != NPU_REAL
        return replace(found, command=on_two_ranks(found.command), elsewhere=elsewhere)

    return judged


def on_two_ranks(command: Command) -> Command:
    """``command`` with two ranks, over which experts are spread, where it names no number."""
    if given(command.passed_on, "--tensor-parallel-size", "-tp", "--data-parallel-size", "-dp"):
        return command
    return replace(command, passed_on=(*command.passed_on, "--tensor-parallel-size", "2"))


def _mtp(known: Known) -> Outcome:
    state = known.analysis.mtp.state if known.analysis else ""
    if state and state != "ready":
        return _needless(f"MTP of the checkpoint: {state}")
    return _feature("mtp", known, needed=state == "ready")


def _feature(name: str, known: Known, *, needed: bool) -> Outcome:
    """``needed``: the checkpoint has it, whatever a run says of that."""
    run, row = known.feature(name)
    command, status, why = known.ask("features"), row.get("status"), str(row.get("why") or "")
    seen = known.emulated(name) if known.label != NPU_REAL else ""
    by_the_model = seen == "checkpoint missing" or (seen == "not applicable" and name == "mtp")
    if run is None and by_the_model and not needed:
        return _needless(f"{seen}, by an emulated run")
    if run is None and seen not in ("", "verified"):
        return Gap(f"{name} is {seen} on an emulated NPU", command, elsewhere=True)
    if run is None and not seen:
        return Gap(f"no {known.label} run says anything about {name}", command)
    if status == "verified":
        return Proven(run, why)
    on_npu = known.label == NPU_REAL
    if not needed and (
        status == "checkpoint missing" or (status == "not applicable" and (on_npu or name == "mtp"))
    ):
        return _needless(why or str(status))
    # what another device cannot show may well apply to the model
    apart = status == "not applicable" and not on_npu
    if seen == "verified":
        return Gap(f"{name} was shown on an emulated NPU only", command, elsewhere=True)
    said = "was not shown on this device" if apart else f"is {status}"
    return Gap(f"{name} {said}{f': {why}' if why else ''}", command, elsewhere=apart)


def _capacity(known: Known) -> Outcome:
    run, command = known.of("capacity"), known.ask("capacity", "--fill")
    if run is None or not run.many("capacity"):
        return Gap("the longest context that works was not measured", command)
    promised = run.result.get("promised_max_model_len")
    length = min(BASELINE_LEN, promised) if isinstance(promised, int) and promised > 0 else BASELINE_LEN
    rows = [row for row in run.many("capacity") if (row.get("max_num_seqs") or 0) >= BASELINE_SEQS]
    reached = [
        row for row in rows if row.get("state") == "PASS" and (row.get("max_model_len") or 0) >= length
    ]
    whole = [row for row in rows if row.get("filled") and (row.get("max_model_len") or 0) >= length]
    if reached and whole:  # of one start or of two
        return Proven(run, f"a request of {length} tokens; {BASELINE_SEQS} shorter ones at once")
    asked = f"{length} tokens with {BASELINE_SEQS} sequences"
    if reached:
        return Gap(f"{asked} were started, and no request was of that length", command)
    row = next(iter(rows), {})
    why = mapping(row.get("root")).get("cause") or row.get("why") or "they were not tried"
    return Gap(f"{asked} were not served: {why}", command)


def _accuracy(known: Known) -> Outcome:
    run, command = known.of("accuracy"), known.ask("accuracy")
    tasks = run.map("accuracy").get("tasks") if run and run.verdict == "PASS" else None
    if run is None or not tasks:
        return Gap("no accuracy run with real weights passed", command)
    if any(word.partition("=")[0] == "--include-path" for word in run.record.command):
        return Gap(f"run {run.id} measured a task of one's own, which nobody else can repeat", command)
    low = [text for task in tasks if (text := _by_chance(mapping(task), run))]
    return Gap(f"the accuracy is worth nothing: {low[0]}", command) if low else Proven(run)


def _by_chance(task: dict[str, Any], run: Run) -> str:
    """Why the values of a task show nothing; empty when the best of them is above chance."""
    name, results = str(task.get("name")), read_object(run.folder / "lm_eval-results.json")
    values = [(str(one.get("name")), one.get("value")) for one in map(mapping, task.get("metrics") or [])]
    numbers = [(metric, value) for metric, value in values if isinstance(value, int | float)]
    if not name or len(numbers) != len(values) or not values:
        return f"{name} has no number"
    lower = mapping(mapping(results.get("higher_is_better")).get(name))
    chance = _chance(mapping(mapping(results.get("configs")).get(name)), [metric for metric, _ in numbers])
    errors = mapping(mapping(results.get("results")).get(name))
    asked = mapping(mapping(results.get("n-samples")).get(name)).get("effective")
    few, of = 0.0, ""
    if isinstance(asked, int) and asked > 0:  # all of a few may be right by luck, with no error at all
        few, of = _ERRORS * math.sqrt(chance * (1 - chance) / asked) + 1 / asked, f" of {asked} questions"
    for metric, value in numbers:
        kind, _, filtered = metric.partition(",")
        error = errors.get(f"{kind}_stderr,{filtered}")
        margin = max(few, _ERRORS * error if isinstance(error, int | float) else 0.0)
        if lower.get(kind, True) and value > chance + margin:
            return ""
    said = ", ".join(f"{metric} {value:.4f}" for metric, value in numbers)
    return f"{name} {said}{of}, where guessing gives {chance:.2f}"


def _chance(config: dict[str, Any], metrics: list[str]) -> float:
    """What guessing gives; a choice whose number of answers is not told counts as one of two."""
    kind = config.get("output_type") or ("multiple_choice" if metrics[0].startswith("acc") else "")
    choices = config.get("doc_to_choice")
    if kind not in ("multiple_choice", "loglikelihood"):
        return 0.0
    return 1 / len(choices) if isinstance(choices, list) and choices else 0.5


def _throughput(known: Known) -> Outcome:
    run, command = known.of("performance"), known.ask("performance")
    loads = loads_of(run) if run else []
    if run is None or not loads:
        return Gap("throughput and latency were not measured", command)
    said = "; ".join(load.shown for load in loads)
    if run.label != NPU_REAL:
        return Gap(f"measured on the CPU: {said}", command)
    if run.map("resolved").get("enforce_eager"):
        return Gap(f"measured in eager mode: {said}", _dropping(command, "--enforce-eager"))
    return Proven(run, said)


def _pins(known: Known) -> Outcome:
    seen, command = known.observed, known.ask("serve")
    wanted = {name: text for name, text in seen.required.items() if name in PINNED} if seen else {}
    if seen is None or not wanted:
        return Gap("no run on an NPU tells which transformers, torch and CANN its release asks for", command)
    wrong = [
        f"{name} {seen.versions.get(name, 'of no known version')} ran, the release asks for {text}"
        for name, text in wanted.items()
        if not _fits(seen.versions.get(name, ""), text)
    ]
    return Gap("; ".join(wrong), command, refused=True) if wrong else Proven(known.served)


def _fits(version: str, wanted: str) -> bool:
    try:
        return SpecifierSet(wanted).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return version == wanted.removeprefix("==")


def _overlay(known: Known) -> Outcome:
    run, seen = known.served, known.observed
    command = _dropping(known.ask("serve"), "--keep-pythonpath")
    laid = ", ".join(seen.pythonpath) if seen else ""
    if run and ("--keep-pythonpath" in run.record.command or laid):
        return Gap(f"PYTHONPATH laid {laid or 'something'} over the installation", command, refused=True)
    return Proven(run) if seen else Gap("no run tells whether PYTHONPATH hid the installation", command)


def _work_folder(known: Known) -> Outcome:
    run = known.served
    place = str(
        (known.observed.work_dir if known.observed else "")
        or (run.result.get("work_dir") if run else "")
        or ""
    )
    named = run and any(word.partition("=")[0] == "--work-dir" for word in run.record.command)
    if place and (place == str(WORK_DIR) or named):
        return Proven(run, place)
    where = f"in {place}, which nobody named" if place else "in a folder that is not told"
    return Gap(f"it was started {where}", known.ask("serve", "--work-dir", "DIR"))


def _dropping(command: Command, *names: str) -> Command:
    """``command`` without options, by their name or by that of the variable that ``--env`` sets."""

    def kept(words: Iterable[str]) -> tuple[str, ...]:
        options: list[list[str]] = []  # each with its value
        for word in words:
            if word.startswith("-") or not options:
                options.append([word])
            else:
                options[-1].append(word)
        left = (one for one in options if not {word.partition("=")[0] for word in one[:2]} & set(names))
        return tuple(word for one in left for word in one)

    return replace(command, arguments=kept(command.arguments), passed_on=kept(command.passed_on))


RULES = (
    Rule("failed", "no gate failed for this code", "serve", _failed),
    Rule("analysis", "the checkpoint is consistent", "analyze", _analysed),
    Rule("serve", "real weights are served", "serve", _served),
    Rule("npu", "real weights are served on an NPU", "serve", _on_npu),
    Rule("right", "the answers are those of the same weights in Transformers", "serve", _right),
    *(Rule(kind, f"{kind} input is asked and answered", "serve", _modality(kind)) for kind in _MODALITIES),
    Rule("graph", "graphs run, without eager mode and with Dynamo", "features", _graph),
    Rule(
        "expert_parallel", "expert parallelism works, for mixtures", "features", _experts("expert_parallel")
    ),
    Rule("flashcomm1", "FlashComm1 works, for mixtures", "features", _experts("flashcomm1")),
    Rule("mtp", "MTP works, where the checkpoint has it", "features", _mtp),
    Rule(
        "capacity",
        "128k of context, or all that the model has, with 16 sequences, by requests of that length",
        "capacity",
        _capacity,
    ),
    Rule("accuracy", "a public task is answered better than by chance", "accuracy", _accuracy),
    Rule("throughput", "throughput and latency are measured on an NPU", "performance", _throughput),
    Rule("pins", "the release's transformers, torch and CANN ran", "serve", _pins),
    Rule("overlay", "nothing was laid over the installation", "serve", _overlay),
    Rule("work-folder", "it was started from the work folder that is named", "serve", _work_folder),
)
