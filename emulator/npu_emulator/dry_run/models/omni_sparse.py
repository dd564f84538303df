"""An AR stage's Qwen3 that speaks for some requests of a batch only, and is told which requests it runs."""

from __future__ import annotations

from npu_emulator.dry_run.models.omni_ar import TinyOmniAR

EVERY = 2  # a request speaks when this divides its tokens so far
RATE = 16
SHAPE = (2, 3)


class TinyOmniSparse(TinyOmniAR):
    """A request that speaks gives its last hidden state, negated, with numbers that are no tensors."""

    batch: tuple[tuple[str, int, int], ...] = ()  # request, its tokens after the step, its last row
    flushed: tuple[str, ...] | None = None

    def prepare_runner_inputs(
        self, input_ids, positions, inputs_embeds, req_ids, num_computed_tokens, num_scheduled_tokens, **more
    ):
        if self.batch and self.flushed != tuple(name for name, _, _ in self.batch):
            raise RuntimeError(f"flush_pending_metadata was called with {self.flushed} after {self.batch}")
        scheduled = [int(number) for number in num_scheduled_tokens]
        rows = [sum(scheduled[: index + 1]) - 1 for index in range(len(scheduled))]
        totals = [int(before) + now for before, now in zip(num_computed_tokens, scheduled, strict=True)]
        self.batch, self.flushed = tuple(zip(req_ids, totals, rows, strict=True)), None
        return input_ids, positions

    def flush_pending_metadata(self, req_ids):
        self.flushed = tuple(req_ids)

    def payload(self, output, **options) -> dict:
        speaking = [one for one in self.batch if one[1] % EVERY == 0]
        names, flag = [name for name, _, _ in speaking], ["1"]
        # both forms are of the contract: one by one, a request says so in flat keys and a text
        meta = {"meta": {"req_id": names, "sparse_audio": flag}}
        flat = {"meta.req_id": names, "meta.sparse_audio": flag[0]}
        return (flat if len(names) == 1 else meta) | {
            "model_outputs": [-output[row] for _, _, row in speaking],
            "sr": [RATE for _ in speaking],
            "shape": [SHAPE for _ in speaking],
            "words": [["no", "numbers"] for _ in speaking],  # cannot go on, and is left out
            "note": ["text" for _ in speaking],
        }


MODEL = TinyOmniSparse
