"""Checks of an AR engine with a model that breaks: who asked is told, others are served, nothing is left.

``FAULTS`` is the table: what breaks, whether the request ends by it, and what its client is told.
"""

from __future__ import annotations

import contextlib

import torch
from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind

from omni_runners import client
from omni_runners.errors import PayloadError
from runner_checks.names import SCHEDULERS as SCHEDULERS
from runner_checks.names import WORKER as WORKER
from runner_checks.probe import core_of, runner_of

OPTIONS = {"enable_prefix_caching": False, "max_num_seqs": 4}
PROMPT, TOKENS = [7, 9, 11], 5
FAULTS = {  # fault: (ends the request, also that of its neighbours; the text)
    "sample rows": (True, True, "sampled_token_ids (4, 1) for 2 rows"),
    "sample raises": (True, True, "Broken.sample: the codebook is empty"),
    "preprocess": (True, False, "Broken.preprocess: no such speaker"),
    "preprocess shape": (True, False, "Broken.preprocess: The size of tensor"),
    "postprocess": (True, False, "Broken.postprocess: the speaker left"),
    "output raises": (False, True, "Broken: 'codes'"),
    "keys": (False, True, "in some steps and not in others"),
    "dtype": (False, True, "torch.float16 (2,) and were torch.float32"),
    "rows": (False, True, "5 rows or values as 'frames' to 2 requests"),
    "list": (False, True, "4 rows or values as 'list' to 2 requests"),
}


def _params(fault=None, **more):
    extra = {"omni_info": {"fault": fault}} if fault else {}
    return SamplingParams(
        **({"max_tokens": TOKENS, "temperature": 0.0, "ignore_eos": True, "extra_args": extra} | more)
    )


def _asked(engine, *params):
    return engine.generate([{"prompt_token_ids": PROMPT} for _ in params], list(params), use_tqdm=False)


def _check(engine, fault):
    ends, shared, text = FAULTS[fault]
    expected = _asked(engine, _params())[0]
    healthy = list(expected.outputs[0].token_ids)
    client.take(expected)
    broken, beside = _asked(engine, _params(fault), _params())
    if ends != (broken.outputs[0].finish_reason == "abort"):
        return f"it ended by {broken.outputs[0].finish_reason}"
    if ends and text not in str(broken.outputs[0].stop_reason):
        return f"the client is told {broken.outputs[0].stop_reason!r}"
    if not ends and list(broken.outputs[0].token_ids) != healthy:
        return f"tokens {broken.outputs[0].token_ids}, expected {healthy}"
    for one, told in ((broken, True), (beside, shared)):
        try:
            client.take(one)
        except PayloadError as error:
            if not told or text not in str(error):
                return f"{'it' if told else 'its neighbour'} is told {error}"
        else:
            if told:
                return "it got a payload"
    if not shared and list(beside.outputs[0].token_ids) != healthy:
        return f"its neighbour got {beside.outputs[0].token_ids}, expected {healthy}"
    after = _asked(engine, _params())[0]
    if list(after.outputs[0].token_ids) != healthy or len(client.take(after).tensors["frames"]) != 7:
        return "the next request is not served"
    return left(engine)


def left(engine):
    """What a finished engine still holds."""
    scheduler, runner = core_of(engine).scheduler, runner_of(engine)
    held = {
        "requests": dict(scheduler.requests),
        "pending": scheduler._omni_pending,
        "files": [path.name for path in scheduler._omni_files.folder.iterdir()],
    }
    with contextlib.suppress(AttributeError):  # the runner hears of the last ones with the next step
        held["infos"] = set(runner._omni_requests._known) - set(scheduler.finished_req_ids)
    held = {name: one for name, one in held.items() if one}
    return f"left: {held}" if held else ""


def a_client_that_goes_away(engine, folder):
    """Aborted while it runs, its payload on its way."""
    core = engine.llm_engine
    core.add_request("gone", {"prompt_token_ids": PROMPT}, _params(max_tokens=50))
    for _ in range(3):
        core.step()
    core.abort_request(["gone"])
    while core.has_unfinished_requests():
        core.step()
    client.take(_asked(engine, _params())[0])
    return left(engine)


def parts_come_while_it_runs(engine, folder):
    """Chunk by chunk, as a downstream stage reads them; together they are what comes at the end."""
    whole = client.take(_asked(engine, _params())[0]).tensors
    params = _params(output_kind=RequestOutputKind.CUMULATIVE, extra_args={"omni_payload": "parts"})
    engine.llm_engine.add_request("parts", {"prompt_token_ids": PROMPT}, params)
    every, late, taken, lagging = [], client.Parts(), client.Parts(), 0
    chunks = {name: [] for name in whole}
    while engine.llm_engine.has_unfinished_requests():
        for output in engine.llm_engine.step():
            for name, rows in taken.take(output).items():
                chunks[name].append(rows)
            lagging += 1
            if lagging == 1 or output.finished:  # vLLM has merged the others away
                every.append(late.take(output))
    for name, rows in whole.items():
        if not torch.equal(torch.cat(chunks[name]), rows) or [len(one) for one in chunks[name]][:2] != [3, 1]:
            return f"{name}: {[len(one) for one in chunks[name]]} rows came for {len(rows)}"
        if not torch.equal(torch.cat([one[name] for one in every]), rows):
            return f"{name}: a reader that is late lacks rows"
    return left(engine)


def a_scheduler_that_knows_no_payloads(engine, folder):
    """vLLM's own in place of ours: it meets none, and serves."""
    from runner_checks.ar import _stock_class

    runner, scheduler = runner_of(engine), core_of(engine).scheduler
    kept = type(scheduler)
    scheduler.__class__, runner._omni_delivers = _stock_class(kept.__mro__[2]), False
    try:
        output = _asked(engine, _params())[0]
    finally:
        scheduler.__class__, runner._omni_delivers = kept, True
    return "" if len(output.outputs[0].token_ids) == TOKENS else "no tokens"


def _named(fault):
    def check(engine, folder):
        return _check(engine, fault)

    return check


CHECKS = {f"a_broken_{name.replace(' ', '_')}": _named(name) for name in FAULTS}
CHECKS |= {
    one.__name__: one
    for one in (a_client_that_goes_away, parts_come_while_it_runs, a_scheduler_that_knows_no_payloads)
}
