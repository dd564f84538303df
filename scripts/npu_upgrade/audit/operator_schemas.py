"""The schemas of operators that no Python of the trees defines: torch_npu's as its pinned wheel lists them,
vllm-ascend's as its C++ defines them, and those of the functions that are registered as operators.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from npu_upgrade.audit.finding import Side, side
from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import last_name, string
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import cut
from npu_upgrade.program.places import files_with
from npu_upgrade.program.program import FunctionSymbol
from npu_upgrade.sources.pins import pins_of_ascend
from npu_upgrade.sources.remote_wheel import peek_file

OPERATORS = ("torch_npu.", "torch.ops.")  # how calls of them begin
_LISTED = "torch_npu/csrc/aten/npu_native_functions_by_codegen.yaml"
_BINDING = "csrc/torch_binding.cpp"
_REGISTER = "direct_register_custom_op"
_IN_LIST = re.compile(r"^\s*(?:- )?func: ((\w+)(?:\.\w+)?\(.*)$")
_IN_CPP = re.compile(r'\.\s*def\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_COMMENT = re.compile(r"^\s*//[^\n]*$", re.MULTILINE)
_SCHEMA = re.compile(r"\w+(\.\w+)?\s*\((.*)\)\s*->\s*(.*?)\s*;?")
_FIRST = {"self", "input", "input_"}  # torch takes the first tensor by any of these names


@dataclass(frozen=True)
class Schema:
    """One way to call an operator: its parameters as a Python function has them.

    ``results`` is how many values it returns, None where that is not told; ``place`` is where it is declared.
    """

    node: Function
    results: int | None
    place: Side


@dataclass(frozen=True)
class Schemas:
    """The schemas that the trees of a world, and the torch-npu that they pin, declare."""

    world: World

    def of(self, name: str) -> list[Schema]:
        """All schemas of an operator by its dotted name in a call; empty where nothing declares it."""
        parts = name.split(".")
        if parts[0] == "torch_npu" and len(parts) > 1:
            return self._of_torch_npu(parts[1])
        if parts[:2] != ["torch", "ops"] or len(parts) < 4:
            return []
        space, operator = parts[2], parts[3]
        if space == "vllm":
            return list(self._registered(operator))
        if space == "npu":
            return self._of_torch_npu(operator)
        return self._bound.get(operator, []) if space == "_C_ascend" else []

    def _of_torch_npu(self, operator: str) -> list[Schema]:
        listed = self._listed.get(operator, [])
        places = ((text, Side("torch-npu", _LISTED, line, cut(text, 160))) for line, text in listed)
        return [schema for text, place in places for schema in _schemas(text, place)]

    @cached_property
    def _listed(self) -> dict[str, list[tuple[int, str]]]:
        """The lines of torch_npu's own list by the operator that each declares."""
        pins = (pin.exact for pin in pins_of_ascend(self.world.triple.ascend) if pin.name == "torch-npu")
        version = next((pin for pin in pins if pin), None)
        try:
            text = peek_file("torch-npu", version, _LISTED) if version else None
        except (Blocked, BadInput) as error:
            say(f"note: without the schemas of torch_npu's operators: {error.what}")
            text = None
        found: dict[str, list[tuple[int, str]]] = {}
        for number, line in enumerate((text or "").splitlines(), 1):
            if match := _IN_LIST.match(line):
                found.setdefault(match[2], []).append((number, match[1]))
        return found

    @cached_property
    def _bound(self) -> dict[str, list[Schema]]:
        tree = self.world.triple.ascend
        text = _COMMENT.sub("", tree.read(_BINDING)) if tree.exists(_BINDING) else ""
        found: dict[str, list[Schema]] = {}
        for match in _IN_CPP.finditer(text):
            schema = re.sub(r"\s+", " ", "".join(_STRING.findall(match[1]))).replace('\\"', '"').strip()
            place = Side("vllm-ascend", _BINDING, text.count("\n", 0, match.start()) + 1, cut(schema, 160))
            found.setdefault(re.split(r"[.(]", schema)[0].strip(), []).extend(_schemas(schema, place))
        return found

    def _registered(self, name: str) -> Iterator[Schema]:
        """The functions that are registered under the name."""
        program = self.world.program
        for package in program.trees:
            for path, text in files_with(program, package, f'"{name}"'):
                file = program.file(path) if _REGISTER in text else None
                for node in file.nodes if file else ():
                    if not (file and isinstance(node, ast.Call) and last_name(node.func) == _REGISTER):
                        continue
                    given = dict(zip(("op_name", "op_func"), node.args, strict=False))
                    given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
                    symbol = file.resolve(given["op_func"]) if "op_func" in given else None
                    named = string(given.get("op_name")) == name
                    if named and isinstance(symbol, FunctionSymbol):
                        yield Schema(symbol.node, None, side(symbol))


def _schemas(text: str, place: Side) -> Iterator[Schema]:
    """A schema, once for each name that its first parameter may be given by; nothing where it is not read."""
    match = _SCHEMA.fullmatch(text)
    if not match:
        return
    overload, parameters, returned = match.groups()
    items = [item.strip() for item in _split(parameters)]
    if overload and overload.endswith("out"):  # what is written to may be given together
        items = [*(item for item in items if "!)" not in item), "Tensor out=None"]
    parts = [item if item == "*" else _parameter(item) for item in items if item]
    # A list of sizes may be given as so many numbers, and what makes a tensor takes names of torch's own.
    is_sizes = bool(re.match(r"(Sym)?[Ii]nt\[", items[0]))
    open_ = ", **more" if is_sizes or "Layout" in parameters else ""
    if is_sizes:
        parts = ["*sizes", *(part for part in parts[1:] if part != "*")]
    first = parts[0].partition("=")[0] if parts else ""
    if returned.startswith("("):
        returned = returned.removeprefix("(").removesuffix(")")
    values = [item for item in _split(returned) if item.strip()]
    # One tensor, or a list of them, may be taken apart into any number.
    results = None if len(values) == 1 else len(values)
    for other in sorted({first} | (_FIRST if first in _FIRST else set())):
        named = ", ".join([other + parts[0][len(first) :], *parts[1:]]) if parts else ""
        try:
            (node,) = ast.parse(f"def op({named}{open_}): ...").body
        except SyntaxError:
            return
        assert isinstance(node, Function)
        yield Schema(node, results, place)


def _parameter(item: str) -> str:
    """``name`` or ``name=None`` for ``Type name`` or ``Type name=default``."""
    declared, has_default, _ = item.partition("=")
    return f"{declared.split()[-1]}=None" if has_default else declared.split()[-1]


def _split(text: str) -> Iterator[str]:
    """The parts between commas that stand in no bracket and no string."""
    depth, quoted, start = 0, "", 0
    for place, char in enumerate(text):
        if quoted:
            quoted = "" if char == quoted else quoted
        elif char in "\"'":
            quoted = char
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and not depth:
            yield text[start:place]
            start = place + 1
    yield text[start:]
