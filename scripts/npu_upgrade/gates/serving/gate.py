"""One start of a server from its pre-flight to its end: started, watched, asked, judged, gone.

Nothing is recorded here; see :mod:`npu_upgrade.gates.serving.record`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from npu_upgrade.evidence.observed import Observed
from npu_upgrade.evidence.surroundings import utc_now
from npu_upgrade.gates.plugin import unit_test_of
from npu_upgrade.gates.serving import device as devices
from npu_upgrade.gates.serving import gate_file, observation, smoke
from npu_upgrade.gates.serving.answers import read as read_answer
from npu_upgrade.gates.serving.checks import Check, failed, first_bad, passed, unsure, verdict
from npu_upgrade.gates.serving.device import Device, still_held, used_memory
from npu_upgrade.gates.serving.gate_file import Request
from npu_upgrade.gates.serving.launch import REAL, Launch
from npu_upgrade.gates.serving.log_lines import kv_cache, lines_until
from npu_upgrade.gates.serving.log_lines import read as read_log
from npu_upgrade.gates.serving.observation import Observer
from npu_upgrade.gates.serving.requests import COUNTERS, Client, Exchange, counted
from npu_upgrade.gates.serving.root_cause import Explanation, explain
from npu_upgrade.gates.serving.server import HOST, Server, choose_port, sockets, start, stop
from npu_upgrade.gates.serving.watch import BUDGETS, LONGEST_LOG, STILL, Lifeline, Watch, stays, wait_until_up
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.signals import handled
from npu_upgrade.ground.verdict import Verdict

# what the FAQ of vllm-ascend names; not set by default, because nobody serves with them
_UNSTEADY = (
    "; an NPU adds in no fixed order by default, which parts near-ties: set HCCL_DETERMINISTIC=true"
    " LCCL_DETERMINISTIC=1 ATB_MATMUL_SHUFFLE_K_ENABLE=0 ATB_LLM_LCOC_ENABLE=0 and serve it again"
)
_HASTE = 5.0  # seconds for what will hardly end by itself
Extra = Callable[[Client, str], list[Check]]
Compare = Callable[[Client, str, Mapping[str, Any]], list[Check]]


@dataclass(frozen=True)
class Options:
    """How a server is judged. Seconds, but for ``generations`` and ``tokens``, which are counts, and
    ``longest_log``, which is in bytes.

    ``images``: whether the model takes pictures; None: when the server says it is multimodal.
    ``requests`` are those of the gate file; ``extra`` asks more, for instance many requests at once;
    ``compare`` holds real weights against a reference, and is told what the server resolved;
    ``as_there``, asked when an answer is empty or one token over and over (True), tells whether the server
    equals one, with such answers.
    """

    generations: int = 3
    tokens: int = 16
    quiet: float = 5.0
    still: float = STILL
    budgets: Mapping[str, float] = field(default_factory=lambda: BUDGETS)
    answer: float = 120.0
    patience: float = 30.0
    longest_log: int = LONGEST_LOG
    images: bool | None = None
    requests: Sequence[Request] = ()
    extra: Sequence[Extra] = ()
    compare: Compare | None = None
    as_there: Callable[[Client, str, Mapping[str, Any], bool], bool] | None = None


@dataclass
class Served:
    """What one start showed. ``log`` is the whole output; ``explanation`` is of a start that failed.

    ``device``: what the installation and the drivers let expect; ``observed``: what the processes told.
    ``memory``: MiB in use on each device: before, serving, after.

    ``ended_at``: bytes of the log when the gate ended a server that was alive; None when it had ended itself.
    """

    launch: Launch
    device: Device
    log: Path
    port: int
    started: str
    checks: list[Check] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    metrics: dict[str, str] = field(default_factory=dict)
    observed: Observed | None = None
    phases: list[tuple[str, float]] = field(default_factory=list)
    memory: dict[str, list[int] | None] = field(default_factory=dict)
    explanation: Explanation | None = None
    seconds: float = 0.0
    ready_seconds: float | None = None
    interrupted: bool = False
    engine_failed: bool = False
    ended_at: int | None = None

    @property
    def verdict(self) -> Verdict:
        return verdict(self.checks)

    @property
    def root(self) -> dict[str, Any] | None:
        """The first root cause as JSON; None when nothing failed or the log names none."""
        return self.explanation.as_json()["root"] if self.explanation else None

    @property
    def resolved(self) -> dict[str, Any]:
        """The engine's configuration, empty as long as no process told one."""
        return self.observed.config if self.observed else {}

    @property
    def label(self) -> str:
        """The label of evidence: the device that computed, and the weights."""
        kinds = self.observed.devices if self.observed else ()
        return devices.label(kinds or {self.device.kind}, self.device, self.launch.load_format)

    @property
    def kv_cache(self) -> dict[str, Any] | None:
        return kv_cache(self.log)

    @property
    def summary(self) -> str:
        bad = first_bad(self.checks)
        if bad is None:
            count = sum(one.state == "PASS" for one in self.checks)
            dtype = str(self.resolved.get("dtype") or "").removeprefix("torch.")
            weights = f"{self.launch.load_format} weights{dtype and f' in {dtype}'}"
            return f"{self.launch.model_name} served with {weights}: {count} checks passed"
        root = self.root
        cause = f"; root cause {root['id']}: {root['text'].strip()[:160]}" if root else ""
        return f"{bad.name}: {bad.why}{cause}"


def judge(launch: Launch, device: Device, options: Options, log: Path) -> Served:
    """Start, ask and end a server. ``log`` is where its output goes; it has to be in a private folder.

    Raises :class:`Blocked` when it cannot even be started. An interruption ends the server, and is said in
    the result. On return nothing of the server is left.
    """
    port = choose_port(HOST, launch.port)
    began = time.monotonic()
    served = Served(launch, device, log, port, utc_now())
    served.memory["before"] = used_memory(device, launch.variables())
    observer = Observer(log.with_suffix(".observed"))
    with sockets(launch.variables()) as environment:
        _run(observer, environment, options, served)
    served.seconds = round(time.monotonic() - began, 1)
    if served.verdict is not Verdict.PASS:
        until = lines_until(log, served.ended_at) if served.ended_at is not None else None
        served.explanation = explain(read_log(log), ended_after=until)
    return served


def _run(observer: Observer, environment: Mapping[str, str], options: Options, served: Served) -> None:
    launch = served.launch
    server: Server | None = None
    try:
        environment = observer.lay(launch.watched, environment)
        with _held():  # a server that nobody knows of would not be ended
            server = start(launch.command(), environment, port=served.port, log=served.log, cwd=launch.cwd)
        kind = f"{launch.model_name} ({launch.load_format})"
        say(f"note: started {kind} on port {served.port}, process {server.group}")
        _ask_all(server, observer, options, served)
    except KeyboardInterrupt:
        served.interrupted = True
        served.checks.append(unsure("interrupted", "somebody interrupted the gate; the server was ended"))
    finally:
        if server is not None:
            _end(server, options, served)
            served.observed = observer.told(server.group, served.device)
            if any(one.name == "generation" for one in served.checks):
                served.checks.append(observation.judge(served.observed, served.device, launch.omni))
            if launch.plugin:
                tested = unit_test_of(launch.python)
                served.checks.append(observation.took_part(served.observed, launch.plugin, tested))


@contextmanager
def _held() -> Generator[None]:
    """Interruptions wait until the block is left."""
    waiting: list[int] = []
    with handled(lambda number, _: waiting.append(number)):
        yield
    if waiting:
        raise KeyboardInterrupt


def _ask_all(server: Server, observer: Observer, options: Options, served: Served) -> None:
    launch = served.launch
    lifeline = Lifeline(server, options.longest_log)
    watch = Watch(server, options.budgets, options.still)
    client = Client(server.url, options.answer, lifeline.broken, served.exchanges)
    began = time.monotonic()
    try:
        served.checks.append(wait_until_up(client, lifeline, watch))
    finally:
        served.phases, served.engine_failed = watch.phases, watch.engine_failed
    if served.checks[-1].state != "PASS":
        served.phases = [*watch.phases, (watch.phase, round(time.monotonic() - began, 1))]
        return
    served.ready_seconds = round(time.monotonic() - began, 1)
    say(f"up after {served.ready_seconds:.0f} s; asking it")
    asks = options.as_there
    asking = smoke.Asking(
        client,
        server.name,
        launch.load_format == REAL,
        frozenset(client.paths()),
        options.generations,
        options.tokens,
        launch.omni,
        _UNSTEADY if served.device.kind == devices.NPU else "",
        cache(lambda repeated: bool(asks and asks(client, server.name, served.resolved, repeated))),
    )
    served.metrics["before"] = client.metrics()
    served.observed = observer.wait(server.group, served.device, lambda told: bool(told.config))
    for step in _steps(asking, lifeline, options, served):
        served.checks += step()
        if why := lifeline.broken():
            served.checks.append(failed("alive", why))
            return
        if any(one.state == "FAIL" and one.name == "generation" for one in served.checks):
            break
    served.metrics["after"] = client.metrics()
    served.memory["serving"] = used_memory(served.device, launch.variables())
    served.checks.append(_counted(served))
    if served.observed.processes:
        observer.wait(server.group, served.device, lambda told: not observation.missing(told))


def _steps(
    asking: smoke.Asking,
    lifeline: Lifeline,
    options: Options,
    served: Served,
) -> list[Callable[[], list[Check]]]:
    client = asking.client
    steps: list[Callable[[], list[Check]]] = [
        lambda: smoke.generations(asking),
        lambda: smoke.chat(asking),
        lambda: _configured(served),
        lambda: smoke.pictures(
            asking, bool(served.resolved.get("is_multimodal")) if options.images is None else options.images
        ),
        lambda: gate_file.ask(client, asking.name, options.requests, asking.real),
    ]
    if options.compare and asking.real:
        steps.append(partial(options.compare, client, asking.name, served.resolved))
    steps += [partial(extra, client, asking.name) for extra in options.extra]
    steps.append(lambda: [stays(client, lifeline, options.quiet)])
    return steps


def _configured(served: Served) -> list[Check]:
    """The engine's configuration has to be of the weights that were asked for."""
    load = served.resolved.get("load_format")
    if load is None:
        return [unsure("configuration", "no process of the server told its configuration")]
    if (load == "dummy") != (served.launch.load_format != REAL):
        return [failed("configuration", f"it loads {load!r} weights, asked for {served.launch.load_format}")]
    return [passed("configuration")]


def _counted(served: Served) -> Check:
    """The engine has to have counted at least the tokens that were answered."""
    more = [found for name in COUNTERS if (found := _grown(served.metrics, name)) is not None]
    answers = [read_answer(one) for one in served.exchanges if one.method == "POST" and one.status == 200]
    tokens = sum(one.tokens for one in answers if one)
    if not more:
        return unsure("metrics", "the metrics do not count generated tokens")
    if max(more) < tokens:
        return failed("metrics", f"{tokens} tokens were answered, {max(more):.0f} counted by the engine")
    return passed("metrics", why=f"{tokens} tokens answered, {max(more):.0f} counted")


def _grown(metrics: Mapping[str, str], name: str) -> float | None:
    """By how much a counter grew; None when it is not there both before and after."""
    before, after = (counted(metrics.get(at, ""), name) for at in ("before", "after"))
    return None if before is None or after is None else after - before


def _end(server: Server, options: Options, served: Served) -> None:
    """End the server whatever happens; a second interruption only cuts the waiting short."""
    hurry = threading.Event()
    # timeout(1) sends its signal twice: the second one must not keep the server alive
    with handled(lambda *_: hurry.set()):
        asked = server.process.poll() is None
        size = served.log.stat().st_size
        served.ended_at = size if asked else None
        flood = size > options.longest_log  # it would go on while it is waited for
        stubborn = stop(server, 1.0 if flood else _patience(options, served), hurry.is_set)
        seen = (served.memory.get(when) for when in ("before", "serving"))
        held, after = still_held(served.device, served.launch.variables(), *seen, options.patience)
        served.memory["after"] = after
        check = _torn_down(asked, stubborn, held, served.memory["before"] or [])
        if served.device.kind == devices.NPU and not after:
            check = replace(
                check, why=f"{check.why}; npu-smi info told no memory, so nothing says that it is free"
            )
        served.checks.append(check)


def _patience(options: Options, served: Served) -> float:
    """Seconds that the server gets to end by itself; a vLLM that still loads does not heed SIGTERM, nor does
    one whose engine failed and that has not ended of that.
    """
    loading = (served.interrupted or served.engine_failed) and served.ready_seconds is None
    return min(options.patience, _HASTE) if loading else options.patience


def _torn_down(asked: bool, stubborn: list[str], held: Mapping[int, int], before: Sequence[int]) -> Check:
    if held:
        shown = ", ".join(f"{now} MiB of device {at} ({before[at]} before)" for at, now in held.items())
        return failed(
            "teardown",
            f"memory is still in use: {shown}; wait, or find what holds it, before the next start",
        )
    if stubborn and asked:
        return unsure(
            "teardown", f"it did not end by itself after SIGTERM: {', '.join(stubborn)} had to be killed"
        )
    if stubborn:
        return passed("teardown", why=f"orphans of the dead server were ended: {', '.join(stubborn)}")
    return passed("teardown", why="nothing is left")
