from __future__ import annotations

import os

import pytest
from sources_kit import SOURCES, html, link, sdist, wheel

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources import archives, index, remote_wheel
from npu_upgrade.sources.remote_wheel import peek_file
from npu_upgrade.sources.tree import open_source

pytest_plugins = "sources_kit"
RUNNER = "vllm_ascend/worker/model_runner_v1.py"
WHEEL = "vllm_ascend-1.0-cp311-cp311-manylinux_2_24_x86_64.whl"
SDIST = "vllm_ascend-1.0.tar.gz"
BIG = SOURCES | {"vllm_ascend/big.txt": os.urandom(1 << 20).hex()}


@pytest.fixture
def release(server):
    """A function that publishes files as release 1.0 of vllm-ascend."""

    def publish(**files):
        names = {"wheel": WHEEL, "sdist": SDIST}
        server.page("vllm-ascend", html(*(link(names[kind], data) for kind, data in files.items())))
        for kind, data in files.items():
            server.file(names[kind], data)

    return publish


def test_one_file_of_a_wheel_costs_little_and_is_remembered(server, release, monkeypatch):
    monkeypatch.setattr(remote_wheel, "BLOCK", 4096)
    release(wheel=wheel(BIG), sdist=sdist(BIG))
    assert peek_file("vllm_ascend", "1.0", RUNNER) == SOURCES[RUNNER]
    assert server.sent < 50_000
    assert f"/files/{SDIST}" not in server.paths()
    asked = len(server.requests)
    assert peek_file("vllm-ascend", "1.0", RUNNER) == SOURCES[RUNNER]
    assert len(server.requests) == asked


def test_a_file_the_release_does_not_have_is_none_and_remembered(server, release):
    release(wheel=wheel(BIG))
    assert peek_file("vllm-ascend", "1.0", "vllm_ascend/none.py") is None
    asked = len(server.requests)
    assert peek_file("vllm-ascend", "1.0", "vllm_ascend/none.py") is None
    assert len(server.requests) == asked


def test_without_ranges_the_whole_archive_is_read(server, release):
    server.ranges = False
    release(wheel=wheel(BIG))
    assert peek_file("vllm-ascend", "1.0", RUNNER) == SOURCES[RUNNER]
    assert peek_file("vllm-ascend", "1.0", "none.py") is None
    assert server.paths().count(f"/files/{WHEEL}") == 2, "the refused range, then the whole"


def test_with_an_sdist_only_the_whole_archive_is_read(release):
    release(sdist=sdist(SOURCES))
    assert peek_file("vllm-ascend", "1.0", RUNNER) == SOURCES[RUNNER]


def test_an_unpacked_archive_is_used_without_network(server, release):
    release(sdist=sdist(SOURCES), wheel=wheel(SOURCES))
    open_source("pypi:vllm-ascend==1.0")
    asked = len(server.requests)
    assert peek_file("vllm-ascend", "1.0", RUNNER) == SOURCES[RUNNER]
    assert len(server.requests) == asked


def test_content_that_is_not_what_record_says_is_not_trusted(server):
    server.file(WHEEL, wheel(BIG, lie=RUNNER))
    with pytest.raises(remote_wheel.NoRanges, match="RECORD"):
        remote_wheel.read_member(f"{server.url}/files/{WHEEL}", RUNNER)


@pytest.mark.parametrize("data", [b"", b"no zip", wheel(SOURCES)[:-40], wheel(SOURCES)[100:]])
def test_what_is_no_wheel_is_left_to_the_whole_archive(server, data):
    server.file(WHEEL, data)
    with pytest.raises(remote_wheel.NoRanges):
        remote_wheel.read_member(f"{server.url}/files/{WHEEL}", RUNNER)


def test_a_flipped_bit_is_found(server):
    text = os.urandom(4000).hex()
    data = bytearray(wheel({RUNNER: text}))
    data[2000] ^= 1
    server.file(WHEEL, bytes(data))
    with pytest.raises(remote_wheel.NoRanges):
        remote_wheel.read_member(f"{server.url}/files/{WHEEL}", RUNNER)


@pytest.mark.parametrize("block", [1, 7, 1000, 1 << 20])
def test_any_block_size_reads_the_same(server, monkeypatch, block):
    monkeypatch.setattr(remote_wheel, "BLOCK", block)
    data = os.urandom(500)
    server.file("x", data)
    reader = remote_wheel._RangeReader(f"{server.url}/files/x")
    for start, size in [(0, 500), (3, 10), (490, 100), (500, 1), (0, -1)]:
        reader.seek(start)
        assert reader.read(size) == data[start : start + size if size >= 0 else None]
    reader.seek(-5, 2)
    assert (reader.tell(), reader.read(2), reader.tell()) == (495, data[495:497], 497)


def test_an_unknown_version_is_bad_input(release):
    release(sdist=sdist(SOURCES))
    with pytest.raises(BadInput, match=r"no release 9\.9"):
        peek_file("vllm-ascend", "9.9", RUNNER)


def test_peeks_never_become_archives(release):
    release(wheel=wheel(BIG))
    peek_file("vllm-ascend", "1.0", RUNNER)
    assert archives.cached(archives.pick(index.release("vllm-ascend", "1.0").files)) is None
