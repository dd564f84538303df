"""No answer of a tiny model hangs on a rounding: on another machine it would be another answer."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run in the interpreter of an emulated environment")

from npu_emulator.dry_run import engine  # noqa: E402
from npu_emulator.dry_run.catalogue import SCENARIOS, Probe  # noqa: E402
from npu_emulator.dry_run.models import checkpoint, reference  # noqa: E402
from npu_emulator.dry_run.stages import hybrid  # noqa: E402

_SURE = 1e-3  # of a logit: a hundred times what two orders of summation differ by in float32
# whose reference is the tiny Qwen3's
_PLAIN = ("dense", "omni_ar", "omni_embeds", "omni_sampler", "omni_sparse")


def _margin(folder: Path, probe: Probe, rank: int) -> float:
    """How far the logits of the choices lie from their neighbours', over all requests and steps."""
    found = []

    def chosen(scores):
        values, tokens = scores.topk(rank + 2)
        found.extend((values[:-1] - values[1:])[max(rank - 1, 0) :].tolist())
        return int(tokens[rank])

    reference.generate(folder, probe.prompts, engine.GREEDY | probe.sampling, chosen)
    return min(found)


_OTHERS = [one for one in SCENARIOS if one.model in _PLAIN and not one.stage.startswith("hybrid")]


@pytest.mark.parametrize("name", [one.name for one in _OTHERS])
def test_each_choice_lies_clearly_before_the_next(name: str, tmp_path_factory) -> None:
    (one,) = (each for each in SCENARIOS if each.name == name)
    folder = checkpoint(one.model, tmp_path_factory.getbasetemp() / "models")
    greedy = [probe for probe in one.probes if probe.prompts and probe.check != "repeatable"]
    margins = {probe.name: _margin(folder, probe, int(one.model == "omni_sampler")) for probe in greedy}
    assert min(margins.values()) > _SURE, margins


def test_with_a_recurrent_state_each_choice_lies_clearly_before_the_next(tmp_path_factory) -> None:
    (one,) = (each for each in SCENARIOS if each.name == "ar-hybrid")
    folder, found = checkpoint(one.model, tmp_path_factory.getbasetemp() / "models"), []
    for prompt in (prompt for probe in one.probes for prompt in probe.prompts):
        tokens = list(prompt)
        for _ in range(engine.GREEDY["max_tokens"]):
            scores = reference.logits(folder, hybrid.remembered(folder, tokens)[-1])
            first, second = scores.topk(2).values.tolist()
            found.append(first - second)
            tokens.append(reference.most_likely(scores))
    assert min(found) > _SURE
