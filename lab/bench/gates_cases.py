"""The faults of ``make bench-gates``: how each is made, and what the gate has to say of it."""

from __future__ import annotations

from dataclasses import dataclass, field

SMALL = ("--max-model-len", "256", "--enforce-eager", "--max-num-seqs", "4")
UNFIT, FIT, OPEN = False, True, None


@dataclass(frozen=True)
class Case:
    """``model``: a tiny checkpoint or a damage of one. ``inject``: "action@moment" (see gates_inject).

    ``verdicts`` are right ones; ``root``: the root cause; ``why``: words of the first failed check. ``fit``:
    whether the server is fit for use, which is what the observers are asked; None where that is no question.
    ``passed``: checks that have to be passed, not skipped. ``lines``: ledger lines that have to be there
    afterwards. ``stale``: another vLLM serves meanwhile, ``on_stale``: on the very port. ``gates``: how many
    run at once. ``disk``: size of the evidence's. ``omni``: stages of vllm-omni on the emulated NPU.
    ``again``: a kind of fault that another case has, which only a whole run does.
    """

    name: str
    verdicts: tuple[str, ...]
    root: str | None = None
    why: str = ""
    model: str = "successor"
    load_format: str = "real"
    gate_file: bool = False
    inject: str = ""
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    fault: str = ""
    fit: bool | None = UNFIT
    passed: tuple[str, ...] = ()
    lines: int = 1
    python: str = "cpu"
    stale: bool = False
    on_stale: bool = False
    gates: int = 1
    omni: bool = False
    disk: str = ""
    again: bool = False


FAIL, PASS = ("FAIL",), ("PASS",)
CASES = (
    Case("sound, dummy weights", PASS, load_format="dummy", fit=FIT, again=True),
    Case("sound, real weights", PASS, gate_file=True, fit=FIT, passed=("reference",)),
    Case("sound, with images", PASS, model="looker", fit=FIT,
         passed=("generation", "chat", "repeat", "image", "reference")),
    Case("sound, stages of vllm-omni", PASS, gate_file=True, omni=True, fit=OPEN,
         passed=("generation", "chat", "repeat", "semantic:speaks", "metrics")),
    Case("library missing", FAIL, "torchvision-missing", model="vision"),
    Case("engine killed while it loads", FAIL, "killed-by-signal-9", inject="kill-engine@engine"),
    Case("engine killed after ready", FAIL, why=" ended", inject="kill-engine@up", again=True),
    Case("engine stopped while it loads", FAIL, why="is stopped (SIGSTOP)", inject="stop-engine@engine"),
    Case("engine stopped after ready", FAIL, why="is stopped (SIGSTOP)", inject="stop-engine@up", again=True),
    Case("API server killed, orphans", FAIL, why="the server ended (exit code -9)", inject="kill-server@up"),
    Case("ended with exit code 0", FAIL, why=" ended", inject="end-server@up", again=True),
    Case("stale server on the port", ("BLOCKED",), stale=True, on_stale=True, lines=0),
    Case("port taken late", FAIL, "port-in-use", inject="take-port@started"),
    Case(
        "another vLLM answers", FAIL, why="another server answers on its port", inject="forward-port@started",
        stale=True,
    ),
    Case(
        "crash on the first request",
        FAIL,
        "pipeline-rank-without-buffers",
        arguments=("--pipeline-parallel-size", "2"),
        environment={"VLLM_CPU_OMP_THREADS_BIND": "nobind"},
    ),
    Case(
        "the same crash of vLLM 0.32.0",
        FAIL,
        "pipeline-rank-without-buffers",
        arguments=("--pipeline-parallel-size", "2"),
        environment={"VLLM_CPU_OMP_THREADS_BIND": "nobind"},
        python="cpu:0.32.0",
        again=True,
    ),
    Case("crash on the second request", FAIL, "host-out-of-memory", fault="second-request", again=True),
    Case("empty answers", FAIL, why="the answer is empty", model="silent"),
    Case("one token over and over", FAIL, why="one token over and over", fault="stutter", again=True),
    Case("one token over and over, of right weights", PASS, model="stutter", fit=FIT, again=True,
         passed=("generation", "chat", "reference")),
    Case("another model's weights", FAIL, why="is not there, or not in its order", model="other-weights",
         gate_file=True),
    Case("pictures not seen", FAIL, why="another picture changes nothing", model="blind"),
    Case("corrupt shard", FAIL, "shard-corrupt", model="corrupt-shard"),
    Case("corrupt shard, dummy weights", PASS, model="corrupt-shard", load_format="dummy", fit=OPEN,
         again=True),
    Case("shard cut short", FAIL, "shard-corrupt", model="cut-shard", again=True),
    Case("missing shard", FAIL, "shard-missing", model="missing-shard"),
    Case("unknown architecture", FAIL, "architecture-unsupported", model="unknown-architecture"),
    Case(
        "heads over tensor parallel", FAIL, "heads-not-divisible", arguments=("--tensor-parallel-size", "3"),
        again=True,
    ),
    Case(
        "no memory for the KV cache",
        FAIL,
        "cpu-memory-below-kv-request",
        environment={"VLLM_CPU_KVCACHE_SPACE": "100000"},
    ),
    Case("fewer NUMA nodes than ranks", FAIL, "numa-nodes-too-few",
         arguments=("--pipeline-parallel-size", "2")),
    Case("hang while it loads", FAIL, why="stands still in phase", model="endless-read",
         options=("--still", "20")),
    Case(
        "ten times slower than its budget",
        ("INCONCLUSIVE",),
        why="takes longer than its budget",
        options=("--budget", "start=2"),
        fit=OPEN,
    ),
    Case("log flood", FAIL, why="floods its log", fault="flood"),
    Case("disk full before", ("BLOCKED",), disk="64m", lines=0, fit=OPEN, again=True),
    Case("disk full while it serves", ("BLOCKED",), disk="700m", inject="fill-disk@up", lines=0, fit=OPEN),
    Case("Ctrl-C while it starts", ("INTERRUPTED",), inject="interrupt@started", fit=OPEN, again=True),
    Case("Ctrl-C while it loads", ("INTERRUPTED",), inject="interrupt@engine", fit=OPEN, again=True),
    Case("Ctrl-C while it is asked", ("INTERRUPTED",), inject="interrupt@up", fit=OPEN),
    Case("Ctrl-C while it ends", ("INTERRUPTED", "INCONCLUSIVE", "PASS"), inject="interrupt@ending",
         fit=OPEN),
    Case("two gates at once", PASS, gates=2, lines=2, fit=OPEN),
)  # fmt: skip
