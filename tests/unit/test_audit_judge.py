"""Which findings count, and what waivers may say."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import replace

from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.judge import LAG, NEW, NO_WAIVERS, NOTE, WAIVED, judge, read_waivers
from npu_upgrade.ground.errors import BadInput

HERE = Side("vllm-omni", "vllm_omni/worker.py", 7, "def run(self)")
FOUND = Finding(
    "not-taken",
    "Runner",
    "run",
    "takes no limit",
    HERE,
    None,
    "S",
    "calls fail",
    "add it",
    check="signatures",
)


def states(
    found: list[Finding], old: list[Finding] | None, text: str = "", version: str = "0.30.0"
) -> list[str]:
    waivers = read_waivers(text, "w.yaml") if text else NO_WAIVERS
    return [entry.state for entry in judge(found, old, waivers, version)]


def test_new_lag_and_note() -> None:
    moved = replace(FOUND, here=replace(HERE, line=9, text="def run(self, x)"))
    other = replace(FOUND, subject="walk")
    note = replace(FOUND, subject="crawl", incident="")
    assert states([FOUND, other, note], [moved]) == [LAG, NEW, NOTE]
    assert states([FOUND], None) == [NEW]


def test_what_became_worse_is_new() -> None:
    hides = replace(FOUND, parts=("align", "pad"))
    assert states([hides], [hides]) == [LAG]
    assert states([replace(FOUND, parts=("pad",))], [hides]) == [LAG]
    (worse,) = judge([replace(hides, parts=("align", "free", "pad"))], [hides], NO_WAIVERS, "0.30.0")
    assert (worse.state, worse.finding.key) == (NEW, hides.key)
    assert worse.finding.what == "takes no limit; the old pair has it without free"


def test_a_key_tells_findings_apart() -> None:
    others = [
        replace(FOUND, **change)
        for change in ({"check": "calls"}, {"kind": "x"}, {"owner": "O"}, {"subject": "s"})
    ] + [
        replace(FOUND, here=replace(HERE, path="other.py")),
        replace(FOUND, here=replace(HERE, project="vllm")),
    ]
    assert len({found.key for found in [FOUND, *others]}) == 7


def test_json_round_trip() -> None:
    for found in (FOUND, replace(FOUND, there=HERE, like="vllm-omni #1")):
        assert msgspec.json.decode(msgspec.json.encode(found), type=Finding) == found
        data = json.loads(json.dumps(found.as_json()))
        assert data.pop("key") == found.key
        assert msgspec.convert(data, Finding) == found


def test_a_waiver_holds_until_its_version() -> None:
    text = f'- key: {FOUND.key}\n  reason: known\n  until: "0.30.0"\n'
    assert states([FOUND], [], text, "0.29.0") == [WAIVED]
    assert states([FOUND], [], text, "0.30.0rc1") == [WAIVED]
    assert states([FOUND], [], text, "0.30.0") == [NEW]
    (entry,) = judge([FOUND], [], read_waivers(text, "w"), "0.31.0")
    assert "ended with 0.30.0: known" in entry.reason
    assert read_waivers(text, "w").unused([]) == [FOUND.key]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("key: x", "holds no list of waivers: Expected `array`"),
        ("- [", "is not YAML"),
        ("- key: x\n  reason: y", "missing required field `until` - at `$[0]`"),
        ('- {key: x, reason: "", until: "1.0"}', "no text for reason"),
        ("- {key: x, reason: y, until: 1.0}", "Expected `str`, got `float` - at `$[0].until`"),
        ("- {key: x, reason: y, until: soon}", "'soon' is no version"),
        ("- {key: x, reason: y, until: '1'}\n- {key: x, reason: y, until: '1'}", "waives x a second time"),
    ],
)
def test_what_a_waiver_file_may_not_hold(text: str, what: str) -> None:
    with pytest.raises(BadInput) as error:
        read_waivers(text, "w.yaml")
    assert what in error.value.what


def test_an_empty_waiver_file() -> None:
    assert read_waivers("# none yet\n", "w.yaml").entries == {}
