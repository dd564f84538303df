"""What ``make bench-signoff`` finds nobody kept from: runs that show what they say, delivered as people do.

Each case differs from the others in what ran, in what is open and named, or in how the repository stands.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.signoff_bases import Answer, Place, make
from bench.signoff_cases import (
    AR,
    COMMITTED,
    LIVE,
    PENDING,
    RECORDED,
    REWRITTEN,
    RUNNERS,
    Case,
    Play,
    accuracy,
    committed,
    keep_stage,
    packed,
    served,
    write,
)
from bench.signoff_evidence import Chain, anew
from bench.walk_repo import git
from npu_upgrade.gates.vllm_cpu import cpu_python
from npu_upgrade.job.job import NEIGHBOUR, open_job

_BOTH = ("NPU-Validation: ", "NPUARModelRunner ", "NPUGenerationModelRunner ")
_OPEN = ("NPUARModelRunner pending", "NPUGenerationModelRunner pending")
_EXPERTS = ("expert_parallel", "flashcomm1")
_PAGE = "docs/source/tutorials/models/Reed-1M.md"
_GIT = {  # what people have in their configuration
    "core.commentChar": ";",
    "commit.cleanup": "scissors",
    "commit.verbose": "true",
    "commit.status": "false",
    "color.ui": "always",
    "core.quotePath": "true",
    "diff.noprefix": "true",
    "diff.external": "false",
    "diff.mnemonicPrefix": "true",
    "log.showSignature": "true",
    "merge.conflictStyle": "zdiff3",
    "status.relativePaths": "false",
    "format.pretty": "oneline",
}


def _ends(answer: Answer, *words: str, code: int = 0) -> None:
    """A step of a case, which has to end like this."""
    lacks = [word for word in words if word not in answer.words]
    assert (answer.code, lacks) == (code, []), f"it ended with {answer.code}: {answer.words}"


def _twice(place: Place) -> Answer:
    place.deliver()
    return place.deliver()


def _back(place: Place) -> None:
    for path in [*place.repo.glob("reed/*/*.py"), *place.repo.glob(f"{RUNNERS}*.py")]:
        text = path.read_bytes()
        path.write_bytes(text + b"\nX = 1\n")
        path.write_bytes(text)


def _hook(name: str, text: str) -> Play:
    def play(place: Place) -> None:
        hook = place.repo / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n{text}\n")
        hook.chmod(0o755)

    return play


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
    write("notes/mine.txt", "to do\n")(place)
    return place.deliver(*(("--leave", "notes/mine.txt") if place.model else ()))


def _round_trip(*, lost: bool = False) -> Play:
    """Runs packed and taken over again; ``lost``: after the evidence was lost."""

    def play(place: Place) -> None:
        target = place.workspace / ".npu-upgrade/all.tar.gz"
        place.call("evidence", "pack", "--out", target)
        if lost:
            shutil.rmtree(place.workspace / ".npu-upgrade/evidence")
        place.call("evidence", "import", target)

    return play


def _configured(place: Place) -> None:
    for name, value in _GIT.items():
        git(place.repo, "config", name, value)


_EACH: dict[str, Play] = {
    "as it is": lambda _: None,
    "a dry run first": lambda place: (place.deliver("--dry-run"), None)[1],
    "delivered twice": _twice,
    "a title of one's own": lambda place: place.deliver("--title", "[Misc] Take it in"),
    "unsigned": lambda place: place.deliver("--no-sign"),
    "edited, and put back": _back,
    "a hook that agrees": _hook("pre-commit", "exit 0"),
    "a hook that adds to the message": _hook("commit-msg", "echo 'Change-Id: I0123' >> \"$1\""),
    "failed once before it passed": _again("FAIL", 0),
    "passed twice": _again("PASS", None),
    "an old start that was never finished": _dead,
    "looked at before": _looked,
    "packed and taken over again": _round_trip(),
    "history packed": lambda place: git(place.repo, "gc", "-q"),
    "a commit below it": committed,
    "on a branch of another name": lambda place: git(place.repo, "branch", "-q", "-m", "mine"),
    "work of one's own outside": _beside,
    "a git that somebody configured": _configured,
}


def _each() -> Iterator[Case]:
    """What may happen around any delivery, for an adaptation and for an upgrade that an NPU validated."""
    open_gaps = tuple(f"- {gap}:" for gap in ("right", "image", "audio", "overlay", "work-folder"))
    for name, play in _EACH.items():
        kind = REWRITTEN if "passed" in name else RECORDED
        yield Case(name, "reed", kind, COMMITTED, (PENDING,), play, open_gaps)
        yield Case(name, "npu", REWRITTEN, COMMITTED, _BOTH, play, _OPEN)


def _cases(base: str, kind: str, *rows: tuple[Any, ...]) -> list[Case]:
    """Rows of a name, what is done, what has to be said beside that, and what must not."""
    return [
        Case(name, base, kind, COMMITTED, (*(said or (PENDING,)),), play, tuple(never))
        for name, play, said, *never in rows
    ]


# --- around the delivery of a model


def _elsewhere(place: Place) -> Answer:
    return replace(place, start=place.workspace.parent).deliver()


def _published(place: Place) -> Answer:
    return place.deliver(written=("--hf-id", "acme/Reed-1M"))


def _own_lines(place: Place) -> Answer:
    return place.deliver(after=lambda: write(_PAGE, "\nMeasured by hand: it starts.\n")(place))


def _own_page(place: Place) -> Answer:
    (place.repo / _PAGE).write_text("# Reed-1M\n\nHow to serve it.\n", "utf-8")
    return place.deliver(written=("--keep", _PAGE.rpartition("/")[2]))


def _of_two(place: Place) -> None:
    """The evidence of another model is in the workspace, too."""
    folder = place.workspace.with_name(place.workspace.name.replace("reed", "looker"))
    make("looker", folder)
    other = Place(place.workspace / ".npu-upgrade/other", place.repo, place.model)
    shutil.copytree(
        folder.with_name(f"{folder.name}.made") / ".npu-upgrade", other.workspace / ".npu-upgrade"
    )
    target = place.workspace / ".npu-upgrade/other.tar.gz"
    _ends(other.call("evidence", "pack", "--out", target))
    _ends(place.call("evidence", "import", target))


def _other_code(chain: Chain) -> None:
    """It failed with other contents of the plugin, which are gone; then it was served again."""
    chain.copy(len(chain.lines) - 1)
    chain.run["subject"]["files"]["reed_plugin"] = "0" * 64
    chain.verdict("FAIL")


def _other_checkpoint(chain: Chain) -> None:
    chain.copy()
    chain.verdict("FAIL")
    chain.edit(
        "result.json",
        lambda found: found.update(model="/models/Other", model_name="Other", model_digest="0" * 64),
    )


# --- what a model's runs show


def _graphs(chain: Chain) -> None:
    """The newest run as one without eager mode."""
    chain.edit("result.json", lambda found: found["resolved"].update(enforce_eager=False))
    told = {"enforce_eager": False, "cudagraph_mode": "FULL_DECODE_ONLY"}
    chain.each(lambda one: one.get("config") and one["config"].update(told))


def _feature(name: str, status: str, why: str = "it was seen") -> dict[str, str]:
    return {"feature": name, "status": status, "requested": "", "resolved": "", "evidence": "", "why": why}


def _verified(name: str) -> dict[str, str]:
    return _feature(name, "verified")


def _features(*rows: dict[str, str], verdict: str = "PASS") -> Callable[[Chain], None]:
    def change(chain: Chain) -> None:
        _graphs(chain)
        chain.gate("features", features=[*rows])
        chain.verdict(verdict)

    return change


def _capacity(length: int, promised: int = 131072, **more: Any) -> Callable[[Chain], None]:
    row = {"max_model_len": length, "max_num_seqs": 16, "state": "PASS", "kv_cache_tokens": 2097152}
    row |= {"theoretical_max_model_len": promised, "practical_max_model_len": length} | more
    return lambda chain: chain.gate("capacity", capacity=[row], promised_max_model_len=promised)


def _measured(chain: Chain) -> None:
    load: dict[str, float] = {"input_len": 1024, "output_len": 128, "concurrency": 16, "requests": 64}
    load |= {"tokens_per_second": 812.5, "total_per_second": 7312.5, "first_ms": 310.0, "each_ms": 17.5}
    chain.gate("performance", performance=[load])


def _generated(chain: Chain) -> None:
    """A task whose answers are written, so that guessing gives nothing."""
    name, metric = "gsm8k", "exact_match,strict-match"
    tasks = [{"name": name, "num_fewshot": 5, "metrics": [{"name": metric, "value": 0.04}]}]
    chain.gate("accuracy", accuracy={"tasks": tasks})
    raw = {"results": {name: {metric: 0.04, "exact_match_stderr,strict-match": 0.01}},
           "configs": {name: {"output_type": "generate_until"}},
           "higher_is_better": {name: {"exact_match": True}}}  # fmt: skip
    (chain.at / "lm_eval-results.json").write_text(json.dumps(raw))


def _on_npu(chain: Chain) -> None:
    chain.on_npu()
    pins = {"transformers": ">=5.20,<6", "torch": "==2.13.0", "cann": "==9.1.0"}
    chain.edit("observed.json", lambda seen: seen.update(required=pins))
    chain.edit("observed.json", lambda seen: seen["versions"].update(cann="9.1.0"))


def _everything(place: Place) -> None:
    def change(chain: Chain) -> None:
        _on_npu(chain)
        _features(_verified("graph"), _feature("mtp", "checkpoint missing"))(chain)
        _capacity(131072, filled=True)(chain)
        _measured(chain)
        chain.edit("result.json", lambda found: found["resolved"].update(enforce_eager=False))

    anew(change)(place)
    accuracy(0.75)(place)


def _analysed(change: Callable[[dict[str, Any]], object], then: Callable[[Chain], object]) -> Play:
    """Another kind of checkpoint, as its analysis tells."""

    def play(place: Place) -> None:
        assert place.model
        path = place.workspace / ".npu-upgrade/adapt" / place.model.name / "analysis.json"
        value = json.loads(path.read_text("utf-8"))
        change(value)
        path.write_text(json.dumps(value), "utf-8")
        anew(then)(place)

    return play


def _mixture(value: dict[str, Any]) -> None:
    value["properties"] |= {"experts": 8, "experts_per_token": 2}


def _drafts(value: dict[str, Any]) -> None:
    value["mtp"] |= {"state": "ready", "layers": 1, "tensors": 12}


def _usual_folder(chain: Chain) -> None:
    chain.run["command"] = ["adapt.py", "serve", "MODEL"]
    chain.edit("observed.json", lambda seen: seen.update(work_dir="/workspace"))
    chain.edit("result.json", lambda found: found.update(work_dir="/workspace"))


def _recorded_elsewhere(chain: Chain) -> None:
    said = "equals Transformers 5.23.0, recorded elsewhere: 4 prompts, 326 tokens"
    chain.edit("result.json", lambda found: found["reference"].update(state="equal", why=said))


def _text_first(chain: Chain) -> None:
    chain.copy(0)
    chain.edit(
        "result.json",
        lambda found: found.update(checks=[one for one in found["checks"] if one["name"] != "image"]),
    )


def _later_on_npu(place: Place) -> Answer:
    _ends(place.deliver(), PENDING)
    anew(_on_npu)(place)
    return place.deliver()


# --- an upgrade


def _signed(place: Place) -> Answer:
    key = place.workspace / ".npu-upgrade/key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    for name, value in {"gpg.format": "ssh", "user.signingkey": str(key), "commit.gpgsign": "true"}.items():
        git(place.repo, "config", name, value)
    answer = place.deliver()
    assert "\ngpgsig " in git(place.repo, "cat-file", "commit", "HEAD"), "the commit has no signature"
    return answer


def _gates(place: Place) -> None:
    for gate in ("plan", "audit"):
        place.call(gate)


def _edited_again(place: Place) -> Answer:
    place.deliver()
    write(AR, "\n# a word more\n")(place)
    _gates(place)
    return place.deliver()


def _rebased(place: Place) -> Answer:
    """Delivered, put onto a main that moved, and delivered again."""
    place.deliver()
    branch = git(place.repo, "branch", "--show-current").strip()
    main = git(place.repo, "rev-parse", "HEAD^").strip()
    git(place.repo, "switch", "-q", "-c", "moved", main)
    committed(place)
    git(place.repo, "switch", "-q", branch)
    git(place.repo, "rebase", "-q", "moved")
    return place.deliver()


def _one_on_top(place: Place) -> Answer:
    """Another commit on top is refused with what to do; done, it goes on."""
    place.deliver()
    delivered = git(place.repo, "rev-parse", "HEAD").strip()
    committed(place)
    _ends(place.deliver(), "git rebase", code=2)
    notes = git(place.repo, "rev-parse", "HEAD").strip()
    git(place.repo, "reset", "-q", "--hard", f"{delivered}^")
    git(place.repo, "cherry-pick", notes)
    git(place.repo, "cherry-pick", delivered)
    return place.deliver()


def _reviewed(place: Place) -> Answer:
    """A reviewer is named in the commit, and it is delivered again with more to say."""
    place.deliver()
    message = git(place.repo, "show", "-s", "--format=%B", "HEAD").strip()
    git(place.repo, "commit", "-q", "--amend", "-m", f"{message}\nReviewed-by: B Reader <reader@example.com>")
    write(AR, "\n# a word more\n")(place)
    _gates(place)
    return place.deliver()


def _pushed(place: Place) -> Answer:
    remote = place.workspace / ".npu-upgrade/remote.git"
    git(place.workspace, "init", "-q", "--bare", str(remote))
    git(place.repo, "remote", "add", "mine", str(remote))
    place.deliver()
    git(place.repo, "push", "-q", "-u", "mine", "HEAD")
    return place.deliver()


def _away(place: Place, rungs: str, python: Path) -> Answer:
    """A pack climbs on another machine, and what it leaves comes back."""
    pack, there = place.workspace / ".npu-upgrade/away.pyz", place.workspace / ".npu-upgrade/there"
    _ends(place.call("validate", "--pack", pack, "--rungs", rungs))
    command = [sys.executable, str(pack), "--into", str(there), "--python", str(python)]
    done = subprocess.run(command, cwd=place.workspace, capture_output=True, text=True)
    assert (there / "evidence.tar.gz").exists(), done.stdout[-1000:] + done.stderr[-1000:]
    answer = place.call("evidence", "import", there / "evidence.tar.gz")
    _ends(answer)
    assert len(answer.data["added"]) >= len(rungs.split(",")), answer.words
    return place.deliver()


def _emulated_elsewhere(place: Place) -> Answer:
    return _away(place, "emulated", place.python)


def _on_cpu_elsewhere(place: Place) -> Answer:
    """Real weights on the CPU of another machine."""
    return _away(place, "cpu-dummy,cpu-real", cpu_python())


def _as_before(place: Place) -> Answer:
    """The pair before and the pair after answer alike on the same weights; what is old says nothing of the
    job."""
    runs = [place.omni(weights="real", old=old) for old in (True, False)]
    for one in runs:
        _ends(one)
    assert [bool(one.data.get("job")) for one in runs] == [False, True], [one.words for one in runs]
    answer = place.call("evidence", "compare", *(one.data["run"] for one in runs))
    versions = [one["vllm-ascend"] for one in answer.data["versions"]]
    assert versions == ["0.24.0rc1", "0.26.0rc1"], answer.words
    assert (answer.data["other_answers"], answer.data["greedy_answers"] > 0) == ([], True), answer.words
    return place.deliver()


def _late_pack(place: Place) -> Answer:
    """Delivered while the NPU was pending; its pack comes back later."""
    target = place.workspace / ".npu-upgrade/all.tar.gz"
    place.call("evidence", "pack", "--out", target)
    anew(lambda chain: chain.drop("NPU real"))(place)
    _ends(place.deliver(), PENDING)
    _ends(place.call("evidence", "import", target))
    return place.deliver()


def _helper(place: Place) -> Answer:
    write("vllm_omni/helper.py", "X = 1\n")(place)
    given = ("--include", "vllm_omni/helper.py")
    place.deliver("--dry-run", *given)
    place.deliver(*given)
    _gates(place)
    return place.deliver(*given)


def _beside_runners(place: Place) -> None:
    write(f"{RUNNERS}helper.py", "X = 1\n")(place)
    _gates(place)


def _job_named(place: Place) -> Answer:
    return place.deliver("--job", open_job(place.workspace).id, "--workspace", place.workspace)


def _abroad(place: Place) -> Answer:
    abroad = {"LC_ALL": "C", "LANG": "zh_CN.UTF-8", "TZ": "Asia/Shanghai", "COLUMNS": "40"}
    return place.call("deliver", "--repo", place.repo, variables=abroad)


def _exercised(chain: Chain) -> None:
    ran: dict[str, Any] = {"tier": "graph", "scenario": "ar", "state": "PASS", "worker": "", "runner": ""}
    ran |= {"classes": {AR: ["NPUARModelRunner"]}}
    data = {"ran": [ran], "pending": ["serve ar"]}
    chain.record("emulate", label="emulated dry-run", verdict="INCONCLUSIVE", data=data)


def _neighbour(chain: Chain) -> None:
    chain.record(NEIGHBOUR, label="emulated dry-run", verdict="FAIL", data={})


def _failed(**job: str) -> Callable[[Chain], None]:
    """Gates failed for other contents, or in another job."""

    def change(chain: Chain) -> None:
        for gate in ("audit", "plan"):
            chain.record(gate, verdict="FAIL", job=chain.run["job"] | job)

    return change


def _two_runs(chain: Chain) -> None:
    """Each stage served alone, one after the other."""
    run = chain.run
    chain.copy()
    chain.edit("observed.json", keep_stage(1))
    chain.run = run
    chain.edit("observed.json", keep_stage(0))


def _ranks(chain: Chain) -> None:
    def more(seen: dict[str, Any]) -> None:
        workers = [one for one in seen["processes"] if one.get("device")]
        seen["processes"] += [one | {"rank": 1, "pid": one["pid"] + 1000} for one in workers]

    chain.edit("observed.json", more)


def _emulated_too(place: Place) -> None:
    """The run as it was recorded, before the same on an NPU."""
    made = place.workspace.with_name(f"{place.workspace.name}.made") / ".npu-upgrade/evidence/runs"

    def change(chain: Chain) -> None:
        recorded, npu = made / chain.run["data"]["run"], chain.run
        chain.copy(chain.lines.index(npu))
        shutil.rmtree(chain.at)
        shutil.copytree(recorded, chain.at)
        chain.run["label"] = "emulated dry-run"

    anew(change)(place)


def _dummy_too(chain: Chain) -> None:
    run = chain.run
    chain.copy(len(chain.lines) - 1)
    chain.verdict("PASS", "NPU dummy")
    chain.run = run


def _put_right(place: Place) -> None:
    _ends(place.serve(fault="norm-plus-one"), code=1)
    place.serve()


_NPU = ("NPU-Validation: ",)
HONEST = (
    *_each(),
    *_cases(
        "reed", RECORDED,
        ("from another folder", _elsewhere, ()),
        ("by its name", lambda place: place.deliver(model="Reed-1M"), ()),
        ("weights that are published", _published, ("acme/Reed-1M", PENDING)),
        ("its files named by a pattern", lambda place: place.deliver("--include", "reed/*/*.py"), ()),
        ("a person's lines in the page", _own_lines, ()),
        ("a page of one's own", _own_page, ("- npu:", PENDING)),
        ("another model in the workspace", _of_two, (), "Looker"),
        ("evidence that was lost, and came back", _round_trip(lost=True), (), "- right:"),
        ("put onto another commit, and delivered again", _rebased, ()),
    ),
    *_cases(
        "reed", REWRITTEN,
        ("other code failed before", anew(_other_code), ()),
        ("another checkpoint failed", anew(_other_checkpoint), (), "Other"),
        ("graphs", anew(_features(_verified("graph"))), (), "- graph:"),
        ("graphs that do not work, and are named",
         anew(_features(_feature("graph", "unsupported", "no capture on this device"), verdict="FAIL")),
         ("graph is unsupported: no capture", PENDING)),
        ("the longest context, by requests of it", anew(_capacity(131072, filled=True)), (), "- capacity:"),
        ("a shorter context, as the model promises it",
         anew(_capacity(512, promised=512, filled=True)), (), "- capacity:"),
        ("a context that was started and not filled", anew(_capacity(131072)),
         ("no request was of that length", PENDING)),
        ("a context that did not fit", anew(_capacity(8192, state="FAIL", why="no room for the cache")),
         ("no room for the cache", PENDING)),
        ("throughput on this CPU", anew(_measured), ("- throughput: measured on the CPU", PENDING)),
        ("accuracy above chance", accuracy(0.75), (), "- accuracy:"),
        ("accuracy of written answers", anew(_generated), (), "- accuracy:"),
        ("a mixture, its experts not tried", _analysed(_mixture, lambda _: None),
         ("- expert_parallel:", "- flashcomm1:", PENDING)),
        ("a mixture, its experts tried", _analysed(_mixture, _features(*map(_verified, _EXPERTS))), (),
         "- expert_parallel:", "- flashcomm1:"),
        ("drafts that were not tried", _analysed(_drafts, lambda _: None), ("- mtp:", PENDING)),
        ("drafts that are taken", _analysed(_drafts, _features(_verified("mtp"))), (), "- mtp:"),
        ("from the usual work folder", anew(_usual_folder), (), "- work-folder:"),
        ("a reference from elsewhere", anew(_recorded_elsewhere), (), "- right:"),
        ("real weights on an NPU", anew(_on_npu), _NPU, "- npu:", "- pins:", PENDING),
        ("all that is asked of a model, on an NPU", _everything, _NPU, "Open gaps", "experimental", PENDING),
        ("on an NPU after it was delivered", _later_on_npu, _NPU, "- npu:", PENDING),
    ),
    *_cases(
        "looker", RECORDED,
        ("pictures", lambda _: None, (), "- image:", "- right:"),
    ),
    *_cases(
        "looker", REWRITTEN,
        ("text alone before, and then pictures", anew(_text_first), (), "- image:"),
        ("pictures on an NPU", anew(_on_npu), _NPU, "- npu:", "- image:", PENDING),
    ),
    *_cases(
        "upgrade", RECORDED,
        ("the classes that the emulated NPU executed", lambda _: None,
         ("emulated: NPUARModelRunner executed in serve",
          "emulated: NPUGenerationModelRunner executed in serve", "Waived findings", PENDING), "NPU real"),
        ("signed with a key", _signed, ()),
        ("a helper that is part of it", _helper, ("Edited beside the merge (1)", PENDING)),
        ("a helper beside the runners", _beside_runners, ("Edited beside the merge (1)", PENDING)),
        ("work of one's own in a file of the project", write("pyproject.toml", "\n# mine\n"), ()),
        ("edited, judged and delivered again", _edited_again, ()),
        ("put onto another commit, and delivered again", _rebased, ()),
        ("a commit on top of it, and out of the way", _one_on_top, ()),
        ("a reviewer in the commit", _reviewed, ()),
        ("pushed, and delivered again", _pushed, ()),
        ("the job named", _job_named, ()),
        ("in another language and place", _abroad, ()),
    ),
    *_cases(
        "upgrade", REWRITTEN,
        ("an emulated run that could not judge all", anew(_exercised),
         ("emulated: NPUARModelRunner executed in graph", "Emulated runs pending (1)", PENDING)),
        ("a neighbour of the target failed", anew(_neighbour), ()),
        ("other contents failed", anew(_failed(tree="0" * 64)), ()),
        ("another job failed", anew(_failed(id="upgrade-of-somebody-else")), ()),
    ),
    *_cases(
        "npu", REWRITTEN,
        ("two ranks", anew(_ranks), _BOTH, *_OPEN),
        ("a run for each class", anew(_two_runs), _BOTH, *_OPEN),
        ("an emulated run, too", _emulated_too, (*_BOTH, "executed in serve"), *_OPEN),
        ("dummy weights, too", anew(_dummy_too), _BOTH, *_OPEN),
        ("a pack that came back", packed(), _BOTH, *_OPEN),
        ("a pack that came back after the delivery", _late_pack, _BOTH, *_OPEN),
    ),
    *_cases(
        "upgrade", LIVE,
        ("a pack that came back from an emulated NPU", _emulated_elsewhere,
         ("emulated dry-run: emulate", "emulated: NPUARModelRunner executed in serve, eager", PENDING),
         "NPU real"),
        ("a pack that came back from another CPU", _on_cpu_elsewhere, ("CPU real", PENDING), "NPU real"),
        ("the pair before answers alike", _as_before,
         ("emulated: NPUARModelRunner executed in serve", PENDING), "NPU real"),
    ),
    *_cases(
        "reed", LIVE,
        ("served again", served(), (), "- right:"),
        ("put right after wrong weights", _put_right, (), "- right:"),
    ),
    *_cases(
        "looker", LIVE,
        ("served again with pictures", served(), (), "- image:"),
    ),
)  # fmt: skip
