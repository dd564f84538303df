"""The calls of a model's optional methods around its forward (see :mod:`omni_runners.interfaces`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from omni_runners.core.multimodal import MultimodalOutputs
from omni_runners.core.requests import Requests
from omni_runners.core.rows import BatchRows
from omni_runners.errors import InterfaceError, PayloadError
from omni_runners.interfaces import is_omni_model, is_omni_output, taken, takes_any
from omni_runners.outputs import by_request, flat
from omni_runners.preprocess import Preprocess

GIVEN = frozenset(  # the names of what a forward may take beside vLLM's own arguments
    (
        *("model_intermediate_buffer", "runtime_additional_information", "request_token_spans"),
        *("request_sample_eligible", "sampling_extra_args", "sampling_metadata", "sampler", "logits_index"),
        *("seq_token_counts", "request_ids", "omni_query_start_loc"),
    )
)


@dataclass
class Around:
    """What the runner tells of the step at hand.

    ``rows`` gives its rows, None in a dummy run; ``sampling`` what the model's forward gets of the sampler;
    ``starts`` the first row of each request and the end (requests + 1,), on the device, where a graph finds
    them too. ``tokens`` is the most tokens that a step has, ``talker`` how ``talker_mtp`` is to sample.
    """

    rows: Callable[[], BatchRows | None]
    sampling: Callable[[], dict[str, Any]]
    starts: Callable[[], torch.Tensor]
    tokens: int
    talker: dict[str, Any]
    generation: bool = False


class ModelCalls:
    """Hooks on one model, whose forward is ``entry``."""

    def __init__(self, model: Any, entry: Callable[..., Any], requests: Requests, around: Around) -> None:
        self.outputs = MultimodalOutputs(around.tokens)
        self._model, self._requests, self._around = model, requests, around
        self._embeddings: torch.Tensor | None = None
        self._prepared = False  # whether the step at hand is preprocessed
        self._warm = True  # what dummy runs left in the model is still there
        self.preprocesses = bool(getattr(model, "has_preprocess", False))
        self._preprocess = Preprocess(model, requests, around.talker)
        self._postprocesses = bool(getattr(model, "has_postprocess", False))
        self.tells_step = bool(getattr(model, "supports_omni_decode_step_metadata", False))
        parameters = inspect.signature(entry).parameters
        self._named = None if is_omni_model(model) and takes_any(parameters) else frozenset(parameters)
        self._takes_counts = around.generation and self._takes("seq_token_counts")
        if self.preprocesses:
            model.requires_raw_input_tokens = True  # an image model would get embeddings and no tokens
        if self.preprocesses or self._named is None or not self._named.isdisjoint(GIVEN):
            model.register_forward_pre_hook(self._before, with_kwargs=True)
        model.register_forward_hook(self._after, with_kwargs=True)
        _tell_sampling(model, around.sampling)

    def check(self, config: Any, before_graph: bool) -> None:
        """Raises :class:`InterfaceError` for a model that the engine's options do not suit.

        ``before_graph``: whether the runner calls :meth:`prepare` before it replays a full graph.
        """
        if (self._takes_counts or (self.preprocesses and not before_graph)) and _full_graphs(config):
            raise InterfaceError(
                f"{type(self._model).__name__} prepares its inputs in Python in each forward, which a full "
                "graph does not repeat",
                expected="piecewise graphs or none",
                try_='--compilation-config \'{"cudagraph_mode": "PIECEWISE"}\' or --enforce-eager',
            )
        if self.preprocesses and config.parallel_config.pipeline_parallel_size > 1:
            raise InterfaceError(
                f"{type(self._model).__name__} has a preprocess, which runs on the first pipeline rank and "
                "needs what the last one knows",
                expected="pipeline_parallel_size 1",
                try_="tensor parallelism instead",
            )

    def begin(self, finished: set[str]) -> None:
        """A new step starts; ``finished`` are the requests that are over."""
        self.outputs.begin()
        self._prepared = False
        if self._warm and hasattr(self._model, "_clear_warmup_state"):
            self._model._clear_warmup_state()
        self._warm = False
        if finished and hasattr(self._model, "on_requests_finished"):
            self._model.on_requests_finished(finished)

    def prepare(self, ids: torch.Tensor | None, embeddings: torch.Tensor | None) -> None:
        """Preprocess the step at hand, once, outside of any graph.

        ``ids`` (tokens,) and, where the runner made them, ``embeddings`` (tokens, hidden size).
        """
        if not self.preprocesses or self._prepared or ids is None or (rows := self._around.rows()) is None:
            return
        self._prepared = True
        target = self._memory(ids, embeddings)
        target.copy_(self._model.embed_input_ids(ids) if embeddings is None else embeddings)
        self._preprocess.run(ids, target, rows)

    def tell_step(
        self, ids: torch.Tensor | None, positions: torch.Tensor, embeddings: torch.Tensor | None
    ) -> None:
        """Tell a model that asks for it what its forward is about to get, outside of any graph."""
        if not self.tells_step or (rows := self._around.rows()) is None:
            return
        self._model.update_decode_step_metadata(
            input_ids=ids,
            positions=positions,
            inputs_embeds=self._memory(ids, embeddings)
            if self.preprocesses and ids is not None
            else embeddings,
            omni_query_start_loc=self._around.starts() if self._wants_starts else None,
            req_ids=rows.request_ids,
        )

    def inputs(self, given: dict[str, Any], buffer: torch.Tensor) -> dict[str, Any]:
        """The forward's arguments, ids and positions as the model wants them; ``buffer`` holds ids."""
        rows, adjust = self._around.rows(), getattr(self._model, "prepare_runner_inputs", None)
        if rows is None or adjust is None:
            return given
        known = [self._requests[one] for one in rows.request_ids]
        ids, positions = adjust(
            input_ids=given.get("input_ids"),
            positions=given["positions"],
            inputs_embeds=given.get("inputs_embeds"),
            req_ids=rows.request_ids,
            num_computed_tokens=[one.computed for one in known],
            num_scheduled_tokens=rows.counts,
            input_ids_buffer=buffer[: given["positions"].shape[-1]],
        )
        return given | {"input_ids": ids, "positions": positions}

    @property
    def _wants_starts(self) -> bool:
        return bool(getattr(self._model, "supports_omni_query_start_loc", False))

    def _takes(self, name: str) -> bool:
        return self._named is None or name in self._named

    def _before(self, module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        inputs = options | {name: one for name, one in self._more(options).items() if name not in options}
        ids, embeddings = inputs.get("input_ids"), inputs.get("inputs_embeds")
        if self.preprocesses and ids is not None:
            self.prepare(ids, embeddings)
            inputs["inputs_embeds"] = self._memory(ids, embeddings)
        return args, inputs

    def _more(self, options: dict[str, Any]) -> dict[str, Any]:
        """What the forward gets beside what vLLM gives it: all that vllm-omni's runners give, if taken."""
        rows = self._around.rows()
        more = self._of_requests(rows) | self._around.sampling()
        if self._takes_counts:
            more["seq_token_counts"] = rows.counts if rows else [options["positions"].shape[-1]]
        if rows and self._named and "logits_index" in self._named:
            ends = torch.tensor(rows.starts[1:]) - 1
            more["logits_index"] = ends.to(options["positions"].device)
        return {name: one for name, one in more.items() if self._takes(name)}

    def _of_requests(self, rows: BatchRows | None) -> dict[str, Any]:
        names = rows.request_ids if rows else []
        infos = [self._requests.info(one) for one in names]
        for one, info in zip(names, infos, strict=True):
            if info:
                info["generated_len"] = self._requests[one].generated
        found: dict[str, Any] = {"model_intermediate_buffer": infos, "runtime_additional_information": infos}
        if getattr(self._model, "requires_request_ids", False):
            found["request_ids"] = names
        if rows and self._wants_starts:
            found["omni_query_start_loc"] = self._around.starts()
        if rows:
            found["request_token_spans"] = list(zip(rows.starts, rows.starts[1:], strict=False))
            found["request_sample_eligible"] = [self._requests[one].draws for one in names]
            found["sampling_extra_args"] = [self._requests.extra(one) or {} for one in names]
        return found

    def _memory(self, ids: torch.Tensor, embeddings: torch.Tensor | None) -> torch.Tensor:
        """The input embeddings (tokens, hidden size), always in the same memory: graphs read it."""
        if self._embeddings is None:
            like = self._model.embed_input_ids(ids) if embeddings is None else embeddings
            self._embeddings = like.new_zeros((max(self._around.tokens, len(ids)), like.shape[-1]))
        return self._embeddings[: len(ids)]

    def _after(self, module: Any, args: Any, options: dict[str, Any], output: Any) -> Any:
        for hook in ("flush_pending_metadata", "set_batch_req_ids"):
            if hasattr(self._model, hook) and (rows := self._around.rows()):
                getattr(self._model, hook)(rows.request_ids)
        if not is_omni_output(output):
            self.outputs.ran()
            return output
        hidden, outputs = output.text_hidden_states, output.multimodal_outputs
        if hidden is None:  # a generation model need not have any
            positions = options["positions"]
            hidden = positions.new_zeros((positions.shape[-1], 1), dtype=torch.float32)
        self.outputs.take(outputs, hidden.shape[0])
        return hidden

    def finish(self, hidden: torch.Tensor, rows: BatchRows) -> tuple[dict[str, Any], dict[int, str]]:
        """The multimodal outputs of a step with final hidden states (rows, hidden size), and what went wrong.

        Outputs are tensors (rows, …) or lists with one tensor, or None, per request; errors are by the number
        of their request. A request whose postprocess fails cannot go on.
        """
        try:
            outputs = self.outputs.read(rows.total)
            if hasattr(self._model, "make_omni_output"):
                outputs |= self._made(hidden, rows)
            found = by_request(outputs, rows.request_ids, rows.total)
        except Exception as error:
            why = str(error) if isinstance(error, PayloadError) else f"{type(self._model).__name__}: {error}"
            return {}, dict.fromkeys(range(len(rows.request_ids)), why)
        for index, one in enumerate(rows.request_ids) if self._postprocesses else ():
            info = {
                name: value for name, value in self._requests.info(one).items() if name != "hidden_states"
            }
            try:
                update = self._model.postprocess(hidden[rows.span(index)], multimodal_outputs=outputs, **info)
                self._requests.add(one, update)
            except Exception as error:
                self._requests.fail([one], f"{type(self._model).__name__}.postprocess: {error}")
        return found, {}

    def _made(self, hidden: torch.Tensor, rows: BatchRows) -> dict[str, Any]:
        more = self._of_requests(rows) | self._around.sampling()
        make = self._model.make_omni_output
        return flat(getattr(make(hidden, **taken(make, more)), "multimodal_outputs", None))


def _tell_sampling(model: Any, sampling: Callable[[], dict[str, Any]]) -> None:
    """Let a head that wants to know what requests ask for be told."""
    head = getattr(model, "compute_logits", None)
    if head is not None and "sampling_metadata" in inspect.signature(head).parameters:

        def compute_logits(hidden_states: torch.Tensor, *args: Any, **options: Any) -> Any:
            told = {} if args else {"sampling_metadata": sampling().get("sampling_metadata")}
            return head(hidden_states, *args, **(told | options))

        model.compute_logits = compute_logits


def _full_graphs(config: Any) -> bool:
    mode = config.compilation_config.cudagraph_mode
    return mode is not None and mode.has_full_cudagraphs() and not config.model_config.enforce_eager
