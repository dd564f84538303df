"""The pairs of releases the emulated dry run is measured on, one pair's runs, and the defects known of them.

A run that fails with a known defect of a released pair is expected to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bench.shared import Run
from npu_upgrade.audit.triples import open_project, open_triple
from npu_upgrade.audit.world import Triple
from npu_upgrade.gates.emulation import dry_run, kept
from npu_upgrade.gates.emulation.catalogue import TIERS, chosen, scenarios
from npu_upgrade.gates.emulation.environment import packages_of
from npu_upgrade.gates.emulation.known_defects import KnownDefect
from npu_upgrade.gates.emulation.outcome import FAIL, INCONCLUSIVE, Outcome, in_tree
from npu_upgrade.ground.files import write_atomic

OWN = tuple(tier for tier in TIERS if tier != "pipelines")  # tiers with models that were made for them


@dataclass(frozen=True)
class Pair:
    """A vllm-omni on a vllm-ascend, or a vllm-ascend alone; the vllm is the one that belongs with it."""

    omni: str | None
    ascend: str

    @property
    def name(self) -> str:
        return self.omni or self.ascend

    def triple(self) -> Triple:
        """Its trees."""
        omni = open_project(f"pypi:vllm-omni=={self.omni}", "vllm-omni") if self.omni else None
        return open_triple(omni, f"pypi:vllm-ascend=={self.ascend}", None)

    def __str__(self) -> str:
        ascend = f"vllm-ascend {self.ascend}"
        return f"vllm-omni {self.omni} on {ascend}" if self.omni else ascend


MATCHED = [
    Pair(omni, ascend)
    for omni, ascend in (
        ("0.22.0", "0.22.1rc1"),
        ("0.24.0", "0.24.0rc1"),
        ("0.26.0", "0.26.0rc1"),
        ("0.28.0", "0.28.0rc1"),
        ("0.30.0", "0.30.0rc2"),
    )
]
ALONE = [
    Pair(None, ascend)
    for ascend in (
        "0.18.0", "0.20.2rc1", "0.22.1rc1", "0.23.0.post1", "0.24.0rc1", "0.25.1rc1", "0.26.0rc1",
        "0.27.1rc1", "0.28.0rc1", "0.29.0rc1", "0.30.0rc2",
    )
]  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One outcome of one pair."""

    pair: Pair
    outcome: Outcome

    @property
    def label(self) -> str:
        return f"{self.pair}, {self.outcome.name}"


def explains(known: KnownDefect, pair: Pair, outcome: Outcome) -> bool:
    """Whether a defect that is known of this released pair is what failed there."""
    of_pair = (known.omni, known.ascend) == (pair.omni, pair.ascend)
    shown = known.is_shown_by(outcome.tier, outcome.scenario, outcome.why)
    return of_pair and outcome.state == FAIL and shown


def play_pair(pair: Pair, names: Sequence[str], out: Path, run: Run, tiers: Sequence[str] = OWN) -> list[Row]:
    """The runs of a pair in these tiers."""
    outcomes = run.result(
        f"pair {pair}", [*names, *tiers], list[Outcome], _play, pair, names, out, tiers,
        good=lambda all_: all(one.state != INCONCLUSIVE for one in all_),
    )  # fmt: skip
    return [Row(pair, outcome) for outcome in outcomes]


def state(row: Row, known: Sequence[KnownDefect]) -> str:
    """The outcome's, or EXPECTED FAIL for a defect that is known of the released pair."""
    expected = row.outcome.state == FAIL and any(explains(one, row.pair, row.outcome) for one in known)
    return "EXPECTED FAIL" if expected else row.outcome.state


def reason(row: Row, known: Sequence[KnownDefect]) -> str:
    """The incident that explains a failure, else what the run says."""
    return next((one.incident for one in known if explains(one, row.pair, row.outcome)), row.outcome.why)


def _play(pair: Pair, names: Sequence[str], out: Path, tiers: Sequence[str]) -> list[Outcome]:
    played = dry_run.run(pair.triple(), chosen(names, tiers, omni=pair.omni is not None), out)
    return [replace(outcome, lines={}) for outcome in played.outcomes]


def write_down(pairs: Sequence[Pair]) -> None:
    """Put the kept outcomes of these pairs, and which functions each run executes, beside the product."""
    data = kept.released()
    executed = {name: {data.runs[int(one)] for one in runs.split()} for name, runs in data.executed.items()}
    known = dict(data.pairs)
    for pair in pairs:
        triple = pair.triple()
        _, environment = packages_of(triple.omni, triple.ascend, triple.vllm)
        runs = dict(known[str(pair)].runs) if str(pair) in known else {}
        for tier, one in [("import", None), *chosen(["all"], TIERS, omni=pair.omni is not None)]:
            name = f"{tier} {one.name if one else tier}"
            if (ran := kept.found(tier, one, environment)) is None:
                continue
            runs[name] = kept.Known(
                ran.outcome.state,
                ran.outcome.seconds,
                ran.version,
                ran.operators,
                in_tree(ran.outcome.why),
                in_tree(ran.outcome.where),
            )
            for part in ran.executed.values() if one else ():
                for function in part.keys() - {""}:
                    executed.setdefault(function, set()).update([name] if part[function] else [])
        if runs:
            known[str(pair)] = kept.ReleasedPair(kept.trees_key(triple), runs)
    numbers = {
        name: number for number, name in enumerate(sorted({*data.runs, *set().union(*executed.values())}))
    }
    lines = {
        name: " ".join(map(str, sorted(numbers[run] for run in runs))) for name, runs in executed.items()
    }
    text = [f"{_json(name)}:{_json(pair)}" for name, pair in sorted(known.items())]
    body = ",\n".join(text)
    tail = f'"runs":{_json(list(numbers))},\n"executed":{_json(lines)}'
    write_atomic(kept.RELEASED, f'{{"pairs":{{\n{body}\n}},\n{tail}}}\n'.encode())
    kept.released.cache_clear()


def stale() -> list[str]:
    """The outcomes that come with the product and hold no longer."""
    known = {one.name: one for one in scenarios()}
    return [
        f"{name}: {run}"
        for name, pair in kept.released().pairs.items()
        for run, one in pair.runs.items()
        if one.version != kept.version(known.get(run.partition(" ")[2]), one.operators)
    ]


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
