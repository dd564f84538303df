"""An audit after an edit, with what is kept of the one before, finds what a cold one finds."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from textwrap import dedent

import pytest
from audit_kit import AR, ASCEND, BASE, GPU_AR, NPU, VLLM, make_triple

from npu_upgrade.audit.run import check_names, look_at_both
from npu_upgrade.audit.world import Triple, World
from npu_upgrade.sources.tree import open_source

HELPER, PATCH = f"{NPU}/helper.py", "vllm_ascend/patch/patch_runner.py"
LIMITS, LATER = f"{NPU}/limits.py", f"{NPU}/later_runner.py"
STEP = """
        def step(self, batch):
            tokens = batch.tokens
            limits = batch.limits
            total = sum(tokens)
            self.counted = total
            if total > self.most:
                tokens = tokens[: self.most]
            logits = self.forward(tokens)
            self.note(logits)
            result = self.sample(logits, limits)
            return result
"""
RUNNER = f"""
    {{imports}}
    class {{name}}({{base}}):
        def __init__(self):
            self.most = 8
        {STEP}
        def forward(self, tokens):
            return tokens

        def note(self, logits):
            self.noted = logits

        def sample(self, logits, limits):
            return logits
"""


def runner(name: str, base: str, module: str) -> str:
    imports = f"from {module[:-3].replace('/', '.')} import {base}"
    return dedent(RUNNER).format(imports=imports, name=name, base=base)


FILES = {
    VLLM: "class GPUModelRunner:\n    pass\n\n\ndef drive(runner, batch):\n    return runner.step(batch)\n",
    ASCEND: runner("NPUModelRunner", "GPUModelRunner", VLLM),
    AR: f"""
        from {BASE[:-3].replace("/", ".")} import OmniNPUModelRunner
        from {HELPER[:-3].replace("/", ".")} import Bound, bound
        from {LIMITS[:-3].replace("/", ".")} import MOST


        class NPUARModelRunner(OmniNPUModelRunner):
            def step(self, batch):
                tokens = batch.tokens
                limits = batch.limits
                total = sum(tokens)
                self.counted = total
                if total > self.most:
                    tokens = tokens[: self.most]
                logits = self.forward(tokens)
                self.note(logits)
                result = self.sample(logits, limits)
                return bound(result, Bound())

            def cut(self, tokens):
                return tokens[:MOST]
    """,
    LIMITS: "MOST = 8\n",
    HELPER: "class Bound:\n    low = 0\n\n\ndef bound(value, by):\n    return max(value, by.low)\n",
    PATCH: f"from {VLLM[:-3].replace('/', '.')} import GPUModelRunner\n\nGPUModelRunner.late = 1\n",
}
LATER_TEXT = f"""from {AR[:-3].replace("/", ".")} import NPUARModelRunner


class NPULaterModelRunner(NPUARModelRunner):
    def note(self):
        return self.never_there
"""
EDITS = [
    (ASCEND, "def sample(self, logits, limits):", "def sample(self, logits, limits, how):"),
    (LIMITS, "MOST = 8", "LEAST = 8"),
    (LATER, "", LATER_TEXT),
    (LATER, LATER_TEXT, "NONE = 1\n"),
    (AR, "self.note(logits)", "self.note(logits, self.gone)"),
    (AR, "return bound(result, Bound())", "return bound(result, Bound()), self.late"),
    (HELPER, "def bound(value, by):", "def bound(value, by, how):"),
    (PATCH, "GPUModelRunner.late", "GPUModelRunner.later"),
    (HELPER, "class Bound:\n    low = 0\n", "LOW = 0\n"),
    (VLLM, "runner.step(batch)", "runner.begin(batch)"),
    (GPU_AR, "    pass", "    def extra(self):\n        self.flushed = True"),
    (AR, "self.counted = total", "self.counted = total  # all of them"),
]


def looked_at(triple: Triple, old: Triple) -> tuple[list[str], list[str]]:
    here, before = look_at_both(World(triple, World(old)), check_names())
    assert here.faults | before.faults == {}
    return [repr(one) for one in here.findings], [repr(one) for one in before.findings]


def test_an_audit_after_an_edit_finds_what_a_cold_one_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_triple(tmp_path / "old", FILES)
    make_triple(tmp_path / "new", FILES)
    seen = []
    for number, (path, text, other) in enumerate([("", "", ""), *EDITS]):
        if path:
            place = tmp_path / "new" / path.partition("/")[0] / path
            before = place.read_text() if text else ""
            assert text in before
            place.write_text(before.replace(text, other) if text else other)
        found = []
        for cache in ("warm", f"cold-{number}"):
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))
            tops = ("vllm_omni", "vllm_ascend", "vllm")
            trees = [open_source(f"dir:{tmp_path / 'new' / top}") for top in tops]
            found.append(looked_at(Triple(*trees), old))
        assert found[0] == found[1], (path, other)
        seen.append(found[0][0])
    assert sum(one != two for one, two in pairwise(seen)) > len(EDITS) / 2  # most edits change what is found
