"""How a vLLM model renames a checkpoint's tensors while it loads them, read from the model's source.

A class says it by a ``WeightsMapper`` (``hf_to_vllm_mapper``), by a ``stacked_params_mapping`` inside its
``load_weights``, or by code that has to run; then the map is not ``sure``.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from npu_upgrade.checkpoint.registry import methods, values
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import string
from npu_upgrade.program.program import ClassSymbol

_FORMS = {"prefix": r"\A{}", "suffix": r"{}\Z"}
_ORDER = ("regex", "substr", "stacked", "prefix", "suffix")
# tensors that are no weights, and that vLLM drops or that no model has a parameter for
_DROPPED = (
    *("rotary_pos_emb.inv_freq", "rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached"),
    *(".masked_bias", "position_ids", "num_batches_tracked"),
)


@dataclass
class NameMap:
    """``rules``: kind -> {pattern: replacement, None to drop}; ``ignored``: names that may have no place."""

    rules: dict[str, dict[Any, Any]] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    sure: bool = True

    def apply(self, name: str) -> str | None:
        """The name in the model, None for a tensor that is dropped."""
        if is_dropped(name):
            return None
        for kind in _ORDER:
            for old, new in self.rules.get(kind, {}).items():
                pattern = old if kind == "regex" else _FORMS.get(kind, "{}").format(re.escape(old))
                if re.search(pattern, name):
                    if new is None:
                        return None
                    every = kind == "regex"
                    name = re.sub(pattern, new if every else lambda _, new=new: new, name, count=not every)
        return name

    def merged(self, other: NameMap) -> NameMap:
        """Both maps' rules."""
        rules = {kind: self.rules.get(kind, {}) | other.rules.get(kind, {}) for kind in _ORDER}
        return NameMap(rules, self.ignored + other.ignored, self.sure and other.sure)


def is_dropped(name: str) -> bool:
    """Whether a tensor is a buffer that no model loads."""
    return any(part in name for part in _DROPPED)


@functools.lru_cache(maxsize=256)  # each tensor's name is asked of it
def name_map(one: ClassSymbol) -> NameMap | None:
    """The map of the class's own ``load_weights``, None when neither it nor a base has one."""
    found = list(methods(one, "load_weights"))
    if not found:
        return None
    method = found[0].node
    calls = [node for node in ast.walk(method) if isinstance(node, ast.Call)]
    words = {word.arg: word.value for call in calls for word in call.keywords if word.arg}
    loads = [call for call in calls if getattr(call.func, "attr", "") == "load_weights"]
    # whether the weights are handed on as they came, under their names
    as_given = all(isinstance(call.args[0], ast.Name) for call in loads if call.args)
    result = NameMap(sure=as_given and not _renames(method))
    if "mapper" in words:
        result = result.merged(_mapper(one, words["mapper"]))
    for call in calls:  # self.mapper.apply(weights)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "apply":
            result = result.merged(_mapper(one, call.func.value))
    result.rules.setdefault("stacked", {}).update(_stacked(method))
    for key, value in words.items():
        if "prefix" in key or "substr" in key:
            result.ignored += [text for node in ast.walk(value) if (text := string(node))]
    result.ignored += list(_skipped(method))
    if any(re.fullmatch(r"super\([^()]*\)\.load_weights", ast.unparse(call.func)) for call in loads):
        above = name_map(found[1].owner) if len(found) > 1 else None
        result = result.merged(above or NameMap())
    return result


def _mapper(one: ClassSymbol, value: ast.expr, depth: int = 0) -> NameMap:
    """A mapper expression: a call, an attribute of a class or of self, or a union of those."""
    if depth > 6:
        return NameMap(sure=False)
    match value:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _mapper(one, left, depth + 1).merged(_mapper(one, right, depth + 1))
        case ast.Call(func=ast.Name(id="WeightsMapper"), keywords=keywords):
            return _called(keywords)
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            base = one if owner in ("self", "cls") else one.file.resolve(owner)
            found = next(values(base, name), None) if isinstance(base, ClassSymbol) else None
            return _mapper(*found, depth + 1) if found else NameMap(sure=False)
    return NameMap(sure=False)


def _called(keywords: list[ast.keyword]) -> NameMap:
    result = NameMap()
    for word in keywords:
        kind = (word.arg or "").removeprefix("orig_to_new_")
        if kind not in _ORDER or not isinstance(word.value, ast.Dict):
            result.sure = False
            continue
        for key, new in zip(word.value.keys, word.value.values, strict=True):
            old, target = _text(key), _text(new)
            dropped = isinstance(new, ast.Constant) and new.value is None
            if old is None or (target is None and not dropped):
                result.sure = False
            else:
                result.rules.setdefault(kind, {})[old] = target
    return result


def _text(node: ast.expr | None) -> str | None:
    """The text of a literal, of ``re.compile("...")``, or the first of a tuple (name, shard)."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.Call(args=[ast.Constant(value=str(value)), *_]):
            return value
        case ast.Tuple(elts=[ast.Constant(value=str(value)), *_]):
            return value
    return None


def _stacked(method: Function) -> dict[str, str]:
    """``(parameter, weight, shard)`` of a list in the method: weight -> parameter."""
    found: dict[str, str] = {}
    for node in ast.walk(method):
        if isinstance(node, ast.Tuple) and len(node.elts) == 3:
            parameter, weight = _text(node.elts[0]), _text(node.elts[1])
            if parameter and weight:
                found[weight] = parameter
    return found


def _renames(method: Function) -> bool:
    """Whether the method changes names in its own code."""
    changing = {"replace", "removeprefix", "removesuffix", "sub", "split", "join", "format"}
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in changing
        for node in ast.walk(method)
    ) or any(isinstance(node, ast.JoinedStr) for node in ast.walk(method))


def _skipped(method: Function) -> Iterator[str]:
    """Texts of ``if "text" in name: continue`` and of ``name.endswith("text")``: tensors it leaves out."""
    for node in ast.walk(method):
        if isinstance(node, ast.If) and any(isinstance(one, ast.Continue) for one in node.body):
            for test in ast.walk(node.test):
                match test:
                    case ast.Compare(left=ast.Constant(value=str(text)), ops=[ast.In()]):
                        yield text
                    case ast.Call(func=ast.Attribute(attr="startswith" | "endswith"), args=[argument, *_]):
                        yield from filter(None, (string(one) for one in ast.walk(argument)))
