# SPDX-License-Identifier: Apache-2.0
"""What holds for every input, whatever PyTorch says."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from properties.strategies import DEVICE, FLOATING, INTEGER, filled_shapes, tensors, with_dim


@pytest.fixture(autouse=True, scope="module")
def dispatched():
    import flag_gems

    import flag_gems_overrides
    from flag_gems_overrides.registration import upstream

    names = [override.name for override in flag_gems_overrides.catalog()]
    with flag_gems_overrides.use_overrides(), upstream.use_gems(flag_gems, names):
        yield


def eps(tensor: torch.Tensor) -> float:
    return torch.finfo(tensor.dtype).eps


@given(with_dim(tensors(special=False)))
def test_softmax_rows_sum_to_one(case):
    x, dim = case
    y = torch.softmax(x, dim)
    total = y.double().sum(dim) if x.dim() else y.double()
    # Each of N outputs is rounded once.
    size = x.shape[dim] if x.dim() else 1
    assert torch.allclose(total, torch.ones_like(total), rtol=0, atol=eps(x) * size)
    assert (y >= 0).all()


@given(with_dim(tensors(dtypes=(torch.float32, torch.float64), special=False)), st.integers(-8, 8))
def test_softmax_does_not_see_a_shift(case, shift):
    x, dim = case
    # A shift that is exact: the values are multiples of 1/64, far from the ends of the format.
    x = (x * 64).round() / 64
    assert torch.equal(torch.softmax(x + shift, dim), torch.softmax(x, dim))


@given(with_dim(tensors(special=False)))
def test_log_softmax_is_the_logarithm_of_softmax(case):
    x, dim = case
    y = torch.log_softmax(x, dim)
    expected = torch.softmax(x.double(), dim).log()
    assert torch.allclose(y.double(), expected, rtol=2 * eps(x), atol=4 * eps(x))


@given(with_dim(tensors(dtypes=FLOATING + INTEGER)))
def test_max_is_an_element_and_its_index_points_to_it(case):
    x, dim = case
    values, indices = torch.max(x, dim, keepdim=True)
    gathered = x.gather(dim, indices)
    assert torch.equal(gathered.nan_to_num(nan=0), values.nan_to_num(nan=0))
    assert torch.equal(gathered.isnan(), values.isnan())
    assert torch.equal(values.isnan().squeeze(dim), x.isnan().any(dim))
    assert not (x > values).any()


@given(with_dim(tensors(dtypes=FLOATING + INTEGER)))
def test_max_takes_the_first_of_equals(case):
    x, dim = case
    values, indices = torch.max(x, dim, keepdim=True)
    if x.dim():
        equals = (x == values) | (x.isnan() & values.isnan())
        assert torch.equal(indices, equals.int().cumsum(dim).eq(0).sum(dim, keepdim=True))


@given(with_dim(tensors(dtypes=FLOATING + INTEGER)))
def test_the_three_maxima_agree(case):
    x, dim = case
    along = torch.max(x, dim).values
    assert torch.equal(torch.amax(x, dim).nan_to_num(nan=0), along.nan_to_num(nan=0))
    assert torch.equal(torch.max(x).isnan(), x.isnan().any())
    assert torch.equal(torch.max(x).nan_to_num(nan=0), torch.amax(x, ()).nan_to_num(nan=0))


@given(tensors(dtypes=(*INTEGER, torch.float64), special=False))
def test_product_is_the_exact_product(x):
    exact = math.prod(Fraction(value) for value in x.flatten().tolist())
    product = torch.prod(x)
    if x.is_floating_point():
        # n roundings of half an ulp each.
        assert abs(product.item() - exact) <= abs(exact) * Fraction(eps(x)) * x.numel()
    else:
        assert product.dtype == torch.int64
        wrapped = (int(exact) + 2**63) % 2**64 - 2**63
        assert product.item() == wrapped


@given(with_dim(tensors(dtypes=INTEGER)))
def test_product_along_a_dimension_then_of_the_rest_is_the_product(case):
    x, dim = case
    assert torch.equal(torch.prod(torch.prod(x, dim)), torch.prod(x))


@given(
    tensors(
        shapes=filled_shapes.filter(lambda shape: len(shape) > 0), dtypes=(torch.float32, torch.float64), special=False
    )
)
def test_layer_norm_gradients_sum_to_zero_along_the_row(x):
    x = x.detach().requires_grad_()
    dy = torch.randn(x.shape, dtype=x.dtype).to(DEVICE)
    (dx,) = torch.autograd.grad(F.layer_norm(x, x.shape[-1:]), x, dy)
    # Beside a row's own rstd, which scales dx and its rounding alike.
    rstd = (x.detach().var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
    assert ((dx / rstd).sum(-1).abs() <= 32 * eps(x) * x.shape[-1] * (1 + dy.abs().amax(-1))).all()


@given(
    tensors(shapes=st.tuples(st.integers(1, 40), st.integers(1, 40)), special=False), st.randoms(use_true_random=False)
)
def test_a_permutation_of_the_rows_permutes_the_answers(x, random):
    order = list(range(x.shape[0]))
    random.shuffle(order)
    for function in (
        lambda t: torch.softmax(t, 1),
        lambda t: torch.log_softmax(t, 1),
        lambda t: F.layer_norm(t, t.shape[1:]),
        lambda t: torch.amax(t, 1),
        lambda t: torch.prod(t, 1),
        lambda t: torch.max(t, 1).indices,
    ):
        assert torch.equal(function(x[order]), function(x)[order])
