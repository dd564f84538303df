"""Checks of an AR engine whose model draws its own tokens: </think> is always followed by <recaption>."""

from __future__ import annotations

from omni_runners import client
from runner_checks.ar import SCHEDULERS as SCHEDULERS
from runner_checks.ar import WORKER as WORKER
from runner_checks.ar import ask
from runner_checks.sampler_tokens import (
    BIASED,
    PENALISED,
    PENALISED_TOKENS,
    RECAPTION,
    THINK_END,
    UNPENALISED_TOKENS,
)

END = 2  # of the checkpoint
BATCH_8 = [[7 + one, 9, 11] for one in range(8)]


def plain(engine, folder):
    """Batch 1, no penalty: the third token is </think>, the fourth is forced."""
    return _forced(ask(engine, BATCH_8[:1], max_tokens=8), 1)


def plain_batch_of_8(engine, folder):
    """Eight requests of different lengths at once: each row has its own history."""
    return _forced(ask(engine, BATCH_8, max_tokens=8), 8) or _forced(
        ask(engine, [list(range(3, 3 + 9 * (1 + one))) for one in range(8)], max_tokens=8), 8
    )


def _forced(outputs, count):
    for index, output in enumerate(outputs):
        client.take(output)
        tokens = list(output.outputs[0].token_ids)
        if tokens[2:4] != [THINK_END, RECAPTION] or len(tokens) != 8:
            return f"request {index}: tokens {tokens}"
    return "" if len(outputs) == count else f"{len(outputs)} outputs"


def logit_bias_is_seen(engine, folder):
    """The model draws from biased logits, also after it declines."""
    return _are(ask(engine, BATCH_8[:1], max_tokens=8, **BIASED), UNPENALISED_TOKENS)


def penalties_are_seen(engine, folder):
    """The model draws from penalised logits, whose penalty follows the live history."""
    return _are(ask(engine, BATCH_8[:1], max_tokens=8, **PENALISED), PENALISED_TOKENS)


def penalties_in_a_batch_of_8(engine, folder):
    """The same in a batch."""
    return _are(ask(engine, BATCH_8, max_tokens=8, **PENALISED), PENALISED_TOKENS)


def minimum_tokens_are_seen(engine, folder):
    """The end token is barred until then, whatever the bias says."""
    bias = {"logit_bias": {END: 100.0, 77: 50.0}, "min_tokens": 2, "ignore_eos": False}
    outputs = ask(engine, BATCH_8[:1], max_tokens=8, **bias)
    return _are(outputs, [77, 77, THINK_END, RECAPTION, END])


def bad_words_are_seen(engine, folder):
    """A barred token is not drawn."""
    word = engine.get_tokenizer().decode([77])
    return _are(
        ask(engine, BATCH_8[:1], max_tokens=4, bad_words=[word], **BIASED), [78, 78, THINK_END, RECAPTION]
    )


def logprobs_are_those_of_the_drawn_tokens(engine, folder):
    """vLLM gathers them for what the model drew."""
    output = ask(engine, BATCH_8[:1], max_tokens=5, logprobs=1)[0]
    client.take(output)
    completion = output.outputs[0]
    lacking = [
        token
        for token, step in zip(completion.token_ids, completion.logprobs, strict=True)
        if token not in step
    ]
    return f"no log-probability of {lacking}" if lacking else ""


def _are(outputs, expected):
    for index, output in enumerate(outputs):
        client.take(output)
        tokens = list(output.outputs[0].token_ids)
        if tokens != expected:
            return f"request {index}: tokens {tokens}, expected {expected}"
    return ""


CHECKS = {
    one.__name__: one
    for one in (
        plain,
        plain_batch_of_8,
        logit_bias_is_seen,
        penalties_are_seen,
        penalties_in_a_batch_of_8,
        minimum_tokens_are_seen,
        bad_words_are_seen,
        logprobs_are_those_of_the_drawn_tokens,
    )
}
