"""What `upgrade.py explain` finds in serve logs; one fixture log stands for each signature."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_upgrade.gates.serving.log_lines import LONGEST, lines_until, parse, read
from npu_upgrade.gates.serving.root_cause import Explanation, explain
from npu_upgrade.gates.serving.signatures import PAGE, Matcher, render, signatures
from npu_upgrade.ground.errors import BadInput

FOLDER = Path(__file__).parents[1] / "fixtures" / "serve_logs"
REFERENCES = Path(__file__).parents[2] / "references"
ROOTS = [one.id for one in signatures() if not one.wrapper]
WRAPPERS = [one.id for one in signatures() if one.wrapper]
WORKER = "(Worker_TP0 pid=7) ERROR 11-03 08:15:02 [multiproc_executor.py:822] "
NOISE = [
    "INFO 11-03 08:14:02 [x.py:1] NPU out of memory is what this feature avoids",
    "(APIServer pid=3) WARNING 11-03 08:14:02 [x.py:1] [Errno 98] Address already in use, try 8001",
    "/x/y.py:3: UserWarning: Transformers does not recognize this architecture",
    "(EngineCore pid=4) DEBUG 11-03 08:14:02 [x.py:1] EI0006 Getting socket times out",
    '(APIServer pid=3) INFO:     127.0.0.1:5 - "GET /health HTTP/1.1" 200 OK',
    "Capturing ACL graphs:  33%|###   | 1/3 [00:00<00:00, 2.1it/s]",
    "",
]
WRAPPER_LINES = [
    "(APIServer pid=3) RuntimeError: Engine core initialization failed. Failed core proc(s): {}",
    "(EngineCore pid=4) ERROR 11-03 08:15:02 [core.py:866] EngineCore failed to start.",
    "(EngineCore pid=4) ERROR 11-03 08:15:02 [x.py:316] Worker proc W-1 died unexpectedly (exit code: 1)",
    "(APIServer pid=3) vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
]


def root(text: list[str]) -> str | None:
    return name(explain(parse(text)))


def name(found: Explanation) -> str | None:
    first = found.first
    return None if first is None else (first.signature.id if first.signature else "UNKNOWN")


def test_each_signature_has_a_log_and_each_log_a_signature() -> None:
    assert {path.stem for path in FOLDER.glob("*.log")} == {*ROOTS, *WRAPPERS}


@pytest.mark.parametrize("id", ROOTS)
def test_the_root_cause_of_each_fixture(id: str) -> None:
    assert name(explain(read(FOLDER / f"{id}.log"))) == id


def test_a_kernel_that_names_a_type_of_triton_fails_as_one_that_is_started_does() -> None:
    said = f"{WORKER}AttributeError: module 'triton.language' has no attribute 'bfloat16'"
    assert root([said]) == "kernel-without-triton"


def test_a_mode_that_only_the_emulated_npu_lacks_is_no_form_of_quantization() -> None:
    error = "npu_emulator.problems.MissingReference: npu_emulator: the reference of x does not cover layout T"
    assert root([f"{WORKER}Traceback (most recent call last):", f"{WORKER}{error}"]) == "emulator-operator"


def test_what_is_tried_after_a_layout_that_the_npu_lacks() -> None:
    found = explain(read(FOLDER / "non-contiguous-operator.log")).first
    assert found is not None
    assert found.signature is not None
    assert "interpolate" in found.signature.cause
    assert "TORCHDYNAMO_DISABLE=1" in found.signature.next


@pytest.mark.parametrize("id", WRAPPERS)
def test_a_wrapper_is_never_a_root_cause(id: str) -> None:
    found = explain(read(FOLDER / f"{id}.log"))
    assert found.first is None
    assert id in found.wrappers


def test_every_text_finds_its_own_signature_or_a_more_specific_one() -> None:
    matcher, order = Matcher(signatures()), [one.id for one in signatures()]
    for one in signatures():
        for text in one.texts:
            found = matcher.find(text.removeprefix("^").replace("*", " x "))
            assert found is not None, text
            if not (one.wrapper or found.wrapper):
                assert order.index(found.id) <= order.index(one.id)


@settings(max_examples=examples(150))
@given(
    st.sampled_from(ROOTS),
    st.lists(st.sampled_from(NOISE + WRAPPER_LINES), max_size=6),
    st.lists(st.sampled_from(NOISE + WRAPPER_LINES), max_size=6),
)
def test_noise_and_wrappers_around_never_change_the_root(
    id: str, before: list[str], after: list[str]
) -> None:
    log = (FOLDER / f"{id}.log").read_text("utf-8").splitlines()
    assert root([*before, *log, *after]) == id


@settings(max_examples=examples(100))
@given(st.permutations(WRAPPER_LINES), st.integers(0, len(WRAPPER_LINES)))
def test_the_order_of_wrappers_does_not_matter(lines: list[str], place: int) -> None:
    error = WORKER + "ValueError: No available memory for the cache blocks."
    assert root([*lines[:place], error, *lines[place:]]) == "no-memory-for-cache-blocks"


@settings(max_examples=examples(100))
@given(st.randoms(use_true_random=False), st.sampled_from(ROOTS))
def test_interleaved_processes_are_told_apart(random, id: str) -> None:
    log = (FOLDER / f"{id}.log").read_text("utf-8").splitlines()
    other = [
        f"(Worker_TP9 pid=99) {line}"
        for line in ("Traceback (most recent call last):", '  File "x.py", line 1, in f')
    ]
    places = sorted(random.sample(range(len(log)), len(other)))
    for place, line in reversed(list(zip(places, other, strict=True))):
        log.insert(place, line)
    assert root(log) == id


@settings(max_examples=examples(200))
@given(st.lists(st.text(max_size=80), max_size=30))
def test_any_text_is_read(lines: list[str]) -> None:
    explain(parse(lines)).as_json()


def test_an_unknown_error_is_reported_with_its_traceback() -> None:
    lines = [
        "WorkerProc hit an exception.",
        "Traceback (most recent call last):",
        '  File "/w/outer.py", line 3, in step',
        "    inner()",
        '  File "/w/inner.py", line 9, in inner',
        '    raise ValueError("No available memory for the cache blocks")',
        "ZeroDivisionError: division by zero",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        '  File "/w/outer.py", line 5, in step',
        "RuntimeError: the step failed",
    ]
    found = explain(parse([*(WORKER + line for line in lines), *WRAPPER_LINES]))
    said = found.as_json()["root"]
    assert (said["id"], said["line"], said["text"]) == ("UNKNOWN", 7, "ZeroDivisionError: division by zero")
    assert any("inner.py" in line for line in said["traceback_tail"])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (["    assert rows > 0, \\", "           ^^^^^^^^"], "AssertionError at assert rows > 0, \\"),
        (["    assert rows > 0"], "AssertionError at assert rows > 0"),
        ([], "AssertionError"),
    ],
)
def test_an_assertion_without_a_word_is_told_by_its_source(source: list[str], expected: str) -> None:
    lines = ["Traceback (most recent call last):", '  File "x.py", line 1, in x', *source, "AssertionError"]
    first = explain(parse(lines)).first
    assert first is not None
    assert first.text == expected


def test_after_the_server_was_ended_only_known_errors_count() -> None:
    late = ["INFO 11-03 08:15:02 [x.py:1] up", "Traceback (most recent call last):", '  File "x.py", line 1']
    unknown, known = [*late, "LookupError: gone"], [*late, "OSError: [Errno 28] No space left on device"]
    assert name(explain(parse(unknown))) == "UNKNOWN"
    assert name(explain(parse(unknown), ended_after=1)) is None
    assert name(explain(parse(unknown), ended_after=4)) == "UNKNOWN"
    assert name(explain(parse(known), ended_after=1)) == name(explain(parse(known))) != "UNKNOWN"


def test_lines_of_a_part_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"one\ntwo\nthree")
    assert [lines_until(log, size) for size in (0, 3, 4, 8, 99)] == [0, 0, 1, 2, 2]


def test_an_unknown_error_before_a_known_one_stays_first() -> None:
    first = [
        WORKER + line
        for line in ("Traceback (most recent call last):", '  File "a.py", line 1, in f', "IndexError: 7")
    ]
    late = "(Worker_TP1 pid=8) EI0006: Getting socket times out."
    found = explain(parse([*first, late]))
    assert name(found) == "UNKNOWN"
    assert found.as_json()["later"] == {"hccl-socket-timeout": 4}


def test_what_is_raised_while_a_wrapper_is_handled_is_no_root() -> None:
    api = "(APIServer pid=3) "
    lines = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in f',
        "EngineDeadError: see above",
    ]
    more = [
        "During handling of the above exception, another exception occurred:",
        *lines[:2],
        "ValueError: no answer",
    ]
    assert root([api + line for line in (*lines, *more)]) is None


def test_a_failure_in_a_helper_thread_or_a_destructor_is_no_root() -> None:
    lines = [
        "Exception ignored in: <function f>",
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in f',
    ]
    assert root([*lines, "TypeError: 'NoneType' object is not callable", *WRAPPER_LINES]) is None


def test_a_flood_is_read_in_bounded_memory() -> None:
    def flood():
        for number in range(30_000):
            yield f"(P{number % 2000} pid={number}) ERROR 11-03 08:15:02 [x.py:1] request {number} is refused"
            yield f"step {number}" * 20
        yield WORKER + "NPU out of memory. Tried to allocate 2 GiB"

    tracemalloc.start()
    found = explain(parse(flood()))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (name(found), found.lines) == ("npu-out-of-memory", 60_001)
    assert peak < 20e6


def test_a_log_without_errors() -> None:
    found = explain(parse(NOISE))
    assert (found.first, found.wrappers, found.lines) == (None, {}, len(NOISE))


def test_colours_progress_bars_and_endless_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    glued = "Capturing: 0%| | 0/3 [00:00<?, ?it/s](Worker_TP0 pid=7) ERROR 11-03 08:15:02 [x.py:1] "
    path.write_bytes(
        b"x" * (3 * LONGEST)
        + b"\n\x1b[0;36m(EngineCore pid=4)\x1b[0;0m \x1b[31mINFO\x1b[0m 11-03 08:15:02 [x.py:1] [Errno 98]\n"
        + glued.encode()
        + b"\x1b[31mNPU out of memory. Tried to allocate 2 GiB\x1b[0m\xff\n"
    )
    found = explain(read(path))
    assert (name(found), found.first and found.first.line, found.lines) == ("npu-out-of-memory", 3, 3)


def test_the_troubleshooting_page_is_what_the_data_gives() -> None:
    assert (REFERENCES / PAGE).read_text("utf-8") == render(signatures())


def test_data_that_does_not_hold_together_is_refused(tmp_path: Path) -> None:
    entry = "- {id: a, area: x, texts: ['t'], cause: c, next: n, source: [s], versions: v}\n"
    for text, why in (
        (entry * 2, "twice"),
        (entry.replace("'t'", ""), r"\[0\].texts"),
        ("- {id: a}\n", "texts"),
    ):
        path = tmp_path / "signatures.yaml"
        path.write_text(text, "utf-8")
        signatures.cache_clear()
        with pytest.raises(BadInput, match=why):
            signatures(path)


def test_the_error_of_the_process_that_inspects_a_model_is_the_root() -> None:
    log = (FOLDER / "inspection-subprocess-failed.log").read_text().splitlines()
    inner = (FOLDER / "torchvision-missing.log").read_text().splitlines()
    inner = [line for line in inner if "Traceback" in line or "File" in line or "ModuleNotFound" in line]
    connected = "The above exception was the direct cause of the following exception:"
    outer = ["Traceback (most recent call last):", '  File "/x/registry.py", line 9, in f', "    raise it"]
    more = ["", connected, "", *outer, "RuntimeError: Error raised in subprocess:"]
    assert root([*log, *(f"(APIServer pid=4021) {line}" for line in more), *inner]) == "torchvision-missing"
