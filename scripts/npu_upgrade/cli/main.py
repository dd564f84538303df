"""The command line shared by all runbooks: parse, run one command, print its result.

A command is a module of ``npu_upgrade.commands`` with ``EXAMPLES`` (the words after its name, a line each),
``add_arguments(parser)`` and ``run(args) -> Result``. ``cli/programs.py`` lists the modules of each program:
``audit`` is ``commands/audit.py``, ``adapt.plan`` is ``commands/adapt/plan.py``. Only what runs is imported.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from npu_upgrade.cli.calls import counted, workspace_of
from npu_upgrade.cli.programs import ADAPT, HELP, UPGRADE
from npu_upgrade.ground.command import Command, called_here, note
from npu_upgrade.ground.errors import BadInput, UpgradeError, report
from npu_upgrade.ground.files import json_text, sha256, shown_json, write_atomic
from npu_upgrade.ground.paths import cache_root, from_here, models_folder
from npu_upgrade.ground.verdict import Result

EXIT_CODES = (
    "exit codes: 0 PASS, 1 FAIL, 2 usage or bad input, 3 BLOCKED (network, tool or hardware missing),\n"
    "  4 INCONCLUSIVE, 70 defect in this program, 130 interrupted"
)
MOST_CHARACTERS = 3_000
"""So much of a result is shown to an agent that reads every character; the rest is in a file."""
_MOST_ITEMS, _MOST_OF_A_TEXT = 5, 300


class _Defect(UpgradeError):
    exit_code = 70
    verdict = "DEFECT"


class _Parser(argparse.ArgumentParser):
    """Reports usage errors like all other errors."""

    def error(self, message: str) -> NoReturn:
        usage = " ".join(self.format_usage().removeprefix("usage: ").split())
        raise BadInput(message, expected=usage, try_=f"{self.prog} --help")


def build_parser(prog: str, summary: str, modules: Mapping[str, str], chosen: str | None) -> _Parser:
    """A parser that lists all commands (name -> module) and knows the options of the ``chosen`` one."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser(prog, description=summary, epilog=EXIT_CODES, formatter_class=raw, allow_abbrev=False)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, path in modules.items():
        sub = subparsers.add_parser(name, help=HELP.get(path), formatter_class=raw, allow_abbrev=False)
        if name != chosen:
            continue
        module = importlib.import_module(f"npu_upgrade.commands.{path}")
        sub.description = module.__doc__
        examples = "\n".join(f"  {prog} {name} {words}".rstrip() for words in module.EXAMPLES.split("\n"))
        sub.epilog = f"examples:\n{examples}\n\n{EXIT_CODES}"
        module.add_arguments(sub)
        sub.add_argument(
            "--format",
            choices=("auto", "json", "text"),
            default="auto",
            help="what stdout carries: text for people, json with all there is for programs "
            "(auto: text on a terminal, else what an agent needs, as JSON)",
        )
        sub.add_argument(
            "--output",
            type=Path,
            metavar="FILE",
            help="write the whole result as JSON to FILE; the JSON on stdout is then the verdict only",
        )
        sub.set_defaults(run=module.run)
    return parser


def upgrade() -> int:
    """The program ``upgrade.py``, of a wheel ``npu-upgrade``."""
    return main(
        "upgrade.py",
        "Upgrade vllm-omni's NPU runners to a new vllm-ascend: one subcommand per runbook step.",
        UPGRADE,
    )


def adapt() -> int:
    """The program ``adapt.py``, of a wheel ``npu-adapt``."""
    return main(
        "adapt.py", "Adapt a Hugging Face model to vllm-ascend: one subcommand per runbook step.", ADAPT
    )


def main(prog: str, summary: str, names: Sequence[str], argv: list[str] | None = None) -> int:
    """Run one subcommand and return its exit code (see :data:`EXIT_CODES`)."""
    argv = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # file names and sources may hold anything
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        code = counted(prog, argv, lambda: _run(prog, summary, names, argv))
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader went away: keep the interpreter from complaining when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code


def _run(prog: str, summary: str, names: Sequence[str], argv: list[str]) -> int:
    as_text = sys.stdout.isatty()
    note(prog, argv, shared=[name for name in names if "." not in name])
    try:
        modules = {name.rpartition(".")[2]: name for name in names}
        chosen = argv[0] if argv and argv[0] in modules else None
        args = parse(build_parser(prog, summary, modules, chosen), argv)
        as_text = args.format == "text" or (args.format == "auto" and as_text)
        if args.output and args.output.is_dir():
            raise BadInput(f"--output {args.output} is a folder", expected="a file", try_="name a file in it")
        result: Result = args.run(args)
        if args.output:
            write_atomic(args.output, called_here(json_text(result.as_json())))
    except UpgradeError as error:
        return report(error, as_text=as_text)
    except KeyboardInterrupt:
        said = "interrupted: nothing is half-written; repeat the command to go on"
        print(said, file=sys.stderr)
        if not as_text:
            print(
                shown_json(
                    {"verdict": "INTERRUPTED", "summary": said, "next": str(Command.of([prog, *argv]))}
                )
            )
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:
        return _report_defect(error, prog, as_text)
    if as_text:
        print("\n\n".join(part for part in (result.text, _closing(result)) if part))
        return result.verdict.exit_code
    if sys.stderr.isatty():
        print(_closing(result), file=sys.stderr)
    whole = args.format == "json" and not args.output
    shown = result.as_json() if whole else _shown(result, args.output, argv)
    print(shown_json(shown))
    return result.verdict.exit_code


def parse(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    """What follows ``--`` is for the program that a command starts: ``args.passed_on``."""
    own = argv[: argv.index("--")] if "--" in argv else argv
    args = parser.parse_args(own)
    if hasattr(args, "passed_on"):
        args.passed_on = argv[len(own) + 1 :]
    elif len(own) != len(argv):
        raise BadInput(
            f"{argv[0]} starts no other program, so that nothing can follow --",
            expected="options of this command",
            try_=f"{parser.prog} {argv[0]} --help",
        )
    return args


def _report_defect(error: Exception, prog: str, as_text: bool) -> int:
    traceback.print_exception(error)
    defect = _Defect(
        f"{prog} met something it did not expect: {type(error).__name__}: {error}",
        expected="a verdict; this is a defect in the program, not in what it was given",
        try_="report it where this skill came from, with the command line and the traceback on stderr",
    )
    return report(defect, as_text=as_text)


def _closing(result: Result) -> str:
    said = f"{result.verdict.value}: {result.summary}"
    return f"{said}\nnext: {result.next}" if result.next else said


def _shown(result: Result, output: Path | None, argv: Sequence[str]) -> dict[str, Any]:
    """The result for an agent: whole where it is short, else in brief with the file that has it whole."""
    whole = result.as_json()
    if output:
        return result.head | {"whole_result": str(output)}
    text = json_text(whole)
    if result.brief is None and len(text) <= MOST_CHARACTERS:
        return whole
    if result.brief == {}:
        return result.head
    brief = result.brief if result.brief is not None else _first_of_each(result.data)
    place = workspace_of(argv)
    folder, name = place or cache_root(), "" if place else f"-{sha256(text)[:16]}"
    model = Path(argv[1]).name if argv[1:] else ""
    if model and place and (models_folder(place.parent) / model).is_dir():  # several are walked at a time
        name = f"-{model}"
    path = folder / "results" / f"{argv[0]}{name}.json"
    try:
        write_atomic(path, called_here(text))
    except BadInput as error:
        return result.head | brief | {"whole_result": f"not kept ({error.what}): add --output FILE"}
    return result.head | brief | {"whole_result": str(from_here(path))}


def _first_of_each(data: dict[str, Any]) -> dict[str, Any]:
    """The beginnings of what there is; of what is still too long, the names."""
    brief = _shortened(data)
    left: list[str] = []
    for key in sorted(brief, key=lambda key: -len(json_text(brief[key]))):
        if len(json_text(brief)) > MOST_CHARACTERS:
            del brief[key]
            left.append(key)
    return brief | ({"in_the_whole_result": ", ".join(left)} if left else {})


def _shortened(value: Any) -> Any:
    """The beginning of every list and text."""
    if isinstance(value, dict):
        return {key: _shortened(inner) for key, inner in value.items()}
    if isinstance(value, list):
        more = len(value) - _MOST_ITEMS
        return [*map(_shortened, value[:_MOST_ITEMS]), *([f"and {more} more"] if more > 0 else [])]
    if isinstance(value, str) and len(value) > _MOST_OF_A_TEXT:
        return f"{value[:_MOST_OF_A_TEXT]} ..."
    return value
