"""A one-shot stage's Qwen3 that gives its one request's waveform bare, and not in a dictionary."""

from __future__ import annotations

from npu_emulator.dry_run.models.omni_generation import TinyOmniGeneration


class TinyOmniSingle(TinyOmniGeneration):
    """A list of one tensor; for a prompt of an even length a tensor of one row."""

    def payload(self, output, **options):
        row = int(options["logits_index"][0])
        return [output[row].float()] if row % 2 == 0 else output[row : row + 1].float()


MODEL = TinyOmniSingle
