# SPDX-License-Identifier: Apache-2.0
"""Kernel functions, rewritten so that Python runs them with the meaning that Triton's compiler gives them.

The stock interpreter leaves ``and``, ``or`` and ``not`` to Python. On a block those are one decision for all elements:
``row_mask and col_mask`` is just ``col_mask``, and a kernel that masks its stores so writes out of bounds. The compiler
takes them element by element. It also makes a loop's variable a tensor, which wraps at 32 bits and has ``.to()``.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import triton.language as tl

from flag_gems_overrides.interpreter.triton_internals import stock


@functools.cache
def rewritten(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function to run in place of ``function``; with the same globals, closure and default values."""
    lines, first = inspect.getsourcelines(function)
    definition = ast.parse(textwrap.dedent("".join(lines))).body[0]
    assert isinstance(definition, ast.FunctionDef)
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    captured = dict(zip(function.__code__.co_freevars, cells, strict=True))
    _check_globals(function, definition, captured)
    _Rewriter().visit(definition)
    # Only the body counts: decorators made the kernel, and defaults are taken from the function below.
    definition.decorator_list = []
    definition.returns = None
    for parameter in (*definition.args.posonlyargs, *definition.args.args, *definition.args.kwonlyargs):
        parameter.annotation = None
    definition.args.defaults = [ast.Constant(None) for _ in definition.args.defaults]

    around = ast.parse(f"def _around({', '.join((*_HELPERS, *captured))}):\n    return {definition.name}")
    assert isinstance(around.body[0], ast.FunctionDef)
    around.body[0].body.insert(0, definition)
    ast.fix_missing_locations(ast.increment_lineno(around, first - 1))

    namespace: dict[str, Any] = {}
    exec(compile(around, function.__code__.co_filename, "exec", dont_inherit=True), function.__globals__, namespace)
    new = namespace["_around"](**_HELPERS, **captured)
    new.__defaults__ = function.__defaults__
    return new


def _check_globals(function: Callable[..., Any], definition: ast.FunctionDef, captured: dict[str, Any]) -> None:
    """Refuse what the compiler refuses, and Python would let through."""
    scope = function.__globals__ | captured
    names = {node.id for part in definition.body for node in ast.walk(part) if isinstance(node, ast.Name)}
    for name in sorted(names.difference(function.__code__.co_varnames, scope.get("__annotations__", ()))):
        if isinstance(scope.get(name), (bool, int, float, str)):
            raise NameError(
                f"Cannot access global variable {name} from within @jit'ed function. Triton kernels can only access "
                f"global variables that are instantiated as constexpr: `{name} = triton.language.constexpr(...)`"
            )


class _Rewriter(ast.NodeTransformer):
    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """A number becomes a tensor when it gets a name, as in the compiler's loops and branches."""
        self.generic_visit(node)
        node.value = _call("_interpreter_assign", node.value)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "_interpreter_and" if isinstance(node.op, ast.And) else "_interpreter_or"
        result, *others = node.values
        for value in others:
            # A function, for what is decided by a Python value on the left must not evaluate the right.
            result = _call(name, result, ast.Lambda(args=_NO_PARAMETERS, body=value))
        return ast.copy_location(result, node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """``a < b < c``, which Python joins by ``and``. Unlike Python it evaluates all operands, at once."""
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        steps = ast.Tuple([_comparison(operator) for operator in node.ops], ast.Load())
        return _call("_interpreter_compare", ast.copy_location(steps, node), node.left, *node.comparators)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not):
            return ast.copy_location(_call("_interpreter_not", node.operand), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "range":
            node.func = ast.copy_location(ast.Name("_interpreter_range", ast.Load()), node.func)
        return node


_NO_PARAMETERS = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def _comparison(operator: ast.cmpop) -> ast.expr:
    """A function that compares two operands."""
    step = ast.parse("lambda left, right: left == right", mode="eval").body
    assert isinstance(step, ast.Lambda)
    assert isinstance(step.body, ast.Compare)
    step.body.ops = [operator]
    return step


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), list(arguments), []), arguments[0])


def _assign(value: Any) -> Any:
    return stock.interpreter_semantic.to_tensor(value, False)


def _and(left: Any, right: Callable[[], Any]) -> Any:
    return left.logical_and(_assign(right())) if isinstance(left, tl.tensor) else left and right()


def _or(left: Any, right: Callable[[], Any]) -> Any:
    return left.logical_or(_assign(right())) if isinstance(left, tl.tensor) else left or right()


def _compare(steps: tuple[Callable[[Any, Any], Any], ...], *operands: Any) -> Any:
    results = [step(*pair) for step, pair in zip(steps, itertools.pairwise(operands), strict=True)]
    return functools.reduce(lambda left, right: _and(left, lambda: right), results)


def _not(value: Any) -> Any:
    return value.__not__() if isinstance(value, tl.tensor) else not value


def loop(*bounds: Any, **options: Any) -> Iterator[Any]:
    """``range`` and ``tl.range``. The compiler's options for the loop change nothing here."""
    for i in range(*bounds):
        yield _assign(i)


# They reach the rewritten function as variables of a function around it, not as globals of its module.
_HELPERS: dict[str, Callable[..., Any]] = {
    "_interpreter_assign": _assign,
    "_interpreter_and": _and,
    "_interpreter_or": _or,
    "_interpreter_compare": _compare,
    "_interpreter_not": _not,
    "_interpreter_range": loop,
}
