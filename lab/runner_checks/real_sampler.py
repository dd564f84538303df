"""Checks of an AR engine with a real model's sampler: the tokens that vllm-omni's own runner has it draw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from vllm import SamplingParams

from omni_runners import client
from runner_checks import released
from runner_checks.ar import stock
from runner_checks.names import HOOKS, PLAN
from runner_checks.names import SCHEDULERS as SCHEDULERS
from runner_checks.names import WORKER as WORKER
from runner_checks.probe import core_of, runner_of
from runner_checks.sampler_tokens import RECAPTION, THINK_END

OPTIONS = {"max_num_seqs": 4, "enable_prefix_caching": False}
THOUGHT = {"logit_bias": {THINK_END: 6.0}}
ASKED = (  # more than fit at once, and of different lengths: the batch changes in most steps
    {"temperature": 0.0},
    {"temperature": 0.0, **THOUGHT},
    {"seed": 1, "temperature": 0.9, "top_k": 20},
    {"seed": 2, "top_p": 0.9, **THOUGHT},
    {"seed": 3, "repetition_penalty": 1.3, **THOUGHT},
    {"temperature": 0.0, "repetition_penalty": 1.3},
    {"temperature": 0.0, "presence_penalty": 1.0, "frequency_penalty": 0.5, **THOUGHT},
    {"seed": 4, "frequency_penalty": 0.7, "min_p": 0.01},
    {"seed": 5, "logit_bias": {2: 30.0}, "min_tokens": 5, "ignore_eos": False},
    {"temperature": 0.0, "bad_words": ["a", "b"], "logit_bias": {77: 9.0, 97: 12.0, 98: 11.0}},
    {"seed": 6, "allowed_token_ids": list(range(100, 180))},
    {"seed": 7, "logit_bias": {77: 8.0}, "extra_args": {"ar_task_mode": "comprehension"}},
    {"seed": 8, "temperature": 1.4, "logprobs": 2, **THOUGHT},
    {"temperature": 0.0, "logit_bias": {250: 8.0}, "ignore_eos": False},
)


def _asked(engine):
    """The outputs, as tokens and the most likely log-probabilities."""
    params = [
        SamplingParams(**({"max_tokens": 6 + 3 * (index % 5), "ignore_eos": True, "temperature": 1.0} | one))
        for index, one in enumerate(ASKED)
    ]
    prompts = [{"prompt_token_ids": [7 + index, 9, 11, 13][: 1 + index % 4]} for index in range(len(ASKED))]
    together = [index for index, one in enumerate(ASKED) if not (_speaks(engine) and _asks_more(one))]
    outputs = engine.generate([prompts[i] for i in together], [params[i] for i in together], use_tqdm=False)
    found = dict(zip(together, outputs, strict=True))
    for index in range(len(ASKED)):
        if index not in found:
            found[index] = engine.generate(prompts[index], params[index], use_tqdm=False)[0]
    return [_seen(found[index]) for index in range(len(ASKED))]


def _speaks(engine):
    return type(runner_of(engine).get_model()).__name__ == "Speaker"


def _asks_more(asked):
    """Whether CosyVoice3 leaves the whole batch of such a request to vLLM's sampler: it is asked alone then.

    Else what others draw would depend on which steps they share with it.
    """
    more = {"logprobs", "bad_words", "frequency_penalty", "presence_penalty"}
    return asked.get("temperature") == 0.0 or bool(more & asked.keys())


def _seen(output):
    completion = output.outputs[0]
    steps = completion.logprobs or []
    scores = [sorted((token, round(one.logprob, 3)) for token, one in step.items()) for step in steps]
    return {"tokens": list(completion.token_ids), "logprobs": json.loads(json.dumps(scores))}


def tokens_equal_those_under_vllm_omni(engine, folder):
    """Penalties, bias, bad words, minimum tokens, seeds, top-k, top-p, in batches that change."""
    ours, theirs = _asked(engine), _reference(engine, folder)
    for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if one != other:
            return f"request {index}, {ASKED[index]}: {one}, under vllm-omni {other}"
    return ""


def _reference(engine, folder):
    if hasattr(runner_of(engine), "input_batch"):
        return under_vllm_omni(engine)
    # vllm-omni's V2 runner asks no model: the reference is its V1 runner, in a process of its own
    plan = json.loads(os.environ[PLAN])
    options = {**plan.get("options", {}), "async_scheduling": False}
    plan |= {"hooks": [], "options": options, "chosen": [print_reference.__name__]}
    variables = os.environ | {"VLLM_USE_V2_MODEL_RUNNER": "0", HOOKS: ""}
    command = [sys.executable, "-m", "runner_checks.probe", json.dumps(plan)]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("REFERENCE ")]
    if not lines:
        raise RuntimeError(f"no reference: {(ended.stdout + ended.stderr)[-2000:]}")
    return json.loads(lines[-1].removeprefix("REFERENCE "))


def under_vllm_omni(engine):
    """The same requests to vLLM's own runner that samples with vllm-omni's code."""
    runner = runner_of(engine)
    with stock(engine):
        kept = type(runner)
        platform = "npu" if runner.device.type == "npu" else "cpu"
        runner.__class__ = released.omni_runner(platform, kept)
        try:
            return _asked(engine)
        finally:
            runner.__class__ = kept


def print_reference(engine, folder):
    """For another process."""
    print("REFERENCE " + json.dumps(under_vllm_omni(engine)), flush=True)
    return ""


def a_forced_transition_follows(engine, folder):
    """</think> is drawn, and <recaption> after it: the history is live. For HunyuanImage3's sampler."""
    if "Recaptioner" not in Path(folder).name:
        return ""
    found = 0
    for one in _asked(engine):
        tokens = one["tokens"]
        ends = [index for index, token in enumerate(tokens[:-1]) if token == THINK_END]
        found += len(ends)
        if any(tokens[index + 1] != RECAPTION for index in ends):
            return f"no <recaption> after </think>: {tokens}"
    return "" if found else "no request drew </think>"


def payloads_come_with_them(engine, folder):
    """Each request has its hidden states too."""
    params = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)
    output = engine.generate({"prompt_token_ids": [7, 9]}, params, use_tqdm=False)[0]
    rows = len(client.take(output).tensors["hidden"])
    left = list(core_of(engine).scheduler._omni_files.folder.glob("*.part"))
    return "" if rows == 5 and not left else f"{rows} rows, expected 5; left {left}"


CHECKS = {
    one.__name__: one
    for one in (tokens_equal_those_under_vllm_omni, a_forced_transition_follows, payloads_come_with_them)
}
OTHERS = {print_reference.__name__: print_reference}
