"""What a talking stage hands to the next one in chunks: the codes of each step after the prompt."""

from __future__ import annotations


def next_stage(transfer_manager, request, is_finished=False, **payload):
    """One step's codes as a chunk, or nothing for a step of the prompt."""
    from vllm_omni.data_entry_keys import CodesStruct, OmniPayloadStruct

    found = payload.get("multimodal_output", payload.get("pooling_output")) or {}  # releases name it so or so
    codes = found.get("codes", {}).get("audio", found.get("codes.audio"))
    if codes is None or (codes < 0).any():
        return None
    return OmniPayloadStruct(codes=CodesStruct(audio=codes.flatten()))
