"""Which vllm-ascend and vllm a vllm-omni belongs with, and which old triple an audit is compared with."""

from __future__ import annotations

from textwrap import dedent
from types import SimpleNamespace

import pytest
from audit_kit import PLAIN
from sources_kit import clean_machine, html, link, sdist, server

from npu_upgrade.audit import triples
from npu_upgrade.audit.triples import (
    ascend_of,
    named_triple,
    old_triple,
    open_triple,
    release_before,
    vllm_of,
)
from npu_upgrade.audit.world import Triple
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.lineage.history import Version
from npu_upgrade.sources.tree import open_source

__all__ = ["clean_machine", "server"]

PINS = {"0.20.2rc1": "v0.20.2", "0.22.1rc1": "v0.22.1", "0.22.1rc2": "v0.22.1", "0.23.0": "v0.23.0"}
RELEASES = {
    "vllm": ("0.20.2", "0.22.0", "0.22.1", "0.23.0"),
    "vllm-ascend": tuple(PINS),
    "vllm-omni": ("0.20.0rc1", "0.20.0", "0.21.0rc1", "0.22.0", "0.24.0rc1"),
}


@pytest.fixture(autouse=True)
def releases(server):
    for project, versions in RELEASES.items():
        package = project.replace("-", "_")
        links = []
        for version in versions:
            files = {path: text for path, text in PLAIN.items() if path.startswith(f"{package}/")}
            files |= {f"{package}/__init__.py": f"# {version}\n"}
            if project == "vllm-ascend":
                files |= {".github/vllm-release-tag.commit": f"{PINS[version]}\n"}
            texts = {path: dedent(text).lstrip("\n") for path, text in files.items()}
            data = sdist(texts, f"{package}-{version}/")
            name = f"{package}-{version}.tar.gz"
            server.file(name, data)
            links.append(link(name, data))
        server.page(project, html(*links))


def release(project: str, version: str):
    return open_source(f"pypi:{project}=={version}")


def shown(triple: Triple | None) -> tuple[str | None, ...]:
    assert triple
    return tuple(tree.version for tree in (triple.omni, triple.ascend, triple.vllm) if tree)


def test_the_pair_of_a_release() -> None:
    omni = release("vllm-omni", "0.22.0")
    assert ascend_of(omni) == "pypi:vllm-ascend==0.22.1rc2"
    assert vllm_of(release("vllm-ascend", "0.22.1rc1")) == "pypi:vllm==0.22.1"
    assert ascend_of(release("vllm-omni", "0.21.0rc1")) is None


def test_the_release_before() -> None:
    assert release_before(release("vllm-omni", "0.22.0")) == "pypi:vllm-omni==0.20.0"
    assert release_before(release("vllm-ascend", "0.23.0")) == "pypi:vllm-ascend==0.22.1rc2"
    assert release_before(release("vllm-ascend", "0.20.2rc1")) is None


@pytest.mark.parametrize("project", ["vllm-omni", "vllm-ascend"])
def test_the_release_before_is_blocked_without_an_index(
    monkeypatch: pytest.MonkeyPatch, project: str
) -> None:
    tree = release(project, RELEASES[project][-1])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(Blocked):
        release_before(tree)


def test_without_a_vllm_it_is_the_pinned_one() -> None:
    omni = release("vllm-omni", "0.22.0")
    assert shown(open_triple(omni, "pypi:vllm-ascend==0.23.0", None)) == ("0.22.0", "0.23.0", "0.23.0")
    assert shown(open_triple(omni, "pypi:vllm-ascend==0.23.0", "pypi:vllm==0.22.0"))[2] == "0.22.0"


def test_an_upgrade_is_compared_with_the_pair_of_the_same_omni() -> None:
    omni = release("vllm-omni", "0.22.0")
    triple = open_triple(omni, "pypi:vllm-ascend==0.23.0", None)
    assert shown(old_triple(triple)) == ("0.22.0", "0.22.1rc2", "0.22.1")


def test_a_matched_triple_is_compared_with_the_release_before() -> None:
    triple = open_triple(release("vllm-omni", "0.22.0"), "pypi:vllm-ascend==0.22.1rc2", None)
    assert shown(old_triple(triple)) == ("0.20.0", "0.20.2rc1", "0.20.2")
    first = open_triple(release("vllm-omni", "0.20.0"), "pypi:vllm-ascend==0.20.2rc1", None)
    assert old_triple(first) is None


def test_an_omni_without_a_pair_is_compared_with_what_it_tracks() -> None:
    triple = open_triple(release("vllm-omni", "0.21.0rc1"), "pypi:vllm-ascend==0.22.1rc1", None)
    assert shown(old_triple(triple, "pypi:vllm-ascend==0.20.2rc1")) == ("0.21.0rc1", "0.20.2rc1", "0.20.2")


def test_copies_older_than_the_release_before_are_compared_with_that(monkeypatch: pytest.MonkeyPatch) -> None:
    oldest = Version("0.20.2rc1", "pypi:vllm-ascend==0.20.2rc1", None, None, "0.20.2rc1")
    monkeypatch.setattr(triples, "infer", lambda *_: SimpleNamespace(base=oldest))
    triple = open_triple(release("vllm-omni", "0.24.0rc1"), "pypi:vllm-ascend==0.23.0", None)
    assert shown(old_triple(triple)) == ("0.22.0", "0.22.1rc2", "0.22.1")


def test_vllm_ascend_alone() -> None:
    moved = open_triple(None, "pypi:vllm-ascend==0.22.1rc1", "pypi:vllm==0.23.0")
    assert shown(old_triple(moved)) == ("0.22.1rc1", "0.22.1")
    matched = open_triple(None, "pypi:vllm-ascend==0.22.1rc1", None)
    assert shown(old_triple(matched)) == ("0.20.2rc1", "0.20.2")


def test_a_named_baseline_in_any_order_with_the_rest_filled_in() -> None:
    triple = open_triple(release("vllm-omni", "0.22.0"), "pypi:vllm-ascend==0.23.0", None)
    assert shown(named_triple(["pypi:vllm-omni==0.20.0"], triple)) == ("0.20.0", "0.20.2rc1", "0.20.2")
    named = ["pypi:vllm==0.22.0", "pypi:vllm-ascend==0.22.1rc1"]
    assert shown(named_triple(named, triple)) == ("0.22.0", "0.22.1rc1", "0.22.0")
    alone = Triple(None, triple.ascend, triple.vllm)
    assert shown(named_triple(["pypi:vllm-ascend==0.22.1rc1"], alone)) == ("0.22.1rc1", "0.22.1")
    with pytest.raises(BadInput):
        named_triple(["pypi:vllm==0.22.0", "pypi:vllm==0.23.0"], triple)
