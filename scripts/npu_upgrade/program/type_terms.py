"""What is known of a value: the classes it may be an instance of, or a container of such values."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from npu_upgrade.code.signatures import Function, places_of
from npu_upgrade.code.walk import last_name
from npu_upgrade.program.program import ClassSymbol, File, Method

_SEQUENCES = {"list", "List", "Sequence", "Iterable", "Iterator", "set", "Set", "frozenset", "deque"}
_MAPPINGS = {"dict", "Dict", "Mapping", "MutableMapping", "defaultdict", "OrderedDict"}
_WRAPPERS = {"Optional", "Annotated", "Final", "ClassVar", "SkipValidation"}


@dataclass(frozen=True)
class Tensor:
    """A torch tensor, of which the trees have no source."""

    name: str = "torch.Tensor"


@dataclass(frozen=True)
class Container:
    """A list or set (``key`` is None) or a dict of values of a known type."""

    key: Type | None
    item: Type
    mapping: bool = False


Term = ClassSymbol | Tensor | Container
# None: nothing is known. The empty set: always None.
Type = frozenset[Term]
TENSOR = Tensor()


def union(types: Iterable[Type | None]) -> Type | None:
    """One of several types; unknown as soon as one of them is."""
    found: set[Term] = set()
    for item in types:
        if item is None:
            return None
        found |= item
    return frozenset(found)


def classes(known: Type | None) -> list[ClassSymbol]:
    """The classes of a type, empty when it may be anything else too."""
    if not known or not all(isinstance(term, ClassSymbol) for term in known):
        return []
    return [term for term in known if isinstance(term, ClassSymbol)]


def element(known: Type | None, key: bool = False) -> Type | None:
    """What iterating gives (``key``) or what an index gives, of a container."""
    terms = list(known or ())
    if len(terms) != 1 or not isinstance(terms[0], Container):
        return None
    return terms[0].key if key and terms[0].mapping else terms[0].item


def is_mapping(known: Type | None) -> bool:
    """Whether a value is a dictionary of known values, and nothing else."""
    terms = list(known or ())
    return len(terms) == 1 and isinstance(terms[0], Container) and terms[0].mapping


def annotated(file: File, node: ast.expr | None) -> Type | None:
    """The type that an annotation in ``file`` names; None for anything outside the trees."""
    if node is None:
        return None
    if isinstance(node, ast.Constant):
        return _constant(file, node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return union([annotated(file, node.left), annotated(file, node.right)])
    if isinstance(node, ast.Subscript):
        return _subscripted(file, node)
    if isinstance(node, (ast.Name, ast.Attribute)):
        return _named(file, node)
    return None


def _constant(file: File, value: object) -> Type | None:
    if value is None:
        return frozenset()
    try:
        return annotated(file, ast.parse(value, mode="eval").body) if isinstance(value, str) else None
    except SyntaxError:
        return None


def _subscripted(file: File, node: ast.Subscript) -> Type | None:
    name = last_name(node)
    arguments = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name in _WRAPPERS:
        return annotated(file, arguments[0])
    if name == "Union":
        return union(annotated(file, item) for item in arguments)
    if name in _SEQUENCES:
        item = annotated(file, arguments[0])
        return frozenset({Container(None, item)}) if item else None
    if name in _MAPPINGS and len(arguments) == 2:
        item = annotated(file, arguments[1])
        return frozenset({Container(annotated(file, arguments[0]), item, True)}) if item else None
    return None


def _named(file: File, node: ast.Name | ast.Attribute) -> Type | None:
    text = ast.unparse(node)
    if text in ("torch.Tensor", "Tensor"):
        return frozenset({TENSOR})
    found = file.resolve(text)
    if not isinstance(found, ClassSymbol):
        # Under ``if TYPE_CHECKING:`` a name may be an import in one branch and a value in the other.
        several = (file.program.imported(item) for item in file.imports.get(text, []))
        found = next((symbol for symbol in several if isinstance(symbol, ClassSymbol)), None)
    return frozenset({found}) if isinstance(found, ClassSymbol) else None


_KINDS = {"classmethod", "staticmethod"}
_HARMLESS = _KINDS | {"cache", "lru_cache", "final", "override", "abstractmethod"}


def made_by(cls: ClassSymbol, name: str) -> list[ClassSymbol]:
    """The classes of what ``cls.name(...)`` gives; empty when the trees do not tell."""
    method = cls.lookup(name)
    if method is None or any(name in owner.fields or name in owner.assigned for owner in cls.mro):
        return []
    kinds = {last_name(node) for node in method.node.decorator_list}
    if not kinds & _KINDS or kinds - _HARMLESS or isinstance(method.node, ast.AsyncFunctionDef):
        return []
    if "classmethod" in kinds and (_names_self(method.node.returns) or _returns_own(method)):
        return [cls]
    return sorted(classes(annotated(method.owner.file, method.node.returns)), key=lambda item: item.name)


def _names_self(hint: ast.expr | None) -> bool:
    if isinstance(hint, ast.Constant):
        return hint.value == "Self"
    return hint is not None and last_name(hint) == "Self"


def _returns_own(method: Method) -> bool:
    """Whether all it returns are objects that it makes of the class it is called on."""
    places = places_of(method.node.args)
    first = places[0].arg if places else ""
    statements = list(own_statements(method.node))
    names = _set_by(statements, first)
    values = [item.value for item in statements if isinstance(item, ast.Return)]
    made = [_calls(value, first) or (isinstance(value, ast.Name) and value.id in names) for value in values]
    return bool(made) and all(made)


def _set_by(statements: list[ast.stmt], first: str) -> set[str]:
    """The local names that are set to a new object of the class, and to nothing else."""
    found: dict[str, bool] = {}
    for item in statements:
        targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
        value = item.value if isinstance(item, (ast.Assign, ast.AnnAssign)) else None
        for target in targets:
            if isinstance(target, ast.Name):
                found[target.id] = found.get(target.id, True) and _calls(value, first)
    return {name for name, made in found.items() if made}


def _calls(value: ast.expr | None, first: str) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == first


def own_statements(node: Function) -> Iterator[ast.stmt]:
    """The statements of a function, without those of functions and classes in it."""
    stack: list[ast.AST] = list(node.body)
    while stack:
        item = stack.pop()
        if isinstance(item, ast.stmt):
            yield item
        if not isinstance(item, (Function, ast.ClassDef, ast.expr)):
            stack += ast.iter_child_nodes(item)
