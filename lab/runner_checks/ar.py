"""Checks of an AR engine on the tiny Multimodal model: tokens as stock, hidden states as the reference's."""

from __future__ import annotations

import contextlib
import functools
import shutil

import torch
from vllm import SamplingParams

from omni_runners import client
from omni_runners.errors import PayloadError
from runner_checks.names import SCHEDULERS as SCHEDULERS
from runner_checks.names import WORKER as WORKER
from runner_checks.probe import core_of, runner_of

OPTIONS = {"max_num_batched_tokens": 64, "enable_prefix_caching": True}
LEAST_COSINE = 0.9999
PROMPTS = ([7, 9, 11], list(range(3, 153)), list(range(200, 217)), [5] * 40)


def ask(engine, prompts=PROMPTS, **sampling):
    """The outputs of greedy requests for six tokens each."""
    params = {"temperature": 0.0, "max_tokens": 6, "ignore_eos": True} | sampling
    asked = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
    return engine.generate(asked, SamplingParams(**params), use_tqdm=False)


def tokens_equal_stock(engine, folder):
    """The same engine with vLLM's own runner and scheduler classes in place of ours."""
    ours = [output.outputs[0].token_ids for output in ask(engine, extra_args={"omni_payload": 0})]
    payloads = ask(engine)
    for output in payloads:
        client.take(output)
    if [output.outputs[0].token_ids for output in payloads] != ours:
        return "a payload changes the tokens"
    with stock(engine):
        theirs = [output.outputs[0].token_ids for output in ask(engine)]
    return "" if ours == theirs else f"tokens {ours}, stock {theirs}"


class _Nothing:
    """In place of our mixin: Python lets an object change only between classes of one layout."""


@functools.cache
def _stock_class(scheduler):
    return type("Stock", (_Nothing, scheduler), {})


@contextlib.contextmanager
def stock(engine):
    """Take our classes and hooks off the running engine for as long as this lasts."""
    runner, scheduler = runner_of(engine), core_of(engine).scheduler
    hooks, before = runner.get_model()._forward_hooks, runner.get_model()._forward_pre_hooks
    kept, kept_before, classes = dict(hooks), dict(before), (type(runner), type(scheduler))
    runner.__class__ = next(one for one in classes[0].__mro__ if not one.__module__.startswith("omni_"))
    scheduler.__class__ = _stock_class(classes[1].__mro__[2])
    hooks.clear()
    before.clear()
    unwrap = runner.get_model().register_forward_hook(
        lambda model, args, output: getattr(output, "text_hidden_states", output)
    )
    try:
        yield
    finally:
        unwrap.remove()
        runner.__class__, scheduler.__class__ = classes
        hooks.update(kept)
        before.update(kept_before)


def hidden_states_equal_the_reference(engine, folder):
    """A mixed batch whose long prompts are split over steps."""
    return _compare(folder, PROMPTS, ask(engine))


def hidden_states_of_cached_prompts(engine, folder):
    """Prompts that are in the prefix cache: whoever wants a payload has them computed, others do not."""
    ask(engine, extra_args={"omni_payload": False})
    cached = ask(engine, extra_args={"omni_payload": False})
    if not any(output.num_cached_tokens for output in cached):
        return "no prompt came from the prefix cache"
    return _compare(folder, PROMPTS, ask(engine))


def _compare(folder, prompts, outputs):
    for index, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        tensors, cosine = compared(output, prompt, folder)
        if cosine < LEAST_COSINE:
            return f"request {index}: hidden states {tuple(tensors['hidden'].shape)}, cosine {cosine:.6f}"
        if not torch.equal(tensors["codec.frames"], tensors["hidden"][:, :4].float() * 2):
            return f"request {index}: multimodal rows do not belong to the hidden rows"
    return ""


def compared(output, prompt, weights):
    """An output's tensors, and the least cosine of its hidden states to a reference with ``weights``.

    The cosine is -1 where there is not one row for each token.
    """
    tensors = client.take(output).tensors
    ours, theirs = tensors["hidden"], reference(weights, [*prompt, *output.outputs[0].token_ids][:-1])
    if ours.shape != theirs.shape:
        return tensors, -1.0
    return tensors, torch.nn.functional.cosine_similarity(ours.float(), theirs, dim=-1).min().item()


def wrong_rows(output, prompt, weights):
    """What is wrong with an output's hidden states, against a reference with ``weights``; or nothing."""
    tensors, cosine = compared(output, prompt, weights)
    shape = tuple(tensors["hidden"].shape)
    return f"hidden states {shape}, cosine {cosine:.6f}" if cosine < LEAST_COSINE else ""


@torch.inference_mode()
def reference(folder, ids):
    """Final hidden states (tokens, hidden size) of Hugging Face's implementation."""
    from safetensors.torch import load_file
    from transformers import Qwen3Config, Qwen3Model

    model = Qwen3Model(Qwen3Config.from_pretrained(folder))
    weights = load_file(folder / "model.safetensors")
    weights = {name.removeprefix("model."): one for name, one in weights.items() if "lm_head" not in name}
    model.load_state_dict(weights)
    return model.eval()(torch.tensor([ids])).last_hidden_state[0].float()


def a_request_may_opt_out(engine, folder):
    """Nothing comes back, and nothing is written."""
    output = ask(engine, PROMPTS[:1], extra_args={"omni_payload": False})[0]
    return f"got {output.kv_transfer_params}" if output.kv_transfer_params else _left(engine)


def several_choices_have_payloads_of_their_own(engine, folder):
    """Asked for, each choice has its reference; not asked for, there is none."""
    silent = ask(engine, PROMPTS[:1], n=2, temperature=1.0)[0]
    if silent.kv_transfer_params:
        return f"not asked for: {silent.kv_transfer_params}"
    asked = ask(engine, PROMPTS[:1], n=2, temperature=1.0, seed=3, extra_args={"omni_payload": True})[0]
    for choice in (0, 1):
        rows = len(client.take(asked, choice).tensors["hidden"])
        if rows != 8:
            return f"choice {choice}: {rows} rows, expected 8"
    return _left(engine)


def too_large_a_payload_is_an_error(engine, folder):
    """Named to the client; the engine goes on."""
    files = core_of(engine).scheduler._omni_files
    limit, files.limit = files.limit, 1000
    try:
        output = ask(engine, PROMPTS[:1])[0]
    finally:
        files.limit = limit
    return _refused(engine, folder, output, "more than 1000 bytes")


def a_folder_that_cannot_be_written_is_an_error(engine, folder):
    """As a full disk is: named to the client; the engine goes on."""
    place = core_of(engine).scheduler._omni_files.folder
    shutil.rmtree(place)
    try:
        output = ask(engine, PROMPTS[:1])[0]
    finally:
        place.mkdir()
    return _refused(engine, folder, output, "could not be written")


def _refused(engine, folder, output, said):
    try:
        client.take(output)
    except PayloadError as error:
        if said not in str(error):
            return f"the client is told: {error}"
    else:
        return "the client got a payload"
    if len(output.outputs[0].token_ids) != 6:
        return f"tokens {output.outputs[0].token_ids}"
    return _compare(folder, PROMPTS[:1], ask(engine, PROMPTS[:1])) or _left(engine)


def _left(engine):
    files = [path.name for path in core_of(engine).scheduler._omni_files.folder.iterdir()]
    return f"files left: {files}" if files else ""


CHECKS = {
    one.__name__: one
    for one in (
        tokens_equal_stock,
        hidden_states_equal_the_reference,
        hidden_states_of_cached_prompts,
        a_request_may_opt_out,
        several_choices_have_payloads_of_their_own,
        too_large_a_payload_is_an_error,
        a_folder_that_cannot_be_written_is_an_error,
    )
}
RANDOM = (several_choices_have_payloads_of_their_own.__name__,)
