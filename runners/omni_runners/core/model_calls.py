"""The calls of a model's optional methods around its forward (see :mod:`omni_runners.interfaces`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from omni_runners.core.multimodal import MultimodalOutputs, flat
from omni_runners.core.requests import Requests
from omni_runners.core.rows import BatchRows
from omni_runners.errors import InterfaceError
from omni_runners.interfaces import is_omni_output

CODES = ("codes", "audio")  # where the codes of talker_mtp go in a request's info


class ModelCalls:
    """Hooks on one model, whose forward is ``entry``. ``tokens`` is the most tokens that a step has.

    ``batch`` tells the rows of the step at hand, None in a dummy run.
    """

    def __init__(
        self,
        model: Any,
        entry: Callable[..., Any],
        requests: Requests,
        tokens: int,
        batch: Callable[[], BatchRows | None],
    ) -> None:
        self.outputs = MultimodalOutputs(tokens)
        self._model, self._requests, self._tokens, self._batch = model, requests, tokens, batch
        self._embeddings: torch.Tensor | None = None
        self._prepared = False  # whether the step at hand is preprocessed
        self.preprocesses = bool(getattr(model, "has_preprocess", False))
        self._postprocesses = bool(getattr(model, "has_postprocess", False))
        self._takes_counts = "seq_token_counts" in inspect.signature(entry).parameters
        if self.preprocesses:
            model.requires_raw_input_tokens = True  # an image model would get embeddings and no tokens
        if self.preprocesses or self._takes_counts:
            model.register_forward_pre_hook(self._before, with_kwargs=True)
        model.register_forward_hook(self._after)

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

    def begin(self) -> None:
        """A new step starts."""
        self.outputs.begin()
        self._prepared = False

    def prepare(self, ids: torch.Tensor | None, embeddings: torch.Tensor | None) -> None:
        """Preprocess the step at hand, once, outside of any graph.

        ``ids`` (tokens,) and, where the runner made them, ``embeddings`` (tokens, hidden size).
        """
        if not self.preprocesses or self._prepared or ids is None or (rows := self._batch()) is None:
            return
        self._prepared = True
        target = self._memory(ids, embeddings)
        target.copy_(self._model.embed_input_ids(ids) if embeddings is None else embeddings)
        self._preprocess(ids, target, rows)

    def _before(self, module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        inputs = dict(options)
        if self._takes_counts:
            rows = self._batch()
            inputs["seq_token_counts"] = rows.counts if rows else [len(inputs["positions"])]
        ids, embeddings = inputs.get("input_ids"), inputs.get("inputs_embeds")
        if self.preprocesses and ids is not None:
            self.prepare(ids, embeddings)
            inputs["inputs_embeds"] = self._memory(ids, embeddings)
        return args, inputs

    def _memory(self, ids: torch.Tensor, embeddings: torch.Tensor | None) -> torch.Tensor:
        """The input embeddings (tokens, hidden size), always in the same memory: graphs read it."""
        if self._embeddings is None:
            like = self._model.embed_input_ids(ids) if embeddings is None else embeddings
            self._embeddings = like.new_zeros((max(self._tokens, len(ids)), like.shape[-1]))
        return self._embeddings[: len(ids)]

    def _preprocess(self, ids: torch.Tensor, target: torch.Tensor, rows: BatchRows) -> None:
        talking: list[tuple[int, Any, Any]] = []
        for index, one in enumerate(rows.request_ids):
            span = rows.span(index)
            new_ids, embeddings, update = self._model.preprocess(
                input_ids=ids[span], input_embeds=target[span], **self._requests.info(one)
            )
            ids[span].copy_(new_ids)
            target[span].copy_(embeddings)
            update = dict(update or {})
            if "mtp_inputs" in update:
                talking.append((index, *update.pop("mtp_inputs")))
            self._requests.add(one, update)
        if talking and hasattr(self._model, "talker_mtp"):
            self._talk(ids, target, rows, talking)

    def _talk(self, ids: torch.Tensor, target: torch.Tensor, rows: BatchRows, talking: list[Any]) -> None:
        """One batched ``talker_mtp`` step for the requests that decode."""
        at = torch.tensor([rows.starts[index] for index, _, _ in talking], device=target.device)
        last = torch.cat([hidden.reshape(1, -1) for _, hidden, _ in talking])
        text = torch.cat([step.reshape(1, -1) for _, _, step in talking])
        embeddings, codes = self._model.talker_mtp(ids[at], target[at], last, text)
        target.index_copy_(0, at, embeddings.to(target.dtype))
        first, second = getattr(self._model, "talker_mtp_output_key", CODES)
        for row, (index, _, _) in enumerate(talking):
            update = {first: {second: codes[row : row + 1].detach().clone()}}
            self._requests.add(rows.request_ids[index], update)

    def _after(self, module: Any, args: Any, output: Any) -> Any:
        if not is_omni_output(output):
            self.outputs.ran()
            return output
        hidden, outputs = output.text_hidden_states, output.multimodal_outputs or {}
        if hidden is None:  # a generation model need not have any
            hidden = _placeholder(outputs)
        self.outputs.take(outputs, hidden.shape[0])
        return hidden

    def finish(self, hidden: torch.Tensor, rows: BatchRows) -> dict[str, Any]:
        """The multimodal outputs of a step with final hidden states (rows, hidden size).

        Tensors (rows, …), or lists with one tensor per request. Raises PayloadError.
        """
        outputs = self.outputs.read(rows.total)
        infos = [self._requests.info(one) for one in rows.request_ids]
        if hasattr(self._model, "make_omni_output"):
            made = self._model.make_omni_output(hidden, model_intermediate_buffer=infos)
            outputs |= flat(getattr(made, "multimodal_outputs", None))
        if self._postprocesses:
            for index, one in enumerate(rows.request_ids):
                update = self._model.postprocess(
                    hidden[rows.span(index)], multimodal_outputs=outputs, **infos[index]
                )
                self._requests.add(one, update)
        return outputs


def _full_graphs(config: Any) -> bool:
    mode = config.compilation_config.cudagraph_mode
    return mode is not None and mode.has_full_cudagraphs() and not config.model_config.enforce_eager


def _placeholder(outputs: dict[str, Any]) -> torch.Tensor:
    for value in flat(outputs).values():
        if isinstance(value, torch.Tensor):
            return value.new_zeros((value.shape[0], 1))
    raise InterfaceError(
        "the model's OmniOutput has neither hidden states nor a tensor with one row per token",
        expected="at least one of the two",
        try_="return text_hidden_states",
    )
