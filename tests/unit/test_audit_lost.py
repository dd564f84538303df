"""The checks for what was lost since the old pair, what nothing uses, and state that is made otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_kit import AR, ASCEND, GPU_AR, GPU_BASE, make_world, seen

CRANE = "vllm_omni/platforms/npu/crane.py"
OLD = """
import os


class Winch:
    loud = True

    def roll(self, load, tight=False):
        self.tight = tight

    def pull(self, load):
        return load


class Crane(Winch):
    loud = False

    def __init__(self, rope):
        self.rope = rope
        self.done = 0

    def pull(self, load):
        return self.rope.pull(load)

    def lift(self, load, fast=False):
        if load is not None and self.rope:
            self.pull(load)
        if fast:
            self.pull(fast)
        self.rope.roll(load, tight=True)
        self.rope.roll(fast, tight=None)
        return load


def run(load):
    print(os.name)
    return Crane(1).lift(load), Crane(1).done


run(1)
"""


def since(folder: Path, *changes: tuple[str, str]) -> list[tuple[str, str, str]]:
    new = OLD
    for before, now in changes:
        assert before in new
        new = new.replace(before, now)
    world = make_world(folder / "new", {CRANE: new}, old=make_world(folder / "old", {CRANE: OLD}))
    return seen(world, "lost")


@pytest.mark.parametrize(
    ("before", "now", "kind"),
    [
        ("        if fast:\n            self.pull(fast)\n", "", "lost"),
        ("    def pull(self, load):\n        return self.rope.pull(load)\n", "", "override"),
        ("    loud = False\n", "", "override"),
    ],
)
def test_what_is_gone_with_nothing_in_its_place(tmp_path: Path, before: str, now: str, kind: str) -> None:
    assert [one[0] for one in since(tmp_path, (before, now))] == [kind]


def test_what_empties_a_block_is_found(tmp_path: Path) -> None:
    emptied = ("            self.pull(fast)\n", "            pass\n")
    assert [one[0] for one in since(tmp_path / "a", emptied)] == ["lost"]


def test_an_import_that_went_with_what_needed_it_is_no_other_change(tmp_path: Path) -> None:
    """The call is what was lost."""
    taken = "    from vllm.tools import tidy\n\n"
    old = OLD.replace("    print(os.name)\n", f"{taken}    print(os.name)\n    tidy(os)\n")
    new = old.replace(taken, "").replace("    tidy(os)\n", "")
    more = {"vllm/tools.py": "def tidy(place):\n    place.done = True\n"}
    before = make_world(tmp_path / "old", {CRANE: old} | more)
    told = seen(make_world(tmp_path / "new", {CRANE: new} | more, old=before), "lost")
    assert [(kind, owner) for kind, owner, _ in told] == [("lost", "run")]


def test_a_method_that_is_gone_and_still_asked_for(tmp_path: Path) -> None:
    gone = ("    def roll(self, load, tight=False):\n        self.tight = tight\n\n", "")
    assert ("method", "Winch", "roll") in since(tmp_path / "a", gone)
    renamed = [
        gone,
        ("        self.rope.roll(load, tight=True)\n        self.rope.roll(fast, tight=None)\n", ""),
    ]
    assert "method" not in [one[0] for one in since(tmp_path / "b", *renamed)]
    # by another class it may be had, so that nothing is known
    other = ("class Crane(Winch):", "class Rope:\n    def roll(self):\n        pass\n\n\nclass Crane(Winch):")
    assert "method" not in [one[0] for one in since(tmp_path / "c", gone, other)]


def test_a_call_of_what_is_gone_too_is_not_lost(tmp_path: Path) -> None:
    """Where the condition around it could be asked still."""
    call = "        if fast:\n            self.pull(fast)\n"
    pulls = [
        f"    def pull(self, load):\n        return {text}\n" for text in ("load", "self.rope.pull(load)")
    ]
    kinds = [one[0] for one in since(tmp_path, (call, ""), *((pull, "") for pull in pulls))]
    assert "lost" not in kinds


@pytest.mark.parametrize(("asked", "told"), [("rope", True), ("self", False)])
def test_a_method_that_others_ask_whether_it_is_there(tmp_path: Path, asked: str, told: bool) -> None:
    """They do without it in silence, though a class of another device has it still."""
    user = f"""
        class GPUWinch:
            def hold(self, rope):
                if hasattr({asked}, "slacken"):
                    {asked}.slacken()

            def slacken(self):
                pass
    """
    worlds = []
    for name in ("slacken", "loosen"):
        own = f"class NPUWinch:\n    def {name}(self):\n        pass\n"
        files = {"vllm_omni/winch.py": user, CRANE: own}
        worlds.append(make_world(tmp_path / name, files, old=worlds[0] if worlds else None))
    found = [subject for kind, _, subject in seen(worlds[1], "lost") if kind == "method"]
    assert found == ["slacken"] * told


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [("load is not None and self.rope", "self.rope and load is not None")],
        [("load, tight=True", "load, loose=False")],
        [("fast, tight=None", "fast")],
        [("        if fast:\n", "        if fast and load:\n")],
        # a keyword: its own check tells
        [("load, tight=True", "load"), ("        return load\n\n\ndef", "        return self\n\n\ndef")],
        # moved into what calls it
        [
            ("        if fast:\n            self.pull(fast)\n", ""),
            ("    print(os", "    Crane(1).pull(fast=1) if fast else fast\n    print(os"),
        ],
        # the base has changed with it
        [
            ("        return load\n\n\nclass Crane", "        return [load]\n\n\nclass Crane"),
            ("    def pull(self, load):\n        return self.rope.pull(load)\n", ""),
        ],
    ],
)
def test_what_was_changed_on_purpose_is_silent(tmp_path: Path, changes: list[tuple[str, str]]) -> None:
    assert since(tmp_path, *changes) == []


@pytest.mark.parametrize(
    ("above", "found"), [("self.rope.roll(load)", []), ("self.rope.pull(load)", ["lost"])]
)
def test_what_the_parents_method_does_which_is_called_then_is_not_lost(
    tmp_path: Path, above: str, found: list[str]
) -> None:
    had = OLD.replace(
        "        return self.rope.pull",
        "        if load:\n            self.rope.roll(load)\n        return self.rope.pull",
    )
    had = had.replace("return self.rope.pull(load)", "return super().pull(load)")
    had = had.replace(
        "        return load\n\n\nclass Crane", f"        {above}\n        return load\n\n\nclass Crane"
    )
    now = had.replace("        if load:\n            self.rope.roll(load)\n", "")
    assert now != had
    world = make_world(tmp_path / "new", {CRANE: now}, old=make_world(tmp_path / "old", {CRANE: had}))
    assert [one[0] for one in seen(world, "lost")] == found


def test_what_the_function_followed_gave_up_too_is_silent(tmp_path: Path) -> None:
    gone = "        if fast:\n            self.pull(fast)\n"
    worlds = {}
    for name, text in (("old", OLD), ("new", OLD.replace(gone, ""))):
        files = {CRANE: text, "vllm_ascend/worker/crane.py": text}
        worlds[name] = make_world(tmp_path / name, files, old=worlds.get("old"))
    assert seen(worlds["new"], "lost") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('NOTES = """\n- symbol: Crane.strap\n"""\n', []),
        ("def of(crane):\n    return crane.strap\n", ["lost"]),
    ],
)
def test_a_word_of_a_text_is_no_use_of_what_went(tmp_path: Path, text: str, found: list[str]) -> None:
    had = OLD.replace(
        "        if fast:\n", "        if self.strap:\n            self.pull(self.strap)\n        if fast:\n"
    )
    more = {"vllm_ascend/notes.py": text}
    old = make_world(tmp_path / "old", {CRANE: had} | more)
    world = make_world(tmp_path / "new", {CRANE: OLD} | more, old=old)
    assert [one[0] for one in seen(world, "lost")] == found


def test_a_world_without_an_old_pair_has_lost_nothing(tmp_path: Path) -> None:
    assert seen(make_world(tmp_path, {CRANE: OLD}), "lost") == []


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ("import os\n", "import os\nimport sys\n", ("import", "", "sys")),
        ("import os\n", "import os\nimport sys  # noqa: F401\n", None),
        ("import os\n", "from __future__ import annotations\nimport os\n", None),
        ("        return load\n\n\ndef", "        low = load\n        return load\n\n\ndef", "local"),
        ("        return load\n\n\ndef", "        low = load\n        return low\n\n\ndef", None),
        ("    def lift(self, load", "    def hoist(self, load", "uncalled"),
    ],
)
def test_what_is_made_and_not_used(tmp_path: Path, before: str, now: str, told: object) -> None:
    text = OLD.replace(before, now)
    assert text != OLD
    found = seen(make_world(tmp_path, {CRANE: text}), "unused")
    # ``lift`` is called on the class under its old name
    kinds = [one if isinstance(told, tuple) else one[0] for one in found]
    assert kinds == ([told] if told else [])


STEP = """
class {name}:
    def step(self, rows, keep):
        first = self.first(rows)
        second = self.second(first)
        third = self.third(second)
        return self.send(third{keep})
"""


@pytest.mark.parametrize(
    ("ours", "told"), [("", [("parameter", "NPUModelRunner", "keep in step")]), (", keep", [])]
)
def test_a_copy_that_does_nothing_with_a_parameter(tmp_path: Path, ours: str, told: object) -> None:
    base = "from vllm.v1.worker.gpu_model_runner import GPUModelRunner\n"
    ascend = base + STEP.format(name="NPUModelRunner(GPUModelRunner)", keep=ours)
    files = {
        "vllm/v1/worker/gpu_model_runner.py": STEP.format(name="GPUModelRunner", keep=", keep"),
        ASCEND: ascend,
    }
    assert seen(make_world(tmp_path, files, omni=False), "unused") == told
    added = ascend.replace("rows, keep)", "rows, keep, mask)")
    found = seen(make_world(tmp_path / "added", files | {ASCEND: added}, omni=False), "unused")
    assert [one for one in found if "mask" in one[2]] == [("parameter", "NPUModelRunner", "mask in step")]
    optional = ascend.replace("rows, keep)", "rows, keep, mask=None, *, quiet=False)")
    found = seen(make_world(tmp_path / "optional", files | {ASCEND: optional}, omni=False), "unused")
    assert [one for one in found if "keep" not in one[2]] == []
    rewrite = (
        base + "class NPUModelRunner(GPUModelRunner):\n    def step(self, rows, keep):\n        return rows\n"
    )
    assert seen(make_world(tmp_path / "rewrite", files | {ASCEND: rewrite}, omni=False), "unused") == []


GPU = """
from vllm_omni.worker.gpu_model_runner import OmniGPUModelRunner

class GPUARModelRunner(OmniGPUModelRunner):
    def __init__(self):
        self.rows = torch.zeros(self.max_tokens, dtype=torch.long, device="cuda")
        self.state = None

    def step(self):
        state = self.state
        self.state = None
        return state
"""


def parity_state(folder: Path, before: str, now: str) -> list[str]:
    npu = GPU.replace("vllm_omni.worker.gpu_model", "vllm_omni.platforms.npu.worker.npu_model")
    npu = npu.replace("OmniGPU", "OmniNPU").replace("GPUAR", "NPUAR").replace('"cuda"', '"npu"')
    assert before in npu
    world = make_world(folder, {GPU_AR: GPU, AR: npu.replace(before, now)})
    return [kind for kind, _, _ in seen(world, "parity-state")]


@pytest.mark.parametrize(
    ("before", "now", "kinds"),
    [
        ("max_tokens,", "max_requests,", ["tensor"]),
        ("torch.long", "torch.int32", ["tensor"]),
        ("        self.state = None\n        return", "        return", ["not-reset"]),
        ("max_tokens,", "max_tokens + 2,", []),
        ("torch.long", "torch.long, pin_memory=True", []),
        ("        self.state = None\n        return", "        self._clear()\n        return", []),
        ("", "", []),
    ],
)
def test_state_that_is_made_or_cleared_otherwise(
    tmp_path: Path, before: str, now: str, kinds: list[str]
) -> None:
    clear = "\n    def _clear(self):\n        self.state = None\n" if "_clear" in now else ""
    if not before:
        assert parity_state(tmp_path, "class", "class") == []
        return
    assert parity_state(tmp_path, before, now) == kinds or clear


CONTEXT = """
def set_bounds(context, rows):
    context.low = rows
    context.high = rows * 2


def reset_bounds(context):
    context.low = None
    {last}
"""


@pytest.mark.parametrize(("last", "kinds"), [("pass", ["half-cleared"]), ("context.high = None", [])])
def test_a_reset_that_leaves_something(tmp_path: Path, last: str, kinds: list[str]) -> None:
    world = make_world(
        tmp_path, {CRANE: CONTEXT.replace("{last}", last), GPU_BASE: "class OmniGPUModelRunner:\n    pass\n"}
    )
    assert [kind for kind, _, _ in seen(world, "parity-state")] == kinds


@pytest.mark.parametrize(
    ("defined", "told"),
    [
        ("def _hoist_weights(self):", ["_hoist_weights"]),
        ("def hoist_weights(self):", []),  # a base outside the trees may call it
        ("def _lift_weights(self):", []),
    ],
)
def test_a_private_method_that_nothing_names_is_found_under_a_base_from_outside(
    tmp_path: Path, defined: str, told: list[str]
) -> None:
    text = f"import torch\n\n\nclass Crane(torch.nn.Module):\n    {defined}\n        return 1\n"
    caller = "def load(crane):\n    crane._lift_weights()\n"
    files = {CRANE: text, "vllm_omni/shared/load.py": caller}
    assert [subject for _, _, subject in seen(make_world(tmp_path, files), "unused")] == told
