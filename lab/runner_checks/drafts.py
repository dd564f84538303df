"""Checks of an AR engine with speculative decoding: rows of rejected drafts are left out."""

from __future__ import annotations

from runner_checks.ar import OPTIONS as PLAIN
from runner_checks.ar import SCHEDULERS as SCHEDULERS
from runner_checks.ar import WORKER as WORKER
from runner_checks.ar import ask, hidden_states_equal_the_reference, tokens_equal_stock

NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
OPTIONS = PLAIN | {"speculative_config": NGRAM, "disable_log_stats": False}
MADE, ACCEPTED = "vllm:spec_decode_num_draft_tokens", "vllm:spec_decode_num_accepted_tokens"


def drafts_were_accepted_and_rejected(engine, folder):
    """Else the other checks say nothing about drafts."""
    ask(engine)
    made, accepted = (_count(engine, name) for name in (MADE, ACCEPTED))
    return "" if 0 < accepted < made else f"{accepted} of {made} drafted tokens were accepted"


def _count(engine, name):
    return sum(metric.value for metric in engine.get_metrics() if metric.name == name)


CHECKS = {
    one.__name__: one
    for one in (tokens_equal_stock, hidden_states_equal_the_reference, drafts_were_accepted_and_rejected)
}
