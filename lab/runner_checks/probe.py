"""``python -m runner_checks.probe PLAN``: one engine with a runner of ours, and what it gives, as JSON.

It runs in an environment with vLLM. PLAN is JSON: ``kind`` (a module ``runner_checks.KIND``), ``folder`` of
the checkpoint, ``hooks`` (names in ``platform``), ``options`` of the engine, ``chosen`` checks, ``device``
("npu": vllm-ascend, on the emulator). A line of its output is the result: the classes in use, and for each
check the reason it failed, or nothing.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path

from runner_checks.names import PLAN, WORKERS

COMMON = {
    "dtype": "float32",
    "seed": 0,
    "max_model_len": 256,
    "max_num_seqs": 16,
    "enforce_eager": True,
    "disable_log_stats": True,
}


def main(plan: dict) -> dict:
    """Start the engine and judge every check."""
    from runner_checks import platform

    os.environ[PLAN] = json.dumps(plan)
    for hook in plan.get("hooks", ()):
        getattr(platform, hook)()
    kind = importlib.import_module(f"runner_checks.{plan['kind']}")
    began = time.monotonic()
    engine = start(plan, kind)
    found = {
        "started_s": round(time.monotonic() - began, 1),
        **classes(engine),
        "hooks": plan.get("hooks", []),
    }
    chosen = plan.get("chosen") or _possible(kind, plan)
    return found | {"checks": _judged(kind, engine, plan, chosen), "graphs": _graphs(plan)}


def _graphs(plan: dict) -> dict[str, int]:
    """How many graphs the emulator captured and replayed."""
    if plan.get("device") != "npu":
        return {}
    from npu_emulator import kernels

    return dict(kernels.native.graphs())


def _possible(kind, plan: dict) -> list[str]:
    """All checks; Triton's interpreter, which the V2 runner needs here, cannot draw at random."""
    left_out = getattr(kind, "RANDOM", ()) if "v2" in plan.get("hooks", ()) else ()
    return [name for name in kind.CHECKS if name not in left_out]


def start(plan: dict, kind):
    """vLLM's LLM with our worker and scheduler in this process."""
    import vllm

    from runner_checks.models import register

    register()
    asked = plan.get("options", {})
    later = "asynchronous" in plan.get("hooks", ()) or asked.get("async_scheduling", False)
    options = COMMON | {"max_num_batched_tokens": 256} | getattr(kind, "OPTIONS", {}) | asked
    worker = WORKERS[kind.WORKER] if plan.get("device") == "npu" else kind.WORKER
    return vllm.LLM(plan["folder"], worker_cls=worker, scheduler_cls=kind.SCHEDULERS[later], **options)


def classes(engine) -> dict:
    """The runner in use and what it inherits from, and how the engine schedules."""
    import vllm

    return {
        "vllm": vllm.__version__,
        "runner": core_of(engine).model_executor.collective_rpc(_bases)[0],
        "async_scheduling": bool(engine.llm_engine.vllm_config.scheduler_config.async_scheduling),
        "scheduler": type(core_of(engine).scheduler).__name__,
    }


def _bases(worker) -> list[str]:
    """The class of a worker's runner and those it inherits from first; run in the worker's process."""
    found = getattr(worker, "worker", worker).model_runner
    return [f"{one.__module__}.{one.__qualname__}" for one in type(found).__mro__[:7]]


def core_of(engine):
    """The engine core, which lives in this process."""
    return engine.llm_engine.engine_core.engine_core


def runner_of(engine):
    """The model runner."""
    return core_of(engine).model_executor.driver_worker.worker.model_runner


def _judged(kind, engine, plan: dict, chosen: list[str]) -> dict[str, str]:
    """Why each check failed, or nothing. After an exception the engine may hold requests: no more checks."""
    found: dict[str, str] = {}
    for name in chosen:
        try:
            checks = kind.CHECKS | getattr(kind, "OTHERS", {})
            found[name] = checks[name](engine, Path(plan["folder"])) or ""
        except Exception:
            found[name] = traceback.format_exc()
            break
    return dict.fromkeys(chosen, "not run after an exception") | found


if __name__ == "__main__":
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    print("\n" + json.dumps(main(json.loads(sys.argv[1]))), flush=True)
