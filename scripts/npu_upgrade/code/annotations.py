"""Makes the names in annotations plain expressions, or takes away those that do not run."""

from __future__ import annotations

import ast


def with_annotations(tree: ast.Module, future: bool) -> ast.Module:
    """The tree, changed in place, with quoted types unquoted and annotations that count as code.

    ``future`` tells of ``from __future__ import annotations``; f-strings become tuples of
    their expressions. The result is for reading names only.
    """
    return _Rewrite(True, future).visit(tree)


def without_annotations(tree: ast.Module, future: bool) -> ast.Module:
    """The tree, changed in place, without the annotations that Python does not evaluate."""
    return _Rewrite(False, future).visit(tree)


class _Rewrite(ast.NodeTransformer):
    def __init__(self, keep: bool, future: bool) -> None:
        self.keep, self.future, self.in_function = keep, future, False

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        arguments = node.args
        starred = [item for item in (arguments.vararg, arguments.kwarg) if item]
        for item in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *starred]:
            item.annotation = item.annotation and self._annotation(item.annotation, self.future)
        node.returns = node.returns and self._annotation(node.returns, self.future)
        node.decorator_list = [self.visit(item) for item in node.decorator_list]
        node.args = self.visit(arguments)
        outer, self.in_function = self.in_function, True
        node.body = [self.visit(item) for item in node.body]
        self.in_function = outer
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outer, self.in_function = self.in_function, False
        self.generic_visit(node)
        self.in_function = outer
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = self._annotation(node.annotation, self.future or self.in_function)
        node.target = self.visit(node.target)
        node.value = node.value and self.visit(node.value)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        return ast.Pass() if node.module == "__future__" else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if self.keep and node.args and ast.unparse(node.func).rpartition(".")[2] == "cast":
            node.args[0] = _unquoted(node.args[0])
        return self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        # Only the names in an f-string count, and not every f-string can be unparsed.
        parts = [item for item in node.values if isinstance(item, ast.FormattedValue)]
        specs = [item.format_spec for item in parts if item.format_spec]
        return self.visit(ast.Tuple([item.value for item in parts] + specs, ast.Load()))

    def _annotation(self, node: ast.expr, idle: bool) -> ast.expr:
        if self.keep:
            return self.visit(_unquoted(node))
        return ast.Constant(None) if idle else self.visit(node)


def _unquoted(node: ast.expr) -> ast.expr:
    """A type expression with the quoted parts of it as expressions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return _unquoted(ast.parse(node.value.strip(), mode="eval").body)
        except SyntaxError:
            return node
    if isinstance(node, ast.Subscript):
        generic = ast.unparse(node.value).rpartition(".")[2]
        if generic == "Annotated" and isinstance(node.slice, ast.Tuple) and node.slice.elts:
            node.slice.elts[0] = _unquoted(node.slice.elts[0])
        elif generic != "Literal":
            node.slice = _unquoted(node.slice)
    elif isinstance(node, (ast.Tuple, ast.List)):
        node.elts = [_unquoted(item) for item in node.elts]
    elif isinstance(node, ast.BinOp):
        node.left, node.right = _unquoted(node.left), _unquoted(node.right)
    return node
