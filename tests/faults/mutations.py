# SPDX-License-Identifier: Apache-2.0
"""Named ways to break a kernel: every place in ops/ where one of them applies is a fault the suite must notice."""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fault:
    name: str
    """``file/function/way``, and a number from the second place of that way in the function on."""
    file: str
    source: str
    """The whole broken file."""


def _call(node: ast.AST, *names: str) -> bool:
    """Whether ``node`` calls tl.<name> or a method <name>."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names


def _keyword(node: ast.Call, name: str) -> ast.keyword | None:
    return next((keyword for keyword in node.keywords if keyword.arg == name), None)


def drop_mask(node: ast.AST) -> bool:
    if not _call(node, "load", "store", "atomic_add") or (mask := _keyword(node, "mask")) is None:
        return False
    mask.value = ast.BinOp(mask.value, ast.BitOr(), ast.Constant(True))
    return True


def wrong_other(node: ast.AST) -> bool:
    if not _call(node, "load") or (other := _keyword(node, "other")) is None:
        return False
    other.value = ast.Constant(3)
    return True


def off_by_one(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt)):
        return False
    node.ops = [ast.LtE()]
    return True


def last_tile_skipped(node: ast.AST) -> bool:
    if not _call(node, "cdiv"):
        return False
    numerator, denominator = node.args
    node.func.attr = "maximum"
    node.args = [ast.Constant(1), ast.BinOp(numerator, ast.FloorDiv(), denominator)]
    return True


def wrong_axis(node: ast.AST) -> bool:
    if not _call(node, "sum", "max", "reduce", "min") or len(node.args) < 2:
        return False
    axis = node.args[1]
    if not (isinstance(axis, ast.Constant) and axis.value in (0, 1)):
        return False
    node.args[1] = ast.Constant(1 - axis.value)
    return True


def nan_dropped(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or (keyword := _keyword(node, "propagate_nan")) is None:
        return False
    node.keywords.remove(keyword)
    return True


def wrong_divisor(node: ast.AST) -> bool:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)):
        return False
    node.right = ast.BinOp(node.right, ast.Add(), ast.Constant(1))
    return True


def sum_not_carried(node: ast.AST) -> bool:
    if not (isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)):
        return False
    node.op, node.value = ast.Mult(), ast.BinOp(node.value, ast.Mult(), ast.Constant(0))
    return True


def stride_too_long(node: ast.AST) -> bool:
    if not _call(node, "range", "static_range") or len(node.args) < 3:
        return False
    node.args[2] = ast.BinOp(node.args[2], ast.Mult(), ast.Constant(2))
    return True


def branches_swapped(node: ast.AST) -> bool:
    if not _call(node, "where"):
        return False
    node.args[1], node.args[2] = node.args[2], node.args[1]
    return True


def minus_dropped(node: ast.AST) -> bool:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)):
        return False
    node.op = ast.Add()
    return True


def larger_for_smaller(node: ast.AST) -> bool:
    if not _call(node, "maximum"):
        return False
    node.func.attr = "minimum"
    return True


IN_KERNELS: tuple[Callable[[ast.AST], bool], ...] = (
    drop_mask,
    wrong_other,
    off_by_one,
    last_tile_skipped,
    wrong_axis,
    nan_dropped,
    wrong_divisor,
    sum_not_carried,
    stride_too_long,
    branches_swapped,
    minus_dropped,
    larger_for_smaller,
)


def strides_ignored(node: ast.AST) -> bool:
    """``x.contiguous()`` becomes x read as if it were."""
    if not _call(node, "contiguous"):
        return False
    node.func.attr = "detach"
    return True


def not_zeroed(node: ast.AST) -> bool:
    if not _call(node, "zeros", "zeros_like"):
        return False
    node.func.attr = node.func.attr.replace("zeros", "empty")
    return True


ON_THE_HOST: tuple[Callable[[ast.AST], bool], ...] = (strides_ignored, not_zeroed)


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Attribute) and d.attr == "jit" for d in function.decorator_list)


def faults(file: Path) -> Iterator[Fault]:
    """Every fault that can be planted in ``file``, one at a time."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for index, function in enumerate(tree.body):
        if isinstance(function, ast.FunctionDef):
            for way in IN_KERNELS if _is_kernel(function) else ON_THE_HOST:
                for place, broken in enumerate(_each_place(tree, index, way), 1):
                    number = "" if place == 1 else f"-{place}"
                    name = f"{file.stem}/{function.name}/{way.__name__}{number}"
                    yield Fault(name, file.name, ast.unparse(ast.fix_missing_locations(broken)))


def _each_place(tree: ast.Module, index: int, way: Callable[[ast.AST], bool]) -> Iterator[ast.Module]:
    for position, node in enumerate(ast.walk(tree.body[index])):
        if isinstance(node, (ast.Call, ast.BinOp, ast.Compare, ast.AugAssign)) and way(copy.deepcopy(node)):
            broken = ast.Module([*tree.body], [])
            broken.body[index] = copy.deepcopy(tree.body[index])
            way(next(itertools.islice(ast.walk(broken.body[index]), position, None)))
            yield broken
