"""The skill as a bundle: its head, its links, and that every command it tells to run exists as told."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from documented import COMMANDS, ROOT, broken_links, command_lines, documents
from npu_upgrade.cli import main as cli
from npu_upgrade.ground.errors import BadInput

TARGETS = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
HEAD_KEYS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
# folders of one machine or one person, which mean nothing on another
MACHINE = re.compile(r"(?<![\w.~$}/-])/(?:root|home|Users|work|opt|mnt|tmp)/[\w.-]+")


def wrong_head(text: str) -> list[str]:
    """What the agent skills specification would not accept in a SKILL.md."""
    parts = re.fullmatch(r"---\n(.*?)\n---\n(.*)", text, re.DOTALL)
    if not parts:
        return ["no frontmatter"]
    head = yaml.safe_load(parts[1])
    name, description = head.get("name", ""), head.get("description", "")
    checks = {
        f"keys {sorted(set(head) - HEAD_KEYS)}": set(head) <= HEAD_KEYS,
        f"name {name!r}": name == "vllm-npu-upgrade",
        f"description of {len(description)} characters": 0 < len(description) <= 1024,
        "compatibility of over 500 characters": len(head.get("compatibility", "")) <= 500,
        "metadata with other than strings": all(
            isinstance(item, str) for pair in head.get("metadata", {}).items() for item in pair
        ),
        "allowed-tools that is no string": isinstance(head.get("allowed-tools", ""), str),
        "a flow list or mapping": not re.search(r"^[\w-]+: *[\[{]", parts[1], re.MULTILINE),
        f"body of {len(parts[2].splitlines())} lines": len(parts[2].splitlines()) <= 200,
        f"body of {len(parts[2])} characters": len(parts[2]) <= 4 * 5000,  # about four to a token
    }
    return [what for what, right in checks.items() if not right]


def unknown_commands(text: str) -> list[str]:
    """Subcommands, their long options, make targets and files of the skill that do not exist."""
    unknown = []
    for line in command_lines(text):
        line = re.sub(r"(?<![\w/-])npu-(upgrade|adapt) ", r"\1.py ", line)  # as a wheel calls it
        for program, name, rest in re.findall(r"((?:upgrade|adapt)\.py) +([a-z][\w-]*)([^|;&#]*)", line):
            if name not in COMMANDS[program]:
                unknown.append(f"{program} {name}")
                continue
            own = rest.partition(" -- ")[0]  # what follows is for vllm serve
            options = re.findall(r"(?<!\S)--[a-z][\w-]*", own)
            known = options_of(program, name)
            unknown += [f"{name} {option}" for option in options if option not in known]
        targets = re.findall(r"(?:^|[;&|] *|\$ )make +(?:[A-Z_]+=\S+ +)*([a-z][\w-]*)", line)
        unknown += [f"make {target}" for target in targets if target not in TARGETS]
        paths = re.findall(r"(?<![\w/.-])((?:scripts|references)/[\w./-]+\.(?:py|md))", line)
        unknown += [path for path in paths if not (ROOT / path).exists()]
    return unknown


@cache
def options_of(program: str, name: str) -> set[str]:
    """The long options in the usage of a subcommand."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        cli.main(program, "", list(COMMANDS[program].values()), [name, "--help"])
    usage = out.getvalue().partition("\n\n")[0]
    return {"--help", *re.findall(r"--[a-z][\w-]*", usage)}


def module_of(program: str, name: str) -> ModuleType:
    """The module of a subcommand."""
    return importlib.import_module(f"npu_upgrade.commands.{COMMANDS[program][name]}")


def examples(module: ModuleType) -> Iterator[list[str]]:
    """The arguments of each example of a subcommand."""
    for line in module.EXAMPLES.split("\n"):
        yield shlex.split(line)


def needed(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"{path.relative_to(ROOT)} is not written yet")
    return path


@pytest.fixture(
    params=[(program, name) for program, names in COMMANDS.items() for name in names], ids=" ".join
)
def command(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each program with each of its subcommands."""
    return request.param


def test_skill_head() -> None:
    assert wrong_head(needed(ROOT / "SKILL.md").read_text()) == []


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_document(document: Path) -> None:
    text = needed(document).read_text()
    assert broken_links(document) == []
    assert unknown_commands(text) == []
    assert MACHINE.findall(text) == []


def test_examples_are_accepted(command: tuple[str, str]) -> None:
    program, name = command
    module = module_of(program, name)
    parser = cli.build_parser(program, "", {name: COMMANDS[program][name]}, name)
    given = list(examples(module))
    assert given
    for arguments in given:
        try:
            cli.parse(parser, [name, *arguments])
        except BadInput as error:
            pytest.fail(f"{program} {shlex.join(arguments)}: {error.what}")


def test_help_from_another_folder(command: tuple[str, str], tmp_path: Path) -> None:
    program, name = command
    argv = [sys.executable, str(ROOT / "scripts" / program), name, "--help"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert f"{program} {name}" in done.stdout
    other = "adapt.py" if program == "upgrade.py" else "upgrade.py"
    assert other not in done.stdout.partition("examples:")[2]
    assert list(tmp_path.iterdir()) == []


def test_no_machine_paths_in_scripts() -> None:
    found = {
        str(path.relative_to(ROOT)): paths
        for path in (ROOT / "scripts").rglob("*.py")
        if (paths := MACHINE.findall(path.read_text()))
    }
    assert found == {}


def test_the_hooks_have_the_versions_of_the_tests() -> None:
    pins = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["test"]
    ruff = next(pin for pin in pins if pin.startswith("ruff=="))
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    used = {hook["additional_dependencies"][0] for hook in hooks if hook["id"].startswith("ruff")}
    assert used == {ruff}


@pytest.mark.parametrize(
    ("head", "wrong"),
    [
        ("name: vllm-npu-upgrade\ndescription: d\nversion: '1'", "keys ['version']"),
        ("name: other\ndescription: d", "name 'other'"),
        ("name: vllm-npu-upgrade", "description of 0 characters"),
        (
            "name: vllm-npu-upgrade\ndescription: d\nmetadata:\n  version: 1.0",
            "metadata with other than strings",
        ),
        ("name: vllm-npu-upgrade\ndescription: d\nallowed-tools: [Bash]", "a flow list or mapping"),
    ],
)
def test_a_wrong_head_is_found(head: str, wrong: str) -> None:
    assert wrong in wrong_head(f"---\n{head}\n---\nbody\n")


def test_a_long_body_is_found() -> None:
    head = "---\nname: vllm-npu-upgrade\ndescription: d\n---\n"
    assert wrong_head(head + "line\n" * 200) == []
    assert wrong_head(head + "line\n" * 201) == ["body of 201 lines"]
    assert wrong_head(head + "word " * 4001) == ["body of 20005 characters"]
    assert wrong_head("# no head\n") == ["no frontmatter"]


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# One `two`: three\n")
    document = tmp_path / "b.md"
    document.write_text(
        "[ok](a.md) [ok](a.md#one-two-three) [ok](https://x.y) [ok](#here)\n# Here\n"
        "`[code](none.md)` [gone](c.md) [gone](a.md#two) [gone](#there)\n"
    )
    assert broken_links(document) == ["c.md", "a.md#two", "#there"]


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("`upgrade.py next --format json`", []),
        ("`upgrade.py --help`, and upgrade.py anything in prose, make anything", []),
        ("`upgrade.py no-such`", ["upgrade.py no-such"]),
        ("`adapt.py env list --format json`", []),
        ("`adapt.py merge`", ["adapt.py merge"]),
        ("```\nupgrade.py next \\\n  --no-such 1 | tool --other\n```", ["next --no-such"]),
        ("```\nmake test\nmake PYTHON=x no-such\n```", ["make no-such"]),
        ("read `references/no-such.md`, run `scripts/upgrade.py`", ["references/no-such.md"]),
    ],
)
def test_unknown_commands_are_found(text: str, unknown: list[str]) -> None:
    assert unknown_commands(text) == unknown


def test_machine_paths_are_found() -> None:
    assert MACHINE.findall("in /home/me/vllm or /tmp/x") == ["/home/me", "/tmp/x"]
    assert MACHINE.findall("~/work/x ../home/x $X/tmp/x https://a.b/opt/x /vllm-workspace/vllm") == []
