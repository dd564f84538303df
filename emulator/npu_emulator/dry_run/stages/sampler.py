"""An AR stage whose model samples for itself, which gives other tokens than vLLM's sampler does."""

from __future__ import annotations

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.models import reference
from npu_emulator.dry_run.stages import ar

start, run, classes = ar.start, ar.run, ar.classes


def expected(folder, probe):
    """The second most likely token in each step; such a sampler gives no log-probabilities."""
    sampling = engine.GREEDY | probe.sampling
    outputs = reference.generate(folder, probe.prompts, sampling, reference.second_most_likely)
    return [engine.Output(output.tokens, [], {}) for output in outputs]
