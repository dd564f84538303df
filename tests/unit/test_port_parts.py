"""The parts of a port: dialect, what is upstream's, what belongs together, which release it follows."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lineage_kit import RUNNERS, write_tree
from port_kit import GPU_AR_NEW, GPU_AR_OLD, NPU_AR, omni_files
from sources_kit import Server, clean_machine, server, sha, wheel  # noqa: F401

from npu_upgrade.code.module import add_base, parse_module
from npu_upgrade.code.statements import split_statements
from npu_upgrade.lineage.dialect import is_device_bound, translate
from npu_upgrade.lineage.downstream import omni_side
from npu_upgrade.port import correspondence
from npu_upgrade.port.apply import add_method
from npu_upgrade.port.correspondence import find_since
from npu_upgrade.port.draft import _sides
from npu_upgrade.port.driven import Upstream
from npu_upgrade.port.hunks import Hunk, unit_hunks
from npu_upgrade.port.needs import Needs, Ranked, closure, uses
from npu_upgrade.port.npu_side import NpuSide, read_npu_side
from npu_upgrade.port.rank import keep_whole
from npu_upgrade.port.sides import keys_of, read_gpu_side, statements
from npu_upgrade.port.unit_diff import diff_units
from npu_upgrade.sources.tree import open_source

AR = RUNNERS[1]
NAMES = {runner.gpu_class: runner.class_name for runner in RUNNERS}


# -- features --


class _Bare:
    """An NPU side that has nothing of what the hunks bring."""

    def attributes(self, runner: object) -> set[str]:
        return {"count", "finish", "record"}

    def reads_names(self, runner: object, unit: str) -> set[str]:
        return {"batch", "tokens"}

    def provider(self, runner: object, method: str) -> str:
        return "npu"


def _ranked(tier: int, unit: str, *added: str) -> Ranked:
    new = tuple(split_statements("\n".join(added)))
    return Ranked(Hunk("change", AR, f"NPUARModelRunner.{unit}", (), new), tier)


def test_a_feature_of_which_a_part_does_not_fit_is_kept_whole_below_the_first_tier() -> None:
    gives = _ranked(1, "load", "self.stats = Stats()")
    reads = _ranked(3, "run", "self.stats.add(batch)")
    local, user = _ranked(1, "run", "late = batch.late"), _ranked(1, "run", "self.record(late)")
    other, same_name = _ranked(1, "run", "self.finish(batch)"), _ranked(2, "stop", "late = 1")
    every = [gives, reads, local, user, other, same_name]
    keep_whole({one.hunk.id: one for one in every}, cast(NpuSide, _Bare()))
    assert [one.tier for one in every] == [2, 3, 1, 1, 1, 2]
    assert gives.reasons == [f"half of a feature: {reads.hunk.id} is not of the first tier"]


def test_a_hunk_of_which_another_that_fits_uses_a_part_stays_beside_a_use_that_does_not() -> None:
    gives, shows = (
        _ranked(1, "run", "late = batch.late", "kept = tokens"),
        _ranked(1, "run", "self.record(late)"),
    )
    misfit = _ranked(3, "run", "self.output = kept.output(late)")
    aside, into = _ranked(1, "load", "self.spare = 1"), _ranked(1, "load", "self.part = self.spare")
    far = _ranked(3, "run", "self.finish(self.part)")
    itself = _ranked(1, "stop", "mark = tokens", "self.count(mark)")
    user = _ranked(2, "stop", "self.finish(mark)")
    every = [gives, shows, misfit, aside, into, far, itself, user]
    keep_whole({one.hunk.id: one for one in every}, cast(NpuSide, _Bare()))
    assert [one.tier for one in every] == [1, 1, 3, 2, 2, 3, 1, 2]


def test_what_is_switched_on_is_not_taken_without_what_switches_it_off() -> None:
    asks = _ranked(1, "run", "steered = batch.steered")
    on = _ranked(1, "run", "entered = steered and self.record(steered)", "steered = entered")
    pads = _ranked(1, "run", "self.count(steered)")
    beside, elsewhere = _ranked(1, "run", "self.finish(batch)"), _ranked(1, "stop", "self.finish(steered)")
    ends = ("try:", "    self.count(batch)", "finally:", "    if entered:", "        self.record(False)")
    off = _ranked(3, "run", *ends)
    every = [asks, on, pads, beside, elsewhere, off]
    keep_whole({one.hunk.id: one for one in every}, cast(NpuSide, _Bare()))
    assert [one.tier for one in every] == [2, 2, 2, 1, 1, 3]
    assert on.reasons == [f"half of a feature: {off.hunk.id} is not of the first tier"]
    fits = [_ranked(1, "run", *ends), on, asks]
    on.tier = asks.tier = 1
    keep_whole({one.hunk.id: one for one in fits}, cast(NpuSide, _Bare()))
    assert [one.tier for one in fits] == [1, 1, 1]


# -- dialect --


def test_classes_calls_and_keywords_are_translated() -> None:
    source = (
        "class GPUARModelRunner(OmniGPUModelRunner, Base):\n    def run(self, batch):\n"
        "        with set_forward_context(batch, cudagraph_runtime_mode=cudagraph_runtime_mode):\n"
        "            torch.cuda.synchronize()\n            return CUDAGraphWrapper(self.cuda)\n"
    )
    assert translate(source, NAMES | {"Base": "NPUBase"}) == (
        "class NPUARModelRunner(OmniNPUModelRunner, NPUBase):\n    def run(self, batch):\n"
        "        with set_ascend_forward_context(batch, aclgraph_runtime_mode=cudagraph_runtime_mode):\n"
        "            torch.npu.synchronize()\n            return ACLGraphWrapper(self.cuda)\n"
    )


def test_text_is_not_translated() -> None:
    text = 'log("é", "set_forward_context")  # CUDAGraphWrapper\n'
    call = "set_forward_context(é, cudagraph_runtime_mode=1)\n"
    assert translate(text + call) == text + "set_ascend_forward_context(é, aclgraph_runtime_mode=1)\n"


@given(
    st.lists(
        st.sampled_from(["GPUARModelRunner", "x", "set_forward_context", "torch.cuda", "'GPU'"]), max_size=6
    )
)
def test_a_translation_is_python_and_final(words: list[str]) -> None:
    source = f"value = [{', '.join(words)}]\n"
    once = translate(source)
    ast.parse(once)
    assert translate(once) == once


def test_what_speaks_of_cuda_itself() -> None:
    assert is_device_bound("stream = pinned.cuda_stream()")
    assert not is_device_bound("mode = self.cudagraph_mode; full = self.cuda_graph_sizes")


# -- hunks and what is upstream's --


def method(*lines: str) -> str:
    return "\n".join(["    def run(self, batch):", *(f"        {line}" for line in lines)])


def found(old: str, new: str, upstream: Upstream | None = None) -> list[Hunk]:
    sides = (split_statements(text) for text in (old, new))
    return list(unit_hunks(AR, "NPUARModelRunner.run", *sides, upstream or Upstream()))


OLD = method("tokens = self.count(batch)", "self.record(tokens, batch)", "return self.finish(tokens)")


def test_a_statement_that_upstream_has_is_upstreams() -> None:
    new = OLD.replace("        self.record", "        stats = StepStats(tokens)\n        self.record")
    assert len(found(OLD, new)) == 1
    assert found(OLD, new, Upstream(after={"stats = StepStats(tokens)"})) == []


def test_an_argument_that_upstreams_call_got_is_upstreams() -> None:
    new = OLD.replace("self.record(tokens, batch)", "self.record(tokens, batch, num_nans=nans)")
    upstream = Upstream({"self.record(tokens)"}, {"self.record(tokens, num_nans=nans)"})
    assert len(found(OLD, new)) == 1
    assert found(OLD, new, upstream) == []


def test_a_word_that_upstream_gained_elsewhere_is_not_upstreams() -> None:
    new = OLD.replace("self.record(tokens, batch)", "self.record(tokens, batch, num_nans=nans)")
    assert len(found(OLD, new, Upstream(set(), {"for nans in range(num_nans): pass"}))) == 1


def test_omnis_statement_brings_the_condition_that_upstream_put_above_it() -> None:
    new = OLD.replace(
        "        self.record",
        "        if self.is_last_rank(batch):\n            self.talk(tokens, batch)\n        self.record",
    )
    (hunk,) = found(OLD, new, Upstream(after={"if self.is_last_rank(batch):"}))
    assert [s.key for s in hunk.new] == ["if self.is_last_rank(batch):", "self.talk(tokens, batch)"]
    assert hunk.diff is not None
    assert (12, "self.talk(tokens, batch)") in [(s.indent, s.key) for s in hunk.diff.compose(hunk.pieces)]


def test_a_change_of_words_only_is_no_hunk() -> None:
    old = OLD.replace("batch):", 'batch):\n        """Run it."""')
    assert found(old, old.replace("Run it.", "Run it once.")) == []


def test_the_id_is_the_contents() -> None:
    new = OLD.replace("self.finish(tokens)", "self.finish(tokens, batch)")
    moved = "\n\n" + new.replace(
        "self.finish(tokens, batch)", "self.finish(\n            tokens,\n            batch,\n        )"
    )
    (one,), (two,) = found(OLD, new), found(OLD, moved)
    assert one.id == two.id
    assert one.id != found(OLD, OLD.replace("self.finish(tokens)", "self.finish(batch)"))[0].id


def test_parts_that_only_parse_together_are_one_hunk() -> None:
    old = method("values = self.read(batch)", "self.first(values, batch)", "self.second(values, batch)")
    new = method(
        "values = self.read(batch)",
        "try:",
        "    self.first(values, batch)",
        "except ValueError as error:",
        "    self.report(error, batch)",
        "self.second(values, batch)",
    )
    assert len(found(old, new)) == 1


def test_a_statement_without_the_headers_around_it_stands_where_they_would() -> None:
    old = split_statements(OLD)
    inner = (
        "    with self.lock(batch):",
        "        self.record(tokens, batch)",
        "        self.talk(tokens, batch)",
    )
    new = method(
        "tokens = self.count(batch)", "if self.is_last(batch):", *inner, "return self.finish(tokens)"
    )
    diff = diff_units(old, split_statements(new))
    (piece,) = (
        p for p in diff.pieces if "self.talk(tokens, batch)" in {s.key for s in diff.new[p.b0 : p.b1]}
    )
    composed = [(s.indent, s.key) for s in diff.compose([piece])]
    assert composed[2:] == [
        (8, "self.record(tokens, batch)"),
        (8, "self.talk(tokens, batch)"),
        (8, "return self.finish(tokens)"),
    ]
    wrapped = [p for p in diff.pieces if p is not piece]
    assert (16, "self.record(tokens, batch)") in [(s.indent, s.key) for s in diff.compose(wrapped)]


# -- needs --


def test_what_a_hunk_reads_and_binds() -> None:
    new = OLD.replace(
        "        self.record",
        "        key = self.cache.get(name)\n        self.last = key\n        self.record",
    )
    (hunk,) = found(OLD, new)
    used = uses(hunk)
    assert (used.reads, used.binds) == ({"cache"}, {"last"})
    assert (used.names, used.locals) == ({"self", "name"}, {"key"})


def test_needed_hunks_come_first_and_once() -> None:
    needs = {"a": Needs(["b", "c"]), "b": Needs(["c"]), "c": Needs(["a"]), "d": Needs()}
    assert closure(["a", "d"], needs) == ["c", "b", "a", "d"]


# -- additions --


def test_a_method_goes_behind_the_one_it_follows_on_the_gpu_side() -> None:
    module = parse_module(translate(GPU_AR_NEW, NAMES))
    unit = module.units["NPUARModelRunner.needs_payload"]
    hunk = Hunk("method", AR, unit.qualname, (), tuple(statements(unit)))
    text = add_method(NPU_AR, hunk, list(module.units))
    names = [name.partition(".")[2] for name in parse_module(text).units]
    assert names == ["__init__", "run", "pack", "send", "needs_payload"]
    assert text.startswith(NPU_AR.rstrip("\n"))


def test_a_base_class_is_added_where_the_list_ends() -> None:
    source = "class NPUARModelRunner(\n    OmniNPUModelRunner,  # ours\n):\n    pass\n"
    text = add_base(source, AR.class_name, "Mixin")
    assert [ast.unparse(base) for base in ast.parse(text).body[0].bases] == ["OmniNPUModelRunner", "Mixin"]
    assert "# ours" in text


# -- which release the NPU runners follow --


STEPS = [f"self.step_{number}(batch, tokens)" for number in range(30)]


def gpu_ar(*numbers: int) -> str:
    lines = "\n".join(f"        {STEPS[number]}" for number in numbers)
    return GPU_AR_OLD.replace(
        "        payload = self.pack(states)\n", f"        payload = self.pack(states)\n{lines}\n"
    )


def npu_ar(*numbers: int) -> str:
    steps = "".join(f"        {STEPS[number]}\n" for number in numbers)
    return NPU_AR.replace("        self.send(payload)\n", f"{steps}        self.send(payload)\n")


def publish_omni(server: Server, releases: dict[str, tuple[str, str]]) -> None:  # noqa: F811
    page = []
    for version, (gpu, npu) in releases.items():
        data = wheel(omni_files(gpu, npu), name="vllm_omni", version=version)
        name = f"vllm_omni-{version}-py3-none-any.whl"
        server.file(name, data)
        page.append(f'<a href="/files/{name}#sha256={sha(data)}">{name}</a>')
    server.page("vllm-omni", "\n".join(page).encode(), "text/html")


@pytest.mark.usefixtures("clean_machine")
@pytest.mark.parametrize(("held", "expected"), [(10, "0.3.0"), (20, "0.4.0"), (0, None)])
def test_the_newest_release_that_shows(
    tmp_path: Path,
    server: Server,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    held: int,
    expected: str | None,
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    counts = {"0.2.0": 0, "0.3.0": 10, "0.4.0": 20, "0.5.0": 30}
    publish_omni(server, {version: (gpu_ar(*range(count)), NPU_AR) for version, count in counts.items()})
    since, looked = since_of(tmp_path, gpu_ar(*range(30)), npu_ar(*range(held)))
    assert since == expected
    assert "0.5.0" not in looked, "the new side itself is no answer"


@pytest.mark.usefixtures("clean_machine")
def test_after_an_edit_the_runners_of_releases_are_known(
    tmp_path: Path,
    server: Server,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    publish_omni(server, {f"0.{n}.0": (gpu_ar(*range(10 * n - 20)), NPU_AR) for n in range(2, 6)})
    gpu = gpu_ar(*range(30))
    assert since_of(tmp_path, gpu, npu_ar(*range(20)))[0] == "0.4.0"
    read: list[str] = []
    monkeypatch.setattr(correspondence, "_read_release", lambda _, release, __: read.append(release.version))
    assert since_of(tmp_path, gpu, npu_ar(*range(10)))[0] == "0.3.0"
    assert read == []


@pytest.mark.usefixtures("clean_machine")
@pytest.mark.parametrize("later", [npu_ar(*range(10), 15, 16), npu_ar(*range(10))])
def test_a_release_whose_npu_side_is_further_on_is_not_the_one(
    tmp_path: Path,
    server: Server,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    later: str,
) -> None:
    """What 0.4.0 drops of the GPU side, the NPU side never had."""
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    held = npu_ar(*range(10))
    releases = {
        "0.2.0": (gpu_ar(), NPU_AR),
        "0.3.0": (gpu_ar(*range(10), *range(20, 30)), held),
        "0.4.0": (gpu_ar(*range(10)), later),
        "0.5.0": (gpu_ar(*range(15)), later),
    }
    publish_omni(server, releases)
    assert since_of(tmp_path, gpu_ar(*range(15)), held)[0] == "0.3.0"


def since_of(root: Path, gpu: str, npu: str) -> tuple[str | None, list[str]]:
    """The release that runners follow in a tree of 0.5.0, and those looked at."""
    files = omni_files(gpu, npu) | {"PKG-INFO": "Metadata-Version: 2.1\nVersion: 0.5.0\n"}
    omni = open_source(f"dir:{write_tree(root / 'omni', files)}")
    side = read_npu_side(omni_side(omni), omni, omni, omni)
    since, looked = find_since(side, read_gpu_side(omni, side.side), frozenset())
    return since and since.side.tree.version, [step.version for step in looked]


def test_keys_of_a_unit() -> None:
    assert keys_of(split_statements("a = 1\na = 1"))["a = 1"] == 2


@pytest.mark.parametrize(
    ("by_cuda", "kept"),
    [
        ("    self.copied = torch.cuda.copy(sent)\n", False),
        ("    if fast:\n        out = torch.cuda.copy(sent)\n    else:\n        out = sent\n", True),
    ],
    ids=["nothing needs it", "another part reads what it gives"],
)
def test_what_is_for_cuda_is_in_a_draft_only_where_the_rest_needs_it(by_cuda: str, kept: bool) -> None:
    head, end = "def run(self, sent, fast):\n    self.begin()\n", "    self.end()\n"
    old = split_statements(head + end)
    new = split_statements(head + by_cuda + end + "    self.give(out)\n" * kept)
    diff = diff_units(old, new)
    pieces = [one for one in diff.pieces if any("cuda" in s.key for s in new[one.b0 : one.b1])]
    others = [one for one in diff.pieces if one not in pieces]
    of_cuda, gain = (cast(Hunk, SimpleNamespace(pieces=some)) for some in (pieces, others))
    base, theirs = _sides(diff, [gain], [of_cuda])
    assert keys_of(theirs) == keys_of(new if kept else old)
    assert keys_of(base) == keys_of(old)


def test_what_only_follows_vllm_is_no_part_of_a_draft() -> None:
    head, end = "def run(self, x):\n    self.begin()\n", "    self.end()\n"
    old = split_statements(f"{head}    self.step(x)\n{end}")
    new = split_statements(f"{head}    self.wait()\n    self.step(x)\n    self.gain(x)\n{end}")
    diff = diff_units(old, new)
    (gain,) = (one for one in diff.pieces if any("gain" in s.key for s in new[one.b0 : one.b1]))
    base, theirs = _sides(diff, [cast(Hunk, SimpleNamespace(pieces=(gain,)))], [])
    assert keys_of(theirs) - keys_of(base) == {"self.gain(x)": 1}
