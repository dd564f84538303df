from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sources_kit import html, link, sha, wheel

from npu_upgrade.ground import pipconfig
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.sources import index
from npu_upgrade.sources.index import UnreadablePage, parse_page, project_files, releases_of

pytest_plugins = "sources_kit"
pytestmark = pytest.mark.usefixtures("clean_machine")
JSON = "application/vnd.pypi.simple.v1+json"
WHEEL = "vllm_ascend-1.0-py3-none-any.whl"


def entry(filename, **more):
    return {"filename": filename, "url": f"../../files/{filename}", "hashes": {}} | more


# --- configuration ---


def test_default_index_is_pypi():
    assert [found.url for found in pipconfig.indexes()] == [pipconfig.DEFAULT_INDEX]


def test_environment_wins_over_files_and_extra_indexes_follow(clean_machine, monkeypatch):
    monkeypatch.delenv("PIP_CONFIG_FILE")
    config = clean_machine / "pip" / "pip.conf"
    config.parent.mkdir()
    config.write_text(
        "[global]\nindex-url = https://a/simple/\nextra-index-url =\n  https://b/x\n  https://c\n"
    )
    assert [found.url for found in pipconfig.indexes()] == ["https://a/simple", "https://b/x", "https://c"]
    monkeypatch.setenv("PIP_INDEX_URL", "https://d/simple")
    monkeypatch.setenv("UV_EXTRA_INDEX_URL", "named=https://e https://b/x")
    assert [f.url for f in pipconfig.indexes()] == [
        "https://d/simple",
        "https://b/x",
        "https://c",
        "https://e",
    ]


def test_later_files_and_the_install_section_win(clean_machine, tmp_path, monkeypatch):
    old = clean_machine / ".pip" / "pip.conf"
    old.parent.mkdir()
    old.write_text("[global]\nindex_url = https://old/simple\ncert = /old.pem\n")
    chosen = tmp_path / "chosen.conf"
    chosen.write_text(
        "[global]\nindex-url = https://global/simple\n[install]\nindex-url = https://install/simple\n"
    )
    monkeypatch.delenv("PIP_CONFIG_FILE")
    assert (pipconfig.indexes()[0].url, pipconfig.ca_bundle()) == ("https://old/simple", "/old.pem")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(chosen))
    assert pipconfig.indexes()[0].url == "https://install/simple"
    assert pipconfig.ca_bundle() is None, "with PIP_CONFIG_FILE pip does not read the user's files"


def test_environments_own_pip_conf_is_read(tmp_path, monkeypatch):
    monkeypatch.delenv("PIP_CONFIG_FILE")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://site/simple\n")
    assert pipconfig.indexes()[0].url == "https://site/simple"


def test_no_index_is_blocked_with_the_way_out(monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(Blocked, match="switched off"):
        project_files("vllm-ascend")


@pytest.mark.parametrize("password", ["s3cret", "s3cret%40x", "s3cret@x", ":s3cret:"])
def test_credentials_are_redacted_whatever_they_look_like(password):
    shown = pipconfig.redact(f"cannot read https://me:{password}@host:8443/simple/x and http://a/b")
    assert shown == "cannot read https://***@host:8443/simple/x and http://a/b"


# --- pages ---


def test_html_and_json_pages_tell_the_same(server):
    page = f"{server.url}/simple/vllm-ascend/"
    when = "2026-06-30T14:06:58.555259Z"
    attributes = f'data-yanked="bad" data-upload-time="{when}"'
    body = html(link(WHEEL, b"x", f"../../files/{WHEEL}", attributes)).decode()
    more = {"hashes": {"sha256": sha(b"x")}, "yanked": "bad", "upload-time": when}
    files = json.dumps({"files": [entry(WHEEL, **more)]})
    from_html = parse_page("vllm-ascend", "text/html; charset=utf-8", body, page)
    assert from_html == parse_page("vllm-ascend", JSON, files, page)
    (file,) = from_html
    assert file.url == f"{server.url}/files/{WHEEL}"
    assert (file.version, file.kind, file.yanked, file.size) == ("1.0", "wheel", True, None)
    assert file.upload_time == datetime(2026, 6, 30, 14, 6, 58, 555259, UTC)


def test_base_href_and_foreign_or_unusable_links():
    body = html(
        '<base href="https://cdn.example/deep/page">',
        link("vllm_ascend-1.0.tar.gz", href="../f/vllm_ascend-1.0.tar.gz"),
        link("vllm_ascend-2.0-py3.9.egg"),
        link("other-1.0.tar.gz"),
        link("vllm_ascend-x.y.tar.gz"),
        link("vllm_ascend-3.0.tar.gz", href="file:///etc/vllm_ascend-3.0.tar.gz"),
        "<a>no link</a>",
    ).decode()
    (file,) = parse_page("vllm-ascend", "text/html", body, "https://host/simple/vllm-ascend/")
    assert file.url == "https://cdn.example/f/vllm_ascend-1.0.tar.gz"


def test_base_href_cannot_point_a_page_of_the_network_at_local_files():
    body = html('<base href="file:///etc/">', link("vllm_ascend-1.0.tar.gz", href="vllm_ascend-1.0.tar.gz"))
    with pytest.raises(UnreadablePage):
        parse_page("vllm-ascend", "text/html", body.decode(), "https://host/simple/vllm-ascend/")


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/html", "<html><form>please log in</form></html>"),
        ("text/plain", "hello"),
        ("", ""),
        (JSON, "{"),
        (JSON, "[]"),
        (JSON, '{"files": {}}'),
        ("application/json", '{"message": "forbidden"}'),
    ],
)
def test_what_is_no_index_page_is_named(content_type, body):
    with pytest.raises(UnreadablePage):
        parse_page("vllm-ascend", content_type, body, "https://host/simple/vllm-ascend/")


TIMES = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(lambda time: time.replace(tzinfo=UTC))
FILES = st.tuples(
    st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}((a|b|rc)[0-9]{1,2})?(\.post[0-9])?", fullmatch=True),
    st.sampled_from(["-py3-none-any.whl", "-cp311-cp311-linux_x86_64.whl", ".tar.gz", ".zip"]),
    st.binary(min_size=32, max_size=32).map(bytes.hex),
    st.booleans(),
    st.none() | TIMES,
)


@given(st.lists(FILES, min_size=1, max_size=5))
def test_both_page_formats_give_back_what_was_put_in(rows):
    url = "https://host/simple/vllm-ascend/"
    anchors, entries = [], []
    for version, ending, digest, yanked, time in rows:
        name = f"vllm_ascend-{version}{ending}"
        when = time and time.isoformat()
        attributes = ' data-yanked=""' * yanked + (f' data-upload-time="{escape(when)}"' if when else "")
        anchors.append(f'<a href="../../p/{name}#sha256={digest}"{attributes}>{name}</a>')
        more = {"url": f"../../p/{name}", "hashes": {"sha256": digest}, "yanked": yanked, "upload-time": when}
        entries.append(entry(name, **more))
    from_html = parse_page("vllm-ascend", "text/html", html(*anchors).decode(), url)
    from_json = parse_page("vllm-ascend", JSON, json.dumps({"files": entries}), url)
    assert from_html == from_json
    assert [(f.hashes["sha256"], f.yanked, f.upload_time) for f in from_html] == [row[2:] for row in rows]
    assert [f.url for f in from_html] == [f"https://host/p/{f.filename}" for f in from_html]


# --- asking an index ---


def test_releases_are_sorted_as_versions_and_dated_by_their_first_file(server):
    first, second = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    names = ["vllm_ascend-0.10.0.tar.gz", "vllm_ascend-0.9.1-py3-none-any.whl", "vllm_ascend-0.9.1.tar.gz"]
    names.append("vllm_ascend-0.10.0rc1.tar.gz")
    more = [{}, {"upload-time": second}, {"upload-time": first, "yanked": True}, {"yanked": "broken"}]
    files = [entry(name, size=1, **extra) for name, extra in zip(names, more, strict=True)]
    server.page("vllm-ascend", json.dumps({"files": files}).encode(), JSON)
    found = releases_of("vllm_ascend")
    assert [release.version for release in found] == ["0.9.1", "0.10.0rc1", "0.10.0"]
    assert [release.yanked for release in found] == [False, True, False]
    assert [release.prerelease for release in found] == [False, True, False]
    assert found[0].date == datetime(2026, 1, 1, tzinfo=UTC)
    assert found[2].date is None
    assert len(found[0].files) == 2


def test_dates_and_sizes_come_from_the_json_api_when_the_page_has_none(server):
    server.page("vllm-ascend", html(link(WHEEL)))
    rows = {"1.0": [{"filename": WHEEL, "size": 7, "upload_time_iso_8601": "2026-01-01T00:00:00Z"}]}
    server.answers["/pypi/vllm-ascend/json"] = (200, {}, json.dumps({"releases": rows}).encode())
    (file,) = project_files("vllm-ascend")
    assert (file.size, file.upload_time) == (7, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("answer", [(404, {}, b""), (200, {}, b"<html>"), (200, {}, b"[]"), (503, {}, b"")])
def test_without_a_json_api_dates_stay_unknown(server, answer):
    server.page("vllm-ascend", html(link(WHEEL)))
    server.answers["/pypi/vllm-ascend/json"] = answer
    assert project_files("vllm-ascend")[0].upload_time is None


def test_two_indexes_are_joined_and_a_missing_project_on_one_is_normal(server, tmp_path, monkeypatch):
    folder = tmp_path / "local" / "simple"
    (folder / "vllm-ascend").mkdir(parents=True)
    name = "vllm_ascend-2.0.tar.gz"
    page = html(link(name, b"x", f"../../files/{name}"), link(WHEEL, b"y", "../w.whl"))
    (folder / "vllm-ascend" / "index.html").write_bytes(page)
    server.page("vllm-ascend", html(link(WHEEL, b"x")))
    server.page("vllm-omni", html(link("vllm_omni-1.0.tar.gz")))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", folder.as_uri())
    files = {file.filename: file for file in project_files("vllm-ascend")}
    assert set(files) == {WHEEL, name}
    assert files[name].url == (tmp_path / "local" / "files" / name).as_uri()
    assert files[WHEEL].hashes == {"sha256": sha(b"x")}, "the main index wins"
    assert len(project_files("vllm-omni")) == 1


def test_a_project_nobody_has_is_bad_input(server):
    with pytest.raises(BadInput, match="no package vllm-nothing"):
        project_files("vllm-nothing")


def test_an_unknown_version_names_the_nearest(server):
    names = [f"vllm_ascend-{version}.tar.gz" for version in ("0.9.1", "0.22.0rc1", "0.22.1rc1", "0.23.0")]
    server.page("vllm-ascend", html(*map(link, names)))
    with pytest.raises(BadInput) as caught:
        index.release("vllm-ascend", "0.22.0")
    assert "0.22.0rc1, 0.22.1rc1" in caught.value.expected


@pytest.mark.parametrize(
    "answer",
    [
        (401, {}, b"who?"),
        (403, {"Content-Type": "text/html"}, b"no"),
        (200, {"Content-Type": "text/html"}, b"<html><form>log in</form></html>"),
        (200, {"Content-Type": "text/plain"}, b"hm"),
    ],
)
def test_a_refusal_or_login_page_is_blocked_and_not_kept(server, answer):
    server.answers["/simple/vllm-ascend/"] = answer
    with pytest.raises(Blocked, match="/simple/vllm-ascend/"):
        project_files("vllm-ascend")
    server.page("vllm-ascend", html(link(WHEEL)))
    assert len(project_files("vllm-ascend")) == 1


def test_redirects_are_followed_and_links_are_relative_to_the_end(server):
    server.answers["/simple/vllm-ascend/"] = (302, {"Location": "/moved/here/vllm-ascend/"}, b"")
    body = html(link(WHEEL, href=f"../f/{WHEEL}"))
    server.answers["/moved/here/vllm-ascend/"] = (200, {"Content-Type": "text/html"}, body)
    assert project_files("vllm-ascend")[0].url == f"{server.url}/moved/here/f/{WHEEL}"


def test_server_errors_are_tried_three_times(server):
    server.answers["/simple/vllm-ascend/"] = (502, {}, b"")
    with pytest.raises(Blocked, match="HTTP 502"):
        project_files("vllm-ascend")
    assert len(server.requests) == 3


def test_pages_are_kept_for_ten_minutes(server, monkeypatch):
    server.page("vllm-ascend", html(link(WHEEL)))
    first = project_files("vllm-ascend")
    asked = len(server.requests)
    assert project_files("vllm-ascend") == first
    assert len(server.requests) == asked
    monkeypatch.setattr(index, "FRESH_SECONDS", 0.0)
    project_files("vllm-ascend")
    assert len(server.requests) > asked


def test_a_release_on_a_kept_page_is_not_asked_for_again_for_a_day(server, monkeypatch):
    server.page("vllm-ascend", html(link(WHEEL)))
    first = index.release("vllm-ascend", "1.0")
    asked, clock = len(server.requests), index.time.time
    server.page("vllm-ascend", html(link(WHEEL), link(WHEEL.replace("1.0", "2.0"))))
    monkeypatch.setattr(index.time, "time", lambda: clock() + 3600)
    assert index.release("vllm-ascend", "1.0") == first
    assert len(server.requests) == asked
    assert index.release("vllm-ascend", "2.0").version == "2.0"  # one that it has not is looked for
    asked = len(server.requests)
    monkeypatch.setattr(index.time, "time", lambda: clock() + timedelta(days=2).total_seconds())
    index.release("vllm-ascend", "1.0")
    assert len(server.requests) > asked


def test_network_down_uses_the_old_page_with_a_note(server, monkeypatch, capsys):
    server.page("vllm-ascend", html(link(WHEEL)))
    first = project_files("vllm-ascend")
    clock = index.time.time
    monkeypatch.setattr(index.time, "time", lambda: clock() + timedelta(days=3).total_seconds())
    server.answers["/simple/vllm-ascend/"] = (503, {}, b"")
    assert project_files("vllm-ascend") == first
    assert "using the page of" in capsys.readouterr().err
    asked = len(server.requests)
    project_files("vllm-ascend")
    assert len(server.requests) == asked, "a dead network is not tried again at once"


def test_network_down_and_nothing_kept_is_blocked_without_credentials(clean_machine, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://me:s3cret@127.0.0.1:9/simple")
    with pytest.raises(Blocked) as caught:
        project_files("vllm-ascend")
    assert "127.0.0.1:9/simple/vllm-ascend/" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_one_dead_index_is_noted_while_another_answers(server, monkeypatch, capsys):
    server.page("vllm-ascend", html(link(WHEEL)))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "http://me:s3cret@127.0.0.1:9/simple")
    assert len(project_files("vllm-ascend")) == 1
    noted = capsys.readouterr().err
    assert "127.0.0.1:9" in noted
    assert "s3cret" not in noted


def test_credentials_work_and_are_nowhere_in_the_cache(server, tmp_path, monkeypatch):
    from npu_upgrade.sources import archives

    data = wheel({"vllm_ascend/__init__.py": ""})
    server.page("vllm-ascend", html(link(WHEEL, data)))
    server.file(WHEEL, data)
    monkeypatch.setenv("PIP_INDEX_URL", server.url.replace("://", "://me:s3cret@") + "/simple")
    (file,) = project_files("vllm-ascend")
    archives.unpacked(file)
    assert [headers.get("Authorization") for _, headers in server.requests] == ["Basic bWU6czNjcmV0"] * 3
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert kept
    assert not any(b"s3cret" in path.read_bytes() for path in kept)
    assert "s3cret" not in repr((file, pipconfig.indexes()))


def test_netrc_is_used(server, tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password s3cret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    server.page("vllm-ascend", html(link(WHEEL)))
    project_files("vllm-ascend")
    assert server.requests[0][1]["Authorization"] == "Basic bWU6czNjcmV0"


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "nonsense://x"])
def test_a_proxy_that_cannot_be_used_is_blocked(clean_machine, monkeypatch, proxy):
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(Blocked):
        project_files("vllm-ascend")


def test_a_missing_certificate_file_is_bad_input(clean_machine, monkeypatch):
    monkeypatch.setenv("PIP_CERT", os.path.join(str(clean_machine), "none.pem"))
    with pytest.raises(BadInput, match=r"none\.pem"):
        project_files("vllm-ascend")
