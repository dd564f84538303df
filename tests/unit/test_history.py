"""The versions of the upstream runner, from a clone and from an index."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from lineage_kit import (
    UPSTREAM,
    body,
    commit_at,
    downloads,
    git_at,
    publish,
    steps,
    upstream_clone,
    upstream_source,
)
from sources_kit import clean_machine, server  # noqa: F401

from npu_upgrade.code.statements import split_statements
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.lineage import history as history_cache
from npu_upgrade.lineage.downstream import Upstream
from npu_upgrade.lineage.history import keys_of, open_history

RUN = "NPUModelRunner.run"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "ascend"
    upstream_clone(
        folder,
        {
            "2026-01-01": {"run": steps(8), "stop": steps(3)},
            "2026-01-11": {"run": steps(8, _1="new"), "stop": steps(3)},
            "2026-01-21": {"run": steps(8), "stop": steps(3, _0="gone")},  # run is reverted
        },
    )
    return folder


def cache_file() -> Path:
    return next((cache_root() / "lineage").glob("*.json"))


def test_a_clone_gives_every_commit_of_the_file_oldest_first(clone: Path) -> None:
    commit_at(clone, "2026-01-25", {"README.md": "not the file"})
    history = open_history(f"git:{clone}", UPSTREAM)
    assert [f"{version.date:%m-%d}" for version in history.versions] == ["01-01", "01-11", "01-21"]
    version = history.versions[1]
    assert version.sha
    assert version.spec == f"git:{clone}@{version.sha}"
    assert version.sha.startswith(version.label)
    assert version.date == datetime(2026, 1, 11, 12, tzinfo=UTC)
    assert history.unit(version, "run") == body("run", steps(8, _1="new"))
    assert history.unit(version, "absent") is None
    assert history.target == history.versions[-1]


def test_texts_and_statements_of_a_unit(clone: Path) -> None:
    history = open_history(f"git:{clone}@main", UPSTREAM)
    first, second, third = history.versions
    assert history.digest(first, RUN) == history.digest(third, RUN) != history.digest(second, RUN)
    source = history.unit(second, "run") or ""
    assert len(history.keys(second, RUN)) == len(split_statements(source)) == 9
    assert history.keys(first, "nothing") == ()


def test_layout_and_comments_do_not_change_the_keys() -> None:
    one = "    def f(self):\n        return call(1, 2)\n"
    other = (
        "    def f(self):\n        # why\n        return call(\n            1,\n            2,\n        )\n"
    )
    assert keys_of(one) == keys_of(other) != keys_of(one.replace("2", "3"))
    assert keys_of("def f(:\n  '''") == ()


def test_a_method_goes_before_a_function_of_that_name(tmp_path: Path) -> None:
    state = "class State(NamedTuple):\n    a: int"
    tail = f"\n\ndef run():\n    return 0\n\n\n{state}\n\n\nclass Other:\n    def go(self):\n        pass\n"
    commit_at(tmp_path / "a", "2026-01-01", {UPSTREAM.path: upstream_source({"run": ["go"]}, tail)})
    history = open_history(f"git:{tmp_path / 'a'}", UPSTREAM)
    (version,) = history.versions
    assert history.unit(version, "run") == body("run", ["go"])
    assert history.unit(version, "State") == state
    assert history.unit(version, "Other.go") == "    def go(self):\n        pass"
    assert history.unit(version, "go") is None


def test_all_branches_and_tags_count_and_the_ref_is_the_target(clone: Path) -> None:
    git_at(clone, "2026-01-22", "checkout", "-q", "-b", "releases/v1", "HEAD~1")
    side = commit_at(clone, "2026-01-15", {UPSTREAM.path: upstream_source({"run": steps(8, _2="side")})})
    git_at(clone, "2026-01-22", "tag", "v1.0")
    git_at(clone, "2026-01-22", "checkout", "-q", "main")
    git_at(clone, "2026-01-22", "branch", "-q", "-D", "releases/v1")
    history = open_history(f"git:{clone}@v1.0", UPSTREAM)
    dates = [f"{version.date:%m-%d}" for version in history.versions]
    assert dates == ["01-01", "01-11", "01-15", "01-21"]
    assert history.target
    assert history.target.sha == side


def test_a_commit_that_deletes_the_file_is_no_version(clone: Path) -> None:
    git_at(clone, "2026-02-01", "rm", "-q", UPSTREAM.path)
    git_at(clone, "2026-02-01", "commit", "-q", "-m", "gone")
    assert len(open_history(f"git:{clone}", UPSTREAM).versions) == 3


def test_a_shallow_clone_is_blocked_and_says_how_to_get_the_rest(clone: Path, tmp_path: Path) -> None:
    git_at(tmp_path, "2026-01-01", "clone", "-q", "--depth", "1", clone.as_uri(), "shallow")
    with pytest.raises(Blocked) as error:
        open_history(f"git:{tmp_path / 'shallow'}", UPSTREAM)
    assert "--unshallow" in error.value.try_


def test_sources_without_a_history_are_refused(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(BadInput, match="plain folder"):
        open_history(f"dir:{tmp_path / 'plain'}", UPSTREAM)
    with pytest.raises(BadInput, match=r"no commit with vllm_ascend/other\.py"):
        open_history(f"git:{clone}", Upstream("vllm_ascend/other.py", "X"))
    with pytest.raises(BadInput, match="no commit 'nowhere'"):
        open_history(f"git:{clone}@nowhere", UPSTREAM)
    assert len(open_history(f"dir:{clone}", UPSTREAM).versions) == 3


def test_a_second_run_reads_no_blob(clone: Path) -> None:
    first = open_history(f"git:{clone}", UPSTREAM)
    first.prepare([RUN])
    first.save()
    assert first.fetched == 3
    again = open_history(f"git:{clone}", UPSTREAM)
    again.prepare([RUN])
    assert again.fetched == 0
    assert [again.keys(v, RUN) for v in again.versions] == [first.keys(v, RUN) for v in first.versions]
    assert again.fetched == 0


def test_other_methods_are_learned_without_reading_all_again(clone: Path) -> None:
    first = open_history(f"git:{clone}", UPSTREAM)
    first.prepare([RUN])
    first.save()
    again = open_history(f"git:{clone}", UPSTREAM)
    again.prepare([RUN, "NPUModelRunner.stop"])
    assert again.fetched == 2  # stop has two texts


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"made_by": 0}', "\x00\xff", '{"made_by":'])
def test_a_broken_cache_is_made_again(clone: Path, content: str) -> None:
    first = open_history(f"git:{clone}", UPSTREAM)
    first.prepare([RUN])
    first.save()
    whole = cache_file().read_text()
    cache_file().write_text(content, encoding="latin-1")
    again = open_history(f"git:{clone}", UPSTREAM)
    again.prepare([RUN])
    again.save()
    assert again.fetched == 3
    assert cache_file().read_text() == whole


def test_a_cache_of_wrong_shape_is_made_again(clone: Path) -> None:
    first = open_history(f"git:{clone}", UPSTREAM)
    first.prepare([RUN])
    first.save()
    cache_file().write_text(cache_file().read_text().replace('"blobs":{', '"blobs":{"x":[999],'))
    again = open_history(f"git:{clone}", UPSTREAM)
    again.prepare([RUN])
    assert again.fetched == 3


def test_a_cache_made_by_other_code_is_made_again(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_history(f"git:{clone}", UPSTREAM)
    first.prepare([RUN])
    first.save()
    monkeypatch.setattr(history_cache, "code_digest", lambda *rooms: "other")
    again = open_history(f"git:{clone}", UPSTREAM)
    again.prepare([RUN])
    assert again.fetched == 3


def test_a_cache_that_cannot_be_written_is_no_error(clone: Path) -> None:
    history = open_history(f"git:{clone}", UPSTREAM)
    history.prepare([RUN])
    cache_root().mkdir(parents=True)
    (cache_root() / "lineage").write_text("a file in the way")
    history.save()


def test_the_index_gives_releases_by_date_and_fetches_only_what_is_read(server) -> None:  # noqa: F811
    publish(
        server,
        {
            "0.2.0rc1": ("2026-02-01", upstream_source({"run": steps(8)})),
            "0.1.0": ("2026-03-01", upstream_source({"run": steps(8, _1="old")})),
            "0.3.0rc1": ("2026-04-01", upstream_source({"run": steps(8, _2="new")})),
        },
    )
    history = open_history("pypi:vllm-ascend==0.3.0rc1", UPSTREAM)
    assert [version.label for version in history.versions] == ["0.2.0rc1", "0.1.0", "0.3.0rc1"]
    assert history.target == history.versions[-1]
    assert history.lazy
    history.prepare([RUN])
    assert downloads(server) == set()
    assert history.unit(history.versions[1], "run") == body("run", steps(8, _1="old"))
    assert downloads(server) == {"0.1.0"}
    assert history.versions[1].spec == "pypi:vllm-ascend==0.1.0"


def test_an_index_without_dates_keeps_the_order_of_numbers(server) -> None:  # noqa: F811
    source = upstream_source({"run": steps(8)})
    publish(server, {"0.10.0": ("", source), "0.9.0": ("", source)})
    history = open_history("pypi:vllm-ascend", UPSTREAM)
    assert [(version.label, version.date) for version in history.versions] == [
        ("0.9.0", None),
        ("0.10.0", None),
    ]
    assert history.target is None


def test_a_release_that_does_not_exist_is_refused(server) -> None:  # noqa: F811
    publish(server, {"0.1.0": ("2026-01-01", "")})
    with pytest.raises(BadInput, match=r"no release 9\.9"):
        open_history("pypi:vllm-ascend==9.9", UPSTREAM)
