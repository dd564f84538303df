"""What a version is published as: one number everywhere, and a plugin whose manifests Claude Code takes."""

from __future__ import annotations

import re
import tomllib
from typing import Annotated, Literal

import msgspec
import yaml

import npu_upgrade
from documented import ROOT

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Path = Annotated[str, msgspec.Meta(pattern=r"^\./")]
Version = Annotated[str, msgspec.Meta(pattern=r"^\d+\.\d+\.\d+")]


class Person(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    email: str = ""
    url: str = ""


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """plugin.json: of https://code.claude.com/docs/en/plugins/manifest-reference what we use."""

    name: Name
    schema: Literal["https://json.schemastore.org/claude-code-plugin-manifest.json"] = msgspec.field(
        name="$schema"
    )
    version: Version
    description: str
    author: Person
    license: str
    keywords: list[str]
    skills: list[Path]


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    name: Name
    source: Path
    description: str
    category: str


class Marketplace(msgspec.Struct, forbid_unknown_fields=True):
    """marketplace.json: of https://code.claude.com/docs/en/plugins/marketplace-reference what we use."""

    name: Name
    schema: Literal["https://json.schemastore.org/claude-code-marketplace.json"] = msgspec.field(
        name="$schema"
    )
    description: str
    owner: Person
    plugins: list[Entry]


def read(name: str, form: type):
    return msgspec.json.decode((ROOT / ".claude-plugin" / name).read_bytes(), type=form)


def test_the_plugin_is_this_skill() -> None:
    plugin, skill = read("plugin.json", Manifest), (ROOT / "SKILL.md").read_text()
    assert f"\nname: {plugin.name}\n" in skill
    assert [(ROOT / one / "SKILL.md").is_file() for one in plugin.skills] == [True]


def test_the_marketplace_has_the_plugin() -> None:
    (entry,) = read("marketplace.json", Marketplace).plugins
    manifest = ROOT / entry.source / ".claude-plugin/plugin.json"
    assert msgspec.json.decode(manifest.read_bytes(), type=Manifest).name == entry.name


def test_one_version() -> None:
    head = (ROOT / "SKILL.md").read_text().split("---\n")[1]
    runners = tomllib.loads((ROOT / "runners/pyproject.toml").read_text())["project"]["version"]
    said = {yaml.safe_load(head)["metadata"]["version"], runners, read("plugin.json", Manifest).version}
    assert said == {npu_upgrade.__version__}


def test_the_wheel_has_what_the_code_reads_beside_itself() -> None:
    """``SKILL / NAME`` in the code is a file or folder of the wheel's bundle."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    bundle = {source for source, target in wheel["force-include"].items() if target.endswith(f"/{source}")}
    assert len(bundle) == len(wheel["force-include"])
    code = "\n".join(path.read_text() for path in (ROOT / "scripts/npu_upgrade").rglob("*.py"))
    read_there = set(re.findall(r'SKILL / "([\w.-]+)"', code))
    assert read_there >= {"emulator", "references", "pyproject.toml"}
    assert read_there <= {path.partition("/")[0] for path in bundle}
    assert all((ROOT / path).exists() for path in bundle)


def test_the_release_workflow_holds_no_secret() -> None:
    flow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    assert flow["permissions"] == {"contents": "read"}
    publish = flow["jobs"]["publish"]
    assert (publish["permissions"], publish["environment"]) == ({"id-token": "write"}, "pypi")
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text()
