"""Secrets never land in evidence."""

from __future__ import annotations

import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest
from drawn import examples
from evidence_kit import STARTED, SUBJECT
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_upgrade.evidence.pack import pack
from npu_upgrade.evidence.redaction import MARK, NOT_KEPT, Redactor, is_secret_name
from npu_upgrade.evidence.store import Outcome, Store
from npu_upgrade.ground.verdict import Verdict

SECRET = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_categories=["Cc", "Zs"]), min_size=8
)


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "VLLM_API_KEY",
        "--api-key",
        "AWS_SECRET_ACCESS_KEY",
        "db_password",
        "Authorization",
        "Set-Cookie",
    ],
)
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "max_tokens",
        "tokens_per_second",
        "--tokenizer",
        "prompt_tokens",
        "PATH",
        "completion_tokens_details",
        "num_speculative_tokens",
        "vllm_omni/model_executor/models/token2wav.py",
    ],
)
def test_names_that_only_sound_secret(name: str) -> None:
    assert not is_secret_name(name)


def test_the_environment_keeps_what_can_change_a_run() -> None:
    found = Redactor().environment(
        {"VLLM_USE_V1": "1", "VLLM_API_KEY": "k", "HOME": "/home/me", "HF_TOKEN": "x"}
    )
    assert found == {"HF_TOKEN": MARK, "HOME": NOT_KEPT, "VLLM_API_KEY": MARK, "VLLM_USE_V1": "1"}


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdefgh12345678",
        "curl http://me:hunter22@host/v1",
        "GET /v1?api_key=abcdefgh1234&x=1",
        "token hf_abcdefghijklmnopqrst is set",
        "ghp_abcdefghijklmnopqrst1234",
        '{"password": "correcthorse"}',
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nAAAA\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_shapes_of_secrets_nobody_named(text: str) -> None:
    said = Redactor().text(text)
    assert MARK in said
    for part in ("abcdefgh", "hunter22", "correcthorse", "eyJzdWIi", "MIIEow"):
        assert part not in said


def test_ordinary_text_stays() -> None:
    text = "INFO Avg generation throughput: 12.5 tokens/s, max_tokens=128, tokenizer='/models/tiny', key: 3"
    assert Redactor({"HF_TOKEN": "x"}).text(text) == text


def test_a_private_key_over_many_lines_of_a_log() -> None:
    key = b"-----BEGIN PRIVATE KEY-----\n" + b"QUJD" * 16 + b"\nREVG\n-----END PRIVATE KEY-----\nafter\n"
    assert b"".join(Redactor().log(io.BytesIO(b"before\n" + key))) == f"before\n{MARK}\nafter\n".encode()


def test_a_secret_across_the_pieces_of_an_endless_line() -> None:
    secret = "planted-secret-value"
    line = b"x " * (524_288 - 5) + secret.encode() + b" y" * 100
    assert secret.encode() not in b"".join(Redactor({"MY_SECRET": secret}).log(io.BytesIO(line)))


@settings(max_examples=examples(40))
@given(SECRET.map(lambda text: "S3" + text))
def test_a_planted_secret_is_nowhere(secret: str) -> None:
    with TemporaryDirectory() as place:
        root = Path(place)
        argv = [
            "vllm",
            "serve",
            "/models/tiny",
            "--api-key",
            secret,
            f"--hf-token={secret}",
            f"http://u:{quote(secret)}@h/",
        ]
        log = root / "raw.log"
        log.write_text(
            f"args: {secret!r}\nAuthorization: Bearer {secret}\nGET /?k={quote(secret)}\n{secret}\n", "utf-8"
        )
        store, redactor = Store(root / "store"), Redactor({"HF_TOKEN": secret, "HOME": "/root"}, argv)
        run = store.begin("serve", redactor)
        run.command(argv, {"HF_TOKEN": secret, "VLLM_X": f"a{secret}b", "OTHER": secret})
        run.log("server.log", log)
        run.json(
            "requests.json",
            {"headers": {"Authorization": f"Bearer {secret}"}, "body": {"text": f"say {secret}"}},
        )
        outcome = Outcome(
            gate="serve",
            label="CPU dummy",
            verdict=Verdict.FAIL,
            subject=SUBJECT,
            pins={},
            command=argv,
            started=STARTED,
            seconds=1,
            summary=f"it said {secret}",
            root={"id": "UNKNOWN", "text": f"ValueError: {secret}"},
        )
        store.record(outcome, run)
        pack(store, [run.id], root / "pack.tar.gz")
        forms = {secret.encode(), quote(secret).encode(), json.dumps(secret)[1:-1].encode()}
        for path in (root / "store").rglob("*"):
            if path.is_file():
                assert not [form for form in forms if form in path.read_bytes()], path


def test_the_shells_folders_are_no_passwords() -> None:
    redactor = Redactor({"PWD": "/home/me/work", "OLDPWD": "/home/me", "DB_PWD": "hunter22"})
    assert redactor.text("in /home/me/work with hunter22") == "in /home/me/work with [redacted]"


def test_token_ids_of_log_probabilities_stay() -> None:
    """They are what a reference is compared with; a token that is a secret has another form."""
    told = {"content": [{"token": "token_id:194", "logprob": -1.5}], "top": {"token_id:7": -2.0}}
    assert Redactor().value(told) == told
    assert Redactor().value({"token": "token_id:x", "hf_token": "abc"}) == {"token": MARK, "hf_token": MARK}
