"""Checks of an AR engine over two processes: the same tokens, the same tensors."""

from __future__ import annotations

from runner_checks.ar import PROMPTS, ask, wrong_rows
from runner_checks.ar import SCHEDULERS as SCHEDULERS
from runner_checks.ar import WORKER as WORKER

OPTIONS = {"max_num_batched_tokens": 64, "enable_prefix_caching": False}


def tokens_and_hidden_states_equal_the_reference(engine, folder):
    """One rank hands over; a reference in torch has neither ranks nor a cache."""
    from npu_emulator.dry_run.models import reference as dense

    outputs = ask(engine)
    expected = dense.generate(folder, PROMPTS, {"max_tokens": 6})
    for index, (prompt, output, other) in enumerate(zip(PROMPTS, outputs, expected, strict=True)):
        tokens = list(output.outputs[0].token_ids)
        if tokens != other.tokens:
            return f"request {index}: tokens {tokens}, expected {other.tokens}"
        if why := wrong_rows(output, prompt, folder):
            return f"request {index}: {why}"
    return ""


CHECKS = {one.__name__: one for one in (tokens_and_hidden_states_equal_the_reference,)}
