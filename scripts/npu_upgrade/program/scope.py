"""Where a function stands, and what its calls may reach."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from npu_upgrade.code.signatures import Function, is_bound, last_name
from npu_upgrade.program.bindings import Locals, locals_of
from npu_upgrade.program.program import ClassSymbol, File, Method

How = Literal["self", "super", "name", "attribute"]


@dataclass(frozen=True)
class Scope:
    """A function with where it stands; ``cls`` is the class of ``self``, ``owner`` the one that has it."""

    file: File
    node: Function | ast.Module
    owner: ClassSymbol | None = None
    cls: ClassSymbol | None = None

    @property
    def name(self) -> str:
        if isinstance(self.node, ast.Module):
            return ""
        return f"{self.owner.name}.{self.node.name}" if self.owner else self.node.name

    @property
    def self_name(self) -> str | None:
        """The name of the object a method works on."""
        if self.owner is None or isinstance(self.node, ast.Module) or not is_bound(self.node):
            return None
        return next((arg.arg for arg in [*self.node.args.posonlyargs, *self.node.args.args]), None)

    @property
    def first(self) -> str | None:
        """The name of the object, None in a class method."""
        on_class = isinstance(self.node, ast.Module) or "classmethod" in decorators(self.node)
        return None if on_class else self.self_name

    @property
    def locals(self) -> Locals:
        return locals_of(self.node)


def scope_of(cls: ClassSymbol, method: Method) -> Scope:
    """Where a method's names and its ``self`` are looked up when it runs on an object of ``cls``."""
    return Scope(method.owner.file, method.node, method.owner, cls)


def decorators(node: Function) -> set[str]:
    """The last names of a function's decorators."""
    return set(map(last_name, node.decorator_list))


@dataclass(frozen=True)
class Callee:
    """A function a call may reach; ``owner`` is the class of a method or constructor.

    ``bound``: its first parameter comes from the object it is called on. ``by`` tells how it was
    found: ``self``, ``super``, ``name`` (an imported function or class), ``attribute`` (typed by
    what ``self.x`` or a local name is set to).
    """

    node: Function
    file: File
    owner: ClassSymbol | None
    bound: bool
    by: How
    makes: ClassSymbol | None = None

    @property
    def name(self) -> str:
        if self.makes:
            return self.makes.name
        return f"{self.owner.name}.{self.node.name}" if self.owner else self.node.name
