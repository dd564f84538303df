from __future__ import annotations

import json
import os

import model_kit as kit
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_upgrade.checkpoint.weights import BITS, MOST_HEADER, read_header

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=12)
SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)
WHOLE_BYTES = [dtype for dtype, bits in BITS.items() if bits % 8 == 0]
TENSORS = st.dictionaries(
    NAMES.filter(lambda name: name != "__metadata__"),
    st.tuples(SHAPES, st.sampled_from(WHOLE_BYTES)),
    max_size=6,
)


def written(folder, data):
    path = folder / "model.safetensors"
    path.write_bytes(data)
    return path


def kinds(header):
    return {one.kind for one in header.findings if one.severity == "error"}


@given(tensors=TENSORS)
@settings(max_examples=examples(100))
def test_what_was_written_is_read(tmp_path_factory, tensors):
    shapes = {name: shape for name, (shape, _) in tensors.items()}
    dtypes = {name: dtype for name, (_, dtype) in tensors.items()}
    header = read_header(written(tmp_path_factory.mktemp("x"), kit.shard(shapes, dtypes)))
    assert header.sound
    assert {name: (one.shape, one.dtype) for name, one in header.tensors.items()} == tensors


@given(data=st.binary(max_size=64) | st.binary(max_size=40).map(kit.with_header))
@settings(max_examples=examples(200))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    header = read_header(written(tmp_path_factory.mktemp("x"), data))
    assert header.findings or header.tensors


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=14), inner, max_size=4),
    max_leaves=12,
)
ENTRY = st.fixed_dictionaries(
    {}, optional={"dtype": JSON | st.sampled_from(WHOLE_BYTES), "shape": JSON, "data_offsets": JSON}
)


@given(value=JSON | st.dictionaries(st.text(max_size=5), ENTRY, max_size=4))
@settings(max_examples=examples(200))
def test_any_header_is_read_or_refused(tmp_path_factory, value):
    read_header(written(tmp_path_factory.mktemp("x"), kit.with_header(value, bytes(16))))


@given(cut=st.integers(1, 4000))
@settings(max_examples=examples(60))
def test_a_file_cut_anywhere_is_not_sound(tmp_path_factory, cut):
    data = kit.shard(kit.llama_shapes())
    assert not read_header(written(tmp_path_factory.mktemp("x"), data[: -min(cut, len(data))])).sound


ONE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "shard-empty"),
        (b"\0" * 5, "shard-truncated"),
        ((2**63).to_bytes(8, "little") + b"{}", "shard-header"),
        ((MOST_HEADER).to_bytes(8, "little") + b"{}", "shard-truncated"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "shard-pointer"),
        (kit.with_header(b"not json"), "shard-header"),
        (kit.with_header(b"[1]"), "shard-header"),
        (kit.with_header(b'{"a":' * 200_000), "shard-header"),
        (
            kit.with_header(b'{"a": %s, "a": %s}' % ((json.dumps(ONE).encode(),) * 2), bytes(8)),
            "shard-header",
        ),
        (kit.with_header({"a": ONE | {"dtype": "F99"}}, bytes(8)), "tensor-entry"),
        (kit.with_header({"a": ONE | {"shape": [-2]}}, bytes(8)), "tensor-entry"),
        (kit.with_header({"a": ONE | {"shape": [3]}}, bytes(8)), "tensor-entry"),
        (kit.with_header({"a": ONE | {"data_offsets": [8, 0]}}, bytes(8)), "tensor-entry"),
        (kit.with_header({"a": ONE | {"data_offsets": [float("nan"), 8]}}, bytes(8)), "tensor-entry"),
        (kit.with_header({"a": ONE | {"data_offsets": [96, 104]}}, bytes(8)), "shard-truncated"),
        (kit.with_header({"a": ONE, "b": ONE}, bytes(8)), "tensor-overlap"),
        (kit.with_header({"a": ONE | {"data_offsets": [8, 16]}}, bytes(16)), "tensor-hole"),
        (kit.with_header({"a": ONE}, bytes(20)), "shard-trailing"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, data, kind):
    assert kind in kinds(read_header(written(tmp_path, data)))


def test_files_that_are_none(tmp_path):
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "gone.safetensors").symlink_to("nowhere")
    (tmp_path / "folder.safetensors").mkdir()
    for name in ("pipe", "gone", "folder", "absent"):
        assert not read_header(tmp_path / f"{name}.safetensors").sound


def test_packed_numbers_of_less_than_a_byte(tmp_path):
    header = read_header(written(tmp_path, kit.shard({"a": (2, 3), "b": (4,)}, {"a": "F4", "b": "F6_E2M3"})))
    assert header.sound
    assert [header.tensors[name].bytes for name in "ab"] == [3, 3]
