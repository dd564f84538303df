"""Model interfaces and the tensors around a forward. Needs vLLM: see tests/runners/test_on_vllm.py."""

import re
from types import SimpleNamespace

import pytest

vllm = pytest.importorskip("vllm", reason="needs vLLM: run by test_on_vllm.py in its environment")

import torch  # noqa: E402
from torch import nn  # noqa: E402

from omni_runners.core.model_calls import Around, ModelCalls  # noqa: E402
from omni_runners.core.model_sampler import ModelSampler, drawing_v2, require_drawn  # noqa: E402
from omni_runners.core.multimodal import MultimodalOutputs  # noqa: E402
from omni_runners.core.requests import Requests  # noqa: E402
from omni_runners.core.rows import BatchRows  # noqa: E402
from omni_runners.errors import InterfaceError, PayloadError  # noqa: E402
from omni_runners.interfaces import OmniOutput, generation_entry, prefers_own_sampler  # noqa: E402
from omni_runners.models import GenerationModel  # noqa: E402
from omni_runners.outputs import by_request, flat  # noqa: E402


def model(base=nn.Module, **members):
    return type("Model", (base,), members)


def method(*args, **options):
    return None


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"sample": method, "forward": method, "diffuse": method}, "sample"),
        ({"forward": method, "diffuse": method}, "forward"),
        ({"diffuse": method}, "diffuse"),
    ],
)
def test_the_entry_is_the_first_that_is_defined(members, expected):
    assert generation_entry(model(**members)) == expected
    assert generation_entry(model(model(**members))) == expected, "inherited"


def test_the_forward_of_the_base_is_no_entry():
    assert generation_entry(model(GenerationModel, diffuse=method)) == "diffuse"
    with pytest.raises(
        InterfaceError, match=r"none of its classes below nn.Module .*sample, forward, diffuse"
    ):
        generation_entry(model(GenerationModel))
    with pytest.raises(InterfaceError, match="sample, forward, diffuse"):
        generation_entry(model())


def test_a_model_with_a_sampler_of_its_own_is_no_generation_model():
    with pytest.raises(InterfaceError, match="it is an AR model"):
        generation_entry(model(sample=method, prefer_model_sampler=True))


def test_prefer_model_sampler_without_sample_is_refused():
    with pytest.raises(InterfaceError, match="has no method sample"):
        prefers_own_sampler(model(prefer_model_sampler=True)())
    assert not prefers_own_sampler(model(sample=method)())


def test_multimodal_outputs_survive_a_replay_that_runs_no_python():
    outputs, captured = MultimodalOutputs(8), {}
    for tokens in (8, 4, 2):  # "capture" three batch sizes: the graph is the copy into the buffer
        source = torch.zeros(tokens, 3)
        outputs.begin()
        outputs.take({"codec": {"frames": source}}, tokens)
        captured[tokens] = (source, outputs._buffers["codec.frames"])
    assert len({buffer.data_ptr() for _, buffer in captured.values()}) == 1, "one buffer for all graphs"
    source, buffer = captured[4]
    outputs.begin()
    buffer[:4].copy_(source.fill_(5))  # "replay"
    assert torch.equal(outputs.read(3)["codec.frames"], torch.full((3, 3), 5.0))


def test_outputs_of_an_earlier_step_are_not_given_again():
    outputs = MultimodalOutputs(4)
    outputs.take({"codec": torch.ones(2, 1)}, 2)
    outputs.begin()
    outputs.ran()
    assert outputs.read(2) == {}


def test_lists_per_request_and_a_replayed_graph_are_an_error():
    outputs = MultimodalOutputs(4)
    outputs.take({"codes": [torch.ones(1), torch.ones(2)]}, 4)
    assert len(outputs.read(4)["codes"]) == 2
    outputs.begin()
    with pytest.raises(PayloadError, match=r"codes per request, which a replayed graph .*make_omni_output"):
        outputs.read(4)


def test_nested_outputs_are_flattened():
    assert flat({"codes": {"audio": 1, "text": None}, "sr": 2}) == {"codes.audio": 1, "sr": 2}


class Echo(nn.Module):
    def forward(self, input_ids, positions, seq_token_counts=None):
        self.counts = seq_token_counts
        return OmniOutput(None, {"wave": input_ids[:, None].float()})


def new(name, prompt=3, **extra):
    params = SimpleNamespace(extra_args=extra, output_kind=None, max_tokens=5, seed=None)
    return SimpleNamespace(
        req_id=name, sampling_params=params, prompt_token_ids=[1] * prompt, num_computed_tokens=0
    )


def step(*started, counts=None, finished=()):
    """What a scheduler would say of these new requests."""
    return SimpleNamespace(
        finished_req_ids=set(finished),
        scheduled_new_reqs=list(started),
        scheduled_cached_reqs=SimpleNamespace(req_ids=[], num_computed_tokens=[]),
        num_scheduled_tokens=counts or {one.req_id: len(one.prompt_token_ids) for one in started},
    )


def known(*names, **extra):
    requests = Requests()
    requests.update(step(*(new(name, **extra) for name in names)))
    return requests


def calls(instance, rows, requests=None, **more):
    requests = requests or known(*(rows.request_ids if rows else ()))
    starts = lambda: torch.tensor(rows.starts)  # noqa: E731
    told = {"rows": lambda: rows, "sampling": lambda: {"sampler": 7}, "starts": starts}
    around = Around(**told, tokens=8, talker={}, **more)
    return ModelCalls(instance, instance.forward, requests, around)


def test_a_model_without_hidden_states_gets_its_counts_and_gives_its_rows():
    echo, rows = Echo(), BatchRows(["a", "b"], [0, 2, 5], [0, 0])
    around = calls(echo, rows, generation=True)
    hidden = echo(input_ids=torch.arange(5), positions=torch.arange(5))
    assert echo.counts == [2, 3]
    assert hidden.shape == (5, 1)
    assert around.finish(hidden, rows)[0]["wave"].flatten().tolist() == [0, 1, 2, 3, 4]
    echo = Echo()
    calls(echo, None, generation=True)
    echo(input_ids=torch.arange(4), positions=torch.arange(4))
    assert echo.counts == [4], "a dummy run is one request"


class Listener(nn.Module):
    """Notes the embeddings it gets, and adds one to them in its preprocess."""

    has_preprocess = True

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 2)
        self.asked = 0

    def embed_input_ids(self, input_ids):
        return self.table(input_ids)

    def preprocess(self, input_ids, input_embeds, **info):
        self.asked += 1
        return input_ids, input_embeds + 1, {}

    def forward(self, input_ids, positions=None, inputs_embeds=None):
        self.heard = inputs_embeds
        return inputs_embeds


@torch.inference_mode()
def test_a_step_is_preprocessed_once_and_before_a_graph_would_run():
    listener, ids = Listener(), torch.arange(3)
    around = calls(listener, BatchRows(["a", "b"], [0, 1, 3], [0, 0]))
    for given in (None, torch.ones(3, 2)):
        around.begin(set())
        around.prepare(ids, given)
        expected = (listener.table(ids) if given is None else given) + 1
        # a replayed graph runs no Python, but reads this memory
        assert torch.equal(around._embeddings[:3], expected)
        listener(input_ids=ids, inputs_embeds=given)
        assert torch.equal(listener.heard, expected)
        assert listener.heard.data_ptr() == around._embeddings.data_ptr()
        assert listener.asked == 2, "once for each request"
        listener.asked = 0
        around.begin(set())
        listener(input_ids=ids, inputs_embeds=given)  # a runner that does not call prepare
        assert torch.equal(listener.heard, expected)
        listener.asked = 0


@torch.inference_mode()
def test_a_dummy_run_reads_the_same_memory_and_preprocesses_nothing():
    listener = Listener()
    around = calls(listener, None)
    around.begin(set())
    listener(input_ids=torch.arange(3))
    assert listener.asked == 0
    assert listener.heard.data_ptr() == around._embeddings.data_ptr()
    assert listener.requires_raw_input_tokens


def test_preprocess_and_counts_are_refused_where_a_graph_would_not_repeat_them():
    mode = SimpleNamespace(has_full_cudagraphs=lambda: True)
    config = SimpleNamespace(
        compilation_config=SimpleNamespace(cudagraph_mode=mode),
        model_config=SimpleNamespace(enforce_eager=False),
        parallel_config=SimpleNamespace(pipeline_parallel_size=1),
    )
    around = calls(Listener(), None)
    around.check(config, before_graph=True)
    with pytest.raises(InterfaceError, match="PIECEWISE"):
        around.check(config, before_graph=False)
    with pytest.raises(InterfaceError, match="PIECEWISE"):
        calls(Echo(), None, generation=True).check(config, before_graph=True)
    calls(Echo(), None).check(config, before_graph=True)  # an AR model that names them gets none
    config.model_config.enforce_eager = True
    calls(Echo(), None, generation=True).check(config, before_graph=False)
    config.parallel_config.pipeline_parallel_size = 2
    with pytest.raises(InterfaceError, match="pipeline_parallel_size 1"):
        around.check(config, before_graph=True)


class V2Sampler:
    def sample(self, logits, rows=None, idx_mapping_np=None):
        return logits.argmax(-1), logits


METADATA = SimpleNamespace(
    max_num_logprobs=None, prompt_token_ids=None, logitsprocs=SimpleNamespace(non_argmax_invariant=[])
)
LOGITS = torch.tensor([[0.0, 1.0], [2.0, 1.0]])


def chooser(ids=None, **more):
    output = None
    if ids is not None:
        output = SimpleNamespace(sampled_token_ids=torch.tensor(ids), logprobs_tensors=None)
    return SimpleNamespace(sample=lambda logits, metadata, **options: output, **more)


def test_the_model_draws_and_may_decline():
    requests = known("a", "b")
    output = ModelSampler(chooser([[0], [1]]), requests).draw(LOGITS, METADATA, ["a", "b"])
    assert output.sampled_token_ids.tolist() == [[0], [1]]
    assert ModelSampler(chooser(), requests).draw(LOGITS, METADATA, ["a", "b"]) is None
    assert requests.ended == {}


def test_log_probabilities_are_of_the_logits_before_the_model_changed_them():
    def sample(logits, metadata):
        logits.fill_(0)
        return SimpleNamespace(sampled_token_ids=torch.tensor([[0], [1]]), logprobs_tensors=None)

    wanting = SimpleNamespace(**vars(METADATA) | {"max_num_logprobs": 1})
    mine = ModelSampler(SimpleNamespace(sample=sample), known("a", "b"))
    found = mine.draw(LOGITS.clone(), wanting, ["a", "b"]).logprobs_tensors
    expected = LOGITS.log_softmax(-1)
    assert torch.allclose(found.logprobs[:, 0], torch.stack((expected[0, 0], expected[1, 1])))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (chooser([[0]]), r"sampled_token_ids \(1, 1\) for 2 rows"),
        (chooser([0, 1]), r"sampled_token_ids \(2,\) for 2 rows"),
        (SimpleNamespace(sample=lambda *given: 1 / 0), "division by zero"),
    ],
)
def test_a_sampler_that_fails_ends_its_requests_and_no_other(model, said):
    requests = known("a", "b", "c")
    assert ModelSampler(model, requests).draw(LOGITS, METADATA, ["a", "b"]) is None
    assert set(requests.ended) == {"a", "b"}
    assert re.search(said, requests.ended["a"])


def test_extra_arguments_are_for_models_that_want_them():
    seen = []

    def sample(logits, metadata, per_req_extra_args=None):
        seen.append(per_req_extra_args)

    requests = known("a", mode=1)
    for wants in (True, False):
        model = SimpleNamespace(sample=sample, model_sampler_wants_extra_args=wants)
        ModelSampler(model, requests).draw(LOGITS, METADATA, ["a"])
    assert seen == [[{"mode": 1}], None]


def test_v2_draws_in_place_of_its_sampler():
    sampler, batch = V2Sampler(), SimpleNamespace(metadata=lambda rows: (rows, METADATA))
    for ids, drawn in (([[0], [1]], [0, 1]), (None, [1, 0])):
        with drawing_v2(sampler, ModelSampler(chooser(ids), known("a", "b")), batch) as chosen:
            assert sampler.sample(LOGITS.clone(), idx_mapping_np=["a", "b"])[0].tolist() == drawn
        require_drawn(chosen, sampler)
    assert "sample" not in vars(sampler), "the sampler is as it was"
    with pytest.raises(InterfaceError, match="V2Sampler does not draw in its method sample"):
        require_drawn([], sampler)


ROWS = BatchRows(["a", "b"], [0, 2, 5], [0, 0])


def test_values_find_their_requests():
    found = by_request(
        {
            "token": torch.arange(5),
            "request": torch.tensor([[1], [2]]),
            "list": [None, torch.ones(3)],
            "shared": [torch.ones(1)],
            "rate": 24000,
            "text": "no tensor",
        },
        ("a", "b"),
        5,
    )
    assert found["token"].tolist() == [0, 1, 2, 3, 4]
    assert [one.tolist() for one in found["request"]] == [[[1]], [[2]]]
    assert found["list"][0] is None
    assert len(found["shared"]) == 2
    assert [one.item() for one in found["rate"]] == [24000, 24000]
    assert "text" not in found


def test_sparse_outputs_are_in_the_order_of_their_own_ids():
    marks = {"meta.sparse_audio": ["1"], "meta.req_id": ["b"]}
    found = by_request({"wave": [torch.ones(2)], **marks}, ("a", "b"), 5)
    assert found["wave"][0] is None
    assert found["wave"][1].tolist() == [1, 1]
    assert set(found) == {"wave"}


@pytest.mark.parametrize("value", [torch.ones(3, 2), [torch.ones(1)] * 3])
def test_a_value_that_fits_no_request_is_an_error(value):
    with pytest.raises(PayloadError, match="3 rows or values as 'codes' to 2 requests"):
        by_request({"codes": value}, ("a", "b"), 5)


class Asking(nn.Module):
    """Notes what its forward gets."""

    enable_update_additional_information = True

    def forward(self, input_ids, positions, **options):
        self.got = options
        return input_ids


def test_a_forward_gets_what_it_takes():
    asking, requests = Asking(), known("a", "b", omni_info={"speaker": 3}, prompt=2)
    calls(asking, ROWS, requests)
    asking(input_ids=torch.arange(5), positions=torch.arange(5))
    infos = asking.got["model_intermediate_buffer"]
    assert [info["speaker"] for info in infos] == [3, 3]
    assert asking.got["runtime_additional_information"] is infos
    assert asking.got["request_token_spans"] == [(0, 2), (2, 5)]
    assert asking.got["sampling_extra_args"][0]["omni_info"] == {"speaker": 3}
    assert asking.got["request_sample_eligible"] == [True, True]
    assert asking.got["sampler"] == 7
    assert "seq_token_counts" not in asking.got, "of generation models alone"
    plain = type("Plain", (nn.Module,), {"forward": Asking.forward})()
    calls(plain, ROWS)
    plain(input_ids=torch.arange(5), positions=torch.arange(5))
    assert plain.got == {}, "a text model of vLLM's is called as ever"


def test_a_model_hears_of_requests_that_are_over_and_of_the_end_of_the_warm_up():
    heard, model = [], nn.Linear(1, 1)
    model.on_requests_finished, model._clear_warmup_state = heard.append, lambda: heard.append("warm")
    around = calls(model, None)
    around.begin(set())
    around.begin({"a"})
    assert heard == ["warm", {"a"}]


class Talking(nn.Module):
    has_preprocess = True

    def __init__(self):
        super().__init__()
        self.asked = []

    def embed_input_ids(self, input_ids):
        return input_ids[:, None].float()

    def preprocess(self, input_ids, input_embeds, **info):
        update = {} if info["_omni_is_prefill"] else {"mtp_inputs": (torch.ones(1), torch.ones(1))}
        return input_ids, input_embeds, update

    def talker_mtp(self, ids, embeds, last, text, generator=None, generators=None, top_k=None):
        self.asked.append((len(ids), top_k))
        drawn = torch.rand(len(ids), 1, generator=generator)
        return drawn, drawn

    def forward(self, input_ids, positions=None, inputs_embeds=None):
        return inputs_embeds


@torch.inference_mode()
def test_talkers_with_seeds_draw_from_streams_of_their_own():
    def codes(seeds):
        requests = Requests()
        requests.update(step(*(new(name, 0, tts_local_seed=seed) for name, seed in seeds.items())))
        for name in seeds:
            requests[name].scheduled = 1
        rows = BatchRows(list(seeds), list(range(len(seeds) + 1)), [0] * len(seeds))
        model = Talking()
        around = calls(model, rows, requests)
        around.begin(set())
        around.prepare(torch.arange(len(seeds)), None)
        return {name: requests.info(name)["codes"]["audio"].item() for name in seeds}, model.asked

    alone, _ = codes({"a": 1})
    together, asked = codes({"b": 2, "a": 1})
    assert together["a"] == alone["a"]
    assert asked == [(1, None), (1, None)]
    assert codes({"a": None, "b": None})[1] == [(2, None)], "without seeds in one batch"


def test_a_preprocess_that_fails_ends_its_request_alone():
    class Picky(Listener):
        def preprocess(self, input_ids, input_embeds, **info):
            if info["request_id"] == "b":
                raise ValueError("no voice")
            return super().preprocess(input_ids, input_embeds, **info)

    picky, rows, requests = Picky(), BatchRows(["a", "b"], [0, 1, 3], [0, 0]), known("a", "b")
    around = calls(picky, rows, requests)
    around.begin(set())
    with torch.inference_mode():
        around.prepare(torch.arange(3), None)
    assert requests.ended == {"b": "Picky.preprocess: no voice"}
    assert picky.asked == 1


class Batching(Listener):
    """Prepares the requests that decode in one call: adds two to their embeddings, and notes their ids."""

    def __init__(self, mtp=False):
        super().__init__()
        self.together, self.mtp, self.talked = [], mtp, []

    def preprocess_decode_batch(self, *, input_ids, req_infos):
        self.together.append([one["request_id"] for one in req_infos])
        assert not any(one["_omni_is_prefill"] for one in req_infos)
        inputs = torch.arange(len(input_ids))[:, None].float()
        mtp = (inputs, inputs + 10) if self.mtp else ()
        updates = [{"seen": int(token)} for token in input_ids]
        return input_ids + 1, self.table(input_ids) + 2, *mtp, updates

    def talker_mtp(self, ids, embeds, last, text):
        self.talked.append((ids.tolist(), last.flatten().tolist(), text.flatten().tolist()))
        return embeds + 1, ids[:, None]


def decoding(*names):
    """Requests whose prompt of three tokens is computed."""
    requests = known(*names)
    for name in names:
        requests[name].computed = 3
    return requests


@torch.inference_mode()
def test_requests_that_decode_are_prepared_in_one_call():
    model, requests = Batching(), decoding("a", "b", "d", "e")
    requests.update(step(new("c")))
    rows = BatchRows(["a", "b", "c", "d", "e"], [0, 1, 2, 4, 5, 6], [0] * 5)
    ids = torch.arange(6)
    around = calls(model, rows, requests)
    around.begin(set())
    around.prepare(ids, None)
    assert model.together == [["a", "b"], ["d", "e"]], "a prompt stands between them"
    assert model.asked == 1
    assert ids.tolist() == [1, 2, 2, 3, 5, 6]
    seen = torch.arange(6)
    expected = model.table(seen) + torch.tensor([2, 2, 1, 1, 2, 2])[:, None]
    assert torch.equal(around._embeddings[:6], expected)
    assert [requests.info(one).get("seen") for one in rows.request_ids] == [0, 1, None, 4, 5]
    assert model.talked == []


@torch.inference_mode()
def test_what_one_call_prepares_for_the_talker_is_talked_together():
    model, requests = Batching(mtp=True), decoding("a", "b")
    around = calls(model, BatchRows(["a", "b"], [0, 1, 2], [0, 0]), requests)
    around.begin(set())
    around.prepare(torch.tensor([4, 7]), None)
    assert model.talked == [([5, 8], [0.0, 1.0], [10.0, 11.0])]
    assert requests.info("b")["codes"]["audio"].tolist() == [[8]]


def test_a_batch_that_fails_ends_its_requests_and_no_other():
    class Picky(Batching):
        def preprocess_decode_batch(self, **given):
            raise ValueError("no voice")

    requests = decoding("a", "b")
    requests.update(step(new("c", 2)))
    around = calls(Picky(), BatchRows(["a", "b", "c"], [0, 1, 2, 4], [0] * 3), requests)
    around.begin(set())
    with torch.inference_mode():
        around.prepare(torch.arange(4), None)
    assert requests.ended == dict.fromkeys(("a", "b"), "Picky.preprocess_decode_batch: no voice")


class Stepping(Listener):
    """Wants to know each step before its forward."""

    has_preprocess = False
    supports_omni_decode_step_metadata = True
    supports_omni_query_start_loc = True

    def __init__(self):
        super().__init__()
        self.steps = []

    def update_decode_step_metadata(self, **told):
        self.steps.append(told)

    def forward(self, input_ids, positions=None, inputs_embeds=None, omni_query_start_loc=None):
        self.starts = omni_query_start_loc
        return self.table(input_ids)


@torch.inference_mode()
def test_a_model_is_told_of_its_step_where_it_asks():
    model, ids = Stepping(), torch.arange(3)
    around = calls(model, BatchRows(["a", "b"], [0, 1, 3], [0, 0]))
    around.begin(set())
    around.tell_step(ids, ids, None)
    model(input_ids=ids, positions=ids)
    told = model.steps[0]
    assert told["req_ids"] == ["a", "b"]
    assert told["omni_query_start_loc"].tolist() == model.starts.tolist() == [0, 1, 3]
    assert told["input_ids"] is ids
    assert told["inputs_embeds"] is None
    around = calls(model, None)
    around.tell_step(ids, ids, None)
    assert len(model.steps) == 1, "a dummy run is no step"
    model.supports_omni_decode_step_metadata = model.supports_omni_query_start_loc = False
    around = calls(model, BatchRows(["a"], [0, 3], [0]))
    around.tell_step(ids, ids, None)
    model(input_ids=ids, positions=ids)
    assert (len(model.steps), model.starts) == (1, None)
