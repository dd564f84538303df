"""Serve a model, measure its accuracy with lm_eval, and compare the values with a config.

The command starts, proves and ends the server as serve does; lm_eval queries it, from the serving Python or
another one (--lm-eval). --config names a file, as vllm-ascend keeps in tests/e2e/models/configs, with the
tasks, the server options and the expected values; a value may be 5 % off in either direction. --write puts
the measured values into that file and keeps the others. Dummy weights have no accuracy. Options of vllm
serve follow --.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from npu_upgrade.commands.arguments import option, positive
from npu_upgrade.commands.serving_arguments import add_serving_arguments, asked, conclude, noting
from npu_upgrade.environments.specs import read_spec
from npu_upgrade.environments.store import ensure
from npu_upgrade.gates.accuracy import lm_eval
from npu_upgrade.gates.accuracy.config_file import Config, Task, by_name, fill_in, load
from npu_upgrade.gates.accuracy.lm_eval import Evaluation
from npu_upgrade.gates.serving.checks import Check
from npu_upgrade.gates.serving.gate import judge
from npu_upgrade.gates.serving.hub import check_questions
from npu_upgrade.gates.serving.launch import DUMMY
from npu_upgrade.gates.serving.session import Session, scratch
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict

EXAMPLES = """/models/Qwen3-8B --tasks gsm8k --num-fewshot 5 -- --max-model-len 4096
/models/Qwen3-8B --config tests/e2e/models/configs/Qwen3-8B.yaml
./tiny --python cpu --tasks letters --include-path ./tasks --lm-eval own"""
_GROUP = "accuracy"  # the dependency group with lm_eval
_OWN = "own"
_SECONDS = 4 * 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_serving_arguments(parser, optional=True)
    option(parser, "--config YAML", "model, tasks and expected values", type=Path)
    option(parser, "--write", "write the measured values into the config")
    option(parser, "--tasks NAMES", "tasks of lm_eval, separated by commas")
    option(parser, "--include-path DIR", "a folder with your own tasks", type=Path)
    option(parser, "--num-fewshot N", "examples before each question", type=int)
    option(parser, "--limit N", "at most N questions (below 1: a share)", type=float)
    option(parser, "--batch-size N", "passed to lm_eval")
    option(parser, "--apply-chat-template", "send chats, not plain text")
    option(parser, "--concurrent N", "requests at once (8)", type=positive(int), default=8)
    option(
        parser,
        "--lm-eval PYTHON",
        "the interpreter with lm_eval (default: the serving one); own: this project makes one",
    )
    option(
        parser, "--evaluation-seconds S", f"limit ({_SECONDS:.0f})", type=positive(float), default=_SECONDS
    )


@noting("accuracy")
def run(args: argparse.Namespace) -> Result:
    """PASS; FAIL for a value that is off or a server that fails; INCONCLUSIVE where nothing is expected."""
    config = _config(args)
    if args.load_format == DUMMY:
        raise BadInput("dummy weights have no accuracy", expected="real weights", try_="--load-format real")
    args.model = args.model or config.model
    args.passed_on = [*config.arguments, *args.passed_on]
    args.env = [*config.environment.items(), *args.env]
    if args.lm_eval == _OWN and not args.include_path:  # no environment of 1 GB is made for nothing
        check_questions([task.name for task in config.tasks])
    session = asked(args)
    evaluation = _evaluation(args, config, session)
    lm_eval.check_tasks(evaluation)
    tasks: list[dict[str, Any]] = []
    with scratch(session.store) as folder:
        extra = lm_eval.measuring(evaluation, folder, args.evaluation_seconds, config.tasks, tasks)
        options = replace(session.options, extra=[extra])
        served = judge(session.launch, session.device, options, folder / "server.log")
        verdict = served.verdict if tasks or served.verdict is not Verdict.PASS else Verdict.FAIL
        result = conclude(
            session,
            "accuracy",
            [served],
            verdict,
            f"{lm_eval.values_text(tasks)}; {served.summary}" if tasks else served.summary,
            _as_text(tasks, served.checks),
            {"accuracy": evaluation.described(tasks, session.launch) if tasks else None},
            KeyboardInterrupt() if served.interrupted else None,
            logs=lm_eval.files_of(folder),
        )
    sound = not any(one.state == "FAIL" and not one.name.startswith("accuracy:") for one in served.checks)
    if args.write and tasks and sound:
        fill_in(args.config, by_name(tasks))
        say(f"wrote the measured values into {args.config}")
    return result


def _config(args: argparse.Namespace) -> Config:
    """The config, or what the options ask for as one."""
    if args.config and args.tasks:
        raise BadInput("--config and --tasks", expected="one of them", try_="leave one out")
    if args.write and not args.config:
        raise BadInput("--write without --config", expected="the file to write to", try_="--config YAML")
    if args.config:
        return load(args.config)
    if not args.tasks or not args.model:
        raise BadInput(
            "nothing to measure" if args.model else "no model given",
            expected="MODEL and --tasks, or --config",
            try_=upgrade("accuracy", "MODEL", "--tasks", "gsm8k").short,
        )
    given = {"num_fewshot": args.num_fewshot, "limit": args.limit, "batch_size": args.batch_size}
    given["apply_chat_template"] = args.apply_chat_template or None
    names = [name.strip() for name in args.tasks.split(",") if name.strip()]
    run = {key: value for key, value in given.items() if value is not None}
    return Config(args.model, tuple(Task(name, {}) for name in names), run=run)


def _evaluation(args: argparse.Namespace, config: Config, session: Session) -> Evaluation:
    if args.include_path and not args.include_path.is_dir():
        raise BadInput(
            f"{args.include_path} is no folder",
            expected="a folder with task files",
            try_="--include-path DIR",
        )
    named = Path(args.lm_eval).expanduser().absolute() if args.lm_eval else None
    wanted = ensure(read_spec(_GROUP)) if args.lm_eval == _OWN else named
    python, version = lm_eval.find(wanted, session.launch.python, session.installed)
    return Evaluation(
        python,
        version,
        [task.name for task in config.tasks],
        session.launch.model,
        config.run,
        args.include_path.absolute() if args.include_path else None,
        config.kind == "vllm-vlm",
        config.thinking,
        args.concurrent,
    )


def _as_text(tasks: list[dict[str, Any]], checks: list[Check]) -> str:
    parts = [table(("check", "state", ""), [(one.name, one.state, one.why[:110]) for one in checks])]
    if tasks:
        rows = [
            (task["name"], str(task["num_fewshot"]), one["name"], f"{one['value']:.4f}")
            for task in tasks
            for one in task["metrics"]
        ]
        parts.append(table(("task", "few-shot", "metric", "value"), rows))
    return "\n\n".join(parts)
