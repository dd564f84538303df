"""Packs travel; nothing that was changed on the way is taken over."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from drawn import examples
from evidence_kit import add_run
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from npu_upgrade.cli.main import main
from npu_upgrade.evidence.manifest import is_plain
from npu_upgrade.evidence.pack import pack
from npu_upgrade.evidence.store import Store
from npu_upgrade.evidence.unpack import take
from npu_upgrade.ground.errors import BadInput

Members = dict[str, bytes]


@pytest.fixture
def packed(tmp_path: Path) -> tuple[Path, str]:
    store = Store(tmp_path / "there")
    id = add_run(store, tmp_path / "log")
    return pack(store, [id], tmp_path / "pack.tar.gz"), id


def rewritten(source: Path, change: Callable[[Members], None]) -> Path:
    with tarfile.open(source) as archive:
        members = {one.name: archive.extractfile(one).read() for one in archive}  # ty: ignore
    change(members)
    target = source.with_name("changed.tar.gz")
    with tarfile.open(target, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return target


def refused(source: Path, tmp_path: Path) -> str:
    here = Store(tmp_path / "here")
    with pytest.raises(BadInput) as caught:
        take(here, source)
    assert here.records() == {}
    assert list(here.runs.iterdir()) == []
    assert caught.value.expected
    assert caught.value.try_
    return caught.value.what


def test_a_pack_is_taken_over_once(packed: tuple[Path, str], tmp_path: Path) -> None:
    source, id = packed
    here = Store(tmp_path / "here")
    assert take(here, source) == ([id], [])
    assert take(here, source) == ([], [id])
    assert here.problems(here.find(id)[0]) == []
    record = here.find(id)[0]
    assert record.data["imported"] == Store(tmp_path / "there").find(id)[0].id


def test_the_same_run_gives_the_same_pack(packed: tuple[Path, str], tmp_path: Path) -> None:
    source, id = packed
    assert (
        pack(Store(tmp_path / "there"), [id], tmp_path / "again.tar.gz").read_bytes() == source.read_bytes()
    )


def test_a_changed_run_is_not_packed(packed: tuple[Path, str], tmp_path: Path) -> None:
    there = Store(tmp_path / "there")
    (there.find(packed[1])[1] / "server.log").write_text("INFO all fine\n", "utf-8")
    with pytest.raises(BadInput, match=r"server\.log was changed"):
        pack(there, [packed[1]], tmp_path / "again.tar.gz")
    assert not (tmp_path / "again.tar.gz").exists()


def test_tampering_is_named(packed: tuple[Path, str], tmp_path: Path) -> None:
    source, id = packed
    log = f"runs/{id}/server.log"

    def edit_log(members: Members) -> None:
        members[log] += b"x"

    def drop_log(members: Members) -> None:
        del members[log]

    def edit_line(members: Members) -> None:
        index = json.loads(members["pack.json"])
        index["records"][0]["verdict"] = "FAIL"
        members["pack.json"] = json.dumps(index).encode()

    def edit_manifest(members: Members) -> None:
        members[f"runs/{id}/manifest.json"] += b" "

    def add_folder(members: Members) -> None:
        members["runs/other/server.log"] = b""

    def drop_index(members: Members) -> None:
        del members["pack.json"]

    for change, why in [
        (edit_log, "server.log was changed"),
        (drop_log, "server.log is missing"),
        (edit_line, "ledger line"),
        (edit_manifest, "manifest"),
        (add_folder, "do not agree: other"),
        (drop_index, "not the index"),
    ]:
        assert why in refused(rewritten(source, change), tmp_path)


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "runs/../../evil", "runs/./x", "C:/evil", "runs/a\\b", "other"]
)
def test_names_that_lead_out_are_refused(name: str, packed: tuple[Path, str], tmp_path: Path) -> None:
    def add(members: Members) -> None:
        members[name] = b"x"

    assert "leads out" in refused(rewritten(packed[0], add), tmp_path)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_links_and_devices_are_refused(kind: bytes, tmp_path: Path) -> None:
    target = tmp_path / "links.tar.gz"
    with tarfile.open(target, "w:gz") as archive:
        info = tarfile.TarInfo("runs/x")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    assert "no plain file" in refused(target, tmp_path)


def test_a_pack_without_a_manifest_is_refused(packed: tuple[Path, str], tmp_path: Path) -> None:
    source, id = packed
    target = tmp_path / "less.tar.gz"
    with tarfile.open(source) as whole, tarfile.open(target, "w:gz") as less:
        for member in whole:
            if not member.name.endswith("manifest.json"):
                less.addfile(member, whole.extractfile(member))
    assert f"files of {id} are not as they were recorded" in refused(target, tmp_path)


@settings(
    max_examples=examples(40),
    phases=[Phase.generate],  # a smaller damage says no more, and looking for one takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_damaged_pack_is_refused_or_whole(
    data: st.DataObject, packed: tuple[Path, str], tmp_path: Path
) -> None:
    source, id = packed
    raw = bytearray(source.read_bytes())
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    damaged = tmp_path / "damaged.tar.gz"
    damaged.write_bytes(raw[: data.draw(st.integers(place + 1, len(raw)))])
    here = Store(Path(tempfile.mkdtemp(dir=tmp_path)))  # a drawn name may come twice
    try:
        take(here, damaged)
    except BadInput:
        assert here.records() == {}
    else:
        assert here.problems(here.find(id)[0]) == []


@given(st.text(max_size=20))
def test_a_plain_name_stays_below(name: str) -> None:
    if is_plain(name):
        assert Path("/a/b", name).resolve().is_relative_to("/a/b")
        assert Path("/a/b", name) != Path("/a/b")


def test_the_command_from_pack_to_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def evidence(*argv: str) -> tuple[int, dict]:
        code = main("upgrade.py", "", ["evidence"], ["evidence", *argv, "--format", "json"])
        return code, json.loads(capsys.readouterr().out)

    one, two, target = tmp_path / "one", tmp_path / "two", str(tmp_path / "pack.tar.gz")
    id = add_run(Store(one / ".npu-upgrade" / "evidence"), tmp_path / "log")
    two.mkdir()
    assert evidence("list", "--workspace", str(one))[1]["runs"][0]["run"] == id
    assert evidence("show", id[:20], "--workspace", str(one))[1]["record"]["verdict"] == "PASS"
    assert evidence("pack", "--out", target, "--workspace", str(one))[0] == 0
    assert evidence("import", target, "--workspace", str(two))[1]["added"] == [id]
    assert evidence("check", "--workspace", str(two))[0] == 0
    (two / ".npu-upgrade" / "evidence" / "runs" / id / "server.log").write_text("other", "utf-8")
    code, said = evidence("check", "--workspace", str(two))
    assert (code, said["problems"]) == (1, {id: ["server.log was changed"]})
    assert evidence("pack", "--workspace", str(one))[0] == 2
    assert evidence("import", str(tmp_path / "none"), "--workspace", str(two))[0] == 2


@pytest.mark.parametrize("action", [["list"], ["check"]])
def test_reading_makes_nothing(action: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main("upgrade.py", "", ["evidence"], ["evidence", *action]) == 0
    assert list(tmp_path.iterdir()) == []
