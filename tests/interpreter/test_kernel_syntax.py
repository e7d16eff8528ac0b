# SPDX-License-Identifier: Apache-2.0
"""Kernels mean what the compiler makes of them, not what Python does."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

from flag_gems_overrides.interpreter import syntax

NOT_CONSTEXPR = 3
CONSTEXPR = tl.constexpr(3)
ANNOTATED: tl.constexpr = 3


@pytest.fixture
def stock_python(monkeypatch: pytest.MonkeyPatch):
    """The rewriter without one of its methods."""

    def leave_out(method: str) -> None:
        monkeypatch.delattr(syntax._Rewriter, method)
        syntax.rewritten.cache_clear()

    yield leave_out
    syntax.rewritten.cache_clear()


@triton.jit
def _copy_and(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)[:, None]
    j = tl.arange(0, BLOCK)[None, :]
    mask = i < M and j < N
    tl.store(y_ptr + i * N + j, tl.load(x_ptr + i * N + j, mask=mask), mask=mask)


def _copied(rows: int) -> torch.Tensor:
    x = torch.arange(64.0).reshape(8, 8)
    y = torch.zeros(8, 8)
    _copy_and[(1,)](x, y, rows, 8, BLOCK=8)
    return y


def test_and_is_elementwise():
    assert torch.equal(_copied(5)[:5], torch.arange(40.0).reshape(5, 8))
    assert not _copied(5)[5:].any()


def test_and_of_python_drops_the_row_mask(stock_python):
    stock_python("visit_BoolOp")
    assert _copied(5)[5:].all()


@triton.jit
def _between(y_ptr, N, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    inside = 2 <= i < N <= BLOCK
    tl.store(y_ptr + i, tl.where(inside, 1, 0))


@pytest.mark.parametrize(("n", "expected"), [(6, [0, 0, 1, 1, 1, 1, 0, 0]), (9, [0] * 8)])
def test_comparisons_in_a_row(n, expected):
    y = torch.zeros(8, dtype=torch.int32)
    _between[(1,)](y, n, BLOCK=8)
    assert y.tolist() == expected


def test_comparisons_in_a_row_of_python_are_not_elementwise(stock_python):
    stock_python("visit_Compare")
    y = torch.zeros(8, dtype=torch.int32)
    _between[(1,)](y, 6, BLOCK=8)
    assert y.tolist() != [0, 0, 1, 1, 1, 1, 0, 0]


@triton.jit
def _or_not(y_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    edge = i < 2 or i >= 6
    tl.store(y_ptr + i, tl.where(not edge, 1, 2))


def _edges() -> list[int]:
    y = torch.zeros(8, dtype=torch.int32)
    _or_not[(1,)](y, BLOCK=8)
    return y.tolist()


def test_or_and_not_are_elementwise():
    assert _edges() == [2, 2, 1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(("method", "wrong"), [("visit_BoolOp", [2, 2, 1, 1, 1, 1, 1, 1]), ("visit_UnaryOp", [2] * 8)])
def test_or_and_not_of_python_are_one_decision(stock_python, method: str, wrong: list[int]):
    stock_python(method)
    assert _edges() == wrong


@triton.jit
def _decided_on_the_left(x_ptr, y_ptr, HAS_X: tl.constexpr):
    use = HAS_X and tl.load(x_ptr) > 0
    skip = not HAS_X or tl.load(x_ptr) <= 0
    if use:
        tl.store(y_ptr, 1)
    if skip:
        tl.store(y_ptr, 2)


def test_what_the_left_side_decides_does_not_evaluate_the_right():
    y = torch.zeros(1, dtype=torch.int32)
    _decided_on_the_left[(1,)](None, y, HAS_X=False)
    assert y.item() == 2
    _decided_on_the_left[(1,)](torch.ones(1), y, HAS_X=True)
    assert y.item() == 1


@triton.jit
def _loops(y_ptr, n):
    for i in range(n):
        tl.store(y_ptr + i, i.to(tl.int64))
    for i in tl.range(4, n + 4, num_stages=2):
        tl.store(y_ptr + i, i.to(tl.int64) + n)
    for i in tl.static_range(8, 10):
        tl.store(y_ptr + i, i)


def test_a_loop_has_a_tensor_for_its_variable(stock_python):
    y = torch.zeros(10, dtype=torch.int64)
    _loops[(1,)](y, 4)
    assert y.tolist() == [0, 1, 2, 3, 8, 9, 10, 11, 8, 9]
    stock_python("visit_Call")
    with pytest.raises(InterpreterError, match="'int' object has no attribute 'to'"):
        _loops[(1,)](y, 4)


@triton.jit
def _a_number_by_name(y_ptr, n):
    total = 0
    for i in range(n):
        total += i
    tl.store(y_ptr, total.to(tl.int64))


def test_a_number_with_a_name_is_a_tensor(stock_python):
    y = torch.ones(1, dtype=torch.int64)
    _a_number_by_name[(1,)](y, 0)
    assert y.item() == 0
    stock_python("visit_Assign")
    with pytest.raises(InterpreterError, match="'int' object has no attribute 'to'"):
        _a_number_by_name[(1,)](y, 0)


def _kernel_with_a_closure(factor):
    @triton.jit
    def kernel(y_ptr):
        tl.store(y_ptr, 2 * factor)

    return kernel


def test_variables_of_an_enclosing_function_are_seen():
    y = torch.zeros(1)
    _kernel_with_a_closure(tl.constexpr(4))[(1,)](y)
    assert y.item() == 8
    with pytest.raises(NameError, match="Cannot access global variable factor"):
        _kernel_with_a_closure(4)[(1,)](y)


@triton.jit
def _scaled(x, factor=2):
    return x * factor


@triton.jit
def _calls(y_ptr, start=5):
    tl.store(y_ptr, _scaled(start))
    tl.store(y_ptr + 1, _scaled(start, factor=3))


def test_default_values():
    y = torch.zeros(2, dtype=torch.int32)
    _calls[(1,)](y)
    assert y.tolist() == [10, 15]


@triton.jit
def _reads_a_global(y_ptr):
    tl.store(y_ptr, NOT_CONSTEXPR)


@triton.jit
def _reads_constexprs(y_ptr, BLOCK: tl.constexpr = NOT_CONSTEXPR):
    tl.store(y_ptr, CONSTEXPR + ANNOTATED + BLOCK)


def test_global_variables_must_be_constexpr():
    y = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(NameError, match="Cannot access global variable NOT_CONSTEXPR"):
        _reads_a_global[(1,)](y)
    _reads_constexprs[(1,)](y)
    assert y.item() == 9


def test_nothing_is_added_to_a_kernels_module():
    before = set(globals())
    _copied(3)
    assert set(globals()) == before


def test_errors_point_to_the_kernels_own_line():
    @triton.jit
    def fails(y_ptr):
        tl.store(y_ptr, 1)
        tl.static_assert(False, "here")

    with pytest.raises(InterpreterError, match=r"fails: AssertionError.*here") as raised:
        fails[(1,)](torch.zeros(1))
    assert raised.value.__cause__ is not None
    frames = [frame for frame in _frames(raised.value.__cause__) if frame.f_code.co_name == "fails"]
    assert frames[0].f_code.co_filename == __file__


def _frames(error: BaseException):
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next
