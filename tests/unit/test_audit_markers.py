"""The check on markers: what stands outside, what stands inside, and pairs that do not close."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from audit_kit import AR, ASCEND, PLAIN, findings, make_world, seen

UPSTREAM = """\
def run(self, batch):
    self.prepare(batch)
    tokens = self.count(batch)
    logits = self.forward(batch, tokens)
    if tokens:
        self.record(logits, tokens)
        self.release(logits, batch)
    state = self.finish(logits, batch)
    return state
"""
FENCE = "# ------- Omni-new -------"


def worker(method: str, upstream: str = UPSTREAM) -> dict[str, str]:
    """An AR runner with ``method``, on an upstream runner with ``upstream``."""
    heads = PLAIN[AR].replace("pass", ""), PLAIN[ASCEND].replace("pass", "")
    texts = [
        head.rstrip() + "\n" + indent(text, " " * 16)
        for head, text in zip(heads, (method, upstream), strict=True)
    ]
    return {AR: texts[0], ASCEND: texts[1]}


def with_lines(after: str, *lines: str) -> str:
    """The upstream method with lines after the one that has ``after`` in it, at its depth."""
    out = []
    for line in UPSTREAM.splitlines():
        out.append(line)
        if after in line:
            depth = line[: len(line) - len(line.lstrip())]
            out += [depth + text for text in lines]
    return "\n".join(out) + "\n"


OMNI = ("self.talker.begin(batch)", "self.talker.feed(tokens)", "self.talker.end(batch)")


def kinds(folder: Path, method: str) -> list[str]:
    return [kind for kind, _, _ in seen(make_world(folder, worker(method)), "markers")]


def test_a_plain_copy_has_no_findings(tmp_path: Path) -> None:
    assert kinds(tmp_path, UPSTREAM) == []


def test_omni_code_outside_markers_is_one_finding_per_method(tmp_path: Path) -> None:
    found = findings(make_world(tmp_path, worker(with_lines("tokens = ", *OMNI))), "markers")
    assert [(f.kind, f.owner, f.subject) for f in found] == [("unmarked", "NPUARModelRunner", "run")]
    place = (tmp_path / "vllm_omni" / AR).read_text().splitlines()
    assert place[found[0].here.line - 1].strip() == OMNI[0]
    assert "3 of 3 omni statements" in found[0].what


def test_omni_code_in_markers_is_fine(tmp_path: Path) -> None:
    assert kinds(tmp_path, with_lines("tokens = ", FENCE, *OMNI, FENCE)) == []


def test_a_note_marks_its_own_statement(tmp_path: Path) -> None:
    noted = [f"{line}  # Omni-specific" for line in OMNI]
    assert kinds(tmp_path, with_lines("tokens = ", *noted)) == []


def test_code_without_a_name_of_omnis_own_is_left_alone(tmp_path: Path) -> None:
    same = ["self.record(batch, batch)", "self.release(batch, tokens)", "self.prepare(tokens)"]
    assert kinds(tmp_path, with_lines("tokens = ", *same)) == []


def test_few_statements_are_left_alone(tmp_path: Path) -> None:
    assert kinds(tmp_path, with_lines("tokens = ", *OMNI[:2])) == []


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ((FENCE, *OMNI), "unpaired"),
        ((FENCE, *OMNI, "# " + "-" * 40), "closed-by-dashes"),
    ],
)
def test_a_marker_without_its_pair(tmp_path: Path, lines: tuple[str, ...], kind: str) -> None:
    assert kind in kinds(tmp_path, with_lines("tokens = ", *lines))


def test_upstreams_code_inside_markers(tmp_path: Path) -> None:
    lines = UPSTREAM.splitlines()
    method = "\n".join([lines[0], f"    {FENCE}", *lines[1:4], f"    {FENCE}", *lines[4:]])
    assert kinds(tmp_path, method) == ["upstream-inside"]


def test_a_condition_around_upstreams_code_is_omnis(tmp_path: Path) -> None:
    lines = UPSTREAM.splitlines()
    inner = [f"    {line}" for line in lines[1:4]]
    method = "\n".join([lines[0], f"    {FENCE}", "    if self.talker:", *inner, f"    {FENCE}", *lines[4:]])
    assert kinds(tmp_path, method) == []


def test_a_marker_below_the_last_statement_belongs_to_the_method(tmp_path: Path) -> None:
    closed = UPSTREAM.replace("    state =", f"    {FENCE}\n    state =") + f"    {FENCE}\n"
    assert "unpaired" not in kinds(tmp_path, closed)


def test_markers_around_whole_methods_pair_in_their_class(tmp_path: Path) -> None:
    helper = f"{FENCE}\ndef helper(self):\n    return 1\n"
    assert kinds(tmp_path / "closed", UPSTREAM + helper + f"{FENCE}\n") == []
    found = seen(make_world(tmp_path / "open", worker(UPSTREAM + helper)), "markers")
    assert found == [("unpaired", "", "NPUARModelRunner")]


def test_a_method_that_is_no_copy_is_looked_at_too(tmp_path: Path) -> None:
    own = f"def helper(self):\n    {FENCE}\n    return 1\n"
    found = seen(make_world(tmp_path, worker(UPSTREAM + own)), "markers")
    assert found == [("unpaired", "NPUARModelRunner", "helper")]


def test_dashes_alone_are_no_marker(tmp_path: Path) -> None:
    assert kinds(tmp_path, with_lines("tokens = ", "# ---------")) == []
