"""What the model Thinker draws, by what a request asks of the sampler."""

from __future__ import annotations

THINK_END, RECAPTION = 259, 260  # special tokens of the checkpoint: </think> and <recaption>
DECLINES_AFTER = 6  # tokens of a request; from then on vLLM draws
# The bias puts 77 before 78. A repetition penalty of 3 turns that round once 77 is in the history, and back
# once 78 is there too.
BIASED = {"logit_bias": {77: 100.0, 78: 50.0}}
PENALISED = BIASED | {"repetition_penalty": 3.0}
UNPENALISED_TOKENS = [77, 77, THINK_END, RECAPTION, 77, 77, 77, 77]
PENALISED_TOKENS = [77, 78, THINK_END, RECAPTION, 77, 77, 77, 77]
