"""Walks an upgrade of the invented packages of ``lab/sample``, to the page that ``report`` writes.

``upgrade.py next`` says what to do, ``lab/sample/answers.json`` answers what it asks, by stage and method.
Needs no network, and knows nothing of the site.
"""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from sample_world import ROOT, SampleError, SampleWorld

SAMPLE = ROOT / "lab" / "sample"
SHOWN_FOLDER = "/home/maintainer"
FIRST_MOMENT = datetime.fromisoformat("2026-02-02T12:00:00Z")
NO_EMULATION = "the packages of this sample are invented, there is nothing to run"
MOST_STEPS = 40
_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@cache
def make_page(sample: Path = SAMPLE) -> str:
    """The page of the sample's job, without a path of this machine; made once in a process."""
    with tempfile.TemporaryDirectory(prefix="sample-report-") as made:
        world = SampleWorld(Path(made).resolve(), sample)
        walk(world, json.loads((sample / "answers.json").read_text("utf-8")))
        page = world.folder / "report.html"
        world.upgrade("report", "--out", str(page))
        return without_machine(page.read_text("utf-8"), world.folder)


def walk(world: SampleWorld, answers: Mapping[str, Any]) -> None:
    """From the merge to the commit, one step after another as ``next`` names them."""
    sides = ("--omni", world.spec("omni", "new"), "--ascend", world.spec("ascend", "new"))
    world.upgrade("merge", *sides, "--apply", "--branch", "upgrade", "--gains", "all", good=(0, 1))
    step = world.upgrade("next")
    for _ in range(MOST_STEPS):
        if step["step"] == "answer":
            given = [answer_to(ask, answers) for ask in (step["ask"], *step.get("with_it", ()))]
            world.upgrade("resolve", "--from", "-", text=json.dumps(given))
        elif step["step"] == "stop":
            break
        else:
            name, *options = named_command(step["next"])
            if name == "emulate":
                step = world.upgrade("next", "--skip", "emulate", "--note", NO_EMULATION)
                continue
            failing = (0, 1) if name == "audit" else (0,)
            world.upgrade(name, *options, *more_sources(world, name), good=failing)
            if name == "deliver":
                return
        step = world.upgrade("next")
    raise SampleError(f"the upgrade of lab/sample came to no commit: {step['why']}")


def answer_to(ask: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, str]:
    """The answer to a question; one about a whole class has no method after the dot, another only a file."""
    place = ask.get("place", {})
    unit = place.get("unit", "").rstrip(".") or Path(place.get("path", "")).name
    known = answers.get(f"{ask['stage']} {unit}")
    if known is None:
        raise SampleError(f"lab/sample/answers.json has no '{ask['stage']} {unit}': {ask['what']}")
    text = "".join(f"{line}\n" for line in known.get("text", ()))
    return {"id": ask["id"], "answer": known["how"], "note": known["note"]} | ({"text": text} if text else {})


def named_command(line: str) -> list[str]:
    """The subcommand and options of a command line that a step named."""
    words = shlex.split(line)
    script = next(number for number, word in enumerate(words) if word.endswith("upgrade.py"))
    return words[script + 1 :]


def more_sources(world: SampleWorld, name: str) -> list[str]:
    """Options for what is told by the version numbers of real packages; these have none."""
    if name == "port":
        return ["--vllm", world.spec("vllm", "new"), "--since", world.spec("omni", "old")]
    if name == "audit":
        old = [world.spec(project, "old") for project in ("omni", "ascend", "vllm")]
        return ["--vllm", world.spec("vllm", "new"), "--baseline", *old]
    return []


def without_machine(page: str, folder: Path) -> str:
    """The page with another folder for the temporary one, and its moments on a fixed day."""
    moments = {moment: datetime.fromisoformat(moment) for moment in _MOMENT.findall(page)}
    shift = FIRST_MOMENT - min(moments.values())
    shown = {moment: f"{at + shift:%Y-%m-%dT%H:%M:%SZ}" for moment, at in moments.items()}
    return _MOMENT.sub(lambda match: shown[match[0]], page).replace(str(folder), SHOWN_FOLDER)
