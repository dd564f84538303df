"""Real weights held against a reference: what is equal, what differs, what cannot be said."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import model_kit
import msgspec
import pytest
import serving_kit

from npu_upgrade.evidence.judged import model_digest
from npu_upgrade.gates.reference import reference as made
from npu_upgrade.gates.reference.compare import DIFFERS, EQUAL, NONE, Held, Outcome, find
from npu_upgrade.gates.reference.reference import NoReference, Prompt, Reference
from npu_upgrade.gates.serving.checks import Check, failed, passed
from npu_upgrade.gates.serving.launch import Launch
from npu_upgrade.gates.serving.requests import Exchange
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.sources.installed import Installed

VOCABULARY, TOP, COUNT = 40, 8, 8
BF16 = {"dtype": "bfloat16", "max_model_len": 512}
Rows = list[list[tuple[int, float]]]
Change = Callable[[float, int, bool], float]  # of a log-probability, its position, whether it was generated


def noise(size: float) -> Change:
    chance = random.Random(5)
    return lambda value, at, generated: value + chance.gauss(0, size)


def truth(seed: int, length: int = 40) -> tuple[list[int], list[list[float]]]:
    """Ids, and for each after the first the log-probabilities of all tokens; the last are the likeliest."""
    chance = random.Random(seed)
    scores = []
    for _ in range(length + COUNT - 1):
        raw = [chance.gauss(0, 2) for _ in range(VOCABULARY)]
        total = math.log(sum(map(math.exp, raw)))
        scores.append([one - total for one in raw])
    ids = [chance.randrange(VOCABULARY) for _ in range(length)]
    return ids + [max(range(VOCABULARY), key=row.__getitem__) for row in scores[-COUNT:]], scores


def row(scores: list[float], target: int, top: int = TOP) -> list[tuple[int, float]]:
    best = sorted(range(VOCABULARY), key=scores.__getitem__, reverse=True)[:top]
    return [(one, scores[one]) for one in dict.fromkeys([target, *best])]


def prompt(seed: int, kind: str = "text") -> Prompt:
    ids, scores = truth(seed)
    rows = [row(one, target) for one, target in zip(scores, ids[1:], strict=True)]
    sizes = [abs(random.Random(at).gauss(0.04, 0.01)) for at in range(len(rows))]
    blur = [spread([one], size)[0] for one, size in zip(rows, sizes, strict=True)]
    scaled = {"attention": [[slope(value) for _, value in one] for one in rows]}
    return Prompt(str(seed), kind, ids[:-COUNT], ids[-COUNT:], rows, blur, scaled, seed)  # type: ignore[arg-type]


def spread(rows: Rows, size: float) -> list[list[float]]:
    """Rounding of every row: as large as ``size`` in one place, and along nothing in particular."""
    signs = itertools.cycle((1, -1))
    return [[size * next(signs) for _ in one] for one in rows]


def slope(value: float) -> float:
    """By how much a log-probability changes with the scale of attention."""
    return math.sin(100 * value)


def reference(*prompts: Prompt) -> Reference:
    chosen = list(prompts or (prompt(1), prompt(2), prompt(3)))
    return Reference("d" * 64, "5.0", "TinyForCausalLM", "Transformers", VOCABULARY, chosen)


@dataclass
class Server:
    """Answers as vLLM does, with the truth of each prompt after ``change``."""

    change: Change = field(default_factory=lambda: noise(0.02))
    statuses: dict[str, int] = field(default_factory=dict)  # a key of a request -> what it is answered with
    other: int | None = None  # a token that is generated in place of the first
    reads: list[int] | None = None  # what it makes of a picture and its question

    def broken(self) -> str:
        return ""

    def post(self, path: str, body: dict[str, Any]) -> Exchange:
        status = next((code for key, code in self.statuses.items() if key in body), 200)
        return Exchange("POST", path, body, status, self.answer(body) if status == 200 else {"error": "no"})

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        if "messages" in body:
            ids, scores = truth(self.seed_of(body))
            tokens = self.generated(ids, scores)
            content = [
                {"token": f"token_id:{one}", "top_logprobs": [named(*pair) for pair in top.items()]}
                for one, top in tokens
            ]
            read = self.read(ids[:-COUNT], scores)
            whole = {"prompt_token_ids": self.reads or ids[:-COUNT], "prompt_logprobs": read}
            return whole | {"choices": [{"logprobs": {"content": content}}]}
        found = next(truth(seed) for seed in range(9) if truth(seed)[0][:40] == body["prompt"][:40])
        if "prompt_logprobs" in body:
            return {"choices": [{"prompt_logprobs": self.read(body["prompt"], found[1])}]}
        tokens = self.generated(*found)
        tops = [{f"token_id:{one}": value for one, value in top.items()} for _, top in tokens]
        return {
            "choices": [
                {"logprobs": {"tokens": [f"token_id:{one}" for one, _ in tokens], "top_logprobs": tops}}
            ]
        }

    def seed_of(self, body: dict[str, Any]) -> int:
        url = body["messages"][0]["content"][0]["image_url"]["url"]
        return next(seed for seed in range(9) if made.picture(seed) == url)

    def read(self, ids: list[int], scores: list[list[float]]) -> list[Any]:
        tops = [self.told(scores[at], at, False, target) for at, target in enumerate(ids[1:])]
        return [None, *({str(one): {"logprob": value} for one, value in top.items()} for top in tops)]

    def generated(self, ids: list[int], scores: list[list[float]]) -> list[tuple[int, dict[int, float]]]:
        start = len(ids) - COUNT
        found = []
        for at, token in enumerate(ids[start:], start=start - 1):
            chosen = self.other if self.other is not None and at == start - 1 else token
            found.append((chosen, self.told(scores[at], at, True, token)))
        return found

    def told(self, scores: list[float], at: int, generated: bool, target: int) -> dict[int, float]:
        changed = [self.change(value, at, generated) for value in scores]
        return dict(row(changed, target, TOP + 1))


def named(token: int, value: float) -> dict[str, Any]:
    return {"token": f"token_id:{token}", "logprob": value}


def compared(server: Server, *prompts: Prompt, settings: dict[str, Any] = BF16) -> Outcome:
    unasked = Outcome(NONE, "", "5.0", label="Transformers, made here")
    held = Held(unasked, reference(*prompts))
    (check,) = held.compare(server, "tiny", settings)  # type: ignore[arg-type]
    assert check.state == {EQUAL: "PASS", DIFFERS: "FAIL", NONE: "SKIPPED"}[held.outcome.state]
    return held.outcome


def test_what_rounds_as_the_half_dtype_does_is_equal() -> None:
    found = compared(Server())
    assert (found.state, found.prompts, found.kinds, found.label) == (
        EQUAL,
        3,
        ["text"],
        "Transformers, made here",
    )
    assert found.why.startswith("equals Transformers 5.0: 3 prompts, ")
    assert found.tokens == 3 * (47 + COUNT)
    assert 0 < found.largest < found.tolerance


def test_a_shift_everywhere_differs_and_is_shown_where_it_is_largest() -> None:
    worst = 17
    found = compared(Server(lambda value, at, generated: value - (9.0 if at == worst else 0.3)))
    assert found.state == DIFFERS
    assert f"position {worst + 1}: token" in found.why
    assert "allowed 0." in found.why


@pytest.mark.parametrize(("every", "state"), [(20, EQUAL), (5, DIFFERS)])
def test_a_mixture_may_choose_other_experts_at_a_few_places(every: int, state: str) -> None:
    server = Server(lambda value, at, generated: value - 2.0 * (at % every == 0 and not generated))
    assert compared(server).state == state


@pytest.mark.parametrize(
    ("scale", "change"),
    [
        ("attention", lambda value: 0.06 * slope(value)),
        ("logits", lambda value: 0.05 * value),
        ("", lambda value: 0.01 * value),
        ("", lambda value: 0.05),  # another sum of the softmax
    ],
    ids=["attention", "logits", "a percent", "all alike"],
)
def test_a_scale_shows_below_the_rounding_of_a_place(scale: str, change: Callable[[float], float]) -> None:
    blur = noise(0.03)
    prompts = [prompt(1), prompt(2), prompt(3)]
    coarse = [msgspec.structs.replace(one, half=spread(one.rows, 0.15)) for one in prompts]
    found = compared(Server(lambda value, at, generated: blur(value, at, generated) + change(value)), *coarse)
    assert found.state == (DIFFERS if scale else EQUAL)
    assert f"as if {scale} were scaled by" in found.why or not scale


def test_what_the_half_dtype_does_to_all_places_alike_is_no_scale() -> None:
    def coarse(value: float, at: int, generated: bool) -> float:
        return value + 0.06 * slope(value)

    alike = [[[0.05 * slope(value) for _, value in row] for row in prompt(one).rows] for one in (1, 2, 3)]
    prompts = [
        msgspec.structs.replace(prompt(one), half=half) for one, half in zip((1, 2, 3), alike, strict=True)
    ]
    assert compared(Server(coarse), *prompts).state == EQUAL
    found = compared(Server(coarse), *prompts, settings=BF16 | {"dtype": "float32"})
    assert found.state == DIFFERS


def test_what_is_wrong_only_while_it_generates_differs() -> None:
    found = compared(Server(lambda value, at, generated: value - (0.5 if generated else 0.0)))
    assert found.state == DIFFERS
    assert "generated differ" in found.why


def test_another_token_is_equal_at_a_near_tie_only() -> None:
    one = prompt(1)
    ranked = sorted(one.rows[len(one.ids) - 1], key=lambda pair: -pair[1])
    assert ranked[0][1] - ranked[-1][1] > 0.5
    found = compared(Server(other=ranked[-1][0]), one)
    assert found.state == DIFFERS
    assert f"{one.tokens[0]} is likelier by" in found.why
    assert f"than {ranked[-1][0]}, which was generated" in found.why
    first, rows = len(one.ids) - 1, list(one.rows)
    rows[first] = [(token, 0.01 * value) for token, value in rows[first]]
    server = Server(lambda value, at, generated: 0.01 * value if at == first else value, other=ranked[-1][0])
    assert compared(server, msgspec.structs.replace(one, rows=rows)).state == EQUAL


def test_finer_rounding_is_held_to_finer_bounds() -> None:
    blurred = noise(0.02)
    assert compared(Server(blurred), settings=BF16 | {"dtype": "float16"}).state == DIFFERS
    assert compared(Server(noise(0.001)), settings=BF16 | {"dtype": "float32"}).state == EQUAL


def test_a_token_that_the_server_does_not_name_is_at_most_as_likely_as_its_last() -> None:
    """The likeliest token is nowhere among the server's: it differs by what is known at least."""
    ids, scores = truth(1)
    best = [max(one) if one[target] < max(one) else None for one, target in zip(scores, ids[1:], strict=True)]
    server = Server(lambda value, at, generated: value - 30.0 * (value == best[at]))
    found = compared(server, prompt(1))
    assert found.state == DIFFERS
    assert found.largest < 30


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_none_differs(value: float) -> None:
    found = compared(Server(lambda _, at, generated: value))
    assert found.state == DIFFERS
    assert "is no number" in found.why


def test_what_the_server_refuses_is_no_proof_and_what_breaks_it_is_wrong() -> None:
    refused = compared(Server(statuses={"prompt": 400}))
    assert (refused.state, refused.tokens) == (NONE, 0)
    assert refused.why.startswith("loads and answers: 0 tokens compared")
    assert compared(Server(statuses={"prompt_logprobs": 400})).state == EQUAL  # its own tokens are enough
    broken = compared(Server(statuses={"prompt_logprobs": 500}))
    assert broken.state == DIFFERS
    assert "no answer: HTTP 500" in broken.why


def test_an_ascend_server_with_adapters_is_not_asked_what_it_makes_of_a_prompt() -> None:
    """Log-probabilities of a prompt end it; its own tokens are enough."""
    broken = Server(statuses={"prompt_logprobs": 500})
    adapters = BF16 | {"device": "npu", "lora_config": {"max_loras": 1}}
    assert compared(broken, settings=adapters).state == EQUAL
    assert compared(broken, settings=adapters | {"device": "cpu"}).state == DIFFERS


def test_prompts_that_do_not_fit_are_left_out() -> None:
    assert compared(Server(), settings=BF16 | {"max_model_len": 30}).state == NONE


@pytest.mark.parametrize("settings", [{"quantization": "ascend"}, {"cache_dtype": "fp8_e4m3"}])
def test_quantization_that_the_reference_lacks_is_compared_with_nothing(settings: dict[str, str]) -> None:
    found = compared(Server(), settings=BF16 | settings)
    assert (found.state, found.tokens) == (NONE, 0)


def test_a_picture_counts_when_the_server_reads_the_same_tokens() -> None:
    picture = prompt(4, "image")
    both = compared(Server(), prompt(1), picture)
    assert (both.state, both.kinds) == (EQUAL, ["image", "text"])
    other = compared(Server(reads=[1, 2, 3]), prompt(1), picture)
    assert (other.state, other.kinds, other.prompts) == (EQUAL, ["text"], 1)
    assert "the server reads [1, 2, 3]" in other.why
    wrong = Server()
    wrong.change = lambda value, at, generated: value - 0.4
    assert compared(wrong, picture).state == DIFFERS


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "Tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(model_kit.LLAMA))
    (folder / "model.safetensors").write_bytes(model_kit.shard(model_kit.llama_shapes()))
    return folder


def test_what_never_ends_is_not_read(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = transformers(checkpoint, monkeypatch, None)
    os.mkfifo(checkpoint / "more.safetensors")
    with pytest.raises(NoReference, match="no regular file"):
        made.make(str(checkpoint), python, trust=False)


def transformers(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | None) -> Path:
    """An interpreter that counts its calls in ``calls`` and answers every question alike."""
    answer = {} if answer is None else answer
    (folder / "answer.json").write_text(json.dumps(answer))
    python = folder / "python"
    does = f"cat {folder}/answer.json" if answer else "echo 'KeyError: tiny' >&2; exit 1"
    python.write_text(f"#!/bin/sh\ncat > /dev/null\necho x >> {folder}/calls\n{does}\n")
    python.chmod(0o755)
    package = [{"name": "transformers", "version": "5.0", "folder": str(folder)}]
    told = msgspec.convert({"python": "3.11", "packages": package}, Installed)
    monkeypatch.setattr(made, "installed", lambda python: told)
    return python


def answer() -> dict[str, Any]:
    found = msgspec.to_builtins(reference())
    return {name: value for name, value in found.items() if name != "digest"}


def test_it_is_made_once_and_again_for_other_weights(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = transformers(tmp_path, monkeypatch, answer())
    first, kept = made.make(str(checkpoint), python, trust=False)
    assert made.make(str(checkpoint), python, trust=False) == (first, kept)
    assert first.digest == model_digest(checkpoint)
    assert (tmp_path / "calls").read_text() == "x\n"
    (checkpoint / "config.json").write_text(json.dumps(model_kit.LLAMA | {"rms_norm_eps": 0.1}))
    assert made.make(str(checkpoint), python, trust=False)[1] != kept
    assert (tmp_path / "calls").read_text() == "x\nx\n"


def test_why_there_is_none_is_said_before_memory_runs_out(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = transformers(tmp_path, monkeypatch, None)
    with pytest.raises(NoReference, match="Transformers: KeyError: tiny"):
        made.make(str(checkpoint), python, trust=False)
    monkeypatch.setattr(made, "_free", lambda: 2.0**20)
    (tmp_path / "calls").unlink()
    with pytest.raises(NoReference, match=r"1\.0 GiB of memory needed, 0\.0 free"):
        made.make(str(checkpoint), python, trust=False)
    (checkpoint / "config.json").write_text(
        json.dumps(model_kit.LLAMA | {"quantization_config": {"quant_method": "fp8"}})
    )
    with pytest.raises(NoReference, match=r"quantized \(fp8\)"):
        made.make(str(checkpoint), python, trust=False)
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize(
    ("folder", "files"),
    [
        ("", {"memory.max": "6000", "memory.current": "5000", "cpu.max": "100000 100000"}),
        (
            "memory",
            {
                "memory.limit_in_bytes": "6000",
                "memory.usage_in_bytes": "5000",
                "../cpu/cpu.cfs_quota_us": "100000",
                "../cpu/cpu.cfs_period_us": "100000",
            },
        ),
    ],
)
def test_a_container_has_what_its_control_group_leaves_it(
    folder: str, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("memory", "cpu"):
        (tmp_path / place).mkdir()
    for name, text in (files | {"memory.stat": "anon 700\ninactive_file 4000\nactive_file 9"}).items():
        (tmp_path / folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(made, "_GROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(192)))
    assert made._free() == 5000  # the weights that were just read give way
    assert made._cores() == 1
    for name in ("cpu.max", "cpu/cpu.cfs_quota_us"):
        (tmp_path / name).write_text("max 100000\n" if name == "cpu.max" else "-1\n")
    assert made._cores() == 192


def test_how_many_threads_a_server_gets_is_not_for_the_reference(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = transformers(tmp_path, monkeypatch, answer())
    python.write_text(python.read_text() + f"echo $OMP_NUM_THREADS > {tmp_path}/threads\n")
    monkeypatch.setattr(made, "_cores", lambda: 24)
    made.make(str(checkpoint), python, trust=False, variables={"OMP_NUM_THREADS": "1"})
    assert (tmp_path / "threads").read_text() == "24\n"


def test_a_file_of_other_weights_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    launch = Launch(str(checkpoint), tmp_path / "python", "real")
    file = tmp_path / "reference.json"
    file.write_bytes(msgspec.json.encode(reference()))
    with pytest.raises(BadInput, match="is of other weights: dddd"):
        find(launch, file)
    right = msgspec.structs.replace(reference(), digest=model_digest(checkpoint))
    file.write_bytes(msgspec.json.encode(right))
    held = find(launch, file)
    assert (held.reference, held.outcome.label) == (right, "Transformers, recorded elsewhere")
    for half in ({"half": []}, {"scaled": {"attention": [[]]}}):
        cut = msgspec.structs.replace(right.prompts[0], **half)
        file.write_bytes(msgspec.json.encode(msgspec.structs.replace(right, prompts=[cut])))
        with pytest.raises(BadInput, match="it holds half of prompt '1'"):
            find(launch, file)


@pytest.mark.parametrize(
    ("options", "more", "of_family"),
    [
        ((), {}, True),
        (("--trust-remote-code",), {}, False),
        (("--trust-remote-code",), {"quantization_config": {"quant_method": "fp8"}}, True),
    ],
)
def test_code_that_a_person_lets_run_goes_before_a_family_of_the_plan(
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    more: dict[str, Any],
    of_family: bool,
) -> None:
    config = model_kit.LLAMA | {"auto_map": {"AutoModelForCausalLM": "modeling_tiny.Tiny"}} | more
    (checkpoint / "config.json").write_text(json.dumps(config))
    asked: list[dict[str, Any]] = []

    def make(model: str, python: Path, **given: Any) -> Any:
        asked.append(given)
        raise NoReference("it is about what is asked for")

    monkeypatch.setattr("npu_upgrade.gates.reference.compare.make", make)
    family: Any = object()
    find(Launch(str(checkpoint), Path("/none/python"), "real", arguments=options), None, family)
    assert [one["like"] is family for one in asked] == [of_family]


@pytest.mark.parametrize(
    ("launch", "why"),
    [
        (Launch("/nowhere/Tiny", Path("/none/python"), "dummy"), "dummy weights are compared with nothing"),
        (Launch("/nowhere/Tiny", Path("/none/python"), "real"), "loads and answers, no reference: no folder"),
        (Launch("/nowhere/Tiny", Path("/none/python"), "real", omni=True), "loads and answers: the stages"),
    ],
)
def test_without_a_reference_it_is_said_why(launch: Launch, why: str) -> None:
    held = find(launch, None)
    assert (held.reference, held.outcome.state) == (None, NONE)
    assert held.outcome.why.startswith(why)


@pytest.mark.parametrize(
    ("fault", "repeats", "equal", "state", "verdict"),
    [
        ("one-token", True, True, "PASS", Verdict.PASS),
        ("one-token", True, False, "FAIL", Verdict.FAIL),
        ("one-token", False, True, "FAIL", Verdict.FAIL),
        # its tokens are those of the reference, and have no text; but all prompts get the same answer
        ("empty", False, True, "PASS", Verdict.INCONCLUSIVE),
        ("empty", False, False, "FAIL", Verdict.FAIL),
    ],
)
def test_an_odd_answer_is_no_failure_where_an_equal_reference_says_it_too(
    tmp_path: Path, fault: str, repeats: bool, equal: bool, state: str, verdict: Verdict
) -> None:
    one = prompt(1)
    if repeats:
        one = msgspec.structs.replace(one, tokens=one.tokens[:1] * COUNT)
    held = Held(Outcome(NONE, ""), reference(one))

    def compare(*server: Any) -> list[Check]:
        return [passed("reference") if equal else failed("reference", "differs")]

    held.compare = compare  # type: ignore[method-assign]
    served = serving_kit.serve(tmp_path, fault, compare=compare, as_there=held.as_there)
    found = serving_kit.states(served)
    assert found["generation"] == state
    whys = [one.why for one in served.checks if one.name in ("generation", "chat")]
    said = {"one-token": "one token over and over", "empty": "the answer is empty"}[fault]
    assert all(said in why for why in whys)
    assert served.verdict is verdict


@pytest.mark.parametrize(("weights", "times"), [("real", 1), ("dummy", 0)])
def test_the_gate_compares_real_weights_and_tells_what_was_resolved(
    tmp_path: Path, weights: str, times: int
) -> None:
    asked: list[Any] = []

    def compare(client: Any, name: str, resolved: Any) -> list[Check]:
        asked.append((client.models(), [name], resolved["max_model_len"]))
        return [failed("reference", "differs")]

    served = serving_kit.serve(tmp_path, "none", weights, compare=compare)
    assert [names == one and length == 64 for names, one, length in asked] == [True] * times
    assert served.verdict is (Verdict.FAIL if times else Verdict.PASS)
