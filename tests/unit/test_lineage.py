"""Which runner methods are copies, and of which version."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lineage_kit import (
    RUNNERS,
    UPSTREAM,
    body,
    commit_at,
    downloads,
    git_at,
    omni_files,
    publish,
    steps,
    upstream_clone,
    upstream_source,
    write_tree,
)
from sources_kit import clean_machine, server  # noqa: F401

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.lineage.history import Version
from npu_upgrade.lineage.inference import Scores, confidence, infer, infer_base, rank
from npu_upgrade.lineage.records import Bases
from npu_upgrade.sources.tree import SourceTree, open_source

BASE_PATH = RUNNERS[0].path
NAME = "OmniNPUModelRunner.run"
DATES = [f"2026-0{month}-{day:02}" for month in (1, 2, 3, 4) for day in (1, 15)]


def omni_tree(folder: Path, date: str | None = None, **parts: str) -> SourceTree:
    """A vllm-omni whose files were committed at ``date`` (None: a plain folder)."""
    if date is None:
        return open_source(f"dir:{write_tree(folder, omni_files(**parts))}")
    commit_at(folder, date, omni_files(**parts))
    return open_source(f"git:{folder}@HEAD")


def growing(dates: list[str]) -> dict[str, dict[str, list[str]]]:
    """An upstream that changes one more step of ``run`` at each date."""
    return {
        date: {"run": ["new_" + s if n < number else s for n, s in enumerate(steps(20))], "stop": steps(8)}
        for number, date in enumerate(dates)
    }


def copy_of(version: dict[str, list[str]], *, own: int = 3) -> str:
    """The ``run`` of a version with statements of our own in the middle."""
    lines = version["run"]
    return body("run", [*lines[:15], *(f"omni_{n}" for n in range(own)), *lines[15:]])


def label_of(shas: dict[str, str], date: str) -> str:
    return shas[date][:9]


def test_the_copied_version_is_found(tmp_path: Path) -> None:
    versions = growing(DATES)
    shas = upstream_clone(tmp_path / "ascend", versions)
    omni = omni_tree(tmp_path / "omni", base=copy_of(versions[DATES[3]]))
    found = infer(omni, f"git:{tmp_path / 'ascend'}")
    (entry,) = found.copied
    assert found.method(BASE_PATH, NAME) == entry
    assert (entry.runner, entry.name, entry.upstream) == ("base", NAME, "NPUModelRunner.run")
    assert entry.best
    assert entry.best.sha == shas[DATES[3]]
    assert (entry.statements, entry.matched, entry.coverage) == (24, 21, 1.0)
    assert entry.score == round(2 * 21 / 45, 4)
    assert entry.share == round(21 / 24, 4)
    assert entry.runner_up
    assert entry.runner_up.sha in (shas[DATES[2]], shas[DATES[4]])
    assert 0.5 < entry.confidence < 1
    assert found.base
    assert (found.base.label, found.base.score) == (entry.best.label, entry.score)
    assert found.base.spec == f"git:{tmp_path / 'ascend'}@{shas[DATES[3]]}"
    assert found.base.date == datetime(2026, 2, 15, 12, tzinfo=UTC)


def test_own_and_overridden_methods_keep_their_figures(tmp_path: Path) -> None:
    versions = growing(DATES[:2])
    upstream_clone(tmp_path / "ascend", versions)
    ours = "\n\n".join(
        [
            copy_of(versions[DATES[0]]),
            body("stop", ["a", "b", "step_1", "step_2", "c"]),
            body("talk", steps(9)),
        ]
    )
    found = infer(omni_tree(tmp_path / "omni", base=ours), f"git:{tmp_path / 'ascend'}")
    stop = found.method(BASE_PATH, "OmniNPUModelRunner.stop")
    talk = found.method(BASE_PATH, "OmniNPUModelRunner.talk")
    assert stop
    assert stop.upstream_exists
    assert not stop.copied
    assert stop.matched == 3
    assert stop.best
    assert talk
    assert not talk.upstream_exists
    assert not talk.copied
    assert talk.best is None
    assert [entry.name for entry in found.copied] == [NAME]


def test_a_short_method_is_no_copy(tmp_path: Path) -> None:
    upstream_clone(tmp_path / "ascend", {"2026-01-01": {"run": steps(20), "stop": steps(4)}})
    ours = copy_of({"run": steps(20)}) + "\n\n" + body("stop", steps(4))
    found = infer(omni_tree(tmp_path / "omni", base=ours), f"git:{tmp_path / 'ascend'}")
    assert [entry.name for entry in found.copied] == [NAME]


def test_a_small_piece_of_a_long_upstream_method_is_a_copy(tmp_path: Path) -> None:
    upstream_clone(tmp_path / "ascend", {"2026-01-01": {"run": steps(40)}})
    (entry,) = infer(
        omni_tree(tmp_path / "omni", base=body("run", steps(9))), f"git:{tmp_path / 'ascend'}"
    ).copied
    assert entry.share == 1.0
    assert entry.coverage < 0.3


def test_top_level_classes_and_all_three_files_count(tmp_path: Path) -> None:
    fields = "\n".join(f"    field_{n}: int" for n in range(8))
    state = f"\n\nclass State(NamedTuple):\n{fields}\n"
    commit_at(tmp_path / "ascend", "2026-01-01", {UPSTREAM.path: upstream_source({"run": steps(20)}, state)})
    ours = body("run", steps(20))
    omni = omni_tree(tmp_path / "omni", base=ours, ar=ours, generation=ours, top=state + "    omni: int\n")
    copied = infer(omni, f"git:{tmp_path / 'ascend'}").copied
    assert [(entry.runner, entry.name) for entry in copied] == [
        ("base", "OmniNPUModelRunner.run"),
        ("ar", "State"),
        ("ar", "NPUARModelRunner.run"),
        ("generation", "NPUGenerationModelRunner.run"),
    ]


def test_a_version_newer_than_omni_is_no_candidate(tmp_path: Path) -> None:
    versions = growing(DATES)
    shas = upstream_clone(tmp_path / "ascend", versions)
    ours = copy_of(versions[DATES[6]])  # a perfect match of a version to come
    omni = omni_tree(tmp_path / "omni", "2026-03-02", base=ours)
    found = infer(omni, f"git:{tmp_path / 'ascend'}")
    assert found.base
    assert found.base.version.sha == shas[DATES[4]]
    assert found.considered[-1].sha == shas[DATES[4]]
    free = infer(replace(omni, date=None), f"git:{tmp_path / 'ascend'}")
    assert free.base
    assert free.base.version.sha == shas[DATES[6]]


def test_a_history_that_starts_after_omni_is_refused(tmp_path: Path) -> None:
    upstream_clone(tmp_path / "ascend", growing(DATES))
    omni = omni_tree(tmp_path / "omni", "2025-06-01", base=body("run", steps(20)))
    with pytest.raises(BadInput, match="is newer than"):
        infer(omni, f"git:{tmp_path / 'ascend'}")


def test_of_equally_good_versions_the_oldest_is_the_base(tmp_path: Path) -> None:
    plain, other = {"run": steps(20)}, {"run": steps(20, _3="other")}
    dates = ["2026-01-01", "2026-01-10", "2026-01-20", "2026-01-30"]
    shas = upstream_clone(tmp_path / "ascend", dict(zip(dates, [other, plain, other, plain], strict=True)))
    omni = omni_tree(tmp_path / "omni", base=copy_of(plain))
    found = infer(omni, f"git:{tmp_path / 'ascend'}")
    assert found.base
    assert found.base.version.sha == shas[dates[1]]
    assert [version.sha for version in found.base.window] == [shas[dates[1]], shas[dates[3]]]
    (entry,) = found.copied
    assert entry.window
    assert [v.sha for v in entry.window] == [shas[dates[1]], shas[dates[3]]]


def test_the_joint_base_weighs_all_copied_methods(tmp_path: Path) -> None:
    def at(run: int, stop: int) -> dict[str, list[str]]:
        changed = {f"_{n}": f"new_{n}" for n in range(run)}
        return {"run": steps(20, **changed), "stop": steps(20, **{f"_{n}": f"s_{n}" for n in range(stop)})}

    history = {"2026-01-01": at(0, 0), "2026-01-11": at(4, 0), "2026-01-21": at(4, 4)}
    shas = upstream_clone(tmp_path / "ascend", history)
    ours = body("run", at(4, 0)["run"]) + "\n\n" + body("stop", at(4, 0)["stop"])
    found = infer(omni_tree(tmp_path / "omni", base=ours), f"git:{tmp_path / 'ascend'}")
    assert found.base
    assert found.base.version.sha == shas["2026-01-11"]
    assert found.base.score == 1.0
    # each method alone could be of two versions; both name the base they share
    assert {entry.best.sha for entry in found.copied if entry.best} == {shas["2026-01-11"]}


def test_a_method_left_behind_says_by_how_much(tmp_path: Path) -> None:
    versions = growing(DATES)
    upstream_clone(tmp_path / "ascend", versions)
    omni = omni_tree(tmp_path / "omni", "2026-04-20", base=copy_of(versions[DATES[1]]))
    (entry,) = infer(omni, f"git:{tmp_path / 'ascend'}").copied
    assert (entry.behind, entry.behind_days) == (6, 90)
    fresh = omni_tree(tmp_path / "fresh", "2026-04-20", base=copy_of(versions[DATES[7]]))
    (entry,) = infer(fresh, f"git:{tmp_path / 'ascend'}").copied
    assert (entry.behind, entry.behind_days) == (0, 0)


def test_a_copy_from_a_parallel_branch_is_found(tmp_path: Path) -> None:
    versions = growing(DATES[:4])
    clone = tmp_path / "ascend"
    shas = upstream_clone(clone, versions)
    git_at(clone, "2026-01-16", "checkout", "-q", "-b", "releases/v1", shas[DATES[1]])
    fixed = {"run": [*versions[DATES[1]]["run"][:19], "fixed"], "stop": steps(8)}
    side = commit_at(clone, "2026-02-20", {UPSTREAM.path: upstream_source(fixed)})
    git_at(clone, "2026-02-20", "checkout", "-q", "main")
    found = infer(omni_tree(tmp_path / "omni", base=body("run", fixed["run"])), f"git:{clone}@main")
    assert found.base
    assert found.base.version.sha == side
    assert found.base.score == 1.0


def test_a_second_run_reads_nothing_of_upstream(tmp_path: Path) -> None:
    versions = growing(DATES)
    upstream_clone(tmp_path / "ascend", versions)
    omni = omni_tree(tmp_path / "omni", base=copy_of(versions[DATES[3]]))
    first, again = (infer(omni, f"git:{tmp_path / 'ascend'}") for _ in range(2))
    assert (first.history.fetched, again.history.fetched) == (len(DATES), 0)
    assert (again.base, again.methods) == (first.base, first.methods)


def test_nothing_copied_leaves_the_base_open(tmp_path: Path) -> None:
    upstream_clone(tmp_path / "ascend", growing(DATES[:2]))
    omni = omni_tree(tmp_path / "omni", base=body("run", ["super_run"]))
    assert infer(omni, f"git:{tmp_path / 'ascend'}").base is None
    with pytest.raises(BadInput, match="no method of the NPU runners"):
        infer_base(omni, f"git:{tmp_path / 'ascend'}")


def test_a_tree_that_is_no_omni_is_refused(tmp_path: Path) -> None:
    upstream_clone(tmp_path / "ascend", growing(DATES[:1]))
    with pytest.raises(BadInput, match="not a vllm-omni tree"):
        infer(open_source(f"git:{tmp_path / 'ascend'}@main"), f"git:{tmp_path / 'ascend'}")


def test_a_device_of_its_own_does_not_hide_the_upstream_class(tmp_path: Path) -> None:
    upstream_clone(tmp_path / "ascend", growing(DATES[:1]))
    chosen = """if special():
    from vllm_ascend.special.runner import SpecialRunner as NPUModelRunner
else:
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner
"""
    omni = omni_tree(tmp_path / "omni", base=body("run", steps(20)), own_import=chosen)
    assert infer(omni, f"git:{tmp_path / 'ascend'}").base


def test_neighbours_are_the_nearest_other_texts(tmp_path: Path) -> None:
    versions = growing(DATES)
    versions["2026-02-20"] = {"run": versions["2026-02-15"]["run"], "stop": steps(9)}
    ordered = {date: versions[date] for date in sorted(versions)}
    upstream_clone(tmp_path / "ascend", ordered)
    found = infer(
        omni_tree(tmp_path / "omni", base=copy_of(versions["2026-02-15"])), f"git:{tmp_path / 'ascend'}"
    )
    assert found.base
    older, newer = found.neighbours("run", found.base.version, found.history.versions[-2])
    assert older == [
        body("run", versions[date]["run"]) for date in ("2026-02-01", "2026-01-15", "2026-01-01")
    ]
    assert newer == [
        body("run", versions[date]["run"]) for date in ("2026-03-01", "2026-03-15", "2026-04-01")
    ]
    assert found.neighbours("run", found.history.versions[0], found.history.versions[0]) == ([], [])


def test_neighbours_are_limited_and_follow_the_target(tmp_path: Path) -> None:
    dates = [f"2026-01-{day:02}" for day in range(1, 21)]
    versions = growing(dates)
    shas = upstream_clone(tmp_path / "ascend", versions)
    git_at(tmp_path / "ascend", "2026-01-30", "tag", "v1", shas[dates[12]])
    found = infer(
        omni_tree(tmp_path / "omni", base=copy_of(versions[dates[10]])), f"git:{tmp_path / 'ascend'}@v1"
    )
    assert found.base
    older, newer = found.neighbours("run", found.base.version)
    assert (len(older), len(newer)) == (5, 2)  # of ten older ones: 1, 2, 3, 4 and 8 texts away
    assert len(found.neighbours("run", found.base.version, found.history.versions[-1])[1]) == 6


def releases(count: int) -> dict[str, tuple[str, str]]:
    """Releases 0.1.0, 0.2.0, ... a month apart from 2025-01, each with one more changed step."""
    days = [f"{2025 + number // 12}-{number % 12 + 1:02}-01" for number in range(count)]
    grown = growing([f"2025-01-{n + 1:02}" for n in range(count)])
    return {
        f"0.{number + 1}.0": (day, upstream_source(methods))
        for number, (day, methods) in enumerate(zip(days, grown.values(), strict=True))
    }


def copy_of_release(number: int) -> str:
    return body("run", ["new_" + s if n < number - 1 else s for n, s in enumerate(steps(20))])


def dated(tree: SourceTree, date: str) -> SourceTree:
    return replace(tree, date=datetime.fromisoformat(f"{date}T12:00:00+00:00"))


def test_few_releases_are_downloaded(server, tmp_path: Path) -> None:  # noqa: F811
    publish(server, releases(18))
    omni = dated(omni_tree(tmp_path / "omni", base=copy_of_release(12)), "2026-02-15")
    base = infer_base(omni, "pypi:vllm-ascend")
    assert (base.label, base.spec, base.score) == ("0.12.0", "pypi:vllm-ascend==0.12.0", 1.0)
    # from the newest one that omni can know (0.14.0) to four below the best
    assert downloads(server) == {f"0.{number}.0" for number in range(8, 15)}


def test_one_dip_does_not_end_the_walk(server, tmp_path: Path) -> None:  # noqa: F811
    found = releases(12)
    stale = upstream_source(growing(["2025-01-01"])["2025-01-01"])
    found["0.1.1"] = ("2025-08-15", stale)  # a maintenance release of an old line
    found["0.1.2"] = ("2025-09-15", stale)
    publish(server, found)
    omni = dated(omni_tree(tmp_path / "omni", base=copy_of_release(7)), "2025-11-15")
    assert infer_base(omni, "pypi:vllm-ascend").label == "0.7.0"


def test_a_withdrawn_release_is_used_only_when_there_is_no_other(server, tmp_path: Path) -> None:  # noqa: F811
    found = releases(3)
    publish(server, found, yanked=("0.3.0",))
    omni = dated(omni_tree(tmp_path / "omni", base=copy_of_release(3)), "2026-01-01")
    assert infer_base(omni, "pypi:vllm-ascend").label == "0.2.0"
    publish(server, found, yanked=tuple(found), project="vllm-ascend-all")
    assert infer_base(omni, "pypi:vllm-ascend-all").label == "0.3.0"


def test_without_dates_the_number_of_omni_is_the_limit(server, tmp_path: Path) -> None:  # noqa: F811
    publish(server, {version: ("", source) for version, (_, source) in releases(8).items()})
    omni = replace(omni_tree(tmp_path / "omni", base=copy_of_release(8)), version="0.5.0", date=None)
    base = infer_base(omni, "pypi:vllm-ascend")
    assert (base.label, base.date) == ("0.5.0", None)
    assert infer_base(replace(omni, version=None), "pypi:vllm-ascend").label == "0.8.0"


def test_neighbours_over_the_index(server, tmp_path: Path) -> None:  # noqa: F811
    publish(server, releases(8), yanked=("0.6.0",))
    omni = dated(omni_tree(tmp_path / "omni", base=copy_of_release(5)), "2025-06-15")
    found = infer(omni, "pypi:vllm-ascend==0.8.0")
    assert found.base
    assert found.base.label == "0.5.0"
    older, newer = found.neighbours("run", found.base.version)
    assert older == [copy_of_release(number) for number in (4, 3, 2, 1)]
    assert newer == [copy_of_release(number) for number in (7, 8)]


def test_confidence_grows_with_the_lead_and_falls_with_the_days() -> None:
    assert confidence(0, 0) == 0
    assert confidence(1, 0) == 0.71
    assert confidence(3, 30) == 0.61
    assert confidence(2, 5) > confidence(1, 5) > confidence(1, 50) > 0
    assert confidence(-1, -1) == 0


class Texts:
    """A stand-in for a history: one text per version."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = dict(enumerate(texts))

    def digest(self, version: int, name: str) -> str | None:
        return self.texts[version] or None

    def keys(self, version: int, name: str) -> tuple[int, ...]:
        return tuple(ord(char) for char in self.texts[version])


@given(
    st.lists(st.text("abcd", max_size=7), min_size=1, max_size=12),
    st.text("abcd", min_size=1, max_size=7),
    st.text("abcd", min_size=1, max_size=7),
)
def test_ranking_by_bounds_equals_comparing_everything(texts: list[str], one: str, other: str) -> None:
    history = Texts(texts)
    units = [Scores(history, "x", tuple(ord(char) for char in ours)) for ours in (one, other)]  # type: ignore[arg-type]
    versions = list(history.texts)
    scores = [sum(unit.match(version).score for unit in units) / 2 for version in versions]  # type: ignore[arg-type]
    ranked = rank(units, versions)  # type: ignore[arg-type, type-var]
    top = max(scores)
    assert ranked.score == top
    assert ranked.best == [v for v in versions if scores[v] == top]
    lower = [score for score in scores if score < top]
    assert ranked.runner_up_score == max(lower, default=0.0)
    assert (ranked.runner_up is None) == (not lower)


@pytest.mark.network
def test_real_releases(own_home: Path) -> None:
    omni = open_source("pypi:vllm-omni==0.22.0")
    found = infer(omni, "pypi:vllm-ascend")
    assert found.base
    assert found.base.label == "0.19.1rc1"
    assert found.history.fetched <= 8
    names = {(entry.runner, entry.name.rpartition(".")[2]) for entry in found.copied}
    assert names == {
        ("base", "_dummy_run"),
        ("base", "_model_forward"),
        ("ar", "ExecuteModelState"),
        ("ar", "execute_model"),
        ("ar", "sample_tokens"),
        ("generation", "_dummy_run"),
        ("generation", "execute_model"),
    }
    assert isinstance(found.base.version, Version)


# -- a base newer than the others of its file --

THEN, LATER = "2026-01-01", "2026-03-01"


def bases(tmp_path: Path, run: list[str], later: list[str]) -> dict[str, str]:
    """What ``run`` and ``stop`` of a plain folder are copies of; ``run`` becomes ``later`` upstream."""
    stop = steps(12)
    upstream_clone(
        tmp_path / "ascend",
        {
            THEN: {"run": steps(12), "stop": stop},
            LATER: {"run": later, "stop": [f"new_{step}" for step in stop[:5]] + stop[5:]},
        },
    )
    omni = omni_tree(tmp_path / "omni", base=f"{body('run', run)}\n\n{body('stop', stop)}")
    found = infer(omni, f"git:{tmp_path / 'ascend'}")
    return {one.name.rpartition(".")[2]: str(one.best and one.best.date)[:10] for one in found.copied}


def test_a_text_that_only_got_shorter_upstream_is_no_newer_base(tmp_path: Path) -> None:
    # Ours never had, or rewrote, what upstream dropped later: its text gets nearer to ours by that.
    ours = ["omni_a", "omni_b", *steps(12)[4:]]
    assert bases(tmp_path, ours, steps(12)[4:]) == {"run": THEN, "stop": THEN}


def test_two_statements_that_came_later_may_have_been_ported_by_hand(tmp_path: Path) -> None:
    assert (
        bases(tmp_path, steps(12, _0="new_0", _1="new_1"), steps(12, _0="new_0", _1="new_1"))["run"] == THEN
    )


def test_three_of_them_are_a_copy_of_the_newer_one(tmp_path: Path) -> None:
    later = steps(12, _0="new_0", _1="new_1", _2="new_2")
    assert bases(tmp_path, later, later) == {"run": LATER, "stop": THEN}


def test_the_newer_version_that_fits_better_is_told_and_not_sure(tmp_path: Path) -> None:
    stop, run = steps(12), steps(12)
    versions = {THEN: {"run": run, "stop": stop}, LATER: {"run": run[4:], "stop": [*"abcde", *stop[5:]]}}
    upstream_clone(tmp_path / "ascend", versions)
    own = f"{body('run', ['omni_a', *run[4:]])}\n\n{body('stop', stop)}"
    found = infer(omni_tree(tmp_path / "omni", base=own), f"git:{tmp_path / 'ascend'}")
    entry = found.method(BASE_PATH, NAME)
    assert entry
    assert str(entry.rival and entry.rival.date)[:10] == LATER
    assert not Bases(found).is_sure(entry)
    assert Bases(found, forced=entry.best).is_sure(entry)


def test_a_release_of_an_older_branch_does_not_end_the_search(
    tmp_path: Path,
    server,  # noqa: F811
) -> None:
    run = steps(20)
    texts = {
        f"0.{number}.0": steps(20, **{f"_{n}": f"new_{n}" for n in range(number)}) for number in range(1, 8)
    }
    releases = {
        version: (f"2026-0{n}-01", upstream_source({"run": text}))
        for n, (version, text) in enumerate(texts.items(), 1)
    }
    # A correction of the first one comes last.
    releases["0.1.1"] = ("2026-08-01", upstream_source({"run": steps(20, _0="new_0", _19="other")}))
    publish(server, releases)
    found = infer(
        omni_tree(tmp_path / "omni", base=body("run", [*run[:15], "omni", *run[15:]])), "pypi:vllm-ascend"
    )
    assert found.base
    assert found.base.label == "0.1.0"
