from __future__ import annotations

import gzip
import io
import multiprocessing
import os
import stat
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sources_kit import SOURCES, cache_files, sdist, sha, wheel

from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.sources import archives, unpack
from npu_upgrade.sources.index import ReleaseFile

pytest_plugins = "sources_kit"
pytestmark = pytest.mark.usefixtures("clean_machine")
READ = {"README.md", "vllm_ascend/__init__.py", "vllm_ascend/worker/model_runner_v1.py"}


def release_file(filename, *, url="", hashes=None, size=None, yanked=False):
    kind = "wheel" if filename.endswith(".whl") else "sdist"
    return ReleaseFile("vllm-ascend", "1.0", filename, url, hashes or {}, size, None, yanked, kind)


@pytest.fixture
def offered(tmp_path):
    """A function that puts an archive on disk and gives the index's entry for it."""

    def offer(data, filename="vllm_ascend-1.0.tar.gz", **hashes):
        path = tmp_path / "offered" / filename
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return release_file(filename, url=path.as_uri(), hashes=hashes or {"sha256": sha(data)})

    return offer


def member(name, kind=tarfile.REGTYPE, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zipped(*members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, data in members:
            archive.writestr(info, data)
    return buffer.getvalue()


# --- choosing ---


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ({"a-1.0.tar.gz": 30, "a-1.0-py3-none-any.whl": 10}, "a-1.0.tar.gz"),
        ({"a-1.0.tar.gz": 31, "a-1.0-py3-none-any.whl": 10}, "a-1.0-py3-none-any.whl"),
        ({"a-1.0.tar.gz": None, "a-1.0-py3-none-any.whl": 10}, "a-1.0.tar.gz"),
        ({"a-1.0-cp311-cp311-linux_x86_64.whl": 9, "a-1.0-cp312-cp312-linux_x86_64.whl": 8}, "a-1.0-cp312"),
        ({"a-1.0-cp311-cp311-linux_x86_64.whl": None, "a-1.0-py3-none-any.whl": None}, "a-1.0-py3"),
    ],
)
def test_an_sdist_is_taken_unless_a_wheel_is_much_smaller(sizes, chosen):
    files = [release_file(name, size=size) for name, size in sizes.items()]
    assert archives.pick(files).filename.startswith(chosen)


def test_a_yanked_file_is_taken_only_when_all_are():
    yanked = release_file("a-1.0.tar.gz", size=1, yanked=True)
    good = release_file("a-1.0-py3-none-any.whl", size=9)
    assert archives.pick([yanked, good]) is good
    assert archives.pick([yanked]) is yanked


# --- unpacking what is right ---


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_an_sdist_loses_its_top_folder_and_keeps_what_matters(offered, mode):
    data = sdist(SOURCES | {"csrc/a.cpp": "int a;", "other/b.cpp": "", "Dockerfile.a3": "FROM x"}, mode=mode)
    archive = archives.unpacked(offered(data))
    assert set(archive.files) == READ | {"csrc/a.cpp", "Dockerfile.a3"}
    assert archive.sha256 == sha(data)
    assert archive.verified
    assert (
        (archive.root / "vllm_ascend/worker/model_runner_v1.py")
        .read_text()
        .startswith("class NPUModelRunner")
    )


def test_a_wheel_keeps_its_metadata(offered):
    archive = archives.unpacked(offered(wheel(SOURCES), "vllm_ascend-1.0-py3-none-any.whl"))
    info = {"vllm_ascend-1.0.dist-info/METADATA", "vllm_ascend-1.0.dist-info/RECORD"}
    assert set(archive.files) == READ | info


def test_a_zip_sdist_and_a_dot_folder_are_read(offered):
    data = zipped(("vllm_ascend-1.0/setup.py", ""), ("vllm_ascend-1.0/x/", ""))
    assert set(archives.unpacked(offered(data, "vllm_ascend-1.0.zip")).files) == {"setup.py"}
    dotted = sdist({"./": member("./", tarfile.DIRTYPE), "a.py": "x"}, top="./vllm_ascend-1.0/")
    assert set(archives.unpacked(offered(dotted)).files) == {"a.py"}


def test_links_inside_are_skipped_and_same_content_twice_is_fine(offered):
    more = {
        "link": member("vllm_ascend-1.0/sub/link.py", tarfile.SYMTYPE, "../a.py"),
        "hard": member("vllm_ascend-1.0/hard.py", tarfile.LNKTYPE, "vllm_ascend-1.0/a.py"),
    }
    assert set(archives.unpacked(offered(sdist({"a.py": "x"} | more))).files) == {"a.py"}
    twice = zipped(("a.py", "x"), (zipfile.ZipInfo("./a.py"), "x"))
    assert set(archives.unpacked(offered(twice, "vllm_ascend-1.0-py3-none-any.whl")).files) == {"a.py"}


def test_large_json_and_names_that_are_no_utf8_are_left_out(offered):
    data = sdist({"a.py": "x", "big.json": " " * unpack.MAX_JSON, "small.json": "{}", "\udcff.py": "x"})
    assert set(archives.unpacked(offered(data)).files) == {"a.py", "small.json"}


def test_it_is_done_once(offered, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("npu_upgrade.ground.progress._SELDOM", 0.0)
    file = offered(sdist(SOURCES))
    first = archives.unpacked(file)
    (tmp_path / "offered" / file.filename).unlink()
    assert archives.unpacked(file) == first
    assert capsys.readouterr().err.count("fetching") == 1


@pytest.mark.parametrize("damage", ["missing", "cut", "no manifest"])
def test_a_damaged_copy_is_done_again(offered, damage):
    file = offered(sdist(SOURCES))
    archive = archives.unpacked(file)
    target = archive.root / "README.md"
    if damage == "no manifest":
        (archive.root.parent / "archive.json").unlink()
    else:
        target.unlink()
    if damage == "cut":
        target.write_text("re")
    assert archives.cached(file) is None
    archives.unpacked(file)
    assert target.read_text() == "read me\n"


# --- hashes ---


@pytest.mark.parametrize("algorithm", ["sha256", "sha512", "blake2b"])
def test_a_wrong_hash_leaves_nothing(offered, tmp_path, algorithm):
    file = offered(sdist(SOURCES), **{algorithm: sha(b"other", algorithm)})
    with pytest.raises(BadInput, match="wrong hash"):
        archives.unpacked(file)
    assert cache_files(tmp_path) == []


def test_another_strong_hash_is_enough(offered, capsys):
    data = sdist(SOURCES)
    file = offered(data, sha512=sha(data, "sha512"))
    assert archives.unpacked(file).verified
    assert archives.cached(file).sha256 == sha(data)
    assert "unverified" not in capsys.readouterr().err


@pytest.mark.parametrize("hashes", [{}, {"md5": sha(b"whatever", "md5")}])
def test_without_a_strong_hash_it_is_noted_and_recorded(offered, capsys, hashes):
    file = release_file("vllm_ascend-1.0.tar.gz", url=offered(sdist(SOURCES)).url, hashes=hashes)
    assert not archives.unpacked(file).verified
    assert "unverified" in capsys.readouterr().err
    assert not archives.cached(file).verified


def test_a_hash_that_is_a_path_goes_nowhere(offered, tmp_path):
    with pytest.raises(BadInput):
        archives.unpacked(offered(sdist(SOURCES), sha256="../../escape"))
    assert cache_files(tmp_path) == []


# --- refusing what is wrong ---

TOP = "vllm_ascend-1.0/"
HOSTILE_TARS = {
    "absolute": {"x": member("/etc/x.py")},
    "parent": {"x": member(TOP + "../../x.py")},
    "parent of a file nobody reads": {"x": member("../x.so")},
    "folder above": {"x": member("../x", tarfile.DIRTYPE)},
    "link above": {"x": member("../x.py", tarfile.SYMTYPE, "a")},
    "backslash": {"x": member(TOP + "..\\x.py")},
    "drive": {"x": member("C:/x.py")},
    "control character": {"x": member(TOP + "a\nb.py")},
    "absolute link": {"x": member(TOP + "x.py", tarfile.SYMTYPE, "/etc/passwd")},
    "link to a parent": {"x": member(TOP + "x.py", tarfile.SYMTYPE, "../../passwd")},
    "hard link to a parent": {"x": member(TOP + "x.py", tarfile.LNKTYPE, "../passwd")},
    "device": {"x": member(TOP + "x.py", tarfile.CHRTYPE)},
    "pipe": {"x": member(TOP + "x.py", tarfile.FIFOTYPE)},
    "two top folders": {"x": member("other/x.py")},
    "file and folder of one name": {"a.py": "", "a.py/b.py": ""},
    "two contents": {"a.py": "one", "./a.py": "two"},
}


@pytest.mark.parametrize("name", HOSTILE_TARS)
def test_a_hostile_tar_is_refused_and_leaves_nothing(offered, tmp_path, name):
    before = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    file = offered(sdist({"setup.py": "ok"} | HOSTILE_TARS[name]))
    with pytest.raises(BadInput, match=r"refused vllm_ascend-1\.0\.tar\.gz"):
        archives.unpacked(file)
    assert cache_files(tmp_path) == []
    after = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    assert {path.name for path in after - before} == {"offered", file.filename}


def special(name, mode):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


@pytest.mark.parametrize(
    "member",
    [
        ("/x.py", ""),
        ("../x.py", ""),
        ("a/../../x.py", ""),
        ("C:\\x.py", ""),
        (special("x.py", stat.S_IFLNK | 0o777), "/etc/passwd"),
        (special("x.py", stat.S_IFLNK | 0o777), "../x"),
        (special("x.py", stat.S_IFIFO), ""),
    ],
)
def test_a_hostile_wheel_is_refused_and_leaves_nothing(offered, tmp_path, member):
    file = offered(zipped(("ok.py", ""), member), "vllm_ascend-1.0-py3-none-any.whl")
    with pytest.raises(BadInput, match="refused"):
        archives.unpacked(file)
    assert cache_files(tmp_path) == []


def test_a_nul_in_a_zip_name_is_refused(offered, tmp_path):
    data = zipped(("aXb.py", "x")).replace(b"aXb.py", b"a\0b.py")
    with pytest.raises(BadInput, match="unsafe member name"):
        archives.unpacked(offered(data, "vllm_ascend-1.0-py3-none-any.whl"))


@pytest.mark.parametrize("keep", [0, 1, 10, 100, -1, -9, -30])
@pytest.mark.parametrize("kind", ["tar.gz", "whl"])
def test_a_truncated_archive_is_refused(offered, tmp_path, keep, kind):
    files = {f"m{number}.py": os.urandom(200).hex() for number in range(20)}
    data = sdist(files) if kind == "tar.gz" else wheel(files)
    name = "vllm_ascend-1.0.tar.gz" if kind == "tar.gz" else "vllm_ascend-1.0-py3-none-any.whl"
    with pytest.raises(BadInput, match="refused"):
        archives.unpacked(offered(data[:keep], name))
    assert cache_files(tmp_path) == []


def test_a_flipped_bit_is_refused_even_without_a_hash(offered, tmp_path):
    data = bytearray(wheel({"a.py": os.urandom(5000).hex()}))
    data[1000] ^= 1
    file = offered(bytes(data), "vllm_ascend-1.0-py3-none-any.whl")
    with pytest.raises(BadInput, match="damaged"):
        archives.unpacked(release_file(file.filename, url=file.url))
    assert cache_files(tmp_path) == []


BOMBS = {
    "an unread member": lambda: sdist({"a.py": "", "zeros.bin": "\0" * (30 << 20)}),
    "one large file": lambda: zipped(("a.py", "\0" * (2 << 20))),
    "large files together": lambda: zipped(("a.py", "\0" * (1 << 20)), ("b.py", "\0" * (1 << 20))),
    "many in a zip": lambda: zipped(*((f"{number}.py", "") for number in range(60))),
    "many in a tar": lambda: sdist({f"{number}.py": "" for number in range(60)}),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_refused(offered, tmp_path, monkeypatch, bomb):
    limits = {"MAX_SLACK": 1 << 20, "MAX_FILE": 1 << 20, "MAX_WRITTEN": 3 << 19, "MAX_MEMBERS": 50}
    for name, value in limits.items():
        monkeypatch.setattr(unpack, name, value)
    data = BOMBS[bomb]()
    name = "vllm_ascend-1.0-py3-none-any.whl" if data.startswith(b"PK") else "vllm_ascend-1.0.tar.gz"
    with pytest.raises(BadInput, match=r"more than|has 6\d members"):
        archives.unpacked(offered(data, name))
    assert cache_files(tmp_path) == []


def test_an_archive_without_sources_or_of_another_kind_is_refused(offered, tmp_path):
    for data in (sdist({"a.so": ""}), b"<html>not found</html>", gzip.compress(b"no tar")):
        with pytest.raises(BadInput, match="refused"):
            archives.unpacked(offered(data))
    assert cache_files(tmp_path) == []


@given(st.text(st.sampled_from("ab./\\:C\0\n é\u3000"), max_size=12))
def test_no_accepted_name_leaves_the_folder(name):
    try:
        path = unpack.safe_path(name, "x")
    except BadInput:
        return
    assert not path.is_absolute()
    assert ".." not in path.parts
    inside = os.path.normpath(f"/top/{path}")
    assert inside == "/top" or inside.startswith("/top/")
    assert "\\" not in name


@given(
    st.lists(st.sampled_from(["..", "a", "b.py", ".", "", "/", "C:", "c\\d.py"]), min_size=1, max_size=5),
    st.sampled_from([tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE]),
    st.sampled_from(["", "a", "../x", "../../x", "/x"]),
)
def test_no_tar_writes_outside_its_folder(parts, kind, target):
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        (top / "in").mkdir()
        (top / "archive").write_bytes(sdist({"ok.py": "", "x": member("/".join(parts) or "e", kind, target)}))
        try:
            files = unpack.unpack(top / "archive", top / "in", label="x", strip_top=False)
        except BadInput:
            files = {}
        written = {path for path in top.rglob("*") if not path.is_dir()} - {top / "archive"}
        assert all(path.is_relative_to(top / "in") and not path.is_symlink() for path in written)
        assert all((top / "in" / path).is_file() for path in files)


def test_what_matters():
    kept = [
        "a.py",
        "x/Dockerfile.a2",
        "p-1.dist-info/entry_points.txt",
        "csrc/k/a.h",
        ".vllm.commit",
        "x.yml",
    ]
    assert all(unpack.matters(PurePosixPath(path), 1) for path in kept)
    assert not any(
        unpack.matters(PurePosixPath(path), 1) for path in ["a.so", "include/a.h", "csrc", "x.png"]
    )


# --- downloading, and two at once ---


def test_a_download_over_http_is_kept_and_a_missing_one_is_blocked(server, tmp_path):
    data = sdist(SOURCES)
    server.file("vllm_ascend-1.0.tar.gz", data)
    url = f"{server.url}/files/vllm_ascend-1.0.tar.gz"
    file = release_file("vllm_ascend-1.0.tar.gz", url=url, hashes={"sha256": sha(data)})
    assert set(archives.unpacked(file).files) == READ
    gone = release_file("gone-1.0.tar.gz", url=f"{server.url}/files/gone-1.0.tar.gz?token=s3cret")
    with pytest.raises(Blocked) as caught:
        archives.unpacked(gone)
    assert "s3cret" not in str(caught.value)
    assert len([name for name in cache_files(tmp_path) if "/" not in name]) == 1


def test_a_download_cut_short_is_tried_again_and_leaves_nothing(server, tmp_path):
    data = sdist(SOURCES)
    headers = {"Content-Length": str(len(data) + 10)}
    server.answers["/files/a.tar.gz"] = (200, headers | {"Connection": "close"}, data)
    file = release_file("vllm_ascend-1.0.tar.gz", url=f"{server.url}/files/a.tar.gz")
    with pytest.raises(Blocked, match=r"cannot read .*/files/a\.tar\.gz"):
        archives.unpacked(file)
    assert len(server.requests) == 3
    assert cache_files(tmp_path) == []


def test_a_cache_that_cannot_be_written_is_blocked(offered, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(Blocked, match="cannot write the cache folder"):
        archives.unpacked(offered(sdist(SOURCES)))


def _unpack_when_told(file, barrier, results):
    barrier.wait()
    results.put(sorted(archives.unpacked(file).files))


def test_two_processes_at_once_do_not_corrupt_the_cache(offered, tmp_path):
    file = offered(sdist(SOURCES | {f"m{number}.py": "x" * 1000 for number in range(300)}))
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(3), context.Queue()
    workers = [context.Process(target=_unpack_when_told, args=(file, barrier, results)) for _ in range(3)]
    for worker in workers:
        worker.start()
    answers = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0]) == 303
    assert [name for name in cache_files(tmp_path) if "/" not in name] == [file.hashes["sha256"]]


def test_what_a_killed_run_left_is_cleared_after_a_day(offered, tmp_path):
    store = tmp_path / "cache" / "npu-upgrade" / "archives"
    for name in (".unfinished-old", ".unfinished-new"):
        (store / name / "finished").mkdir(parents=True)
    os.utime(store / ".unfinished-old", (0, 0))
    archives.unpacked(offered(sdist(SOURCES)))
    assert sorted(path.name for path in store.glob(".unfinished-*")) == [".unfinished-new"]
