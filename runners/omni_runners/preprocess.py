"""What a model does to a step's inputs before its forward: ``preprocess``, and the talker's codes."""

from __future__ import annotations

from typing import Any

import torch

from omni_runners.core.requests import Requests
from omni_runners.core.rows import BatchRows
from omni_runners.interfaces import taken
from omni_runners.options import TALKER_SEED

CODES = ("codes", "audio")  # where the codes of talker_mtp go in a request's info


class Preprocess:
    """The methods of one model; ``talker`` is how its ``talker_mtp`` is to sample."""

    def __init__(self, model: Any, requests: Requests, talker: dict[str, Any]) -> None:
        self._model, self._requests, self._talker = model, requests, talker

    def run(self, ids: torch.Tensor, target: torch.Tensor, rows: BatchRows) -> None:
        """Prepare a step, in ``ids`` (tokens,) and the input embeddings ``target`` (tokens, hidden size).

        A request for which the model fails ends with its error.
        """
        if hasattr(self._model, "preprocess_batch"):
            infos = {one: self._requests.info(one) for one in rows.request_ids}
            self._model.preprocess_batch(
                req_ids=rows.request_ids, model_intermediate_buffer=infos, device=ids.device
            )
        talking: list[tuple[int, Any, Any]] = []
        for some, decode in self._groups(rows):
            names = [rows.request_ids[index] for index in some]
            span = slice(rows.starts[some[0]], rows.starts[some[-1] + 1])
            try:
                mtp = (self._preprocess_decodes if decode else self._preprocess_one)(names, ids, target, span)
                talking += [(index, *inputs) for index, inputs in zip(some, mtp, strict=True) if inputs]
            except Exception as error:
                hook = "preprocess_decode_batch" if decode else "preprocess"
                self._requests.fail(names, f"{type(self._model).__name__}.{hook}: {error}")
        if talking and hasattr(self._model, "talker_mtp"):
            self._talk_all(ids, target, rows, talking)

    def _groups(self, rows: BatchRows) -> list[tuple[list[int], bool]]:
        """The requests that one call prepares, and whether they all decode: then they stand together."""
        found: list[tuple[list[int], bool]] = []
        batched = hasattr(self._model, "preprocess_decode_batch")
        for index, one in enumerate(rows.request_ids):
            known = self._requests[one]
            decode = batched and rows.counts[index] == 1 and known.computed >= len(known.prompt)
            if decode and found and found[-1][1]:
                found[-1][0].append(index)
            else:
                found.append(([index], decode))
        return found

    def _preprocess_decodes(
        self, names: list[str], ids: torch.Tensor, target: torch.Tensor, span: slice
    ) -> list[Any]:
        """Prepare requests with one row each; gives the inputs of ``talker_mtp``, or None, for each."""
        infos = [self._told(one) for one in names]
        new_ids, embeddings, *mtp, updates = self._model.preprocess_decode_batch(
            input_ids=ids[span], req_infos=infos
        )
        target[span].copy_(embeddings)
        ids[span].copy_(new_ids.reshape(-1))
        for one, update in zip(names, updates, strict=True):
            self._requests.add(one, dict(update or {}))
        return list(zip(*mtp, strict=True)) if mtp else [None] * len(names)

    def _preprocess_one(
        self, names: list[str], ids: torch.Tensor, target: torch.Tensor, span: slice
    ) -> list[Any]:
        """The same for one request with any number of rows."""
        new_ids, embeddings, given = self._model.preprocess(
            input_ids=ids[span], input_embeds=target[span], **self._told(names[0])
        )
        rows = min(len(embeddings), span.stop - span.start)  # a model may give fewer than there are tokens
        target[span.start : span.start + rows].copy_(embeddings[:rows])
        if new_ids.numel() == rows:
            ids[span.start : span.start + rows].copy_(new_ids.reshape(-1))
        update = dict(given or {})
        mtp = update.pop("mtp_inputs", None)
        self._requests.add(names[0], update)
        return [mtp]

    def _told(self, request_id: str) -> dict[str, Any]:
        """The request's info with what a model is told of each of its steps."""
        info, known = self._requests.info(request_id), self._requests[request_id]
        info |= {
            "request_id": request_id,
            "_omni_prompt_len": len(known.prompt),
            "_omni_num_computed_tokens": known.computed,
            "_omni_is_prefill": known.computed < len(known.prompt),
            "_omni_max_tokens": getattr(known.params, "max_tokens", None),
            "_omni_seed": getattr(known.params, "seed", None),
        }
        return info

    def _talk_all(self, ids: torch.Tensor, target: torch.Tensor, rows: BatchRows, talking: list[Any]) -> None:
        """``talker_mtp`` for the requests that decode: together, or one by one where there are seeds.

        A generator is one stream of numbers: a request's must not depend on who else is in the step.
        """
        names = [rows.request_ids[index] for index, _, _ in talking]
        seeded = any((self._requests.extra(one) or {}).get(TALKER_SEED) is not None for one in names)
        alone = seeded and not getattr(self._model, "talker_mtp_accepts_per_row_generators", False)
        for some in [[one] for one in talking] if alone else [talking]:
            try:
                self._talk(ids, target, rows, some)
            except Exception as error:
                failed = [rows.request_ids[index] for index, _, _ in some]
                self._requests.fail(failed, f"{type(self._model).__name__}.talker_mtp: {error}")

    def _talk(self, ids: torch.Tensor, target: torch.Tensor, rows: BatchRows, talking: list[Any]) -> None:
        names = [rows.request_ids[index] for index, _, _ in talking]
        at = torch.tensor([rows.starts[index] for index, _, _ in talking], device=target.device)
        last = torch.cat([hidden.reshape(1, -1) for _, hidden, _ in talking]).to(target)
        text = torch.cat([step.reshape(1, -1) for _, _, step in talking]).to(target)
        talk = self._model.talker_mtp
        embeddings, codes = talk(
            ids[at], target[at], last, text, **self._how_to_talk(talk, names, target.device)
        )
        target.index_copy_(0, at, embeddings.to(target.dtype))
        if codes is None:
            return
        first, second = getattr(self._model, "talker_mtp_output_key", CODES)
        for row, one in enumerate(names):
            self._requests.add(one, {first: {second: codes[row : row + 1]}})

    def _how_to_talk(self, talk: Any, names: list[str], device: torch.device) -> dict[str, Any]:
        options: dict[str, Any] = dict(self._talker)
        generators = [self._requests.talker_generator(one, device) for one in names]
        if any(generators):
            options |= {"generator": generators[0]} if len(names) == 1 else {"generators": generators}
        if getattr(self._model, "talker_mtp_accepts_req_infos", False):
            options |= {"req_ids": names, "req_infos": [self._requests.info(one) for one in names]}
        return taken(talk, options)
