# SPDX-License-Identifier: Apache-2.0
"""The rows of upstream's defects as tests in upstream's conventions."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NamedTuple

import torch

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.upstreaming.defects import Defect
from flag_gems_overrides.upstreaming.lines import Line
from flag_gems_overrides.upstreaming.templates import render


class _Test(NamedTuple):
    name: str
    marks: list[str]
    include: list[str]  # for use_gems; empty if flag_gems' functions are called themselves
    title: str
    pytorch: str
    body: str


def tests(rows: Iterable[Defect], line: Line) -> str:
    """A test file of these rows; empty if none of them can show on a GPU, where upstream's tests run."""
    made: list[_Test] = []
    imports = {"import torch"}
    helpers: dict[str, str] = {}
    for row in rows:
        if all(seen.cuda is None for seen in row.upstream.values()):
            continue
        body = _body(row.reproduce)
        # flag_gems does not register what is none of aten's. Autograd goes through PyTorch's dispatcher, and so must
        # layer_norm.
        outside = any(OPERATORS[name].overload is None for name in row.functions)
        explicit = outside or (line.explicit_calls and "torch.layer_norm(" not in body)
        _gather(row.reproduce, imports, helpers)
        made.append(
            _Test(
                row.id.lower(),
                [line.marks.get(name, name) for name in row.functions],
                [] if explicit else [line.include.get(name, name) for name in row.functions],
                row.title,
                row.pytorch,
                _explicit(body, line) if explicit else textwrap.indent(body, "    "),
            )
        )
    if not made:
        return ""
    if not any("aten." in test.body for test in made):
        helpers.pop("aten", None)
    return line.header + render("test.py.j2", imports=sorted(imports), helpers=list(helpers.values()), tests=made)


def _body(function: Callable[..., object]) -> str:
    """The lines of a function below its signature; a test file imports flag_gems itself."""
    text = textwrap.dedent(inspect.getsource(function))
    definition = ast.parse(text).body[0]
    assert isinstance(definition, ast.FunctionDef)
    return "\n".join(text.splitlines()[definition.body[0].lineno - 1 :]).removeprefix("    import flag_gems\n\n")


def explicit_calls(line: Line) -> dict[str, tuple[str, str]]:
    """For each of PyTorch's functions, flag_gems' function that stands for it without a dimension, and with one; with
    an out, below the function's name and " out"."""
    functions: dict[str, tuple[str, str]] = {}
    for operator in OPERATORS.values():
        name = line.include.get(operator.name, operator.name)
        for call in operator.torch_calls:
            call += " out" * operator.name.endswith("_out")
            functions[call] = (functions.get(call, (name,))[0], name)
    return functions


def _explicit(body: str, line: Line) -> str:
    """A function's body with flag_gems' functions in the place of PyTorch's."""
    functions = explicit_calls(line)
    lines = body.splitlines()
    calls = [node for node in ast.walk(ast.parse(textwrap.dedent(body))) if isinstance(node, ast.Call)]
    shift = len(body) - len(body.lstrip())
    # From the last to the first, so that positions stay true. Upstream's lines are of ASCII: offsets are columns.
    for call in sorted(calls, key=lambda call: (call.func.lineno, call.func.col_offset), reverse=True):
        name = ast.unparse(call.func)
        key = name + " out" * any(keyword.arg == "out" for keyword in call.keywords)
        if key in functions:
            whole, along = functions[key]
            text, start = lines[call.lineno - 1], call.func.col_offset + shift
            assert text[start:].startswith(name), text
            made = f"flag_gems.{along if len(call.args) > 1 else whole}"
            lines[call.lineno - 1] = text[:start] + made + text[start + len(name) :]
    return "\n".join(lines)


def _gather(function: Callable[..., object], imports: set[str], helpers: dict[str, str]) -> None:
    """Collect the imports and helpers that a function's names stand for."""
    text = textwrap.dedent(inspect.getsource(function))
    definition = ast.parse(text).body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    values: dict[str, Any] = inspect.unwrap(function).__globals__
    for node in ast.walk(definition):
        if not isinstance(node, ast.Name) or node.id not in values or node.id in helpers:
            continue
        value = values[node.id]
        if value is torch.ops.aten:
            helpers[node.id] = "aten = torch.ops.aten"
        elif isinstance(value, ModuleType):
            imports.add(f"import {value.__name__}")
        elif value.__module__.startswith("flag_gems_overrides."):
            helpers[node.id] = ""  # so that recursion ends
            _gather(value, imports, helpers)
            helpers[node.id] = inspect.getsource(value)
        else:
            imports.add(f"from {value.__module__} import {node.id}")
