"""Model interfaces and the tensors around a forward. Needs vLLM: see tests/runners/test_on_vllm.py."""

from types import SimpleNamespace

import pytest

vllm = pytest.importorskip("vllm", reason="needs vLLM: run by test_on_vllm.py in its environment")

import torch  # noqa: E402
from torch import nn  # noqa: E402

from omni_runners.core.model_calls import ModelCalls  # noqa: E402
from omni_runners.core.model_sampler import drawing_v1, require_drawn  # noqa: E402
from omni_runners.core.multimodal import MultimodalOutputs, flat  # noqa: E402
from omni_runners.core.requests import Requests  # noqa: E402
from omni_runners.core.rows import BatchRows  # noqa: E402
from omni_runners.errors import InterfaceError, PayloadError  # noqa: E402
from omni_runners.interfaces import OmniOutput, generation_entry, prefers_own_sampler  # noqa: E402
from omni_runners.models import GenerationModel  # noqa: E402


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


def calls(instance, rows, config=None):
    return ModelCalls(instance, instance.forward, Requests(), 8, lambda: rows)


def test_a_model_without_hidden_states_gets_its_counts_and_gives_its_rows():
    echo, rows = Echo(), BatchRows(["a", "b"], [0, 2, 5], [0, 0])
    around = calls(echo, rows)
    hidden = echo(input_ids=torch.arange(5), positions=torch.arange(5))
    assert echo.counts == [2, 3]
    assert hidden.shape == (5, 1)
    assert around.finish(hidden, rows)["wave"].flatten().tolist() == [0, 1, 2, 3, 4]
    calls(echo, None)
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
        around.begin()
        around.prepare(ids, given)
        expected = (listener.table(ids) if given is None else given) + 1
        # a replayed graph runs no Python, but reads this memory
        assert torch.equal(around._embeddings[:3], expected)
        listener(input_ids=ids, inputs_embeds=given)
        assert torch.equal(listener.heard, expected)
        assert listener.heard.data_ptr() == around._embeddings.data_ptr()
        assert listener.asked == 2, "once for each request"
        listener.asked = 0
        around.begin()
        listener(input_ids=ids, inputs_embeds=given)  # a runner that does not call prepare
        assert torch.equal(listener.heard, expected)
        listener.asked = 0


@torch.inference_mode()
def test_a_dummy_run_reads_the_same_memory_and_preprocesses_nothing():
    listener = Listener()
    around = calls(listener, None)
    around.begin()
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
        calls(Echo(), None).check(config, before_graph=True)
    config.model_config.enforce_eager = True
    calls(Echo(), None).check(config, before_graph=False)
    config.parallel_config.pipeline_parallel_size = 2
    with pytest.raises(InterfaceError, match="pipeline_parallel_size 1"):
        around.check(config, before_graph=True)


class Sampler:
    logprobs_mode = "raw_logprobs"

    def sample(self, logits, sampling_metadata):
        return logits.argmax(-1), None


def chooser(ids):
    output = None if ids is None else SimpleNamespace(sampled_token_ids=torch.tensor(ids))
    return SimpleNamespace(sample=lambda logits, metadata: output)


LOGITS = torch.tensor([[0.0, 1.0], [2.0, 1.0]])


def test_the_model_draws_and_may_decline():
    sampler = Sampler()
    with drawing_v1(sampler, chooser([[0], [1]])):
        assert sampler.sample(LOGITS, None)[0].tolist() == [0, 1]
    with drawing_v1(sampler, chooser(None)):
        assert sampler.sample(LOGITS, None)[0].tolist() == [1, 0]
    assert "sample" not in vars(sampler), "the sampler is as it was"


def test_a_wrong_number_of_tokens_is_refused():
    sampler = Sampler()
    with (
        drawing_v1(sampler, chooser([[0]])),
        pytest.raises(InterfaceError, match=r"\(1, 1\) for 2 rows of logits"),
    ):
        sampler.sample(LOGITS, None)


def test_a_sampler_that_never_asks_is_refused():
    with drawing_v1(Sampler(), chooser(None)) as chosen:
        pass
    with pytest.raises(InterfaceError, match="Sampler does not draw in its method sample"):
        require_drawn(chosen, Sampler())
