# SPDX-License-Identifier: Apache-2.0
"""A defect's reproduction as the few lines that a pull request can show."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable

from flag_gems_overrides.upstreaming.defects import Defect
from flag_gems_overrides.upstreaming.lines import Line

# Of the script, without the blank line below its imports.
MAX_LINES = 12
# A longer line of ast.unparse is no one's idea of readable.
MAX_WIDTH = 110


def script(rows: Iterable[Defect], line: Line) -> str:
    """The first of these rows that is short enough, printing what its checks compare; empty if none is."""
    for row in rows:
        text = _script(row, line)
        lines = text.splitlines()
        if text and len(lines) <= MAX_LINES and max(map(len, lines)) <= MAX_WIDTH:
            return text
    return ""


def _script(row: Defect, line: Line) -> str:
    definition = ast.parse(textwrap.dedent(inspect.getsource(row.reproduce))).body[0]
    assert isinstance(definition, ast.FunctionDef)
    shown = _Shown()
    body = [shown.visit(statement) for statement in definition.body]
    text = "\n".join(ast.unparse(statement) for statement in body)
    tree = ast.parse(text)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    defined = {"device", "torch", "math", "aten", "print", "zip", "range", "bool", "int", "float", "getattr", "len"}
    defined |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    if names - defined:  # it needs a helper
        return ""
    functions = [line.include.get(name, name) for name in row.functions]
    head = [*(["import math"] if "math" in names else []), "import torch, flag_gems", "device = flag_gems.device"]
    head += ["aten = torch.ops.aten"] if "aten" in names else []
    return "\n".join(
        [*head, f"with flag_gems.use_gems(include={functions}):", textwrap.indent(text, "    ")],
    )


class _Shown(ast.NodeTransformer):
    """Checks print what they get, and say in a comment's place what PyTorch gives."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            return self.generic_visit(node)
        arguments = [self.visit(argument) for argument in call.args]
        if call.func.id == "check_value":  # with the dtype, which may be all that is wrong
            return _print(arguments[0], "PyTorch:", arguments[1], arguments[2])
        if call.func.id == "check_close":
            return _print(arguments[0], "PyTorch:", arguments[1])
        if call.func.id == "check_raises" and isinstance(arguments[2], ast.Lambda):
            return _print(arguments[2].body, f"PyTorch: {ast.unparse(arguments[0])}")
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return _print(self.visit(node.test), "PyTorch: True")

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "sample":
            node.func = ast.parse("torch.randn", mode="eval").body
        return node


def _print(shown: ast.expr, said: str, *expected: ast.expr) -> ast.AST:
    call = ast.Call(ast.Name("print", ast.Load()), [shown, ast.Constant(said), *expected], [])
    return ast.fix_missing_locations(ast.Expr(call))
