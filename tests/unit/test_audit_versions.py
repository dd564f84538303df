"""Whether a triple belongs together, and the check for version pins and guards."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from audit_kit import AR, make_triple, make_world, seen
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from npu_upgrade.audit.belonging import _agree, belonging
from npu_upgrade.audit.checks.versions import _takes_wrong_branch
from npu_upgrade.audit.world import Triple, World
from npu_upgrade.program.version_guards import version_of

ASCEND_PIN = "vllm_ascend/../Dockerfile"


def triple(
    folder: Path,
    omni: str | None,
    ascend: str | None,
    vllm: str | None,
    files: Mapping[str, str] | None = None,
) -> Triple:
    made = make_triple(folder, files or {})
    assert made.omni
    return Triple(
        replace(made.omni, version=omni),
        replace(made.ascend, version=ascend),
        replace(made.vllm, version=vllm),
    )


def kinds(*args, **kwargs) -> list[str]:
    return [problem.kind for problem in belonging(triple(*args, **kwargs))]


def test_what_vllm_ascend_pins_decides(tmp_path: Path) -> None:
    pin = {ASCEND_PIN: "ARG VLLM_TAG=v1.2.2\n"}
    assert kinds(tmp_path / "a", "1.2.0", "1.2.0rc1", "1.2.2", pin) == []
    assert kinds(tmp_path / "b", "1.2.0", "1.2.0rc1", "1.2.2+empty", pin) == []
    (problem,) = belonging(triple(tmp_path / "c", "1.2.0", "1.2.0rc1", "1.2.0", pin))
    assert problem.what == (
        "vllm-ascend 1.2.0rc1 is built for vllm 1.2.2 (VLLM_TAG=v1.2.2 in Dockerfile:1), "
        "and vllm 1.2.0 is given"
    )
    assert (problem.here.path, problem.here.line) == ("Dockerfile", 1)


def test_without_pins_the_minor_version_decides(tmp_path: Path) -> None:
    assert kinds(tmp_path / "a", "1.2.0", "1.2.0rc1", "1.2.3") == []
    assert kinds(tmp_path / "b", "1.3.0", "1.2.0rc1", "1.3.0") == ["other-vllm"]
    assert kinds(tmp_path / "c", "1.1.0", "1.2.0rc1", "1.2.0") == ["other-minor"]


def test_the_main_commit_it_is_verified_with_belongs_to_it(tmp_path: Path) -> None:
    sha = "0123456789" * 4
    files = {
        "vllm_ascend/../.github/vllm-release-tag.commit": "v1.2.0\n",
        "vllm_ascend/../.github/vllm-main-verified.commit": f"{sha}\n",
    }
    made = triple(tmp_path, None, None, "1.3.0", files)
    assert [p.kind for p in belonging(made)] == ["other-vllm"]
    assert belonging(Triple(made.omni, made.ascend, replace(made.vllm, sha=sha))) == []


@pytest.mark.parametrize("vllm", [None, "0.1.dev1+g0123456"])
def test_an_unknown_vllm_is_no_problem(tmp_path: Path, vllm: str | None) -> None:
    assert kinds(tmp_path, "1.2.0", "1.2.0", vllm, {ASCEND_PIN: "ARG VLLM_TAG=v1.2.2\n"}) == []


def test_the_image_of_vllm_omni(tmp_path: Path) -> None:
    files = {"vllm_omni/../docker/Dockerfile.npu": "FROM quay.io/ascend/vllm-ascend:v1.1.0rc1-a3\n"}
    assert kinds(tmp_path / "a", "1.2.0", "1.2.0", "1.2.0", files) == ["other-ascend"]
    assert kinds(tmp_path / "b", "1.1.0", "1.1.0", "1.1.0", files) == []


def test_contradictory_pins(tmp_path: Path) -> None:
    files = {
        ASCEND_PIN: "ARG VLLM_TAG=v1.2.0\n",
        "vllm_ascend/../Dockerfile.a3": "ARG VLLM_TAG=v1.1.0\n",
        "vllm_ascend/../requirements.txt": "transformers>=4.5\ntorch==2.9.0\n",
        "vllm_ascend/../pyproject.toml": '"transformers<=4.4",\n"torch>=2.8",\n',
    }
    made = triple(tmp_path, "1.2.0", "1.2.0", "1.2.0", files)
    assert belonging(made) == []
    assert sorted(seen(World(made), "versions")) == [
        ("contradiction", "", "transformers"),
        ("contradiction", "", "vllm"),
    ]


def test_guards_that_do_not_know_the_vllm(tmp_path: Path) -> None:
    text = "def run(self):\n    if vllm_version_is('1.2.0'):\n        return 1\n"
    files = {AR: text, "vllm_ascend/tools.py": text.replace("1.2.0", "1.0.0")}
    made = triple(tmp_path / "a", "1.1.0", "1.1.0", "1.1.0", files)
    assert seen(World(made), "versions") == [("guard", "", "vllm 1.2.0")]
    made = triple(tmp_path / "b", "1.2.0", "1.2.0", "1.2.0", files)
    assert seen(World(made), "versions") == []


def test_a_later_patch_of_the_version_asked_for_takes_the_wrong_branch() -> None:
    assert _takes_wrong_branch(Version("1.2.0"), Version("1.2.1"))
    assert not _takes_wrong_branch(Version("1.2.0"), Version("1.2.0.post1"))
    assert not _takes_wrong_branch(Version("1.2.0"), Version("1.3.0"))


@given(st.lists(st.integers(0, 9), min_size=2, max_size=3), st.sampled_from(["==", ">=", "<="]))
def test_a_version_agrees_with_what_allows_it(numbers: list[int], operator: str) -> None:
    version = ".".join(map(str, numbers))
    assert _agree(version, f"{operator}{version}")
    assert not _agree(f"<{version}", f">{version}")
    assert version_of(version) == Version(version)


GUARDED = """
    from vllm_ascend.utils import vllm_version_is

    if vllm_version_is("0.28.0"):
        from vllm.old import gone as thing
    else:
        from vllm.new import thing

    class Held:
        if not vllm_version_is("0.30.0"):
            colour = 1

        def step(self, x):
            try:
                if vllm_version_is("0.28.0"):
                    old(x)
                elif vllm_version_is("0.30.0") and x:
                    maybe(x)
                else:
                    never(x)
            finally:
                if vllm_version_is("0.30.0"):
                    now(x)
                else:
                    then(x)

    def only():
        if vllm_version_is("0.28.0"):
            old(1)
"""


@pytest.mark.parametrize(
    ("version", "has", "lacks"),
    [
        ("0.30.0", ["maybe", "never", "now", "vllm.new", "pass"], ["old", "then", "colour", "vllm.old"]),
        ("0.28.0", ["old", "then", "colour", "vllm.old"], ["maybe", "never", "now(", "vllm.new", "pass"]),
    ],
)
def test_what_is_for_another_vllm_is_not_in_the_program(
    tmp_path: Path, version: str, has: list[str], lacks: list[str]
) -> None:
    files = {"vllm/_version.py": f"__version__ = '{version}'\n", "vllm_ascend/held.py": GUARDED}
    file = make_world(tmp_path, files).program.file("vllm_ascend/held.py")
    assert file is not None
    text = ast.unparse(file.tree)
    assert [word for word in has if word not in text] == []
    assert [word for word in lacks if word in text] == []
