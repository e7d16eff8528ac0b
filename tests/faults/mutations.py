# SPDX-License-Identifier: Apache-2.0
"""Named ways to break a kernel: every place in ops/ where one of them applies is a fault the suite must notice.

Memory orders and barriers are not among them: the interpreter runs one program at a time, so only a GPU can show them.
"""

from __future__ import annotations

import ast
import itertools
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

Way = Callable[[ast.AST], bool]


@dataclass(frozen=True)
class Fault:
    name: str
    """``family/file/function/way: place``, and a number from the second place with the same text on."""
    function: str
    """``family/file/function``"""
    module: str
    right: str
    """The whole file as it is."""
    way: Way
    where: tuple[int, int]
    """The function's index in the file, and the position in the function of what is broken."""

    def source(self) -> str:
        """The whole broken file. There are thousands of faults: only for those that are planted is it made."""
        index, position = self.where
        tree = ast.parse(self.right)
        self.way(next(itertools.islice(ast.walk(tree.body[index]), position, None)))
        return ast.unparse(ast.fix_missing_locations(tree))


def _call(node: ast.AST, *names: str) -> bool:
    """Whether ``node`` calls tl.<name>, a method <name> or a function <name>."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    return getattr(function, "attr", None) in names or getattr(function, "id", None) in names


def _keyword(node: ast.Call, name: str) -> ast.keyword | None:
    return next((keyword for keyword in node.keywords if keyword.arg == name), None)


def _drop_keyword(node: ast.AST, name: str) -> bool:
    if not isinstance(node, ast.Call) or (keyword := _keyword(node, name)) is None:
        return False
    node.keywords.remove(keyword)
    return True


def _is_int64(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "int64"


def _one_less(node: ast.expr, by: ast.expr | None = None) -> ast.expr:
    return ast.BinOp(node, ast.Sub(), by or ast.Constant(1))


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


def drop_other(node: ast.AST) -> bool:
    return _call(node, "load") and _drop_keyword(node, "other")


OTHER_ORDER = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}


def off_by_one(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OTHER_ORDER):
        return False
    node.ops = [OTHER_ORDER[type(node.ops[0])]()]
    return True


def last_tile_skipped(node: ast.AST) -> bool:
    """The last iteration of a loop, or the last of a count of tiles."""
    if _call(node, "cdiv"):
        numerator, denominator = node.args
        node.func.attr = "maximum"
        node.args = [ast.Constant(1), ast.BinOp(numerator, ast.FloorDiv(), denominator)]
    elif _call(node, "range", "static_range"):
        stop = 0 if len(node.args) == 1 else 1
        node.args[stop] = _one_less(node.args[stop], node.args[2] if len(node.args) > 2 else None)
    else:
        return False
    return True


def wrong_axis(node: ast.AST) -> bool:
    if not _call(node, "sum", "max", "reduce", "min", "fold") or len(node.args) < 2:
        return False
    if getattr(node.func, "id", "fold") != "fold":
        return False  # Python's own max
    axis = node.args[1]
    if not (isinstance(axis, ast.Constant) and axis.value in (0, 1)):
        return False
    node.args[1] = ast.Constant(1 - axis.value)
    return True


def nan_dropped(node: ast.AST) -> bool:
    """A maximum that does not propagate NaN, or ``x != x`` taken for granted."""
    if isinstance(node, ast.Compare) and ast.dump(node.left) == ast.dump(node.comparators[0]):
        node.left = node.comparators[0] = ast.Constant(0)
        return True
    return _drop_keyword(node, "propagate_nan")


def offset_in_32_bits(node: ast.AST) -> bool:
    if _call(node, "to", "cast", "full") and _is_int64(node.args[-1]):
        node.args[-1].attr = "int32"
    elif isinstance(node, ast.IfExp) and _is_int64(node.body):
        node.body.attr = "int32"
    else:
        return False
    return True


def store_left_out(node: ast.AST) -> bool:
    """Nothing written: no result, nothing published for the programs that wait, a counter not left zero."""
    if not (isinstance(node, ast.Expr) and _call(node.value, "store", "atomic_xchg", "publish", "store_piece")):
        return False
    node.value = ast.Constant(None)
    return True


def not_waited_for(node: ast.AST) -> bool:
    if not isinstance(node, ast.While):
        return False
    node.test = ast.Constant(False)
    return True


def counted_twice(node: ast.AST) -> bool:
    """A counter of programs that runs ahead, so that a program that is not the last takes itself for the last."""
    if not _call(node, "atomic_add"):
        return False
    node.args[1] = ast.Constant(2)
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


def smaller_for_larger(node: ast.AST) -> bool:
    if not _call(node, "maximum", "minimum"):
        return False
    node.func.attr = "minimum" if node.func.attr == "maximum" else "maximum"
    return True


IN_KERNELS: tuple[Way, ...] = (
    drop_mask,
    wrong_other,
    drop_other,
    off_by_one,
    last_tile_skipped,
    wrong_axis,
    nan_dropped,
    offset_in_32_bits,
    store_left_out,
    not_waited_for,
    counted_twice,
    wrong_divisor,
    sum_not_carried,
    stride_too_long,
    branches_swapped,
    minus_dropped,
    smaller_for_larger,
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


ON_THE_HOST: tuple[Way, ...] = (strides_ignored, not_zeroed, offset_in_32_bits)


BREAKABLE = (ast.Call, ast.BinOp, ast.Compare, ast.AugAssign, ast.Expr, ast.IfExp, ast.While)


def _is_kernel(function: ast.FunctionDef) -> bool:
    """Whether ``triton.jit`` decorates it, with options or without."""
    decorators = (d.func if isinstance(d, ast.Call) else d for d in function.decorator_list)
    return any(isinstance(d, ast.Attribute) and d.attr == "jit" for d in decorators)


def faults(source: str, module: str, place: str) -> Iterator[Fault]:
    """Every fault that can be planted in a module, one at a time.

    Args:
        place: what the module is called in the faults' names.
    """
    seen: Counter[str] = Counter()
    for index, function in enumerate(ast.parse(source).body):
        if isinstance(function, ast.FunctionDef):
            inside = f"{place}/{function.name}"
            for position, way, text in _each_place(function, IN_KERNELS if _is_kernel(function) else ON_THE_HOST):
                name = f"{inside}/{way.__name__}: {text}"
                seen[name] += 1
                number = "" if seen[name] == 1 else f" ({seen[name]})"
                yield Fault(name + number, inside, module, source, way, (index, position))


def _each_place(function: ast.FunctionDef, ways: Iterable[Way]) -> Iterator[tuple[int, Way, str]]:
    """A way that does not apply leaves its node as it was."""
    for position, node in enumerate(ast.walk(function)):
        if isinstance(node, BREAKABLE):
            whole = pickle.dumps(node)
            tried = pickle.loads(whole)
            for way in ways:
                if way(tried):
                    yield position, way, ast.unparse(node).split("\n")[0]
                    tried = pickle.loads(whole)
