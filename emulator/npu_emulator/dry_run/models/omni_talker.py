"""An AR stage's Qwen3 that talks: a step after the prompt takes its input embedding from ``talker_mtp``."""

from __future__ import annotations

import torch

from npu_emulator.dry_run.models.omni_ar import TinyOmniAR

CODES = 4  # codec codes of a step
NONE = -1  # in place of a code, for a step of the prompt


def predict(embeddings, last_hidden, text_step) -> tuple[torch.Tensor, torch.Tensor]:
    """The input embeddings (requests, hidden size) of a step and its codec codes (requests, ``CODES``)."""
    mixed = embeddings + 0.5 * torch.tanh(last_hidden) + 0.25 * text_step
    return mixed, mixed.topk(CODES, dim=-1).indices


class TinyOmniTalker(TinyOmniAR):
    """``text_step`` is the embedding of the prompt's first token, so that each request has one of its own."""

    talker_mtp_graph_safe = True

    def preprocess(self, input_ids, input_embeds=None, **info):
        embeddings = self.model.embed_tokens(input_ids)
        update = {} if "text" in info else {"text": {"step": embeddings[0].detach().clone()}}
        if "last" in info.get("hidden_states", {}):
            last, text = info["hidden_states"]["last"], info["text"]["step"]
            update["mtp_inputs"] = (last.view(1, -1).to(embeddings), text.view(1, -1).to(embeddings))
        return input_ids, embeddings, update

    def talker_mtp(self, input_ids, input_embeds, last_talker_hidden, text_step, **options):
        return predict(input_embeds, last_talker_hidden, text_step)

    def payload(self, output, **options) -> dict:
        infos = options.get("model_intermediate_buffer", options.get("runtime_additional_information", []))
        nothing = torch.full((1, CODES), NONE)
        return {"codes": {"audio": [info.get("codes", {}).get("audio", nothing).clone() for info in infos]}}


MODEL = TinyOmniTalker
