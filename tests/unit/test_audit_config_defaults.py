"""The check for settings whose default changed between two versions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from audit_kit import AR, findings, make_world, seen
from hypothesis import given
from hypothesis import strategies as st

from npu_upgrade.audit.checks.config_defaults import snake
from npu_upgrade.audit.finding import Finding

CONFIG, ENVS, OWN = "vllm/config/cache.py", "vllm/envs.py", "vllm_ascend/ascend_config.py"
OLD = """
    from pydantic import Field

    SHARE = 0.8


    class CacheConfig:
        depth: int = 2
        share: float = Field(default=SHARE, gt=0)
        names: list = Field(default_factory=list)
        limit: int | None = None
        unread: bool = False

        @property
        def use_fast_path(self) -> bool:
            return self._is_listed()

        def _is_listed(self) -> bool:
            return self.depth in LISTED

    LISTED = (1, 2)
"""
READER = """
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    class NPUARModelRunner(NPUModelRunner):
        def run(self, other):
            config = self.vllm_config.cache_config
            other.depth, self.cache_config.share, self.cache_config.limit
            if self.cache_config.use_fast_path:
                return config.names
            return self.cache_config.depth
"""


def changes(folder: Path, before: Mapping[str, str], after: Mapping[str, str], reader: str = READER):
    old = make_world(folder / "old", {AR: reader, **before})
    return make_world(folder / "new", {AR: reader, **after}, old=old)


def subjects(world) -> list[tuple[str, str, str]]:
    return sorted(seen(world, "config-defaults"))


def one(world) -> Finding:
    (found,) = findings(world, "config-defaults")
    return found


def test_nothing_without_an_old_pair_and_nothing_when_nothing_changed(tmp_path: Path) -> None:
    assert subjects(make_world(tmp_path / "a", {AR: READER, CONFIG: OLD})) == []
    assert subjects(changes(tmp_path / "b", {CONFIG: OLD}, {CONFIG: OLD})) == []


def test_a_changed_default_that_is_read(tmp_path: Path) -> None:
    new = OLD.replace("depth: int = 2", "depth: int = 3").replace(
        "unread: bool = False", "unread: bool = True"
    )
    found = one(changes(tmp_path, {CONFIG: OLD}, {CONFIG: new}))
    assert (found.kind, found.owner, found.subject) == ("default", "CacheConfig", "depth")
    assert found.what == "CacheConfig.depth defaults to 3, was 2; read in NPUARModelRunner.run"
    assert found.here.line == 9
    assert found.there
    assert found.there.text == "3 (was 2)"


def test_constants_are_followed_and_another_way_to_write_a_default_is_none(tmp_path: Path) -> None:
    new = OLD.replace("SHARE = 0.8", "SHARE = 0.9")
    assert subjects(changes(tmp_path / "a", {CONFIG: OLD}, {CONFIG: new})) == [
        ("default", "CacheConfig", "share")
    ]
    new = OLD.replace("Field(default=SHARE, gt=0)", "0.8")
    assert subjects(changes(tmp_path / "b", {CONFIG: OLD}, {CONFIG: new})) == []


def test_what_decides_a_property_is_its_helpers_and_constants(tmp_path: Path) -> None:
    new = OLD.replace("LISTED = (1, 2)", "LISTED = (1, 2, 3)")
    expected = [("derived-default", "CacheConfig", "use_fast_path")]
    assert subjects(changes(tmp_path / "a", {CONFIG: OLD}, {CONFIG: new})) == expected
    new = OLD.replace("@property", "@cached_property").replace(
        "-> bool:\n            return self._is",
        "-> bool:\n            # as before\n            return self._is",
    )
    assert subjects(changes(tmp_path / "b", {CONFIG: OLD}, {CONFIG: new})) == []


def test_a_property_that_vllm_ascend_replaces(tmp_path: Path) -> None:
    patch = "from vllm.config.cache import CacheConfig\n\nCacheConfig.use_fast_path = property(bool)\n"
    new = {CONFIG: OLD.replace("(1, 2)", "(3,)"), "vllm_ascend/patch/fast.py": patch}
    found = one(changes(tmp_path / "now", {CONFIG: OLD}, new))
    assert found.what.endswith("vllm-ascend replaces it in vllm_ascend/patch/fast.py")
    old = {CONFIG: OLD, "vllm_ascend/patch/fast.py": patch}
    assert subjects(changes(tmp_path / "before", old, new)) == []


def test_removed_and_renamed_fields(tmp_path: Path) -> None:
    new = OLD.replace("limit: int | None = None", "size_limit: int | None = None")
    found = one(changes(tmp_path / "a", {CONFIG: OLD}, {CONFIG: new}))
    assert (found.kind, found.subject, found.todo) == (
        "removed",
        "limit",
        "find what took its place, or drop it",
    )
    reader = READER.replace("self.cache_config.limit", "self.cache_config.max_token_limit")
    old = OLD.replace("limit:", "max_token_limit:")
    new = OLD.replace("limit:", "max_tokens_limit:")
    found = one(changes(tmp_path / "b", {CONFIG: old}, {CONFIG: new}, reader))
    assert found.todo == "use max_tokens_limit"


@pytest.mark.parametrize(
    "reading",
    [
        "getattr(self.cache_config, 'limit', None)",
        "other.limit",
        "self.limit",
        "self.model_config.limit",
    ],
)
def test_a_removed_field_that_is_not_read_as_such(tmp_path: Path, reading: str) -> None:
    reader = READER.replace("self.cache_config.limit", reading)
    new = OLD.replace("        limit: int | None = None\n", "")
    assert subjects(changes(tmp_path, {CONFIG: OLD}, {CONFIG: new}, reader)) == []


def test_environment_variables(tmp_path: Path) -> None:
    old = """
        import os
        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            VLLM_SPEED: bool | None = False

        variables = {
            "VLLM_SPEED": lambda: bool(int(os.getenv("VLLM_SPEED", "0"))),
            "VLLM_DEPTH": lambda: int(os.getenv("VLLM_DEPTH", "2")),
        }
    """
    new = old.replace("bool | None = False", "bool | None = None").replace('"2"', '"4"')
    reader = "from vllm import envs\n\n\ndef run():\n    return envs.VLLM_SPEED, envs.VLLM_DEPTH\n"
    world = changes(tmp_path, {ENVS: old}, {ENVS: new}, reader)
    assert [found.what.partition(";")[0] for found in findings(world, "config-defaults")] == [
        "VLLM_DEPTH defaults to '4', was '2'",
        "VLLM_SPEED defaults to None, was False",
    ]


def test_settings_that_vllm_ascend_reads_from_the_additional_config(tmp_path: Path) -> None:
    old = """
        class AscendConfig:
            def __init__(self, given):
                self.fast = bool(given.get("fast", False))
                self.slow = given.get("slow", self.fast)
    """
    new = old.replace("False", "True").replace("self.fast)", "None)")
    reader = "def run(self):\n    return get_ascend_config().fast, get_ascend_config().slow\n"
    assert subjects(changes(tmp_path, {OWN: old}, {OWN: new}, reader)) == [
        ("default", "AscendConfig", "fast")
    ]


@given(st.lists(st.sampled_from(["Eplb", "EPLB", "Cache", "KV", "Vllm", "Config"]), min_size=1, max_size=4))
def test_receivers_are_called_as_the_classes(words: list[str]) -> None:
    name = snake("".join(words))
    assert name == name.lower()
    assert name.replace("_", "") == "".join(words).lower()
    assert not name.startswith("_")
    assert not name.endswith("_")
