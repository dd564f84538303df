"""The sampling metadata of a V2 runner: the same draws as with that of vLLM's V1 batch. Needs vLLM."""

from types import SimpleNamespace

import pytest

vllm = pytest.importorskip("vllm", reason="needs vLLM: run by test_on_vllm.py in its environment")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from vllm.sampling_params import SamplingParams, SamplingType  # noqa: E402
from vllm.v1.sample.sampler import Sampler  # noqa: E402
from vllm.v1.worker.gpu_input_batch import CachedRequestState  # noqa: E402

from omni_runners.core.model_sampler import fit  # noqa: E402
from omni_runners.core.requests import Requests  # noqa: E402
from omni_runners.core.sampling_batch import SamplingBatch  # noqa: E402

VOCABULARY, LONGEST, MOST = 32, 64, 8
CONFIG = SimpleNamespace(
    model_config=SimpleNamespace(
        max_model_len=LONGEST, get_vocab_size=lambda: VOCABULARY, logits_processors=None
    ),
    scheduler_config=SimpleNamespace(max_num_seqs=MOST, max_num_batched_tokens=64),
    speculative_config=None,
    reasoning_config=None,
)
ASKED = {
    "greedy": {"temperature": 0.0},
    "seeded": {"seed": 1, "top_k": 5},
    "nucleus": {"seed": 2, "top_p": 0.7, "repetition_penalty": 1.4},
    "penalised": {"seed": 3, "presence_penalty": 0.9, "frequency_penalty": 0.6},
    "biased": {"temperature": 0.0, "logit_bias": {7: 4.0}},
    "ending late": {"seed": 4, "min_tokens": 3, "stop_token_ids": [5], "logit_bias": {5: 9.0}},
    "allowed": {"seed": 5, "allowed_token_ids": [1, 2, 3, 4]},
    "shallow": {"seed": 6, "min_p": 0.3},
}
# which requests are in each step, in the order of a V2 batch; "greedy" leaves and returns
STEPS = (
    ("greedy", "seeded", "biased"),
    ("seeded", "greedy", "nucleus", "biased"),
    ("nucleus", "seeded"),
    ("penalised", "nucleus", "ending late", "seeded"),
    ("allowed", "ending late", "greedy", "penalised", "nucleus"),
    ("shallow", "greedy", "ending late", "allowed"),
    ("ending late", "shallow", "penalised", "greedy"),
)


def parameters(name):
    found = SamplingParams(**({"max_tokens": 20} | ASKED[name]))
    found.update_from_generation_config({}, eos_token_id=5)
    return found


class States:
    """As far as it is known of V2's: rows of requests, their tokens on the device."""

    def __init__(self):
        self.index_to_req_id = {3 + index: name for index, name in enumerate(ASKED)}
        self.row = {name: row for row, name in self.index_to_req_id.items()}
        size = 3 + len(ASKED)
        self.all_token_ids = SimpleNamespace(gpu=torch.zeros(size, LONGEST, dtype=torch.int32))
        self.prompt_len = SimpleNamespace(np=np.zeros(size, dtype=np.int32))
        self.total_len = SimpleNamespace(gpu=torch.zeros(size, dtype=torch.int32))

    def append(self, name, tokens):
        row = self.row[name]
        start = int(self.total_len.gpu[row])
        self.all_token_ids.gpu[row, start : start + len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
        self.total_len.gpu[row] += len(tokens)


def prompt(name):
    return [1 + len(name) % 5, 7, 9][: 1 + len(name) % 3]


def under_v2():
    """The tokens of each request, drawn with SamplingBatch's metadata."""
    states, requests, sampler, tokens = States(), Requests(), Sampler(), {name: [] for name in ASKED}
    batch = SamplingBatch(CONFIG, torch.device("cpu"), states, requests)
    for number, names in enumerate(STEPS):
        requests.update(scheduled(names, tokens, states))
        found, metadata = batch.metadata(np.array([states.row[name] for name in names]))
        assert found == list(names)
        draw(sampler, metadata, names, tokens, number)
        for name in names:
            states.append(name, tokens[name][-1:])
    return tokens


def scheduled(names, tokens, states):
    new = []
    for name in names:
        if not states.total_len.gpu[states.row[name]]:
            states.prompt_len.np[states.row[name]] = len(prompt(name))
            states.append(name, prompt(name))
            new.append(
                SimpleNamespace(
                    req_id=name,
                    sampling_params=parameters(name),
                    prompt_token_ids=prompt(name),
                    num_computed_tokens=0,
                )
            )
    old = [name for name in names if name not in {one.req_id for one in new}]
    computed = [len(prompt(name)) + len(tokens[name]) - 1 for name in old]
    return SimpleNamespace(
        finished_req_ids=set(),
        scheduled_new_reqs=new,
        scheduled_cached_reqs=SimpleNamespace(req_ids=old, num_computed_tokens=computed),
        num_scheduled_tokens=dict.fromkeys(old, 1) | {one.req_id: len(one.prompt_token_ids) for one in new},
    )


def draw(sampler, metadata, names, tokens, number):
    rows = []
    for name in names:
        generator = torch.Generator().manual_seed(100 * number + len(name))
        rows.append(torch.randn(VOCABULARY, generator=generator) * 2)
    drawn = sampler(torch.stack(rows), metadata).sampled_token_ids.reshape(-1).tolist()
    for name, token in zip(names, drawn, strict=True):
        tokens[name].append(token)


def under_v1():
    """The same with one batch of vLLM's that lives over all steps, as V1's runner keeps it."""
    batch = SamplingBatch(CONFIG, torch.device("cpu"), States(), Requests())._batch
    states, sampler, tokens = {}, Sampler(), {name: [] for name in ASKED}
    for number, names in enumerate(STEPS):
        for name in [one for one in batch.req_ids if one not in names]:
            batch.remove_request(name)
        for name in names:
            if name not in batch.req_id_to_index:
                states.setdefault(name, state(name, tokens[name]))
                batch.add_request(states[name])
        batch.condense()
        batch.refresh_metadata()
        draw(sampler, batch.sampling_metadata, list(batch.req_ids), tokens, number)
    return tokens


def state(name, output):
    params, generator = parameters(name), None
    if params.sampling_type == SamplingType.RANDOM_SEED:
        generator = torch.Generator().manual_seed(params.seed)
    return CachedRequestState(
        req_id=name,
        prompt_token_ids=prompt(name),
        mm_features=[],
        sampling_params=params,
        generator=generator,
        block_ids=([],),
        num_computed_tokens=0,
        output_token_ids=output,
    )


def test_a_v2_batch_draws_as_a_v1_batch_would():
    ours, theirs = under_v2(), under_v1()
    assert ours == theirs
    assert len({tuple(one) for one in ours.values()}) == len(ASKED)


def test_what_is_drawn_within_a_prompt_moves_no_generator():
    states, requests = States(), Requests()
    batch = SamplingBatch(CONFIG, torch.device("cpu"), states, requests)
    step = scheduled(("seeded", "nucleus"), dict.fromkeys(ASKED, ()), states)
    step.num_scheduled_tokens["seeded"] = 0
    requests.update(step)
    _, metadata = batch.metadata(np.array([states.row["seeded"], states.row["nucleus"]]))
    assert list(metadata.generators) == [1]


def test_a_head_that_is_narrower_than_the_vocabulary():
    """Neither the padding of prompts nor an end token beyond it is looked for in its logits."""
    states, requests = States(), Requests()
    batch = SamplingBatch(CONFIG, torch.device("cpu"), states, requests)
    names = ("ending late", "nucleus")
    requests.update(scheduled(names, dict.fromkeys(ASKED, ()), states))
    requests["ending late"].params.all_stop_token_ids.add(VOCABULARY - 1)
    _, metadata = batch.metadata(np.array([states.row[name] for name in names]))
    logits = torch.zeros(2, 8)
    assert Sampler()(logits, fit(metadata, 8)).sampled_token_ids.max() < 8
