# SPDX-License-Identifier: Apache-2.0
"""Operators that the package does not have, as policies: all that is written for one is what is here."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from flag_gems_overrides.ops.families.reduction.call import problems_of, reduce
from flag_gems_overrides.ops.families.reduction.policy import Dtypes, Policy, accumulator, promoted


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def divided(total, count, OP: tl.constexpr):
    return total / count


@triton.jit
def is_nonzero(x, OP: tl.constexpr):
    return x != 0


@triton.jit
def both(a, b):
    return a & b


@triton.jit
def square(x, OP: tl.constexpr):
    x = x.to(tl.float32)
    return x * x


@triton.jit
def root(total, count, OP: tl.constexpr):
    return tl.sqrt(total)


SUM = Policy("sum", add, lambda dtype: 0, promoted)
MEAN = Policy("mean", add, lambda dtype: 0, promoted, epilogue=divided)
COUNT_NONZERO = Policy(
    "count_nonzero",
    add,
    lambda dtype: 0,
    lambda dtype, requested, count: Dtypes(dtype, torch.int64, torch.int64),
    prologue=is_nonzero,
)
ALL = Policy(
    "all",
    both,
    lambda dtype: 1,
    lambda dtype, requested, count: Dtypes(dtype, torch.int32, torch.bool),
    prologue=is_nonzero,
)
NORM = Policy(
    "norm",
    add,
    lambda dtype: 0,
    lambda dtype, requested, count: Dtypes(dtype, accumulator(dtype), dtype),
    prologue=square,
    epilogue=root,
)

# Rows, unaligned rows, rows of classes, columns; alone and in splits. Then separate dimensions, in two and in three.
SHAPES = [((7, 5), 1), ((3, 5001), 1), ((2, 3001, 5), 1), ((5000, 30), 0), ((5, 21, 70), 1)]
SHAPES += [((9, 4, 11, 3), (0, 2)), ((3, 2, 5, 2, 4), (0, 2, 4)), ((40, 3, 50), None)]


@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool], ids=str)
def test_sum(shape, dim, dtype, device):
    x = torch.randint(0, 2, shape, device=device).to(dtype)
    assert torch.equal(reduce(SUM, x, dim, True)[0], torch.sum(x, dim, keepdim=True))


@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_prologue_and_epilogue(shape, dim, device):
    x = torch.randint(-1, 2, shape, device=device).float()
    torch.testing.assert_close(reduce(MEAN, x, dim)[0], torch.mean(x, dim))
    torch.testing.assert_close(reduce(NORM, x, dim)[0], torch.linalg.vector_norm(x, dim=dim))
    assert torch.equal(reduce(COUNT_NONZERO, x, dim)[0], torch.count_nonzero(x, dim))
    positive = x.abs() + torch.rand(shape, device=device)
    assert torch.equal(reduce(ALL, positive, dim)[0], torch.all(positive, dim) if dim is not None else positive.all())


def test_half_an_element_is_counted(device):
    """The prologue sees the element, not what the accumulator would make of it."""
    x = torch.full((6, 7), 0.5, dtype=torch.float64, device=device)
    assert reduce(COUNT_NONZERO, x, 1)[0].tolist() == [7] * 6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_separate_dimensions_neither_overflow_nor_round_in_between(dtype, device):
    """Between the launches there are 80001, which no half holds, and -80000."""
    x = torch.full((8, 3, 4000), 20.0, dtype=dtype, device=device)
    x[4:] = -20.0
    x[0, :, 0] += 1
    assert reduce(SUM, x, (0, 2))[0].tolist() == [1.0] * 3


def test_dtype_is_converted_to_first_and_summed_in_its_accumulator(device):
    x = torch.full((3, 4, 5), 1.75, device=device)
    assert reduce(SUM, x, (0, 2), dtype=torch.int32)[0].tolist() == [15] * 4
    wide = torch.tensor([[2**53, 1.0], [-(2.0**53), 0.0]], dtype=torch.float64, device=device)
    assert reduce(SUM, wide.view(2, 1, 2), (0, 2))[0].dtype is torch.float64


@pytest.mark.parametrize(
    ("shape", "dim"), [((0,), None), ((3, 0), 1), ((0, 3, 0), (0, 2)), ((0, 3, 2), (0, 2)), ((2, 0), 0), ((), None)]
)
def test_without_elements_the_result_is_the_identity_s(shape, dim, device):
    x = torch.ones(shape, device=device)
    assert torch.equal(reduce(SUM, x, dim)[0], torch.sum(x, dim))
    torch.testing.assert_close(reduce(MEAN, x, dim)[0], torch.mean(x, dim), equal_nan=True)


def test_problems_of_separate_dimensions():
    """The largest first; what is left of the tensor is the next problem."""
    assert list(problems_of([(3, True), (5, False), (7, True)])) == [(15, 7, 1), (1, 3, 5)]
    assert list(problems_of([(2, False), (3, True), (5, True), (7, False)])) == [(2, 15, 7)]
    assert list(problems_of([(4, False)])) == [(4, 1, 1)]
    assert list(problems_of([])) == [(1, 1, 1)]


def test_a_changed_function_is_compiled_again():
    dtypes = SUM.dtypes(torch.float32, None, 1)
    keys = {
        policy.arithmetic(dtypes, elements=torch.float32, first=True, last=True).cache_key for policy in (SUM, MEAN)
    }
    assert len(keys) == 2
    assert any(add.cache_key in key for key in keys)
