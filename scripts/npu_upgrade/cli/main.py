"""The command line shared by all runbooks: parse, run one command, print its result.

A command is a module of ``npu_upgrade.commands`` with ``EXAMPLES`` (the words after its name, a line each),
``add_arguments(parser)`` and ``run(args) -> Result``. ``cli/programs.py`` lists the modules of each program:
``audit`` is ``commands/audit.py``, ``adapt.plan`` is ``commands/adapt/plan.py``. Only what runs is imported.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from npu_upgrade.cli.calls import counted
from npu_upgrade.cli.programs import HELP
from npu_upgrade.ground.command import note
from npu_upgrade.ground.errors import BadInput, UpgradeError, report
from npu_upgrade.ground.files import write_json
from npu_upgrade.ground.verdict import Result

EXIT_CODES = (
    "exit codes: 0 PASS, 1 FAIL, 2 usage or bad input, 3 BLOCKED (network, tool or hardware missing),\n"
    "  4 INCONCLUSIVE, 70 defect in this program, 130 interrupted"
)
# agents' harnesses cut a command's output, some at 30,000 characters
MOST_CHARACTERS = 25_000


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
            help="what stdout carries: json for agents, text for people (auto: text on a terminal)",
        )
        sub.add_argument(
            "--output",
            type=Path,
            metavar="FILE",
            help="write the whole result as JSON to FILE; the JSON on stdout is then the verdict only",
        )
        sub.set_defaults(run=module.run)
    return parser


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
            write_json(args.output, result.as_json())
    except UpgradeError as error:
        return report(error, as_text=as_text)
    except KeyboardInterrupt:
        print("interrupted: nothing is half-written; repeat the command to go on", file=sys.stderr)
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:
        return _report_defect(error, prog, as_text)
    _print_result(result, as_text, args.output)
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


def _print_result(result: Result, as_text: bool, output: Path | None) -> None:
    closing = f"{result.verdict.value}: {result.summary}"
    if result.next:
        closing += f"\nnext: {result.next}"
    if as_text:
        print("\n\n".join(part for part in (result.text, closing) if part))
        return
    data = _bounded_json(result, output)
    text = result.text
    if len(text) + len(data) > MOST_CHARACTERS:
        text = f"(the form for people is left out, {len(text)} characters: --format text)" if text else ""
    print("\n".join(part for part in (text, closing) if part), file=sys.stderr)
    print(data)


def _bounded_json(result: Result, output: Path | None) -> str:
    """The result as JSON, or its head and where the rest is to be had."""
    value: dict[str, Any] = result.as_json()
    whole = json.dumps(value, indent=2, ensure_ascii=False)
    if output is None and len(whole) <= MOST_CHARACTERS:
        return whole
    head = {key: value[key] for key in ("verdict", "summary", "next")}
    rest = str(output) if output else f"left out ({len(whole)} characters): add --output FILE"
    return json.dumps(head | {"whole_result": rest}, indent=2, ensure_ascii=False)
