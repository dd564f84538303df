"""A recurrent state in a stage of vllm-omni, beside an idle data-parallel rank's dummy batches."""

import pytest

from bench.edits import edited
from bench.emulator_pairs import MATCHED
from npu_upgrade.audit.world import Triple
from npu_upgrade.gates.emulation.catalogue import chosen
from npu_upgrade.gates.emulation.dry_run import run

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("machine")]
NEWEST = MATCHED[-1]
_RUNNER = "vllm_omni/platforms/npu/worker/npu_model_runner.py"
# without it no graph of this release is right (known_defects.yaml)
_CORRECTED = {
    "path": _RUNNER,
    "at": "OmniNPUModelRunner._model_forward",
    "do": "insert",
    "code": 'getattr(self.model, "set_attn_backend", lambda backend: None)(self.attn_backend)',
    "place": "start",
}
_NOT_SKIPPED = {
    "path": _RUNNER,
    "at": "OmniNPUModelRunner._dummy_run",
    "do": "insert",
    "code": "skip_gdn_state_update = False",
    "place": "start",
}


def test_its_answers_are_right_once_the_release_is_corrected(tmp_path):
    ran = _played([_CORRECTED], ["ar-hybrid", "pooling-hybrid"], tmp_path)
    assert [(one.state, one.why) for one in ran] == [("PASS", "")] * 2


def test_a_dummy_batch_that_writes_the_state_is_seen(tmp_path):
    (ran,) = _played([_CORRECTED, _NOT_SKIPPED], ["ar-hybrid"], tmp_path)
    assert ran.state == "FAIL"
    assert "idle between steps" in ran.why, ran.why


def _played(edits, names, folder):
    """What the scenarios of the newest pair do with edits of vllm-omni."""
    right = NEWEST.triple()
    triple = Triple(edited(right.omni, edits), right.ascend, right.vllm)
    return run(triple, chosen(names, ["graph"], omni=True), folder).outcomes[1:]
