"""What ``make bench-signoff`` tries to get signed off: what is done, and what the delivery has to say."""

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

    ``words`` have to be in what it says, ``never`` none of them. ``whole``: only in a whole run.
    """

    name: str
    base: str
    kind: str
    end: str
    words: tuple[str, ...]
    play: Play
    never: tuple[str, ...] = ()
    whole: bool = False

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
    """Each damage of evidence in an adaptation; in an upgrade those that are judged by code of its own."""
    for name, play in _FOLDER.items():
        yield Case(name, "reed", RECORDED, REFUSED, ("cannot be trusted",), play)
    for name, play in _CHAIN.items():
        words = ("older version",) if "format" in name else ("cannot be trusted",)
        yield Case(name, "reed", RECORDED, REFUSED, words, play)
    for name in ("result.json edited", "a file lost from a run", "a log behind a link"):
        words = (PENDING, "not as it was recorded")
        yield Case(name, "npu", REWRITTEN, NAMED, words, _FOLDER[name])
    gone, half = file("", shutil.rmtree), anew(_unfinished)
    torn = file(LEDGER, _add('{"command":["adapt.py","se'))
    for base, kind in (("reed", RECORDED), ("npu", REWRITTEN)):
        yield Case("a half-written record", base, kind, REFUSED, ("half-written",), torn)
    for name, play, said in (
        ("a run whose folder is gone", gone, "folder is missing"),
        ("a half-finished run", half, "was not finished"),
    ):
        yield Case(name, "reed", RECORDED, REFUSED, ("no proof with real",), play)
        yield Case(name, "npu", REWRITTEN, NAMED, (PENDING, said), play)


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


def accuracy(value: float, error: float = 0.05) -> Play:
    """A run of a public task with four answers to choose from."""
    name, metric = "arc_easy", "acc,none"

    def change(chain: Chain) -> None:
        tasks = [{"name": name, "num_fewshot": 0, "metrics": [{"name": metric, "value": value}]}]
        chain.gate("accuracy", accuracy={"tasks": tasks})
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


def opened(*gaps: str, drop: bool = False) -> Callable[[Place], Answer]:
    def play(place: Place) -> Answer:
        if drop:
            anew(lambda chain: chain.drop("real"))(place)
        return place.deliver(opened=list(gaps))

    return play


def write(name: str, text: str, *, staged: bool = False) -> Play:
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


_MODEL, PENDING = "reed/reed_plugin/model.py", "NPU-Validation: pending"
_FAILED = "failed for this code"
_ADAPTED = (
    *_cases(
        "reed", RECORDED, REFUSED,
        ("a plugin edited after the run", write(_MODEL, "\nX = 1\n"), "is not what gate serve"),
        ("a plugin with one more file",
         write("reed/reed_plugin/more.py", "X = 1\n"), "is not what gate serve"),
        ("a conflict marker",
         write(_MODEL, "\n<<<<<<< ours\nX = 1\n=======\nX = 2\n>>>>>>> theirs\n"), "conflict marker"),
        ("other work staged", write("tools/x.py", "", staged=True), "changes that nobody named"),
        ("the checkpoint edited after the run", _model_config, "another checkpoint"),
        ("a page with its gaps taken out", _edit_page, "does not name the gap"),
        ("no gap named", opened(), "have a gap"),
        ("a gap that is none", opened("quality"), "there is no gap"),
        ("real weights left open", opened("serve", "failed", drop=True), "no proof with real weights"),
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
         anew(_unseen), "does not tell which device", PENDING),
        ("no reference", _result(reference={"state": "none", "why": ""}), "right: it loads and answers"),
        ("accuracy zero", accuracy(0.0, 0.0), "accuracy is worth nothing"),
        ("accuracy of guessing", accuracy(0.27), "accuracy is worth nothing"),
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


def served(*words: object, fault: str = "") -> Play:
    """One more run with real weights, whatever it ends with: the delivery is what counts."""

    def play(place: Place) -> None:
        place.serve("real", *words, fault=fault)

    return play


def _wrong(fault: str, *, whole: bool = False) -> Case:
    said = ("differs from Transformers",)
    return Case(f"wrong weights: {fault}", "reed", LIVE, REFUSED, said, served(fault=fault), whole=whole)


_LIVE = (
    *map(_wrong, ("swapped-gate-up", "dropped-bias", "rope-interleaved")),
    *(_wrong(one, whole=True) for one in ("transposed-projection", "norm-plus-one", "attention-scale")),
    *_cases(
        "reed", LIVE, REFUSED,
        ("dummy weights asked for as real",
         lambda place: place.serve("real", "--", "--load-format", "dummy"), "sets --load-format itself"),
        ("an overlay that was kept", served(fault="none"), "over the installation"),
        ("the plugin switched off",
         served("--env", "VLLM_PLUGINS=none"), "was not loaded"),
        ("an engine that dies after the last answer",
         served("--quiet", "8", fault="dies-idle"), _FAILED, "ended"),
    ),
    *_cases(
        "looker", LIVE, NAMED,
        ("text only", served("--", "--limit-mm-per-prompt", '{"image": 0}'),
         "the model takes image"),
    ),
    *_cases(
        "upgrade", LIVE, NAMED,
        ("an older wheel before the checkout", lambda place: _shadowed(place), PENDING),
    ),
    Case("emulated, and said so", "upgrade", LIVE, NAMED, (PENDING,),
         lambda place: (place.omni("--emulated"), None)[1], never=("NPU real",)),
    Case("a plain server on a CPU", "upgrade", LIVE, NAMED, (PENDING,),
         served("--no-omni"), never=("CPU real",)),
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


def _other_ascend(process: dict[str, Any]) -> None:
    for name, one in process.get("files", {}).items():
        if name == "vllm_ascend/worker/model_runner_v1.py":
            one["sha256"] = "0" * 64


def keep_stage(stage: int) -> Callable[[dict[str, Any]], None]:
    """What was observed without the processes of other stages."""

    def keep(seen: dict[str, Any]) -> None:
        seen["processes"] = [one for one in seen["processes"] if one.get("stage") in (stage, None)]

    return keep


def _stage(stage: int) -> Play:
    return anew(lambda chain: chain.edit("observed.json", keep_stage(stage)))


def _gates(*gates: str, text: str = "\n# a word more\n") -> Play:
    def play(place: Place) -> None:
        write(AR, text)(place)
        for gate in gates:
            place.call(gate)

    return play


def _job(**more: str) -> Play:
    return anew(lambda chain: chain.run.update(job=chain.run["job"] | more))


def packed(**more: Any) -> Play:
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


def committed(place: Place) -> None:
    (place.repo / "NOTES.md").write_text("Notes.\n")
    git(place.repo, "add", "NOTES.md")
    git(place.repo, "commit", "-q", "-s", "-m", "Take notes", "--", "NOTES.md")


def _other_below(place: Place) -> None:
    """The checkout moves on to a commit with another content of a file that the engine loaded."""
    seen = json.loads((Chain(place).at / "observed.json").read_text("utf-8"))
    names = {name for process in seen["processes"] for name in process.get("files", {})}
    name = next(name for name in sorted(names) if name.endswith("gpu_model_runner.py"))
    write(name, "\n# later\n")(place)
    git(place.repo, "commit", "-q", "-m", "Change the GPU side", "--", name)


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
        ("emulated with the label of an NPU", _label("NPU real"), PENDING, "npu emulated"),
        ("dummy weights with the label of real ones",
         anew(lambda chain: chain.on_npu("dummy")), PENDING, "dummy weights"),
    ),
    *_cases(
        "npu", REWRITTEN, NAMED,
        ("a CPU with the label of an NPU", _label("NPU real", "cpu"), PENDING, "lived on cpu"),
        ("the classes of another device", _built("runner", _other_class), PENDING, _NONE),
        ("a runner that executed no step",
         _built("runner", lambda one: one.update(steps=0)), PENDING, "executed no step"),
        ("a runner built from another file",
         _built("runner", lambda one: [cls.update(sha256="0" * 64) for cls in one["classes"]]),
         PENDING, "another file"),
        ("another file was loaded",
         anew(lambda chain: chain.each(_other_file)), PENDING, "it ran another"),
        ("only the AR stage ran", _stage(0), "NPUGenerationModelRunner pending"),
        ("only the generation stage ran", _stage(1), "NPUARModelRunner pending"),
        ("nothing observed",
         anew(lambda chain: (chain.at / "observed.json").write_text("null")), PENDING, "does not tell"),
        ("another commit below it", _other_below, PENDING, "it ran another"),
        ("another vllm-ascend than the upgrade's",
         anew(lambda chain: chain.each(_other_ascend)), PENDING, "than pypi:vllm-ascend"),
        ("an overlay on an NPU",
         _observed(pythonpath=["/tmp/patched"]), PENDING, "over the installation"),
        ("a run of another job", _job(id="upgrade-of-somebody-else"), PENDING),
        ("a run of other files of the job", _job(tree="0" * 64), PENDING),
        ("a file edited, and every other gate again", _gates("plan", "audit"), PENDING),
        ("a helper beside it that stays out",
         write("vllm_omni/patched.py", "X = 1\n"), "vllm_omni/patched.py"),
        ("a pack of another job", packed(job="upgrade-of-somebody-else"), PENDING),
        ("a pack of another commit", packed(commit="0" * 40), PENDING),
        ("a pack of other files", packed(files={AR: "0" * 64}), PENDING),
        ("a pack of another chain", packed(chain=["0" * 64]), PENDING),
    ),
    *_cases(
        "npu", REWRITTEN, REFUSED,
        ("a failure on the NPU after the pass", anew(_late_fail), "failed for exactly these files"),
        ("a file edited after the run", _gates(), "judged other contents"),
        ("a stale audit", _gates("plan"), "gate audit judged other contents"),
        ("a file edited, and half undone", _gates("plan", text="\ndef (\n"), "does not parse"),
        ("every gate left out", _waived, "has no evidence"),
        ("other work staged", write("tools/x.py", "", staged=True), "other changes are staged"),
        ("on the default branch", lambda place: git(place.repo, "switch", "-q", "main"), "default branch"),
    ),
    Case("emulated, without a word", "upgrade", RECORDED, NAMED, (PENDING,),
         lambda _: None, never=("NPU real",)),
    Case("a pass without the folder of a run", "npu", REWRITTEN, NAMED, (PENDING,),
         _no_runs, never=("NPU real",)),
)  # fmt: skip


ADVERSARIAL = (*damages(), *_ADAPTED, *_UPGRADED, *_LIVE)
