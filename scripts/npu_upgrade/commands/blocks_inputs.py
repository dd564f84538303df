"""What the block catalogue is made from: the trees, and the origin of the NPU methods."""

from __future__ import annotations

from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.catalogue.build import Sources
from npu_upgrade.lineage.downstream import omni_side
from npu_upgrade.lineage.inference import infer
from npu_upgrade.lineage.records import Bases
from npu_upgrade.sources.pins import pair_of
from npu_upgrade.sources.releases import published
from npu_upgrade.sources.tree import SourceTree, open_source


def read(omni_spec: str, ascend_spec: str, vllm_spec: str | None) -> tuple[Sources, dict[str, str]]:
    """The sources of a catalogue, and their specs by role for the record.

    ``ascend_spec`` is where vllm-ascend's history is. Without ``vllm_spec`` the vllm release that
    belongs to the number of the vllm-omni is taken. Raises as ``open_source`` and ``infer``.
    """
    say(f"reading {omni_spec}")
    omni = open_source(omni_spec)
    side = omni_side(omni)
    say("finding what every NPU method was copied from")
    lineage = infer(side, ascend_spec)
    bases = Bases(lineage) if lineage.base else None
    ascend = _base_tree(lineage.base.spec) if lineage.base else None
    spec = vllm_spec or vllm_release(omni)
    say(f"reading {spec}" if spec else "no vllm belongs to this tree: the GPU side is left out (--vllm SPEC)")
    vllm = open_source(spec) if spec else None
    named = {"vllm-omni": omni, "vllm-ascend": ascend, "vllm": vllm}
    return Sources(side, ascend, vllm, bases), {role: tree.spec for role, tree in named.items() if tree}


def _base_tree(spec: str) -> SourceTree | None:
    try:
        return open_source(spec)
    except UpgradeError as error:
        say(f"without the base tree, only the runner files are compared: {error.what}")
        return None


def vllm_release(omni: SourceTree) -> str | None:
    """The vllm release with the number of a vllm-omni (they share it), None when nothing tells."""
    if omni.version is None:
        return None
    pair = pair_of([], omni.version, omni.date, published("vllm"))
    return f"pypi:vllm=={pair.vllm}" if pair.vllm else None
