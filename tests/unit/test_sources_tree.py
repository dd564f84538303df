from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from sources_kit import SOURCES, commit, git, html, link, sdist, sha, wheel

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources import archives
from npu_upgrade.sources.git import Repo
from npu_upgrade.sources.spec import Spec
from npu_upgrade.sources.tree import open_source

pytest_plugins = "sources_kit"
pytestmark = pytest.mark.usefixtures("clean_machine")
RUNNER = "vllm_ascend/worker/model_runner_v1.py"
ESCAPES = ["../outside.py", "/etc/passwd", "vllm_ascend/../../outside.py", "", ".", "vllm_ascend"]


def publish(server, data=None, attributes=""):
    data = data or sdist(SOURCES)
    name = "vllm_ascend-1.0.tar.gz" if data[:2] == b"\x1f\x8b" else "vllm_ascend-1.0-py3-none-any.whl"
    server.page("vllm-ascend", html(link(name, data, attributes=attributes)))
    server.file(name, data)
    return data


@pytest.fixture(params=["pypi sdist", "pypi wheel", "git", "dir"])
def tree(request, server, tmp_path):
    """The same sources, opened in each way."""
    (tmp_path / "outside.py").write_text("secret")
    if request.param.startswith("pypi"):
        publish(server, wheel(SOURCES) if "wheel" in request.param else None)
        return open_source("pypi:vllm-ascend==1.0")
    made = commit(tmp_path / "source", SOURCES)
    return open_source(
        f"git:{tmp_path}/source@{made}" if request.param == "git" else f"dir:{tmp_path}/source"
    )


def test_every_kind_of_source_reads_the_same(tree):
    assert tree.project == "vllm-ascend"
    assert tree.read(RUNNER) == SOURCES[RUNNER]
    assert tree.list("vllm_ascend/worker") == tree.list("vllm_ascend/worker/") == [RUNNER]
    assert tree.list(RUNNER) == [RUNNER]
    assert tree.list("vllm") == tree.list("none") == tree.list("..") == tree.list("/etc") == []
    assert tree.list() == sorted(tree.list())
    assert {"README.md", RUNNER} < set(tree.list())
    assert not any(path.startswith(("/", ".", "vllm_ascend-1.0/")) for path in tree.list())
    assert json.loads(json.dumps(tree.identity()))["spec"] == tree.spec


@pytest.mark.parametrize("path", ["none.py", *ESCAPES])
def test_what_is_not_there_is_bad_input(tree, path):
    assert not tree.exists(path)
    with pytest.raises(BadInput, match="no file"):
        tree.read(path)


def test_a_release_is_identified_by_its_archive(server):
    data = publish(server, attributes='data-upload-time="2026-01-02T03:04:05Z"')
    tree = open_source(Spec("pypi", project="vllm-ascend", version="1.0"))
    assert tree.identity() == {
        "spec": "pypi:vllm-ascend==1.0",
        "requested": "pypi:vllm-ascend==1.0",
        "project": "vllm-ascend",
        "version": "1.0",
        "sha": None,
        "archive_sha256": sha(data),
        "dirty": None,
        "verified": True,
        "date": "2026-01-02T03:04:05+00:00",
    }


def test_dist_info_of_a_wheel_is_listed(server):
    publish(server, wheel(SOURCES))
    assert "vllm_ascend-1.0.dist-info/METADATA" in open_source("pypi:vllm-ascend==1.0").list()


def test_a_release_needs_a_version_and_a_yanked_one_is_noted(server, capsys):
    with pytest.raises(BadInput, match="no version"):
        open_source(Spec("pypi", project="vllm-ascend"))
    publish(server, attributes="data-yanked")
    open_source("pypi:vllm-ascend==1.0")
    assert "yanked" in capsys.readouterr().err


def test_a_file_gone_from_the_cache_is_bad_input_and_comes_back(server):
    publish(server)
    tree = open_source("pypi:vllm-ascend==1.0")
    shutil.rmtree(tree.root)
    with pytest.raises(BadInput, match="cannot read"):
        tree.read(RUNNER)
    assert open_source("pypi:vllm-ascend==1.0").read(RUNNER) == SOURCES[RUNNER]


def test_a_branch_is_recorded_as_its_commit(tmp_path):
    folder = tmp_path / "clone"
    first = commit(folder, SOURCES)
    git(folder, "tag", "v0.2.0rc1")
    git(folder, "tag", "nightly")
    second = commit(folder, {"new.py": ""})
    tree = open_source(f"git:{folder}@main")
    assert tree.spec == f"git:{folder}@{second}"
    assert tree.requested == f"git:{folder}@main"
    assert (tree.sha, tree.version, tree.root) == (second, None, None)
    tagged = open_source(f"git:{folder}@v0.2.0rc1")
    assert (tagged.sha, tagged.version) == (first, "0.2.0rc1")
    assert tagged.date.isoformat() == "2026-01-02T03:04:05+00:00"
    assert not tagged.exists("new.py")
    assert open_source(tree.spec).identity() | {"requested": ""} == tree.identity() | {"requested": ""}


def test_many_files_of_a_commit_are_read_with_few_calls_of_git(tmp_path, monkeypatch):
    texts = {f"vllm/m{number}.py": f"A = {number}\n" for number in range(60)}
    commit(tmp_path, texts)
    tree = open_source(f"git:{tmp_path}@HEAD")
    calls, real = [], Repo._git
    monkeypatch.setattr(Repo, "_git", lambda *args, **named: (calls.append(args), real(*args, **named))[1])
    assert {path: tree.read(path) for path in texts} == texts
    assert len(calls) < 30


def test_a_checkout_tells_its_commit_and_whether_it_is_dirty(tmp_path):
    folder = tmp_path / "checkout"
    made = commit(folder, SOURCES)
    clean = open_source(f"dir:{folder}")
    assert (clean.sha, clean.dirty) == (made, False)
    assert clean.date is not None
    (folder / "untracked.py").write_text("")
    dirty = open_source(f"dir:{folder}")
    assert (dirty.sha, dirty.dirty, dirty.date) == (made, True, None)
    assert not any(path.startswith(".git") for path in dirty.list())


def test_a_checkout_whose_git_is_broken_is_still_a_folder(tmp_path, capsys):
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("")
    (tmp_path / ".git").write_text("gitdir: /nonexistent\n")
    tree = open_source(f"dir:{tmp_path}")
    assert (tree.project, tree.sha, tree.dirty) == ("vllm", None, None)
    assert "is unknown" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("PKG-INFO", "Metadata-Version: 2.1\nName: vllm-ascend\nVersion: 0.18.0rc1\n"),
        ("vllm_ascend-0.18.0rc1.dist-info/METADATA", "Version: 0.18.0rc1\n"),
        ("vllm_ascend.egg-info/PKG-INFO", "Version: 0.18.0rc1\n"),
        ("vllm_ascend/_version.py", "__version__ = version = '0.18.0rc1'\n"),
        ("vllm_ascend/_version.py", '__version__: str\n__version__ = "0.18.0rc1"\n'),
    ],
)
def test_a_folder_states_its_version_as_text(tmp_path, path, text):
    for name, content in {
        "vllm_ascend/__init__.py": "",
        "numpy-9.dist-info/METADATA": "Version: 9\n",
        path: text,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert open_source(f"dir:{tmp_path}").version == "0.18.0rc1"


def test_links_are_followed_only_inside_the_folder(tmp_path):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret.py").write_text("secret")
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "x.py").write_text("secret")
    (folder / "a.py").write_text("a")
    (folder / "sub" / "in.py").symlink_to("../a.py")
    (folder / "out.py").symlink_to(tmp_path / "secret.py")
    (folder / "out").symlink_to(tmp_path / "else")
    (folder / "loop").symlink_to(".")
    (folder / "dead.py").symlink_to("none")
    os.mkfifo(folder / "pipe.py")
    tree = open_source(f"dir:{folder}")
    assert tree.list() == ["a.py", "sub/in.py"]
    assert tree.read("sub/in.py") == "a"
    assert tree.list("out") == []
    for path in ("out.py", "out/x.py", "dead.py", "pipe.py"):
        with pytest.raises(BadInput, match="no file"):
            tree.read(path)


def test_a_folder_that_is_none_and_bytes_that_are_no_text(tmp_path):
    with pytest.raises(BadInput, match="no folder"):
        open_source(f"dir:{tmp_path}/none")
    (tmp_path / "x.py").write_bytes(b"\xff")
    with pytest.raises(BadInput, match=r"x\.py is not UTF-8"):
        open_source(f"dir:{tmp_path}").read("x.py")


def test_opening_again_unpacks_nothing_and_reads_no_file_of_the_tree(server, monkeypatch):
    publish(server, sdist(SOURCES))
    first = open_source("pypi:vllm-ascend==1.0")
    monkeypatch.setattr(archives, "unpack", lambda *args, **options: pytest.fail("unpacked again"))
    read = Path.read_bytes
    monkeypatch.setattr(
        Path,
        "read_bytes",
        lambda path: pytest.fail(f"{path} was read") if "files" in path.parts else read(path),
    )
    assert open_source("pypi:vllm-ascend==1.0").spec == first.spec
