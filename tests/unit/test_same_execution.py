"""An edit where a run never came leaves the run as it was: held against Python, which runs both."""

import ast
import random
import sys

import pytest

from npu_upgrade.gates.emulation.changed import executed_statements
from npu_upgrade.gates.emulation.same_execution import same_execution

RUNNER = '''from vllm.outputs import Tensor

class Runner:
    pooling = False

    def step(self, tokens):
        """One step."""
        states = [token + 1 for token in tokens]
        if self.pooling:
            payload = None
            return states
        else:
            payload = dict(last=states[-1])
        for state in states:
            if state > 100:
                break
        else:
            tokens = tokens + [0]
        try:
            total = sum(tokens)
        except TypeError as error:
            raise ValueError(str(error))
        return total, payload
        unreached = 1
'''


class Tensor:
    """What the runner imports."""


def run(text: str, call: str) -> tuple[object, dict[str, list[int]]]:
    """What a call gives, or raises, and which statements of each function ran."""
    lines: set[int] = set()

    def traced(frame, event, _):
        if frame.f_code.co_filename != "<runner>":
            return None
        if event == "line":
            lines.add(frame.f_lineno)
        return traced

    space = {"Tensor": Tensor}
    code = compile(text.replace("from vllm.outputs import Tensor", ""), "<runner>", "exec")
    before = sys.gettrace()
    sys.settrace(traced)
    try:
        exec(code, space)
        value = eval(call, space)
    except Exception as error:
        value = f"{type(error).__name__}: {error}"
    finally:
        sys.settrace(before)
    return value, executed_statements(text, lines)


CALL = "Runner().step([1, 2])"


def same(after: str, loaded: bool = True):
    _, executed = run(RUNNER, CALL)
    return same_execution(RUNNER, after, executed, lambda statement: loaded)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("payload = None", "payload = None if states else 1\n            print(payload)"),
        ("                break", "                tokens = []\n                break"),
        ("raise ValueError(str(error))", "raise"),
        ("        unreached = 1\n", ""),
        ("        unreached = 1\n", "        unreached = 2\n        other = unreached\n"),
        ('"""One step."""', '"""One step of the engine."""'),
        ("        try:", "        # why\n\n        try:"),
    ],
)
def test_an_edit_where_it_never_came_changes_nothing(old: str, new: str) -> None:
    after = RUNNER.replace(old, new)
    assert after != RUNNER
    assert same(after) == run(after, CALL)[1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if self.pooling:", "if not self.pooling:"),
        ("payload = dict(last=states[-1])", "payload = {}"),
        ("tokens = tokens + [0]", "tokens = tokens + [0]\n            tokens.append(1)"),
        ("        return total, payload\n", "        return total, None\n"),
        ("except TypeError as error", "except Exception as error"),
        ("        except TypeError", "        except KeyError:\n            pass\n        except TypeError"),
        ("def step(self, tokens)", "def step(self, tokens, more=0)"),
        ("    pooling = False", "    pooling = True"),
        ("    def step", "    def other(self):\n        pass\n\n    def step"),
        ("payload = None", "sum = None"),  # local everywhere then: the call of it would break
        ("payload = None", "yield"),
        ("payload = None", "global states"),
        ("    def step(self", "    def steps(self"),
    ],
)
def test_what_may_run_otherwise_is_said_to(old: str, new: str) -> None:
    assert RUNNER.replace(old, new) != RUNNER
    assert same(RUNNER.replace(old, new)) is None


def test_an_import_of_what_is_loaded_anyway_may_come_with_it() -> None:
    after = RUNNER.replace("class Runner", "from vllm.states import States\n\nclass Runner").replace(
        "payload = None", "payload = States(states)"
    )
    assert same(after, loaded=False) is None
    found = same(after)
    assert found
    assert found == run(after.replace("from vllm.states import States", "States = 1"), CALL)[1]
    assert same(RUNNER.replace("class Runner", "from vllm.states import sum\n\nclass Runner")) is None


@pytest.mark.parametrize("seed", range(400))
def test_whatever_is_edited_it_is_right_or_does_not_know(seed: int) -> None:
    random_ = random.Random(seed)
    before = _program(random_)
    after = _edited(before, random_)
    call = f"f({random_.randrange(3)}, {random_.randrange(3)}, [])"
    value, executed = run(before, call)
    found = same_execution(before, after, executed, lambda statement: False)
    if found is not None:
        assert (value, found) == run(after, call)


def test_the_edits_of_such_programs_are_of_both_kinds() -> None:
    known = 0
    for seed in range(400):
        random_ = random.Random(seed)
        before = _program(random_)
        after = _edited(before, random_)
        _, executed = run(before, f"f({random_.randrange(3)}, {random_.randrange(3)}, [])")
        known += same_execution(before, after, executed, lambda statement: False) is not None
    assert 40 < known < 360


def _program(random_: random.Random) -> str:
    body = "\n".join(_block(random_, 1, 4))
    return f"def f(a, b, log):\n    n = 0\n    m = 9\n{body}\n    return n, log\n"


def _block(random_: random.Random, depth: int, most: int) -> list[str]:
    at = "    " * depth
    lines: list[str] = []
    for _ in range(random_.randrange(1, most)):
        kind = random_.randrange(9 if depth < 4 else 4)
        inner = lambda: _block(random_, depth + 1, 3)  # noqa: E731
        number = random_.randrange(3)
        if kind < 2:
            lines.append(f"{at}log.append({random_.randrange(100)})")
        elif kind == 2:
            lines.append(f"{at}n = n + {number}")
        elif kind == 3:
            ends = ["return n", "raise KeyError(n)", "n, m = m, n"]
            lines.append(at + random_.choice(ends))
        elif kind == 4:
            lines += [f"{at}if a == {number}:", *inner()]
        elif kind == 5:
            lines += [f"{at}if b > {number}:", *inner(), f"{at}else:", *inner()]
        elif kind == 6:
            ends = random_.choice(["break", "continue", "pass"])
            lines += [f"{at}for k in range(b):", *inner(), f"{at}    {ends}", f"{at}else:", *inner()]
        elif kind == 7:
            lines += [f"{at}try:", *inner(), f"{at}except KeyError:", *inner(), f"{at}finally:"]
            lines += [f"{at}    log.append(n)"]
        else:
            lines += [f"{at}def g(q=n):", *inner(), f"{at}    return q"]
            lines += [f"{at}log.append(g())"] * random_.randrange(2)
    return lines


def _edited(text: str, random_: random.Random) -> str:
    """The program with a statement more, less or otherwise in one of its blocks."""
    tree = ast.parse(text)
    blocks = [
        block
        for node in ast.walk(tree)
        for name in ("body", "orelse", "finalbody")
        if isinstance(block := getattr(node, name, None), list) and block and node is not tree
    ]
    block = random_.choice(blocks)
    place = random_.randrange(len(block))
    new = ["log.append(555)", "n = 7", "return 8", "m = 6", "new = 5", "del n", "(yield)", "raise KeyError"]
    statement = ast.parse(random_.choice(new)).body[0]
    kind = random_.randrange(3)
    if kind == 0:
        block.insert(random_.randrange(len(block) + 1), statement)
    elif kind == 1 and len(block) > 1:
        del block[place]
    else:
        block[place] = statement
    return ast.unparse(tree)
