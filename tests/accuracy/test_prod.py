# SPDX-License-Identifier: Apache-2.0
"""prod and prod.dim_int."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from accuracy.reductions import (
    FEW,
    FEW_WITH_DIM,
    FLOATING,
    INTEGER,
    SHAPES,
    WITH_DIM,
    assert_same,
    assert_same_error,
    draw,
    draw_exact_factors,
    draw_factors,
    each,
    layouts,
)

from flag_gems_overrides.ops.prod import prod, prod_dim

nan, inf = float("nan"), float("inf")


def _check(actual: torch.Tensor, native: torch.Tensor, x: torch.Tensor, dim: int | None = None) -> None:
    """``actual`` is the product of ``x`` as far as rounding allows.

    One rounding is uniform within half a unit in the last place, so n of them have a standard deviation of sqrt(n / 12)
    of it; six of those, or the worst case if that is less, are allowed, and half a unit of the result's own dtype.
    """
    assert actual.dtype == native.dtype
    assert actual.shape == native.shape
    if not x.is_floating_point():
        assert torch.equal(actual, native)
        return
    # 64 bits of mantissa: float64 is judged like the others.
    wide = x.double().cpu().numpy().astype(np.longdouble)
    truth = wide.prod() if dim is None else wide.prod(axis=dim if wide.ndim else None)
    computed_in = torch.float64 if x.dtype is torch.float64 else torch.float32
    n = x.numel() if dim is None or x.dim() == 0 else x.shape[dim]
    allowed = min(n, (3 * n) ** 0.5) * torch.finfo(computed_in).eps
    if x.dtype is not computed_in:
        allowed += torch.finfo(x.dtype).eps / 2
    error = np.abs(actual.double().cpu().numpy() - truth.reshape(actual.shape)) / np.abs(truth.reshape(actual.shape))
    assert (error <= allowed).all(), f"relative error {error.max():.3g} above {allowed:.3g}"


@each("dtype", FLOATING)
@each("shape", SHAPES)
def test_whole(shape, dtype, device):
    if math.prod(shape) <= 65536:
        x = draw_factors(shape, math.prod(shape), dtype, device)
        _check(prod(x), torch.prod(x), x)
    x = draw_exact_factors(shape, dtype, device)
    assert_same(prod(x), torch.prod(x))


@each("dtype", FLOATING)
@each("shape, dim", WITH_DIM)
def test_along_a_dimension(shape, dim, dtype, device):
    count = shape[dim] if shape else 1
    if count <= 65536 and math.prod(shape) <= 10**6:
        x = draw_factors(shape, count, dtype, device)
        _check(prod_dim(x, dim), torch.prod(x, dim), x, dim)
    x = draw_exact_factors(shape, dtype, device)
    assert_same(prod_dim(x, dim), torch.prod(x, dim))


@each("dtype", INTEGER)
@each("shape", FEW)
def test_integers_are_promoted(shape, dtype, device):
    x = draw_factors(shape, 1, dtype, device)
    for source in (x, draw(shape, dtype, device)):
        assert_same(prod(source), torch.prod(source))
        assert_same(prod_dim(source, 0), torch.prod(source, 0))


@each("dtype", [torch.float64, torch.float16, torch.int64, torch.int32, torch.int8, torch.bool])
@each("source", [torch.float32, torch.bfloat16, torch.int32, torch.bool])
def test_dtype_is_converted_to_first(source, dtype, device):
    x = draw_factors((6, 5), 5, source, device) * (1 if source is torch.bool else 2)
    x = x.to(source)
    _check(prod_dim(x, 1, dtype=dtype), torch.prod(x, 1, dtype=dtype), x.to(dtype), 1)
    _check(prod(x[:1], dtype=dtype), torch.prod(x[:1], dtype=dtype), x[:1].to(dtype))


def test_int64_is_exact(device):
    x = torch.full((2, 21), 3, dtype=torch.int64, device=device)
    assert prod(x[0]).item() == 3**21
    assert prod_dim(x, 1).tolist() == [3**21] * 2
    odd = torch.randint(-(2**62), 2**62, (9999,), device=device) * 2 + 1
    assert_same(prod(odd), torch.prod(odd))  # modulo 2**64


def test_float64_is_exact(device):
    assert prod(torch.tensor([1 + 1e-9, 1.0], dtype=torch.float64, device=device)).item() == 1 + 1e-9


@each("dtype", [torch.float16, torch.bfloat16])
@each("size", [32, 40000])
def test_partial_products_may_exceed_a_half(size, dtype, device):
    x = torch.ones(size, dtype=dtype, device=device)
    x[:16], x[-16:] = 4.0, 0.25
    assert prod(x).item() == 1.0
    assert prod_dim(x.view(2, -1), 0).float().prod().item() == 1.0


@each("values", [(nan, 0.0), (inf, 0.0), (inf, -2.0), (0.0, -1.0), (-inf, nan)])
def test_special_values(values, device):
    x = torch.ones(40000, device=device)
    x[[5, 33333]] = torch.tensor(values, device=device)
    for actual, native in ((prod(x), torch.prod(x)), (prod_dim(x.view(8, -1), 0), torch.prod(x.view(8, -1), 0))):
        assert_same(actual, native)


@layouts
@each("dtype", [torch.float32, torch.bfloat16])
@each("shape, dim", FEW_WITH_DIM)
def test_layouts(shape, dim, dtype, layout, device):
    x = layout(draw_exact_factors(shape, dtype, device))
    assert_same(prod(x), torch.prod(x))
    assert_same(prod_dim(x, dim), torch.prod(x, dim))


@each("shape, dim", [((0,), 0), ((3, 0), 1), ((3, 0), 0), ((0, 3), -1), ((2, 0, 4), 1), ((), -1)])
@each("keepdim", [False, True])
@each("dtype", [torch.float32, torch.int32])
def test_empty_and_0_dim(shape, dim, keepdim, dtype, device):
    x = torch.ones(shape, dtype=dtype, device=device)
    assert_same(prod_dim(x, dim, keepdim), torch.prod(x, dim, keepdim))
    assert_same(prod(x), torch.prod(x))


@each("shape, dim", [((3, 4), 2), ((3, 4), -3), ((), 1)])
def test_dim_out_of_range(shape, dim, device):
    x = torch.ones(shape, device=device)
    assert_same_error(lambda: prod_dim(x, dim), lambda: torch.prod(x, dim))


@pytest.mark.parametrize("dim", [None, 0, 1])
def test_dispatched_with_autograd(dim, overridden, device):
    def run():
        x = draw_factors((5, 300), 300, torch.float32, device).requires_grad_()
        torch.manual_seed(1)
        y = torch.prod(x) if dim is None else torch.prod(x, dim, keepdim=True)
        (grad,) = torch.autograd.grad(y.sum(), x)
        return y.detach(), grad

    torch.manual_seed(1)
    native = run()
    torch.manual_seed(1)
    with overridden():
        actual = run()
    for ours, theirs in zip(actual, native, strict=True):
        torch.testing.assert_close(ours, theirs)
