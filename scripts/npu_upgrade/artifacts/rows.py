"""Rows of the tables in deliverables, from runs."""

from __future__ import annotations

from typing import Any

from npu_upgrade.artifacts.features import Feature
from npu_upgrade.evidence.runs import LABELS, Run, mapping

Row = dict[str, Any]
# how the two stages compare, by their states
_NOTES = {
    ("PASS", "PASS"): "both",
    ("PASS", "FAIL"): "real only",
    ("FAIL", "PASS"): "dummy only",
    ("SKIPPED", "PASS"): "real alone",
    ("", "PASS"): "real alone",
}


def features(found: list[Feature]) -> list[Row]:
    return [vars(one) | {"title": one.title} for one in found]


def evidence(runs: list[Run]) -> list[Row]:
    """The newest run of every gate and label, strongest label first, then gates by name."""
    newest = {(run.gate, run.label): run for run in runs}
    ordered = sorted(
        newest.values(), key=lambda run: (LABELS.index(run.label) if run.label in LABELS else 9, run.gate)
    )
    return [
        {
            "gate": run.gate,
            "label": run.label,
            "verdict": run.verdict,
            "summary": run.record.summary,
            "where": run.path(),
            "id": run.id,
        }
        for run in ordered
    ]


def failures(runs: list[Run]) -> list[Row]:
    """Each root cause once, where it was met first."""
    found: dict[tuple[str, str], Row] = {}
    for run in runs:
        if run.verdict in ("FAIL", "INCONCLUSIVE") and run.root:
            key = (str(run.root.get("id")), run.gate)
            found.setdefault(key, _failure(run))
    return list(found.values())


def _failure(run: Run) -> Row:
    line = f":{run.root['line']}" if run.root.get("line") else ""
    return {
        "gate": run.gate,
        "label": run.label,
        "cause": _cause(run.root),
        "next": str(run.root.get("next") or "see the log"),
        "text": str(run.root.get("text") or ""),
        "where": run.path() + line,
    }


def false_ready(runs: list[Run]) -> list[Row]:
    """Runs whose server said it was ready and then failed."""
    found = []
    for run in runs:
        failed = [str(c.get("name")) for c in run.many("checks") if c.get("state") == "FAIL"]
        if run.verdict == "FAIL" and run.result.get("ready_seconds") is not None and failed:
            found.append(
                {
                    "label": run.label,
                    "ready": f"{run.result['ready_seconds']:g} s",
                    "checks": ", ".join(failed),
                    "cause": _cause(run.root),
                    "where": run.path(),
                }
            )
    return found


def ladder(runs: list[Run]) -> list[Row]:
    return [
        {
            "step": str(step.get("step")),
            "state": str(step.get("state")),
            "why": str(step.get("why") or ""),
            "cause": _cause(mapping(step.get("root"))),
            "where": run.path(),
        }
        for run in runs
        for step in run.many("ladder")
    ]


def capacity(run: Run | None) -> list[Row]:
    return [
        {
            "length": row.get("max_model_len") or "-",
            "sequences": row.get("max_num_seqs") or "-",
            "state": str(row.get("state")),
            "tokens": row.get("kv_cache_tokens") or "-",
            "cause": _cause(mapping(row.get("root"))) or str(row.get("why") or "-"),
        }
        for row in (run.many("capacity") if run else [])
    ]


def comparison(dummy: Run | None, real: Run | None) -> list[Row]:
    """Every check of the two stages beside each other."""
    left, right = _states(dummy), _states(real)
    return [
        {
            "name": name,
            "dummy": left.get(name, ""),
            "real": right.get(name, ""),
            "note": _NOTES.get((left.get(name, ""), right.get(name, "")), "apart"),
        }
        for name in dict.fromkeys([*left, *right])
    ]


def _states(run: Run | None) -> dict[str, str]:
    return {str(c.get("name")): str(c.get("state")) for c in (run.many("checks") if run else [])}


def performance(run: Run | None) -> tuple[list[Row], bool]:
    """What a run measured, and whether throughput is among it."""
    if run is None:
        return [], False
    found = [
        {"name": f"Time of phase {p.get('name')}", "value": f"{p['seconds']:g} s", "label": run.label}
        for p in run.many("phases")
        if isinstance(p.get("seconds"), int | float)
    ]
    kv = run.map("kv_cache")
    if kv.get("tokens"):
        found.append({"name": "KV cache", "value": f"{kv['tokens']} tokens", "label": run.label})
    if kv.get("max_concurrency"):
        found.append(
            {
                "name": "Concurrency at the full length",
                "value": f"{kv['max_concurrency']:g}",
                "label": run.label,
            }
        )
    measured = [
        {
            "name": str(p.get("name")),
            "value": f"{p.get('value')} {p.get('unit') or ''}".strip(),
            "label": run.label,
        }
        for p in run.many("performance")
    ]
    return found + measured, bool(measured)


def accuracy(run: Run | None) -> list[Row]:
    rows = []
    for task in run.map("accuracy").get("tasks") or [] if run else []:
        for metric in task["metrics"]:
            limit = task.get("limit")
            rows.append(
                {
                    "task": task["name"],
                    "fewshot": task.get("num_fewshot") if task.get("num_fewshot") is not None else "-",
                    "limit": limit if limit is not None else "",
                    "metric": metric["name"],
                    "value": round(float(metric["value"]), 4),
                }
            )
    return rows


def _cause(root: dict[str, Any]) -> str:
    return str(root.get("cause") or root.get("id") or "")
