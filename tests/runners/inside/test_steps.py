"""One step through the mixins, with stand-ins for vLLM's classes below them. Needs vLLM."""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest

vllm = pytest.importorskip("vllm", reason="needs vLLM: run by test_on_vllm.py in its environment")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from vllm.sequence import IntermediateTensors  # noqa: E402
from vllm.v1.engine import FinishReason  # noqa: E402
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, AsyncModelRunnerOutput, ModelRunnerOutput  # noqa: E402

from omni_runners import client, payload_files  # noqa: E402
from omni_runners.collector import Collected  # noqa: E402
from omni_runners.core import ar  # noqa: E402
from omni_runners.core.ar import ARRunnerMixin  # noqa: E402
from omni_runners.core.generation import GenerationRunnerMixin  # noqa: E402
from omni_runners.core.payload import Column, StepPayload  # noqa: E402
from omni_runners.core.worker import OmniWorkerMixin  # noqa: E402
from omni_runners.errors import InterfaceError, PayloadError  # noqa: E402
from omni_runners.schedulers import GenerationSchedulerMixin, PayloadSchedulerMixin  # noqa: E402


def params(kind="FINAL_ONLY", **extra):
    return SimpleNamespace(output_kind=SimpleNamespace(name=kind), extra_args=extra or None)


def scheduled(counts, new=(), resumed=(), drafts=None, finished=()):
    return SimpleNamespace(
        num_scheduled_tokens=counts,
        scheduled_spec_decode_tokens=drafts or {},
        finished_req_ids=set(finished),
        scheduled_new_reqs=[
            SimpleNamespace(req_id=one, sampling_params=given, prompt_token_ids=[1], num_computed_tokens=0)
            for one, given in new
        ],
        scheduled_cached_reqs=SimpleNamespace(
            resumed_req_ids=set(resumed), req_ids=list(resumed), num_computed_tokens=[0] * len(resumed)
        ),
    )


class Runner:
    """As far as the mixin knows vLLM's V1 runner."""

    max_num_tokens = 8

    def __init__(self, hidden, tokens):
        self.input_batch = SimpleNamespace(req_ids=["a", "b"])
        self.hidden, self.tokens, self.model = hidden, tokens, nn.Linear(1, 1)
        self.vllm_config = SimpleNamespace(
            parallel_config=SimpleNamespace(prefill_context_parallel_size=1),
            model_config=SimpleNamespace(),
            scheduler_config=SimpleNamespace(get_scheduler_cls=lambda: PayloadScheduler),
        )
        self.execute_model_state = None

    def load_model(self):
        return "loaded"

    def get_model(self):
        return self.model

    def execute_model(self, scheduler_output, intermediate_tensors=None):
        if isinstance(self.hidden, IntermediateTensors):
            return self.hidden
        self.execute_model_state = SimpleNamespace(hidden_states=self.hidden)
        return None

    def sample_tokens(self, grammar_output):
        if self.execute_model_state is None:
            return EMPTY_MODEL_RUNNER_OUTPUT
        names = list(self.input_batch.req_ids)
        return ModelRunnerOutput(names, {"a": 0, "b": 1}, sampled_token_ids=self.tokens)


class AR(ARRunnerMixin, Runner):
    pass


@pytest.fixture(autouse=True)
def first_rank(monkeypatch, tmp_path):
    monkeypatch.setattr(ar, "get_tp_group", lambda: SimpleNamespace(rank_in_group=0))
    monkeypatch.setenv(payload_files.FOLDER, str(tmp_path))


def runner(hidden, tokens=((1,), (2,)), kind=AR):
    found = kind(hidden, [list(one) for one in tokens])
    assert found.load_model() == "loaded"
    return found


ROWS = torch.arange(10.0).view(5, 2)
BOTH = [("a", params()), ("b", params(omni_payload=False))]


def test_rows_of_who_wants_them():
    found = runner(ROWS)
    assert found.execute_model(scheduled({"a": 3, "b": 1}, BOTH)) is None
    payload = found.sample_tokens(None).pooler_output
    assert isinstance(payload, StepPayload)
    assert payload.spans == [slice(0, 3), None]
    assert payload[0]["hidden"].tolist() == ROWS[:3].tolist(), "as vLLM indexes it: by the request's number"
    assert payload[1] is None
    assert payload.columns["hidden"].data.shape == (3, 8), "padding and rows of others are left out"


def test_rows_of_a_later_request_alone_and_of_all():
    known = [("a", params(omni_payload=False)), ("b", params())]
    found = runner(ROWS)
    found.execute_model(scheduled({"a": 3, "b": 1}, known))
    payload = found.sample_tokens(None).pooler_output
    assert payload.spans == [None, slice(0, 1)]
    assert payload.columns["hidden"].data.view("float32").tolist() == [[6.0, 7.0]]
    found = runner(ROWS)
    found.execute_model(scheduled({"a": 3, "b": 1}, [("a", params()), ("b", params())]))
    payload = found.sample_tokens(None).pooler_output
    assert payload.spans == [slice(0, 3), slice(3, 4)]


def test_prompts_split_over_ranks_are_told_to_the_client():
    found = runner(ROWS)
    found.vllm_config.parallel_config.prefill_context_parallel_size = 2
    found.execute_model(scheduled({"a": 3, "b": 1}, BOTH))
    assert "prefill context parallel" in found.sample_tokens(None).pooler_output.errors[0]


def test_rows_of_rejected_drafts_are_trimmed():
    found = runner(ROWS, tokens=((1, 2), (2,)))
    found.execute_model(scheduled({"a": 4, "b": 1}, BOTH, drafts={"a": [7, 8, 9]}))
    assert found.sample_tokens(None).pooler_output.spans == [slice(0, 2), None]


def test_an_asynchronous_output_gets_the_payload_when_it_is_read():
    class Later(AsyncModelRunnerOutput):
        more = "kept"

        def __init__(self, output):
            self.output = output

        def get_output(self):
            return self.output

    class Asynchronous(Runner):
        def sample_tokens(self, grammar_output):
            return Later(super().sample_tokens(grammar_output))

    found = runner(ROWS.clone(), kind=type("AsyncAR", (ARRunnerMixin, Asynchronous), {}))
    found.execute_model(scheduled({"a": 3, "b": 1}, BOTH))
    output = found.sample_tokens(None)
    found.hidden.zero_()  # the next step
    assert output.more == "kept"
    assert output.get_output().pooler_output.columns["hidden"].data.any()


def test_a_rank_that_is_not_the_last_returns_intermediate_tensors_and_nothing_else():
    passed_on = IntermediateTensors({"hidden_states": ROWS})
    found = runner(passed_on)
    assert found.execute_model(scheduled({"a": 3, "b": 1}, BOTH)) is passed_on
    assert found.sample_tokens(None) is EMPTY_MODEL_RUNNER_OUTPUT
    assert EMPTY_MODEL_RUNNER_OUTPUT.pooler_output is None


def test_other_tensor_parallel_ranks_make_no_payload(monkeypatch):
    monkeypatch.setattr(ar, "get_tp_group", lambda: SimpleNamespace(rank_in_group=1))
    found = runner(ROWS)
    found.execute_model(scheduled({"a": 3, "b": 1}, BOTH))
    assert found.sample_tokens(None).pooler_output is None


def test_scattered_rows_are_told_to_the_client():
    found = runner(ROWS[:2])
    found.execute_model(scheduled({"a": 3, "b": 1}, BOTH))
    assert "keeps 2 of 4 rows" in found.sample_tokens(None).pooler_output.errors[0]


def test_vllm_s_own_scheduler_meets_no_payload():
    stock = type("Scheduler", (), {"__module__": "vllm.v1.core.sched.scheduler"})
    found = AR(ROWS, [[1], [2]])
    found.vllm_config.scheduler_config.get_scheduler_cls = lambda: stock
    found.load_model()
    found.execute_model(scheduled({"a": 3, "b": 1}, BOTH))
    assert found.sample_tokens(None).pooler_output is None


class Graphs(Runner):
    """Replays what it captured: memory of the model's inputs, and no Python of the model's."""

    def execute_model(self, scheduler_output, intermediate_tensors=None):
        # as vllm-ascend's, which names a number of tokens first
        self.replayed = self._model_forward(5, torch.arange(5), positions=None)
        return super().execute_model(scheduler_output)

    def _model_forward(self, tokens, input_ids=None, positions=None, inputs_embeds=None):
        return self._omni_calls._embeddings[:tokens].clone()


def test_preprocess_comes_before_a_graph_is_replayed():
    class Replaying(ARRunnerMixin, Graphs):
        pass

    found = Replaying(ROWS, [[1], [2]])
    found.model.has_preprocess = True
    found.model.embed_input_ids = lambda ids: ids[:, None].float()
    found.model.preprocess = lambda input_ids, input_embeds, **info: (input_ids, input_embeds + 10, {})
    found.vllm_config.parallel_config.pipeline_parallel_size = 1
    mode = SimpleNamespace(has_full_cudagraphs=lambda: True)
    found.vllm_config.compilation_config = SimpleNamespace(cudagraph_mode=mode)
    found.vllm_config.model_config.enforce_eager = False
    found.input_ids = SimpleNamespace(gpu=torch.arange(8))
    assert found.load_model() == "loaded"
    for _ in range(2):
        found.execute_model(scheduled({"a": 3, "b": 1}, BOTH))
        assert found.replayed.flatten().tolist() == [10, 11, 12, 13, 4], "the last row is padding"


def test_a_generation_request_starts_over_with_the_next_part_that_vllm_omni_gives_it():
    removed = []

    found = type("G", (GenerationRunnerMixin, Runner), {})(ROWS, [[1], [2]])
    found.requests = {"a": SimpleNamespace(prompt_token_ids=[1], num_prompt_tokens=1, output_token_ids=[2])}
    found.model.forward = lambda *given, **more: ROWS
    found.load_model()
    found.input_batch.remove_request = removed.append
    found.execute_model(scheduled({"a": 3, "b": 1}, BOTH))
    step = scheduled({"a": 2, "b": 1})
    step.scheduled_cached_reqs.prompt_token_ids = {"a": [7, 8]}
    found.execute_model(step)
    assert removed == ["a"]
    assert vars(found.requests["a"]) == {
        "prompt_token_ids": [7, 8],
        "num_prompt_tokens": 2,
        "output_token_ids": [],
    }
    assert found._omni_requests["a"].prompt == [7, 8]


UNDECIDED = SimpleNamespace(  # a configuration that nothing is known to be wrong with
    parallel_config=SimpleNamespace(worker_cls="auto"), scheduler_config=SimpleNamespace(scheduler_cls=None)
)


def test_the_worker_makes_any_runner_an_omni_runner():
    class Platform:
        built, vllm_config = Runner, UNDECIDED

        def init_device(self):
            self.model_runner = self.built(None, [])

    worker = type("W", (OmniWorkerMixin, Platform), {"runner_class": AR, "runner_mixin": ARRunnerMixin})
    one = worker()
    one.init_device()
    assert type(one.model_runner) is AR
    other = type("Other", (Runner,), {})
    two = type("W2", (worker,), {"built": other})()
    two.init_device()
    order = type(two.model_runner).__mro__
    assert order.index(ARRunnerMixin) == 1 < order.index(other)


def test_every_platform_dispatches_in_the_same_place(monkeypatch):
    def stand_in(name):
        module = ModuleType(name)
        module.NPUWorker, module.NPUModelRunner = type("NPUWorker", (), {}), type("NPUModelRunner", (), {})
        return module

    for name in ("vllm_ascend", *(f"vllm_ascend.worker{one}" for one in ("", ".worker", ".model_runner_v1"))):
        monkeypatch.setitem(sys.modules, name, stand_in(name))
    npu, gpu, cpu = (importlib.import_module(f"omni_runners.{one}") for one in ("npu", "gpu", "cpu"))
    monkeypatch.delitem(sys.modules, "omni_runners.npu")
    makes_tokens = (npu.NPUARModelRunner, gpu.ARGPUModelRunner, cpu.CPUARModelRunner)
    for method in ("load_model", "execute_model", "sample_tokens", "_sample", "sample"):
        assert {getattr(one, method) for one in makes_tokens} == {getattr(ARRunnerMixin, method)}
    makes_tensors = (npu.NPUGenerationModelRunner, gpu.DiffusionGPUModelRunner, cpu.CPUGenerationModelRunner)
    for method in ("_sample", "sample"):
        assert {getattr(one, method) for one in makes_tensors} == {getattr(GenerationRunnerMixin, method)}


class Scheduler:
    """As far as the mixin knows vLLM's scheduler: a request ends when it has its tokens."""

    vllm_config = UNDECIDED

    def __init__(self, *args, **options):
        self.requests = {}

    def add_request(self, request):
        self.requests[request.request_id] = request

    def update_from_output(self, scheduler_output, output):
        assert output.pooler_output is None, "vLLM's scheduler must not see the payload"
        ended = []
        for one, tokens in zip(output.req_ids, output.sampled_token_ids, strict=True):
            reason = 1 if 0 in tokens and self.requests.pop(one, None) else None
            if reason or one in self.requests:
                ended.append(
                    SimpleNamespace(
                        request_id=one, finish_reason=reason, stop_reason=5, kv_transfer_params={"x": 1}
                    )
                )
        return {0: SimpleNamespace(outputs=ended)}

    def finish_requests(self, one, status):
        self.requests.pop(one, None)

    def shutdown(self):
        pass


class PayloadScheduler(PayloadSchedulerMixin, Scheduler):
    pass


def request(name, sampling, tokens=100):
    return SimpleNamespace(
        request_id=name,
        sampling_params=sampling,
        skip_reading_prefix_cache=False,
        num_tokens=tokens,
        resumable=False,
        client_index=0,
    )


def play(scheduler, steps, asked=None):
    """Steps of one AR runner whose requests ``a`` and ``b`` have the given rows and tokens."""
    outputs = []
    for counts, tokens, extra in steps:
        found = runner(torch.full((sum(counts), 2), float(len(outputs))), tokens)
        known = [("a", asked or params()), ("b", params(omni_payload=False))]
        step = scheduled(dict(zip("ab", counts, strict=True)), known, **extra)
        found.execute_model(step)
        step.scheduled_new_reqs = step.scheduled_new_reqs if not outputs else []
        outputs.append(scheduler.update_from_output(step, found.sample_tokens(None))[0].outputs)
    return outputs


def test_a_request_gets_all_its_rows_when_it_ends():
    scheduler = PayloadScheduler()
    for name, sampling in BOTH:
        scheduler.add_request(one := request(name, sampling))
        assert one.skip_reading_prefix_cache is (name == "a")
    *_, last = play(scheduler, [((3, 1), ((1,), (1,)), {}), ((1, 1), ((0,), (0,)), {})])
    got, opted_out = (SimpleNamespace(**vars(one), outputs=[]) for one in last)
    assert opted_out.kv_transfer_params == {"x": 1}
    payload = client.take(got)
    assert payload.transfer == {"x": 1}, "everything else is preserved"
    assert payload.tensors["hidden"][:, 0].tolist() == [0, 0, 0, 1]
    with pytest.raises(PayloadError, match="No such file"):
        client.take(got)


def test_a_request_that_cannot_go_on_is_told_why():
    scheduler = PayloadScheduler()
    for name, sampling in BOTH:
        scheduler.add_request(request(name, sampling))
    found = runner(ROWS)
    step = scheduled({"a": 3, "b": 1}, BOTH)
    found.execute_model(step)
    found._omni_requests.fail(["b"], "no voice")
    first, second = scheduler.update_from_output(step, found.sample_tokens(None))[0].outputs
    assert first.finish_reason is None
    assert (second.finish_reason, second.stop_reason) == (FinishReason.ABORT, "no voice")
    second.outputs = []
    with pytest.raises(PayloadError, match="no voice"):
        client.take(second)
    assert set(scheduler.requests) == set(scheduler._omni_pending) == {"a"}


def test_parts_come_with_each_step_and_what_was_lost_at_the_end():
    asked = params("CUMULATIVE", omni_payload="parts")
    outputs = {}
    for reader in ("every", "late"):
        scheduler, parts = PayloadScheduler(), client.Parts()
        scheduler.add_request(request("a", asked))
        steps = [((3, 1), ((1,), (1,)), {}), ((1, 1), ((1,), (1,)), {}), ((1, 1), ((0,), (0,)), {})]
        taken = []
        for number, (output, *_) in enumerate(play(scheduler, steps, asked)):
            if reader == "every" or number != 1:
                output.finished = output.finish_reason is not None
                taken.append(parts.take(output)["hidden"][:, 0].tolist())
        outputs[reader] = taken
        assert list(scheduler._omni_files.folder.iterdir()) == [], "another stage needs no files"
    assert outputs == {"every": [[0, 0, 0], [1], [2]], "late": [[0, 0, 0], [1, 2]]}


def test_a_request_that_is_sent_in_parts_has_a_payload_for_each():
    class Sessions(Scheduler):
        """A request whose step is over waits for its next part."""

        def update_from_output(self, scheduler_output, output):
            waiting = dict(self.requests)
            found = super().update_from_output(scheduler_output, output)
            self.requests = waiting
            return found

    scheduler = type("S", (PayloadSchedulerMixin, Sessions), {})()
    asked, parts, taken = params("DELTA", omni_payload="parts"), client.Parts(), []
    for number in range(2):
        scheduler.add_request(one := request("a", asked))
        scheduler._omni_pending["a"].request.resumable = True
        (output, *_), *_ = play(scheduler, [((3 - number, 1), ((0,), (1,)), {})], asked)
        output.finished = False
        taken.append(len(parts.take(output)["hidden"]))
    assert taken == [3, 2]
    assert set(scheduler._omni_pending) == {"a"}
    del scheduler.requests[one.request_id]
    scheduler.finish_requests("a", None)
    assert scheduler._omni_pending == {}


def test_names_that_come_and_go_are_an_error():
    collected = Collected(1000)
    for names in (("x",), ("x", "y")):
        columns = {
            name: Column(torch.zeros(1, 4, dtype=torch.uint8).numpy(), torch.float32, (1,)) for name in names
        }
        collected.add(0, StepPayload([slice(0, 1)], columns))
    with pytest.raises(PayloadError, match="rows of y in some steps and not in others"):
        collected.tensors(2)


def test_a_preempted_request_starts_over():
    scheduler = PayloadScheduler()
    scheduler.add_request(request("a", params()))
    steps = [((3, 1), ((1,), (1,)), {}), ((4, 1), ((0,), (1,)), {"resumed": ["a"]})]
    got = play(scheduler, steps)[-1][0]
    assert client.take(got).tensors["hidden"][:, 0].tolist() == [1, 1, 1, 1]


def test_rows_of_tokens_that_were_not_wanted_any_more_are_left_out():
    scheduler = PayloadScheduler()
    scheduler.add_request(request("a", params(), tokens=5))
    got = play(scheduler, [((3, 1), ((1,), (1,)), {}), ((3, 1), ((0,), (1,)), {})])[-1][0]
    assert client.take(got).tensors["hidden"][:, 0].tolist() == [0, 0, 0, 1]


def test_an_aborted_request_leaves_nothing():
    scheduler = PayloadScheduler()
    scheduler.add_request(request("a", params()))
    play(scheduler, [((3, 1), ((1,), (1,)), {})])
    scheduler.finish_requests("a", None)
    assert scheduler._omni_pending == {}
    play(scheduler, [((1, 1), ((0,), (1,)), {})])  # what was under way
    assert list(scheduler._omni_files.folder.iterdir()) == []


def test_a_stream_has_its_reference_in_the_choice():
    scheduler = PayloadScheduler()
    scheduler.add_request(request("a", params("DELTA", omni_payload=True)))
    got = play(scheduler, [((3, 1), ((0,), (1,)), {})])[0][0]
    chunks = [{"choices": [{"index": 0}]}, {"choices": [{"index": 0, "stop_reason": got.stop_reason}]}]
    assert client.take_from_stream(chunks).tensors["hidden"].shape == (3, 2)
    assert '"stop_reason": 5' in got.stop_reason, "vLLM's own is preserved"
    with pytest.raises(PayloadError, match="has no payload; expected"):
        client.take_from_stream(chunks[:1])


def test_rows_over_the_limit_are_an_error_of_this_request(monkeypatch):
    monkeypatch.setenv(payload_files.LIMIT, "20")
    scheduler = PayloadScheduler()
    scheduler.add_request(request("a", params()))
    got = play(scheduler, [((3, 1), ((0,), (1,)), {})])[0][0]
    with pytest.raises(PayloadError, match="more than 20 bytes"):
        client.take(got)


def test_shutdown_removes_the_files():
    scheduler = PayloadScheduler()
    folder = scheduler._omni_files.folder
    scheduler.shutdown()
    assert not folder.exists()


def test_a_generation_stage_takes_whole_prompts():
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(max_num_batched_tokens=64, enable_chunked_prefill=True),
        model_config=SimpleNamespace(max_model_len=256),
    )
    kind = type("G", (GenerationSchedulerMixin, Scheduler), {})
    with pytest.raises(InterfaceError, match="--max-num-batched-tokens 256"):
        kind(config)
    config.scheduler_config.max_num_batched_tokens = 256
    scheduler = kind(config)
    assert config.scheduler_config.enable_chunked_prefill is False
    scheduler.add_request(one := request("a", params()))
    assert one.max_tokens == 1
