"""A fake ``vllm`` beside an interpreter, and runs of the gate over it."""

from __future__ import annotations

import json
import shlex
import sys
import venv
from pathlib import Path

from npu_upgrade.gates.serving.device import CPU, Device
from npu_upgrade.gates.serving.gate import Options, Served, judge
from npu_upgrade.gates.serving.launch import Launch

FAKE = Path(__file__).with_name("fake_server.py")
BUDGETS = {"start": 60.0, "load": 60.0, "compile": 60.0, "capture": 60.0}


def installation(folder: Path) -> Path:
    """An interpreter with a ``vllm`` beside it that is the fake server."""
    binaries = folder / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    python, script = binaries / "python", binaries / "vllm"
    if not python.exists():
        python.symlink_to(sys.executable)
        script.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, str(FAKE)])} "$@"\n')
        script.chmod(0o755)
    return python


def machine(folder: Path) -> Path:
    """An interpreter with the libraries of a vLLM and a ``vllm`` that is the fake server; nothing of ours."""
    if (folder / "bin/python").exists():
        return folder / "bin/python"
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python3*/site-packages")
    ours = next(Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    for name in (
        "httpx",
        "jinja2",
        "packaging",
        "psutil",
        "yaml",
        "msgspec",
        "markupsafe",
        "anyio",
        "certifi",
        "httpcore",
        "h11",
        "idna",
        "typing_extensions.py",
        "sniffio",
    ):
        for found in [*ours.glob(name), *ours.glob(f"{name.removesuffix('.py')}-*.dist-info")]:
            (site / found.name).symlink_to(found)
    for found in ours.glob("[Pp]y[Yy][Aa][Mm][Ll]-*.dist-info"):
        (site / found.name).symlink_to(found)
    module = site / "vllm/entrypoints/cli"
    module.mkdir(parents=True, exist_ok=True)
    (site / "vllm/__init__.py").write_text("")
    (module / "main.py").write_text(FAKE.read_text())
    for name in ("fake_engine.py", "fake_model.py"):
        (module / name).write_text(FAKE.with_name(name).read_text())
    info = site / "vllm-0.30.0+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.30.0+cpu\n")
    return folder / "bin/python"


def model(folder: Path, name: str = "Tiny") -> Path:
    """A folder that looks like a checkpoint."""
    made = folder / name
    made.mkdir(exist_ok=True)
    (made / "config.json").write_text(json.dumps({"architectures": ["TinyForCausalLM"]}))
    return made


def launch(folder: Path, fault: str, load_format: str = "real", **more) -> Launch:
    return Launch(
        str(model(folder)),
        installation(folder),
        load_format,
        environment={"FAULT": fault},
        cwd=folder,
        **more,
    )


def serve(folder: Path, fault: str, load_format: str = "real", **options) -> Served:
    """Judge the fake server with a fault."""
    chosen = {"quiet": 1.0, "budgets": BUDGETS, "still": 30.0, "answer": 20.0, "patience": 5.0} | options
    log = folder / f"{fault}.log"
    return judge(launch(folder, fault, load_format), Device(CPU), Options(**chosen), log)


def states(served: Served) -> dict[str, str]:
    """Check name -> its worst state."""
    order = ("PASS", "SKIPPED", "INCONCLUSIVE", "FAIL")
    found: dict[str, str] = {}
    for one in served.checks:
        found[one.name] = max(found.get(one.name, "PASS"), one.state, key=order.index)
    return found
