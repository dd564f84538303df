"""The cases of ``make bench-signoff``: what is done to a workspace, and what its delivery has to say then."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.signoff_bases import Answer, Place, make
from bench.signoff_evidence import Chain, anew
from bench.walk_repo import git
from npu_upgrade.evidence.pack import pack
from npu_upgrade.evidence.store import present_store
from npu_upgrade.job.upgraded import upgraded_in

REFUSED, NAMED, COMMITTED = "refused", "named", "committed"
RECORDED, LIVE, REWRITTEN = "recorded", "live", "rewritten"
Play = Callable[[Place], object]


@dataclass(frozen=True)
class Case:
    """``play`` changes a workspace, and may deliver itself; ``end``: what has to become of the delivery.

    ``words`` have to be in what it says, ``never`` none of them. ``again``: only in a whole run.
    """

    name: str
    base: str
    kind: str
    end: str
    words: tuple[str, ...]
    play: Play
    never: tuple[str, ...] = ()
    again: bool = False

    @property
    def honest(self) -> bool:
        return self.end == COMMITTED


def _cases(base: str, kind: str, end: str, *rows: tuple[Any, ...]) -> list[Case]:
    """Rows of a name, what is done, and the words that have to be said."""
    return [Case(name, base, kind, end, tuple(words), play) for name, play, *words in rows]


def file(name: str, change: Callable[[Path], object]) -> Play:
    """A change of a file of the newest run, or of the ledger, that tells nobody."""

    def play(place: Place) -> None:
        chain = Chain(place)
        change(chain.at / name if "/" not in name else chain.folder / name.partition("/")[2])

    return play


def _add(text: str) -> Callable[[Path], object]:
    def add(path: Path) -> None:
        with path.open("a") as stream:
            stream.write(text)

    return add


def _link(path: Path) -> None:
    path.rename(path.parents[1] / path.name)
    path.symlink_to(path.parents[1] / path.name)


def _replace(old: str, new: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(path.read_text("utf-8").replace(old, new, 1), "utf-8")


def _cut(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def _swap(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:-2], lines[-1], lines[-2]]))


def _unfinished(chain: Chain) -> None:
    chain.at.rename(chain.at.with_name(f"{chain.at.name}.partial"))
    chain.lines.remove(chain.run)


LEDGER = "of/evidence.jsonl"
_FOLDER = {
    "result.json edited": file("result.json", _add(" ")),
    "observed.json edited": file("observed.json", _replace('"steps": ', '"steps": 9')),
    "log edited": file("server.log", _add("all is well\n")),
    "a file added to a run": file("more.txt", _add("more")),
    "a log behind a link": file("server.log", _link),
    "a file lost from a run": file("exchanges.json", Path.unlink),
    "a manifest made anew": file("manifest.json", _add("\n")),
}
_CHAIN = {
    "a summary in the chain edited": file(LEDGER, _replace('"summary":"', '"summary":"very ')),
    "a verdict in the chain edited": file(LEDGER, _replace('"verdict":"PASS"', '"verdict":"FAIL"')),
    "the newest line cut off": file(LEDGER, _cut),
    "two lines swapped": file(LEDGER, _swap),
    "a line twice": file(LEDGER, lambda path: _add(path.read_text().splitlines()[-1] + "\n")(path)),
    "an older format": file(LEDGER, _replace("npu-upgrade/evidence/2", "npu-upgrade/evidence/1")),
}


def damages() -> Iterator[Case]:
    """Each damage of evidence in an adaptation and in an upgrade that an NPU validated."""
    for base in ("reed", "looker", "npu"):
        upgrade, again = base == "npu", base == "looker"
        kind = REWRITTEN if upgrade else RECORDED
        for name, play in _FOLDER.items():
            end, words = (NAMED, ("NPU-Validation: pending", "not as it was recorded")) if upgrade else (
                REFUSED, ("cannot be trusted",))  # fmt: skip
            yield Case(name, base, kind, end, words, play, again=again)
        for name, play in _CHAIN.items():
            words = ("older version",) if "format" in name else ("cannot be trusted",)
            yield Case(name, base, kind, REFUSED, words, play, again=again)
        end, words = (
            (NAMED, ("pending", "folder is missing")) if upgrade else (REFUSED, ("no proof with real",))
        )
        gone = file("", shutil.rmtree)
        yield Case("a run whose folder is gone", base, kind, end, words, gone, again=again)
        half = anew(_unfinished)
        end, words = (
            (NAMED, ("pending", "was not finished")) if upgrade else (REFUSED, ("no proof with real",))
        )
        yield Case("a half-finished run", base, kind, end, words, half, again=again)
        torn = file(LEDGER, _add('{"command":["adapt.py","se'))
        yield Case("a half-written record", base, kind, REFUSED, ("half-written",), torn, again=again)


def _result(**more: Any) -> Play:
    return anew(lambda chain: chain.edit("result.json", lambda found: found.update(more)))


def _observed(**more: Any) -> Play:
    return anew(lambda chain: chain.edit("observed.json", lambda found: found.update(more)))


def _label(label: str, device: str = "") -> Play:
    def change(chain: Chain) -> None:
        chain.verdict("PASS", label)
        if device:
            chain.each(lambda one: one.get("device") and one["device"].update(kind=device))

    return anew(change)


def _unseen(chain: Chain) -> None:
    chain.verdict("PASS", "NPU real")
    (chain.at / "observed.json").write_text("null")


def _unasked(chain: Chain) -> None:
    def drop(found: dict[str, Any]) -> None:
        found["checks"] = [one for one in found["checks"] if one["name"] != "image"]

    chain.edit("result.json", drop)


def _dummy_as_real(chain: Chain) -> None:
    chain.drop("CPU real")
    chain.run = next(one for one in chain.lines if one["label"] == "CPU dummy")
    chain.verdict("PASS", "CPU real")
    chain.edit("result.json", lambda found: found.update(load_format="real"))


def _late_fail(chain: Chain) -> None:
    chain.copy()
    chain.run |= {"started": "2001-01-01T00:00:00Z"}
    chain.verdict("FAIL")


def _accuracy(value: float, error: float = 0.05) -> Play:
    """A run of a public task with four answers to choose from."""
    name, metric = "arc_easy", "acc,none"

    def change(chain: Chain) -> None:
        chain.copy()
        chain.run |= {"gate": "accuracy", "command": ["adapt.py", "accuracy", "MODEL"]}
        tasks = [{"name": name, "num_fewshot": 0, "metrics": [{"name": metric, "value": value}]}]
        more = {"gate": "accuracy", "accuracy": {"tasks": tasks}}
        chain.edit("result.json", lambda found: found.update(more))
        raw = {"results": {name: {metric: value, "acc_stderr,none": error}}, "configs": {name: {
            "output_type": "multiple_choice", "doc_to_choice": ["a", "b", "c", "d"]}},
            "higher_is_better": {name: {"acc": True}}}  # fmt: skip
        (chain.at / "lm_eval-results.json").write_text(json.dumps(raw))

    return anew(change)


def _other_model(chain: Chain) -> None:
    chain.copy()
    chain.edit(
        "result.json",
        lambda found: found.update(model="/models/" + found["model_name"], model_digest="0" * 64),
    )


def _without_folder(place: Place) -> None:
    def change(chain: Chain) -> None:
        kept = json.loads(json.dumps(chain.run))
        chain.drop("real")
        kept["data"] = {}
        chain.lines.append(kept)

    anew(change)(place)


def _of_another(place: Place) -> None:
    looker = place.workspace.with_name(place.workspace.name.replace("reed", "looker"))
    make("looker", looker)
    other = looker.with_name(f"{looker.name}.made") / ".npu-upgrade/evidence"
    shutil.rmtree(place.workspace / ".npu-upgrade/evidence")
    shutil.copytree(other, place.workspace / ".npu-upgrade/evidence")


def _opened(*gaps: str, drop: bool = False) -> Callable[[Place], Answer]:
    def play(place: Place) -> Answer:
        if drop:
            anew(lambda chain: chain.drop("real"))(place)
        return place.deliver(opened=list(gaps))

    return play


def _write(name: str, text: str, *, staged: bool = False) -> Play:
    """Text added to a file of the repository."""

    def play(place: Place) -> None:
        path = place.repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _add(text)(path)
        if staged:
            git(place.repo, "add", name)

    return play


def _edit_page(place: Place) -> Answer:
    page = place.repo / "docs/source/tutorials/models/Reed-1M.md"
    return place.deliver(after=lambda: _replace("GAP (npu)", "DONE (npu)")(page))


def _model_config(place: Place) -> None:
    assert place.model
    _replace('"rms_norm_eps"', '"rope_theta": 7.0, "rms_norm_eps"')(place.model / "config.json")


_MODEL, _PENDING = "reed/reed_plugin/model.py", "NPU-Validation: pending"
_FAILED = "failed for this code"
_ADAPTED = (
    *_cases(
        "reed", RECORDED, REFUSED,
        ("a plugin edited after the run", _write(_MODEL, "\nX = 1\n"), "is not what gate serve"),
        ("a plugin with one more file",
         _write("reed/reed_plugin/more.py", "X = 1\n"), "is not what gate serve"),
        ("a conflict marker",
         _write(_MODEL, "\n<<<<<<< ours\nX = 1\n=======\nX = 2\n>>>>>>> theirs\n"), "conflict marker"),
        ("other work staged", _write("tools/x.py", "", staged=True), "changes that nobody named"),
        ("the checkpoint edited after the run", _model_config, "another checkpoint"),
        ("a page with its gaps taken out", _edit_page, "does not name the gap"),
        ("no gap named", _opened(), "have a gap"),
        ("a gap that is none", _opened("quality"), "there is no gap"),
        ("real weights left open", _opened("serve", "failed", drop=True), "no proof with real weights"),
        ("dummy weights only", anew(lambda chain: chain.drop("real")), "no proof with real weights"),
        ("evidence of another workspace", _of_another, "no evidence of"),
    ),
    *_cases(
        "reed", REWRITTEN, REFUSED,
        ("a pass without the folder of a run", _without_folder, "no proof with real weights"),
        ("dummy as real in every label", anew(_dummy_as_real), "loaded dummy weights"),
        ("a CPU as an NPU", _label("NPU real"), "tensors lived on cpu"),
        ("an emulated NPU as an NPU", _label("NPU real", "npu emulated"), "tensors lived on npu emulated"),
        ("a failure after the pass, by a clock set back", anew(_late_fail), _FAILED),
        ("another model under the same name",
         lambda place: (anew(_other_model)(place), place.deliver(model="Reed-1M"))[1],
         "different checkpoints"),
        ("an overlay", _observed(pythonpath=["/tmp/patched"]), "over the installation"),
        ("other numbers than Transformers",
         _result(reference={"state": "differs", "why": "gate and up"}), "not those of the same weights"),
        ("another transformers than the release's",
         _observed(required={"transformers": "==4.1.0"}), "the release asks for"),
    ),
    *_cases(
        "reed", REWRITTEN, NAMED,
        ("an NPU run that was not looked at",
         anew(_unseen), "does not tell which device", _PENDING),
        ("no reference", _result(reference={"state": "none", "why": ""}), "right: it loads and answers"),
        ("accuracy zero", _accuracy(0.0, 0.0), "accuracy is worth nothing"),
        ("accuracy of guessing", _accuracy(0.27), "accuracy is worth nothing"),
        ("a folder that nobody named",
         anew(lambda chain: chain.run.update(command=["adapt.py", "serve"])), "which nobody named"),
    ),
    *_cases(
        "reed", RECORDED, NAMED,
        ("eager mode only", lambda _: None, "was eager"),
    ),
    *_cases(
        "looker", REWRITTEN, NAMED,
        ("pictures that were not asked",
         anew(_unasked), "the model takes image"),
    ),
)  # fmt: skip


def _fault(fault: str, *words: object) -> Play:
    return lambda place: place.serve("real", *words, fault=fault)


def _wrong(fault: str) -> Case:
    return Case(
        f"wrong weights: {fault}", "reed", LIVE, REFUSED, ("differs from Transformers",), _fault(fault)
    )


_LIVE = (
    *map(_wrong, ("swapped-gate-up", "transposed-projection", "dropped-bias")),
    *map(_wrong, ("norm-plus-one", "rope-interleaved", "attention-scale")),
    *_cases(
        "reed", LIVE, REFUSED,
        ("dummy weights asked for as real",
         lambda place: place.serve("real", "--", "--load-format", "dummy"), _FAILED, "dummy"),
        ("an overlay that was kept", _fault("none"), "over the installation"),
        ("the plugin switched off",
         lambda place: place.serve("real", "--env", "VLLM_PLUGINS=none"), "was not loaded"),
        ("an engine that dies after the last answer", _fault("dies-idle", "--quiet", "8"), _FAILED, "ended"),
    ),
    *_cases(
        "looker", LIVE, NAMED,
        ("text only", lambda place: place.serve("real", "--", "--limit-mm-per-prompt", '{"image": 0}'),
         "the model takes image"),
    ),
    *_cases(
        "upgrade", LIVE, NAMED,
        ("an older wheel before the checkout", lambda place: _shadowed(place), _PENDING),
    ),
    Case("emulated, and said so", "upgrade", LIVE, NAMED, (_PENDING,),
         lambda place: place.omni("--emulated"), never=("NPU real",)),
    Case("a plain server on a CPU", "upgrade", LIVE, NAMED, (_PENDING,),
         lambda place: place.serve("real", "--no-omni"), never=("CPU real",)),
)  # fmt: skip


def _shadowed(place: Place) -> None:
    anew(lambda chain: chain.drop("emulated"))(place)
    if place.omni(shadow=True).code == 0:
        raise AssertionError("a wheel before the checkout was served as the upgrade")


RUNNERS = "vllm_omni/platforms/npu/worker/npu_"
AR, GENERATION = f"{RUNNERS}ar_model_runner.py", f"{RUNNERS}generation_model_runner.py"


def _built(role: str, change: Callable[[dict[str, Any]], object]) -> Play:
    def one(process: dict[str, Any]) -> None:
        for built in process.get("built", []):
            if built["role"] == role:
                change(built)

    return anew(lambda chain: chain.each(one))


def _other_class(built: dict[str, Any]) -> None:
    for cls in built["classes"]:
        cls["name"], cls["path"] = cls["name"].replace("NPU", "GPU"), cls["path"].replace("/npu/", "/gpu/")


def _other_file(process: dict[str, Any]) -> None:
    if AR in process.get("files", {}):
        process["files"][AR]["sha256"] = "0" * 64


def _stage(stage: int) -> Play:
    def keep(seen: dict[str, Any]) -> None:
        seen["processes"] = [one for one in seen["processes"] if one.get("stage") in (stage, None)]

    return anew(lambda chain: chain.edit("observed.json", keep))


def _gates(*gates: str, text: str = "\n# a word more\n") -> Play:
    def play(place: Place) -> None:
        _write(AR, text)(place)
        for gate in gates:
            place.call(gate)

    return play


def _job(**more: str) -> Play:
    return anew(lambda chain: chain.run.update(job=chain.run["job"] | more))


def _packed(**more: Any) -> Play:
    """The run packed elsewhere, and taken over where it was dropped."""

    def play(place: Place) -> None:
        upgraded = upgraded_in(place.workspace)
        assert upgraded
        store, target = present_store(place.workspace), place.workspace / ".npu-upgrade/run.tar.gz"
        chain = Chain(place)
        origin = upgraded.origin
        for key, value in more.items():
            origin = type(origin)(
                **{one: getattr(origin, one) for one in origin.__struct_fields__} | {key: value}
            )
        pack(store, [chain.run["data"]["run"]], target, origin)
        anew(lambda chain: chain.drop("NPU real"))(place)
        taken = place.call("evidence", "import", target)
        if (taken.code == 0) is bool(more):
            raise AssertionError(f"a pack with other {list(more) or 'nothing'}: {taken.words}")

    return play


def _committed(place: Place) -> None:
    (place.repo / "NOTES.md").write_text("Notes.\n")
    git(place.repo, "add", "NOTES.md")
    git(place.repo, "commit", "-q", "-s", "-m", "Take notes", "--", "NOTES.md")


def _waived(place: Place) -> None:
    anew(lambda chain: chain.lines.clear())(place)
    for gate in ("plan", "audit", "emulate"):
        place.call("next", "--skip", gate, "--note", "it will be fine")


def _no_runs(place: Place) -> None:
    """A pass that only the chain tells of."""
    anew(lambda chain: (shutil.rmtree(chain.at), chain.run.update(data={})))(place)


_NONE = "no NPUARModelRunner was built"
_UPGRADED = (
    *_cases(
        "upgrade", REWRITTEN, NAMED,
        ("emulated with the label of an NPU", _label("NPU real"), _PENDING, "npu emulated"),
        ("dummy weights with the label of real ones",
         anew(lambda chain: chain.on_npu("dummy")), _PENDING, "dummy weights"),
    ),
    *_cases(
        "npu", REWRITTEN, NAMED,
        ("a CPU with the label of an NPU", _label("NPU real", "cpu"), _PENDING, "lived on cpu"),
        ("the classes of another device", _built("runner", _other_class), _PENDING, _NONE),
        ("a runner that executed no step",
         _built("runner", lambda one: one.update(steps=0)), _PENDING, "executed no step"),
        ("a runner built from another file",
         _built("runner", lambda one: [cls.update(sha256="0" * 64) for cls in one["classes"]]),
         _PENDING, "another file"),
        ("another file was loaded",
         anew(lambda chain: chain.each(_other_file)), _PENDING, "it ran another"),
        ("only the AR stage ran", _stage(0), "NPUGenerationModelRunner pending"),
        ("only the generation stage ran", _stage(1), "NPUARModelRunner pending"),
        ("nothing observed",
         anew(lambda chain: (chain.at / "observed.json").write_text("null")), _PENDING, "does not tell"),
        ("a run of another job", _job(id="upgrade-of-somebody-else"), _PENDING),
        ("a run of other files of the job", _job(tree="0" * 64), _PENDING),
        ("a file edited, and every other gate again", _gates("plan", "audit"), _PENDING),
        ("a helper beside it that stays out",
         _write("vllm_omni/patched.py", "X = 1\n"), "vllm_omni/patched.py"),
        ("a pack of another job", _packed(job="upgrade-of-somebody-else"), _PENDING),
        ("a pack of another commit", _packed(commit="0" * 40), _PENDING),
        ("a pack of other files", _packed(files={AR: "0" * 64}), _PENDING),
        ("a pack of another chain", _packed(chain=["0" * 64]), _PENDING),
    ),
    *_cases(
        "npu", REWRITTEN, REFUSED,
        ("a failure on the NPU after the pass", anew(_late_fail), "failed for exactly these files"),
        ("a file edited after the run", _gates(), "judged other contents"),
        ("a stale audit", _gates("plan"), "gate audit judged other contents"),
        ("a file edited, and half undone", _gates("plan", text="\ndef (\n"), "does not parse"),
        ("every gate left out", _waived, "has no evidence"),
        ("other work staged", _write("tools/x.py", "", staged=True), "other changes are staged"),
        ("on the default branch", lambda place: git(place.repo, "switch", "-q", "main"), "default branch"),
    ),
    Case("emulated, without a word", "upgrade", RECORDED, NAMED, (_PENDING,),
         lambda _: None, never=("NPU real",)),
    Case("a pass without the folder of a run", "npu", REWRITTEN, NAMED, (_PENDING,),
         _no_runs, never=("NPU real",)),
)  # fmt: skip


def _twice(place: Place) -> Answer:
    place.deliver()
    return place.deliver()


def _back(place: Place) -> None:
    for path in [*place.repo.glob("reed/*/*.py"), *place.repo.glob(f"{RUNNERS}*.py")]:
        text = path.read_bytes()
        path.write_bytes(text + b"\nX = 1\n")
        path.write_bytes(text)


def _hook(place: Place) -> None:
    hook = place.repo / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)


def _again(verdict: str, at: int | None) -> Play:
    def change(chain: Chain) -> None:
        chain.copy(at)
        chain.verdict(verdict)

    return anew(change)


def _dead(place: Place) -> None:
    (Chain(place).folder / "runs/20010101T000000Z-serve-00000000.partial").mkdir()


def _looked(place: Place) -> None:
    for words in (("next",), ("evidence", "list"), ("evidence", "check")):
        place.call(*words, *((place.model,) if words == ("next",) and place.model else ()))


def _beside(place: Place) -> Answer:
    _write("notes/mine.txt", "to do\n")(place)
    return place.deliver(*(("--leave", "notes/mine.txt") if place.model else ()))


def _round_trip(place: Place) -> None:
    target = place.workspace / ".npu-upgrade/all.tar.gz"
    place.call("evidence", "pack", "--out", target)
    place.call("evidence", "import", target)


_HONEST: dict[str, Play] = {
    "as it is": lambda _: None,
    "a dry run first": lambda place: (place.deliver("--dry-run"), None)[1],
    "delivered twice": _twice,
    "a title of one's own": lambda place: place.deliver("--title", "[Misc] Take it in"),
    "unsigned": lambda place: place.deliver("--no-sign"),
    "edited, and put back": _back,
    "a hook that agrees": _hook,
    "failed once before it passed": _again("FAIL", 0),
    "passed twice": _again("PASS", None),
    "an old start that was never finished": _dead,
    "looked at before": _looked,
    "packed and taken over again": _round_trip,
    "history packed": lambda place: git(place.repo, "gc", "-q"),
    "a commit below it": _committed,
    "on a branch of another name": lambda place: git(place.repo, "branch", "-q", "-m", "mine"),
    "work of one's own outside": lambda place: _beside(place),
}  # fmt: skip


def honest() -> Iterator[Case]:
    """What nobody may be kept from, in each workspace."""
    pending = {"right", "image", "audio", "overlay", "work-folder"}
    for base in ("reed", "looker", "upgrade", "npu"):
        upgrade = base in ("upgrade", "npu")
        never = () if upgrade else tuple(f"- {gap}:" for gap in sorted(pending))
        words = ("NPU-Validation: NPUARModelRunner",) if base == "npu" else (_PENDING,)
        never += ("NPUARModelRunner pending", "NPUGenerationModelRunner pending") if base == "npu" else ()
        for name, play in _HONEST.items():
            kind = REWRITTEN if base == "npu" or "passed" in name else RECORDED
            again = base == "looker" or (base == "upgrade" and kind == REWRITTEN)
            yield Case(name, base, kind, COMMITTED, words, play, never, again)


def _npu_adapted(chain: Chain) -> None:
    chain.on_npu()
    pins = {"transformers": "==5.23.0", "torch": "==2.13.0"}
    chain.edit("observed.json", lambda seen: seen.update(required=pins))


_MORE = (
    *_cases(
        "upgrade", RECORDED, COMMITTED,
        ("the classes that the emulated NPU executed",
         lambda _: None, "emulated: NPUARModelRunner executed in serve",
         "emulated: NPUGenerationModelRunner executed in serve", _PENDING),
        ("a helper that is part of it", lambda place: _helper(place), _PENDING),
    ),
    Case("real weights on an NPU", "reed", REWRITTEN, COMMITTED, ("NPU-Validation: ",),
         anew(_npu_adapted), never=("- npu:", "- pins:", _PENDING)),
    Case("pictures on an NPU", "looker", REWRITTEN, COMMITTED, ("NPU-Validation: ",),
         anew(_npu_adapted), never=("- npu:", "- image:", _PENDING)),
    Case("accuracy above chance", "reed", REWRITTEN, COMMITTED, (_PENDING,),
         _accuracy(0.75), never=("- accuracy:",)),
    Case("served again", "reed", LIVE, COMMITTED, (_PENDING,),
         lambda place: place.serve(), never=("- right:",)),
    Case("served again with pictures", "looker", LIVE, COMMITTED, (_PENDING,),
         lambda place: place.serve(), never=("- image:",)),
    Case("a sound plugin put right after wrong weights", "reed", LIVE, COMMITTED, (_PENDING,),
         lambda place: (place.serve(fault="norm-plus-one"), place.serve(), None)[2], never=("- right:",)),
    Case("a pack that came back", "npu", REWRITTEN, COMMITTED, ("NPU-Validation: NPUARModelRunner",),
         _packed(), never=("NPUARModelRunner pending",)),
)  # fmt: skip


def _helper(place: Place) -> Answer:
    _write("vllm_omni/helper.py", "X = 1\n")(place)
    given = ("--include", "vllm_omni/helper.py")
    place.deliver("--dry-run", *given)
    place.deliver(*given)
    for gate in ("plan", "audit"):
        place.call(gate)
    return place.deliver(*given)


CASES = (*damages(), *_ADAPTED, *_UPGRADED, *_LIVE, *honest(), *_MORE)
