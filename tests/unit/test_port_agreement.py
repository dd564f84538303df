"""A hunk that changes what a method takes, gives or is fits only when what stays agrees with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from port_kit import GPU_AR_OLD, NPU_AR, PortWorld, omni_files
from sources_kit import clean_machine  # noqa: F401

from npu_upgrade.port.agreement import Agreement

SEND = "    def send(self, payload):\n        self.sent = payload\n"
PACK = '    def pack(self, states):\n        return {"hidden": states}\n'
CALL, CALLED_WITH_STEP = "self.send(payload)", "self.send(payload, tokens)"


def send(parameters: str, head: str = "def") -> str:
    return SEND.replace("def", head).replace("self, payload", f"self, {parameters}")


def world(root: Path, sides: list[tuple[str, str, str]], beside: str = "") -> PortWorld:
    """``sides`` are (as it is in the fixture, on both sides before, on the GPU side now)."""
    old, new, npu = GPU_AR_OLD, GPU_AR_OLD, NPU_AR
    for text, before, after in sides:
        assert text in old
        assert text in npu
        old, npu, new = old.replace(text, before), npu.replace(text, before), new.replace(text, after)
    return PortWorld(root, omni_files(new, npu + beside), omni_files(old))


STAYS = {
    "a parameter more, by place": (SEND, SEND, send("payload, step"), "self.send(1)"),
    "a parameter more, by name only": (SEND, SEND, send("payload, *, step"), "self.send(payload=1)"),
    "a parameter that is gone": (SEND, send("payload, late=False"), SEND, "self.send(1, late=True)"),
    "one place less": (SEND, send("payload, late=False"), SEND, "self.send(1, True)"),
    "another name": (SEND, SEND, send("data").replace("= payload", "= data"), "self.send(payload=1)"),
    "another order": (SEND, send("payload, step=0"), send("step, payload=0"), "self.send(1, 2)"),
    "a coroutine": (SEND, SEND, send("payload", "async def"), "self.send(1)"),
    "a property": (PACK, PACK, PACK.replace("    def", "    @property\n    def"), "self.pack(1)"),
    "a longer tuple": (
        PACK,
        PACK.replace('{"hidden": states}', "states, 1"),
        PACK.replace('{"hidden": states}', "states, 1, 2"),
        "first, second = self.pack(1)\n        self.note(first, second)",
    ),
    "a longer tuple, by way of another method": (
        PACK,
        PACK.replace('{"hidden": states}', "states, 1"),
        PACK.replace('{"hidden": states}', "states, 1, 2"),
        "first, second = self.again(1)\n        self.note(first, second)",
    ),
}


@pytest.mark.parametrize("case", STAYS)
def test_a_caller_that_stays_is_not_left_behind(tmp_path: Path, case: str) -> None:
    text, before, after, use = STAYS[case]
    more = "\n    def again(self, states):\n        return self.pack(states)\n"
    more += "\n    def note(self, *values):\n        self.noted = values\n"
    found = world(tmp_path, [(text, before, after)], f"\n    def late(self):\n        {use}\n{more}")
    hunk = found.hunks()["ar.pack" if text == PACK else "ar.send"]
    assert (hunk["tier"], hunk["callers"]) == (3, True), hunk
    code, data, _ = found.port("--apply", hunk["id"])
    assert code == 1
    assert data["refused"][0]["id"] == hunk["id"]
    assert found.ar.read_text() == found.files[str(found.ar.relative_to(found.omni))]


def test_a_hunk_is_taken_with_its_callers_left_to_be_written_by_hand(tmp_path: Path) -> None:
    text, before, after, use = STAYS["a parameter more, by place"]
    found = world(tmp_path, [(text, before, after)], f"\n    def late(self):\n        {use}\n")
    hunk = found.hunks()["ar.send"]
    assert "--callers-by-hand" in found.port("--apply", hunk["id"])[1]["refused"][0]["reason"]
    code, data, _ = found.port("--apply", hunk["id"], "--callers-by-hand")
    assert (code, data["taken"], data["refused"]) == (0, [hunk["id"]], [])
    assert data["summary"].startswith(f"to change by hand: {len(data['by_hand'])};")
    assert any("send" in what for what in data["by_hand"])
    assert after in found.ar.read_text()


FITS = {
    "a parameter with a default": (send("payload, step=0"), "self.send(1)"),
    "whatever is passed on": (send("payload, step"), "self.send(*payload)"),
    "another name, by place": (send("data").replace("= payload", "= data"), "self.send(1)"),
}


@pytest.mark.parametrize("case", FITS)
def test_a_caller_that_agrees_keeps_a_hunk_in_the_first_tier(tmp_path: Path, case: str) -> None:
    after, use = FITS[case]
    found = world(tmp_path, [(SEND, SEND, after), (CALL, use, use)])
    assert found.hunks()["ar.send"]["tier"] == 1


@pytest.mark.parametrize(
    "body",
    ["return super().send(payload)", "self.late = payload"],
    ids=["calls it by super()", "stands in for it"],
)
def test_an_override_that_stays_is_not_left_behind(tmp_path: Path, body: str) -> None:
    heir = f"\n\nclass Late(NPUARModelRunner):\n    def send(self, payload):\n        {body}\n"
    sides = [(SEND, SEND, send("payload, step")), (CALL, CALL, CALLED_WITH_STEP)]
    found = world(tmp_path, sides, heir)
    assert found.hunks()["ar.send"]["tier"] == 3


def test_the_hunk_of_the_caller_comes_with_the_signature(tmp_path: Path) -> None:
    found = world(tmp_path, [(SEND, SEND, send("payload, step")), (CALL, CALL, CALLED_WITH_STEP)])
    hunks = found.hunks()
    signature, caller = hunks["ar.send"], hunks["ar.run"]
    assert (signature["tier"], caller["tier"]) == (1, 1)
    assert (signature["needs"], caller["needs"]) == ([caller["id"]], [signature["id"]])
    code, data, _ = found.port("--apply", signature["id"])
    assert code == 0
    assert set(data["taken"]) == {signature["id"], caller["id"]}
    assert CALLED_WITH_STEP in found.ar.read_text()


def test_what_is_taken_together_is_looked_at_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = world(tmp_path, [(SEND, SEND, send("payload, step")), (CALL, CALL, CALLED_WITH_STEP)])
    looked, look = [], Agreement._look
    monkeypatch.setattr(Agreement, "_look", lambda self, changed: looked.append(1) or look(self, changed))
    code, data, _ = found.port("--top")
    assert (code, len(data["taken"]), data["refused"]) == (0, 2, [])
    assert CALLED_WITH_STEP in found.ar.read_text()
    assert len(looked) == 1, "each alone would not fit"


def test_an_attribute_that_other_methods_read_is_not_dropped(tmp_path: Path) -> None:
    line = "        self.stage_name = config.stage_name"
    reader = "\n    def late(self):\n        return self.kept_rows\n"
    reader += "\n    def later(self):\n        return self.late()\n"
    found = world(tmp_path, [(line, f"{line}\n        self.kept_rows = {{}}", line)], reader)
    assert found.hunks()["ar.__init__"]["tier"] == 3
