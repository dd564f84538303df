"""Which vllm belongs to a vllm-ascend, read from trees like those of its releases."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sources_kit import write_tree

from npu_upgrade.sources.git import Repo
from npu_upgrade.sources.index import Published
from npu_upgrade.sources.pins import kind_of, pair_of, pins_of_ascend, pins_of_omni, required, resolve
from npu_upgrade.sources.tree import SourceTree, open_source

MAIN = "ee0da84ab9e04ac7610e28580af62c365e898389"
OTHER = "85c09e9885e346ea1612da30ebff5a75f67d2350"


def tree(root: Path, files: dict[str, str]) -> SourceTree:
    return open_source(f"dir:{write_tree(root, files)}")


def vllm(*versions: str) -> list[Published]:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return [Published(v, start.replace(month=n + 1), "rc" in v) for n, v in enumerate(versions)]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("v0.18.0", "version"),
        ("0.20.2rc1", "version"),
        (MAIN, "sha"),
        (MAIN[:9], "short-sha"),
        ("main", "branch"),
        ("releases/v0.26.0rc", "branch"),
    ],
)
def test_kinds_of_values(value: str, kind: str) -> None:
    assert kind_of(value) == kind


def test_commit_files_decide_and_stale_documentation_does_not(tmp_path: Path) -> None:
    ascend = tree(
        tmp_path / "t",
        {
            ".github/vllm-release-tag.commit": "v0.23.0\n",
            ".github/vllm-main-verified.commit": MAIN,
            "Dockerfile": 'ARG VLLM_REPO=https://x\nARG VLLM_TAG=v0.23.0\nARG VLLM_COMMIT=""\n',
            "Dockerfile.a3": "ARG VLLM_TAG=v0.23.0\n",
            "docs/source/conf.py": '    "vllm_version": "v0.17.0",\n    "vllm_version": "vX.Y.Z",\n',
        },
    )
    pins = pins_of_ascend(ascend)
    pair = pair_of(pins, None, None)
    assert (pair.vllm, pair.basis, pair.main, pair.conflicts) == ("0.23.0", "pinned", MAIN, ())
    assert pair.why == "vllm-release-tag=v0.23.0 in .github/vllm-release-tag.commit:1"
    assert [(p.file, p.line) for p in pins if p.name == "VLLM_TAG"] == [
        ("Dockerfile", 2),
        ("Dockerfile.a3", 1),
    ]
    assert [(p.value, p.role) for p in pins if p.file.startswith("docs")] == [("v0.17.0", "docs")]


def test_an_older_tree_is_read_from_its_dockerfile_and_ci_matrix(tmp_path: Path) -> None:
    ascend = tree(
        tmp_path / "t",
        {
            "Dockerfile": "FROM quay.io/ascend/cann:8.5.1-910b-py3.11\nARG VLLM_TAG='v0.15.0' # pinned\n",
            ".github/workflows/pr.yaml": f"    vllm_version: [{MAIN}, v0.15.0]\n    vllm: ${{{{ x }}}}\n",
            ".github/workflows/image.yaml": "    vllm_version: [releases-v0.13.0, main-openeuler]\n",
        },
    )
    pins = pins_of_ascend(ascend)
    pair = pair_of(pins, None, None)
    assert (pair.vllm, pair.main) == ("0.15.0", MAIN)
    assert [(p.name, p.value) for p in pins if p.role == "image"] == [("FROM cann", "8.5.1")]
    assert {p.value for p in pins if p.file.startswith(".github")} == {MAIN, "v0.15.0"}


def test_a_commit_argument_wins_over_the_tag_as_it_does_in_the_build(tmp_path: Path) -> None:
    ascend = tree(tmp_path / "t", {"Dockerfile": f"ARG VLLM_TAG=v0.23.0\nARG VLLM_COMMIT={OTHER}\n"})
    pair = pair_of(pins_of_ascend(ascend), None, None)
    assert pair.vllm == OTHER
    assert [p.value for p in pair.conflicts] == ["v0.23.0"]


def test_pins_that_disagree_are_reported(tmp_path: Path) -> None:
    files = {".github/vllm-release-tag.commit": "v0.23.0", "Dockerfile": "ARG VLLM_TAG=v0.22.1\n"}
    pair = pair_of(pins_of_ascend(tree(tmp_path / "t", files)), None, None)
    assert pair.vllm == "0.23.0"
    assert [(p.file, p.value) for p in pair.conflicts] == [("Dockerfile", "v0.22.1")]


def test_a_branch_is_no_pin_until_a_clone_resolves_it(tmp_path: Path) -> None:
    pins = pins_of_ascend(tree(tmp_path / "t", {"Dockerfile": "ARG VLLM_TAG=releases/v0.23\n"}))
    unresolved = pair_of(resolve(pins, None), None, None)
    assert (unresolved.vllm, unresolved.basis) == (None, "unresolved")
    assert "--repo vllm=" in unresolved.why

    clone = tmp_path / "vllm"
    env = os.environ | {f"GIT_{w}_{x}": "x" for w in ("AUTHOR", "COMMITTER") for x in ("NAME", "EMAIL")}
    for command in (["init", "-q", "-b", "releases/v0.23"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        clone.mkdir(exist_ok=True)
        subprocess.run(["git", "-C", str(clone), *command], check=True, env=env)
    pair = pair_of(resolve(pins, Repo(clone)), None, None)
    assert pair.basis == "pinned"
    assert pair.vllm == Repo(clone).resolve("HEAD")

    other = pins_of_ascend(tree(tmp_path / "u", {"Dockerfile": "ARG VLLM_TAG=gone\n"}))
    assert pair_of(resolve(other, Repo(clone)), None, None).basis == "unresolved"


@pytest.mark.parametrize(
    ("version", "published", "expected", "why"),
    [
        ("0.30.0rc2", ("0.29.0", "0.30.0", "0.31.0"), "0.30.0", "same number"),
        ("0.22.3rc1", ("0.22.0", "0.22.1", "0.23.0"), "0.22.1", "same minor"),
        ("0.99.0", ("0.22.0", "0.23.0", "0.24.0"), "0.23.0", "at its date"),
        ("0.30.0rc2", (), "0.30.0", "not checked"),
    ],
)
def test_a_wheel_has_no_pins_and_its_pair_is_inferred(
    tmp_path: Path, version: str, published: tuple[str, ...], expected: str, why: str
) -> None:
    wheel = tree(
        tmp_path / "t",
        {"vllm_ascend/__init__.py": "", f"vllm_ascend-{version}.dist-info/METADATA": f"Version: {version}\n"},
    )
    assert pins_of_ascend(wheel) == []
    pair = pair_of([], wheel.version, datetime(2026, 2, 15, tzinfo=UTC), vllm(*published))
    assert (pair.vllm, pair.basis) == (expected, "inferred")
    assert why in pair.why


def test_nothing_to_infer_from(tmp_path: Path) -> None:
    assert pair_of([], None, None, vllm("0.1.0")).basis == "unresolved"
    assert pair_of([], "0.99.0", None, vllm("0.1.0")).basis == "unresolved"


def test_dependencies_are_exact_or_a_range(tmp_path: Path) -> None:
    ascend = tree(
        tmp_path / "t",
        {
            "requirements.txt": "torch==2.10.0\ntorch-npu == 2.10.0.post4  # x\ntransformers>=4.5,<5\n-r x\n",
            "pyproject.toml": 'requires = [\n    "torch_npu==2.10.0.post4",\n    "numpy",\n]\n',
        },
    )
    found = {(p.file, p.name): (p.value, p.kind) for p in pins_of_ascend(ascend)}
    assert found == {
        ("requirements.txt", "torch"): ("2.10.0", "version"),
        ("requirements.txt", "torch-npu"): ("2.10.0.post4", "version"),
        ("requirements.txt", "transformers"): ("<5,>=4.5", "range"),
        ("pyproject.toml", "torch-npu"): ("2.10.0.post4", "version"),
    }


def test_omni_names_its_vllm_ascend_in_images_and_documents(tmp_path: Path) -> None:
    arguments = "ARG IMAGE=quay.io/ascend/vllm-ascend\nARG VERSION=v0.28.0\nARG SUFFIX=\n"
    image = arguments + "FROM ${IMAGE}:${VERSION}${SUFFIX} AS x\n"
    omni = tree(
        tmp_path / "t",
        {
            "docker/Dockerfile.npu": image,
            "docker/Dockerfile.npu.a3": "FROM quay.io/ascend/vllm-ascend:v0.26.0rc1-a3\n",
            "docker/Dockerfile.nightly": "FROM quay.io/ascend/vllm-ascend:main\n",
            "docker/Dockerfile.cuda": "FROM vllm/vllm-openai:v0.28.0\n",
            "docs/npu.md": "# IMAGE=quay.io/ascend/vllm-ascend:v0.24.0rc1-a3\nsee vllm-ascend: it is fine\n",
        },
    )
    pins = pins_of_omni(omni)
    assert [(p.file, p.line, p.value, p.role) for p in pins] == [
        ("docker/Dockerfile.nightly", 1, "main", "image"),
        ("docker/Dockerfile.npu", 4, "v0.28.0", "image"),
        ("docker/Dockerfile.npu.a3", 1, "v0.26.0rc1", "image"),
        ("docs/npu.md", 1, "v0.24.0rc1", "docs"),
    ]
    assert (pins[0].kind, pins[0].exact) == ("tag", None)


def test_an_omni_wheel_declares_nothing(tmp_path: Path) -> None:
    assert pins_of_omni(tree(tmp_path / "t", {"vllm_omni/__init__.py": "# vllm-ascend: 1.0\n"})) == []


def test_a_document_that_is_no_text_is_skipped(tmp_path: Path) -> None:
    omni = tree(tmp_path / "t", {"docs/a.md": "vllm-ascend:v0.18.0\n"})
    (tmp_path / "t/docs/b.md").write_bytes("vllm-ascend:v0.19.0 中文".encode("gbk"))
    assert [p.value for p in pins_of_omni(omni)] == ["v0.18.0"]


@pytest.mark.parametrize(
    ("files", "allowed"),
    [
        (
            {"pyproject.toml": '[project]\ndependencies = [\n  "vllm==0.24.0+cpu",  # the CPU build\n]\n'},
            "==0.24.0",
        ),
        ({"setup.py": 'setup(install_requires=[\n    "vllm>=0.26.0,<0.28.1",\n])\n'}, "<0.28.1,>=0.26.0"),
        (
            {"ship-1.0.dist-info/METADATA": "Name: ship\nRequires-Dist: vllm<0.16.1,>=0.11.0\n"},
            "<0.16.1,>=0.11.0",
        ),
        ({"requirements/common.txt": "torch\nvllm~=0.30.0\n"}, "~=0.30.0"),
        ({"requirements.txt": "vllm\nvllm-extra==1.0\n"}, None),
    ],
)
def test_what_a_tree_requires_of_another_project(
    tmp_path: Path, files: dict[str, str], allowed: str | None
) -> None:
    found = required(tree(tmp_path, {"ship/__init__.py": ""} | files), "vllm")
    assert (found and str(found)) == allowed
