"""Against the package index that is configured on this machine."""

from __future__ import annotations

import pytest

from npu_upgrade.sources import remote_wheel
from npu_upgrade.sources.index import releases_of
from npu_upgrade.sources.remote_wheel import peek_file
from npu_upgrade.sources.tree import open_source

pytestmark = pytest.mark.network


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_vllm_omni_release():
    tree = open_source("pypi:vllm-omni==0.22.0")
    assert (tree.project, tree.version, tree.verified) == ("vllm-omni", "0.22.0", True)
    assert tree.date is not None
    assert "class OmniNPUModelRunner" in tree.read("vllm_omni/platforms/npu/worker/npu_model_runner.py")


def test_vllm_ascend_sdist():
    tree = open_source("pypi:vllm-ascend==0.23.0.post1")
    assert (tree.project, tree.verified) == ("vllm-ascend", True)
    assert tree.exists("vllm_ascend/worker/model_runner_v1.py")
    assert any(path.startswith("Dockerfile") for path in tree.list())


def test_peek_reads_little_of_a_large_wheel(monkeypatch):
    sizes = []
    read = remote_wheel._RangeReader._range

    def counted(self, wanted):
        data, total = read(self, wanted)
        sizes.append(len(data))
        return data, total

    monkeypatch.setattr(remote_wheel._RangeReader, "_range", counted)
    text = peek_file("vllm-ascend", "0.22.1rc1", "vllm_ascend/worker/model_runner_v1.py")
    assert "class NPUModelRunner" in text
    assert sum(sizes) < 2_000_000


def test_releases_have_dates_and_order():
    releases = releases_of("vllm-ascend")
    assert all(release.date for release in releases)
    versions = [release.version for release in releases]
    assert versions.index("0.9.1") < versions.index("0.22.1rc1") < versions.index("0.23.0")
