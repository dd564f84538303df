"""Two runs of serve on the same weights, before and after an upgrade: tokens, throughput, memory."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import msgspec

from npu_upgrade.evidence.chain import Record, canonical
from npu_upgrade.evidence.redaction import Redactor
from npu_upgrade.evidence.store import Outcome, Store
from npu_upgrade.evidence.surroundings import utc_now
from npu_upgrade.gates.serving.answers import Answer, read
from npu_upgrade.gates.serving.requests import Exchange
from npu_upgrade.ground.command import current
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.verdict import Verdict

GATE = "before-after"
SLOWER, SMALLER = 0.8, 0.95  # shares of before that are too little of throughput and of the KV cache
_SAME = ("model_digest", "load_format", "mode", "device", "serve_arguments")


def compare(store: Store, before: str, after: str) -> tuple[Record, dict[str, Any]]:
    """Compare two runs by id and record it as evidence of what the second one is about.

    FAIL: a greedy answer has other tokens. INCONCLUSIVE: the runs were not made alike, something else of an
    answer differs, or there is clearly less throughput or room for the KV cache. Raises :class:`BadInput`
    for a run that is not as it was recorded, and for one that is none of serve.
    """
    clock, started = time.monotonic(), utc_now()
    (_, first), (record, second) = (_of_serve(store, run) for run in (before, after))
    pairs = list(_pairs(first["exchanges"], second["exchanges"]))
    unlike = [f"{name}: {first[name]} and {second[name]}" for name in _SAME if first[name] != second[name]]
    unlike += [f"the run {one['verdict']}" for one in (first, second) if one["verdict"] != "PASS"]
    other = [_words(sent) for sent, one, two in pairs if (one.ids or one.text) != (two.ids or two.text)]
    parts = [_words(sent) for sent, one, two in pairs if _media(one) != _media(two)]
    rates = [_rate(run["exchanges"]) for run in (first, second)]
    rooms = [(run.get("kv_cache") or {}).get("tokens") for run in (first, second)]
    notes = [f"not made alike: {one}" for one in unlike]
    notes += [] if pairs else ["no greedy request is in both"]
    notes += [f"other audio or pictures for {', '.join(parts)}"] if parts else []
    notes += _less("tokens a second", rates, SLOWER) + _less("tokens of KV cache", rooms, SMALLER)
    verdict = Verdict.INCONCLUSIVE if notes else Verdict.PASS
    if other and not unlike:
        verdict = Verdict.FAIL
        notes.insert(0, f"{len(other)} of {len(pairs)} greedy answers are other ones: {', '.join(other[:3])}")
    summary = "; ".join(notes) or f"{len(pairs)} greedy answers are the same, tokens and all"
    data = {
        "before": before,
        "after": after,
        "versions": [first["versions"], second["versions"]],
        "greedy_answers": len(pairs),
        "other_answers": other,
        "tokens_per_second": rates,
        "kv_cache_tokens": rooms,
    }
    folder = store.begin(GATE, Redactor())
    folder.json("result.json", {"gate": GATE, "verdict": verdict.value, "summary": summary} | data)
    outcome = Outcome(
        gate=GATE,
        label=record.label,
        verdict=verdict,
        subject=record.subject,
        pins=record.pins,
        command=current(),
        started=started,
        seconds=time.monotonic() - clock,
        summary=summary,
        job=record.job,
        environment=record.environment,
    )
    return store.record(outcome, folder), data | {"run": folder.id}


def _of_serve(store: Store, run: str) -> tuple[Record, dict[str, Any]]:
    """A run's record, and its result with the exchanges."""
    record, folder = store.find(run)
    wrong = store.problems(record) or ([] if record.gate == "serve" else [f"it is a run of {record.gate}"])
    if wrong:
        raise BadInput(
            f"{run} cannot be compared: {'; '.join(wrong[:3])}",
            expected="a run of serve as it was recorded",
            try_="serve the same model again with both interpreters",
        )
    result = json.loads((folder / "result.json").read_text("utf-8"))
    exchanges = msgspec.json.decode((folder / "exchanges.json").read_bytes(), type=list[Exchange])
    return record, result | {"exchanges": exchanges}


def _pairs(first: Sequence[Exchange], second: Sequence[Exchange]) -> Iterator[tuple[Any, Answer, Answer]]:
    """What both were asked without chance, and both answers; each repetition is a pair of its own."""
    asked: dict[bytes, list[Exchange]] = defaultdict(list)
    for one in second:
        if _greedy(one):
            asked[_request(one)].append(one)
    for one in first:
        same = asked.get(_request(one)) if _greedy(one) else None
        if same and (before := read(one)) and (after := read(same.pop(0))):
            yield one.sent, before, after


def _greedy(one: Exchange) -> bool:
    return isinstance(one.sent, dict) and one.sent.get("temperature") == 0 and one.status == 200


def _request(one: Exchange) -> bytes:
    return canonical([one.path, {key: one.sent[key] for key in one.sent if key != "model"}])


def _words(sent: dict[str, Any]) -> str:
    return repr(sent.get("prompt") or (sent.get("messages") or [{}])[-1].get("content"))[:60]


def _media(answer: Answer) -> list[Any]:
    return [{key: part.get(key) for key in ("audio", "images") if part.get(key)} for part in answer.parts]


def _rate(exchanges: Sequence[Exchange]) -> float | None:
    """Tokens a second of the median answer: what is compiled for the first of a kind does not count."""
    answered = [(answer.tokens, one.seconds) for one in exchanges if (answer := read(one))]
    rates = [tokens / seconds for tokens, seconds in answered if tokens > 1 and seconds]
    return round(median(rates), 2) if rates else None


def _less(what: str, values: Sequence[float | None], least: float) -> list[str]:
    before, after = values
    if not before or after is None or after >= before * least:
        return []
    return [f"{after} {what}, {before} before: measure again, or find out why"]
