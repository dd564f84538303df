from __future__ import annotations

from bench.imports_score import score_imports, with_imports_of
from npu_upgrade.lineage.import_sources import UpstreamFile

PATH = "vllm_omni/platforms/npu/worker/npu_model_runner.py"
UPSTREAM = UpstreamFile("vllm_ascend/worker/runner.py", "import time\nfrom vllm.moved import there\n")
BEFORE = "# header\n\nimport gc\nimport unused_before\n\nX = 1\nfrom vllm.a import a\n\n\ngc, a, X\n"


def score(after: str, before: str = BEFORE):
    return score_imports({PATH: before}, {PATH: after}, UPSTREAM, {}, None, None)


def test_puts_the_old_imports_over_the_new_body() -> None:
    after = (
        '"""Doc."""\nimport new\n\n# about other\nimport other\n\n'
        "if TYPE_CHECKING:\n    import t\n\nY = 2\nnew\n"
    )
    assert with_imports_of(after, BEFORE) == (
        '"""Doc."""\nimport gc\nimport unused_before\nfrom vllm.a import a\n\nY = 2\nnew\n'
    )
    assert with_imports_of("Y = 2\n", "Z = 1\n") == "Y = 2\n"


def test_counts_what_was_derived_right() -> None:
    result = score("import time\n\nimport unused_before\nfrom vllm.a import a\n\na, time\n")
    assert (result.added, result.added_right, result.dropped, result.dropped_right) == (1, 1, 1, 1)
    assert (result.extra, result.apart, result.undefined, result.cases) == (0, 0, 0, [])


def test_lists_every_difference() -> None:
    result = score("import gc\nfrom vllm.other import there\n\nthere, lost, a\n")
    assert (result.added, result.added_right, result.extra, result.undefined) == (1, 0, 1, 1)
    assert (result.dropped, result.dropped_right, result.apart) == (1, 0, 2)
    assert [case.partition(" (")[0] for case in result.cases] == [
        "npu_model_runner.py: not added: from vllm.other import there",
        "npu_model_runner.py: not dropped: from vllm.a import a",
        "npu_model_runner.py: added beyond: from vllm.moved import there",
        "npu_model_runner.py: undefined: lost: not in the upstream runner, the GPU or the other NPU runners; "
        "no single definition in no tree",
    ]


def test_imports_without_a_use_are_apart() -> None:
    result = score("import gc\nimport unused_after\n\ngc\n", "import gc\nimport unused_before\n\ngc\n")
    assert (result.added, result.dropped, result.apart, result.cases) == (0, 0, 2, [])
