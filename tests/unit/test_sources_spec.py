from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources.spec import Spec, parse_spec


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("pypi:vllm-omni==0.22.0", "pypi:vllm-omni==0.22.0"),
        (" pypi:VLLM_Omni == 0.22.0RC1 ", "pypi:vllm-omni==0.22.0rc1"),
        ("git:/a/b@v0.22.0", "git:/a/b@v0.22.0"),
        ("git:/a@b/c@releases/v0.22", "git:/a@b/c@releases/v0.22"),
        ("git:../clone@HEAD~2", "git:../clone@HEAD~2"),
        ("dir:some/folder", "dir:some/folder"),
    ],
)
def test_canonical_text_parses_to_itself(text, canonical):
    assert str(parse_spec(text)) == canonical
    assert parse_spec(canonical) == parse_spec(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("vllm-omni==0.22.0", "no source kind"),
        ("npm:vllm", "no source kind"),
        ("", "no source kind"),
        ("pypi:", "nothing usable"),
        ("pypi:vllm-omni", "version is missing"),
        ("pypi:vllm-omni==", "version is missing"),
        ("pypi:vllm-omni>=0.22", "range"),
        ("pypi:vllm-omni~=0.22", "range"),
        ("pypi:vllm-omni===0.22", "range"),
        ("pypi:vllm-omni==0.22.*", "range"),
        ("pypi:vllm-omni[all]==0.22.0", "range"),
        ("pypi:vllm-omni=0.22.0", "package name"),
        ("pypi:../etc==1", "package name"),
        ("pypi:vllm-omni==latest", "no version"),
        ("git:/a/b", "ref is missing"),
        ("git:/a/b@", "ref is missing"),
        ("git:@main", "ref is missing"),
        ("git:/a/b@--upload-pack=x", "no ref"),
        ("git:/a/b@HEAD@{1}", "no ref"),
        ("git:/a/b@main:secret", "no ref"),
        ("git:https://github.com/x/y@main", "remote"),
        ("git:git@github.com:x/y@main", "remote"),
        ("dir:https://x/y", "URL"),
        ("dir:a\x00b", "nothing usable"),
    ],
)
def test_anything_else_is_bad_input_with_an_example(text, why):
    with pytest.raises(BadInput) as caught:
        parse_spec(text)
    assert why in caught.value.what
    assert "pypi:vllm-ascend==0.22.1rc1" in caught.value.try_


def test_version_may_be_left_open_on_request_only():
    assert parse_spec("pypi:vllm_ascend", allow_unversioned=True) == Spec("pypi", project="vllm-ascend")
    assert str(Spec("pypi", project="vllm-ascend")) == "pypi:vllm-ascend"


@given(st.text(max_size=60))
def test_never_another_exception(text):
    try:
        spec = parse_spec(text)
    except BadInput:
        return
    assert parse_spec(str(spec)) == spec
