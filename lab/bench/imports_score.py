"""Scores derived imports against a release: right bodies under the imports of the release before.

What a person imports without using it, or keeps without a use, cannot be derived from
bodies; it is counted apart.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.shared import Tally
from npu_upgrade.code.names import (
    Import,
    all_imports,
    exported,
    imports_of,
    is_typing_guard,
    names_of,
    undefined_names,
)
from npu_upgrade.lineage.import_sources import UpstreamFile
from npu_upgrade.lineage.imports import ImportPlan, derive_imports
from npu_upgrade.sources.tree import SourceTree


@dataclass
class ImportScore(Tally):
    """Counts over all files; every difference from the person's imports is in ``cases``.

    ``added`` and ``dropped`` are what the person did and bodies can tell, ``added_right`` and
    ``dropped_right`` how much of it was derived exactly; ``extra`` is what was done beyond it,
    ``apart`` what bodies cannot tell, ``undefined`` the names still without a definition.
    """

    added: int = 0
    added_right: int = 0
    dropped: int = 0
    dropped_right: int = 0
    extra: int = 0
    apart: int = 0
    undefined: int = 0
    cases: list[str] = field(default_factory=list)


def score_imports(
    before: Mapping[str, str],
    after: Mapping[str, str],
    upstream: UpstreamFile,
    gpu: Mapping[str, str],
    target: SourceTree | None,
    omni: SourceTree | None,
) -> ImportScore:
    """Derive the imports of ``after`` (path to text) from those of ``before``, and compare.

    The other arguments are those of :func:`derive_imports`, of the version of ``after``.
    """
    paths = [path for path in after if path in before]
    merged = {path: with_imports_of(after[path], before[path]) for path in paths}
    plans = derive_imports(merged, before, upstream, gpu, target, omni)
    score = ImportScore()
    for path in paths:
        _compare(score, path, before[path], after[path], plans[path])
    return score


def with_imports_of(text: str, donor: str) -> str:
    """``text`` with the top-level import block of ``donor`` instead of its own."""
    own, given = _import_rows(text), _import_rows(donor)
    lines, donated = text.split("\n"), donor.split("\n")
    block = [donated[row] for row in sorted(given)]
    first = min(own, default=-1)
    head = [line for row, line in enumerate(lines) if row < first]
    rest = [line for row, line in enumerate(lines) if row > first and row not in own]
    return "\n".join([*head, *block, *rest])


def _import_rows(text: str) -> set[int]:
    """The lines of imports and TYPE_CHECKING blocks, and the blanks and comments between them."""
    rows: set[int] = set()
    end = None
    lines = text.split("\n")
    for node in ast.parse(text).body:
        guard = is_typing_guard(node) and all(isinstance(i, (ast.Import, ast.ImportFrom)) for i in node.body)
        if not isinstance(node, (ast.Import, ast.ImportFrom)) and not guard:
            continue
        between = range(end if end is not None else node.lineno - 1, node.lineno - 1)
        if all(not lines[row].strip() or lines[row].startswith("#") for row in between):
            rows.update(between)
        end = node.end_lineno or node.lineno
        rows.update(range(node.lineno - 1, end))
    return rows


def _compare(score: ImportScore, path: str, before: str, after: str, plan: ImportPlan) -> None:
    old, human, derived = (set(all_imports(text)) for text in (before, after, plan.source))
    unused_before, unused_after = _unused(before), _unused(after)
    file = path.rpartition("/")[2]
    apart = {item for item in (human - old) | ((old & human) - derived) if item.bound in unused_after}
    apart |= {item for item in (old - human) & derived if item.bound in unused_before}
    added, dropped, undefined = human - old - apart, old - human - apart, undefined_names(plan.source)
    beyond, lost = derived - old - human, (old & human) - derived - apart
    score.apart += len(apart)
    score.added += len(added)
    score.added_right += len(added & derived)
    score.dropped += len(dropped)
    score.dropped_right += len(dropped - derived)
    score.extra += len(beyond) + len(lost)
    score.undefined += len(undefined)
    wrong = {"not added": added - derived, "not dropped": dropped & derived}
    wrong |= {"added beyond": beyond, "dropped beyond": lost}
    for what, items in wrong.items():
        for item in sorted(items, key=lambda item: (item.module, item.name or "", item.typing_only)):
            why = f" ({plan.reasons.get(item.bound, '')})" if items is beyond else ""
            score.cases.append(f"{file}: {what}: {_text(item)}{why}")
    score.cases += [f"{file}: undefined: {name}: {plan.reasons.get(name, '')}" for name in sorted(undefined)]


def _unused(source: str) -> set[str]:
    """Names bound by imports that nothing in ``source`` reads."""
    return imports_of(source).keys() - names_of(source).read - exported(source) - {"annotations"}


def _text(item: Import) -> str:
    return item.statement() + (" (TYPE_CHECKING)" if item.typing_only else "")
