# SPDX-License-Identifier: Apache-2.0
"""aminmax and logsumexp, which keep two numbers of what they read, against PyTorch's own answer."""

from __future__ import annotations

import math

import pytest
import torch
from accuracy.reductions import (
    FEW,
    FLOATING,
    INTEGER,
    SHAPES,
    along,
    assert_same,
    assert_same_error,
    draw,
    each,
    layouts,
    put_nans,
)

from flag_gems_overrides.ops.aminmax import aminmax
from flag_gems_overrides.ops.families.reduction.pairs_call import by_lanes, choose
from flag_gems_overrides.ops.families.reduction.plan import Problem, launch
from flag_gems_overrides.ops.launch import devices
from flag_gems_overrides.ops.logsumexp import logsumexp

nan, inf = float("nan"), float("inf")


def check_aminmax(x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> None:
    actual = aminmax(x, dim, keepdim)
    assert type(actual) is torch.return_types.aminmax
    for ours, theirs in zip(actual, torch.aminmax(x, dim=dim, keepdim=keepdim), strict=True):
        assert_same(ours, theirs)


def check_logsumexp(x: torch.Tensor, dims: list[int], keepdim: bool = False) -> None:
    """Relative to the result, and to what the logarithm adds to the largest element."""
    actual, truth = logsumexp(x, dims, keepdim), torch.logsumexp(x.double(), dims, keepdim)
    assert actual.dtype == x.dtype
    assert actual.stride() == truth.stride()
    count = math.prod(x.shape[d] for d in dims if x.dim())
    computed = torch.finfo(torch.promote_types(x.dtype, torch.float32)).eps
    # PyTorch's own sum of float64 is rounded as often as ours.
    atol = (4 + min(count, 60)) * computed * (1 + math.log(max(count, 1)))
    torch.testing.assert_close(
        actual.double(), truth, rtol=2 * computed + torch.finfo(x.dtype).eps, atol=atol, equal_nan=True
    )


@each("dtype", [*FLOATING, torch.int8])
@each("N", [1, 2, 3, 7])
def test_short_rows(N, dtype, device, device_with):
    """So many to a thread that they are whole vectors; the last program has fewer."""
    device_with(sm_count=1)
    x = draw((2049, N), dtype, device)
    check_aminmax(x, 1)
    if dtype.is_floating_point:
        check_aminmax(put_nans(x), 1, True)
        x[5], x[6], x[2048] = -inf, inf, nan
        check_logsumexp(x, [1])


@each("M, N, dtype", [(77, 9, torch.float32), (99, 47, torch.bfloat16), (41, 130, torch.float16)])
@each("more", [0, 1])
def test_rows_by_few_lanes(M, N, dtype, more, device, device_with):
    _check_rows_by_lanes(M, N + 8 * more, dtype, device, device_with)


@each("N", [16, 37, 561, 901])
def test_rows_of_float64_by_few_lanes(N, device, device_with):
    _check_rows_by_lanes(35, N - N % 2 + 1, torch.float64, device, device_with)


def test_rows_of_integers_by_few_lanes(device, device_with):
    device_with(sm_count=1)
    for dtype in torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64:
        check_aminmax(draw((35, 91), dtype, device), 1)
    for N in 9, 19, 147, 255:
        check_aminmax(draw((35, N), torch.uint8, device), 1)


def _check_rows_by_lanes(M: int, N: int, dtype: torch.dtype, device: str, device_with) -> None:
    """Some lanes have an element less; the last program has fewer rows."""
    device_with(sm_count=1)
    limits = devices.limits(torch.empty(0, device=device).get_device())
    problem = Problem(M, N, 1, dtype.itemsize, 2)
    assert by_lanes(problem, launch(problem, choose(problem, True, limits), limits), limits)
    x = draw((M, N), dtype, device)
    check_aminmax(x, 1)
    check_logsumexp(x, [1])
    x = put_nans(x)
    x[0], x[3], x[4, ::2], x[5, 1], x[6, N - 1] = -inf, inf, -inf, -inf, inf
    x[7] *= 30
    check_aminmax(x, 1, True)
    check_logsumexp(x, [1], True)


def test_many_results_of_no_elements(device, device_with):
    device_with(sm_count=1)
    check_logsumexp(torch.empty((2049, 0), device=device), [1])


@each("dtype", FLOATING)
@each("shape", SHAPES)
def test_aminmax(shape, dtype, device):
    x = draw(shape, dtype, device)
    check_aminmax(x)
    for dim in along(shape):
        check_aminmax(x, dim)
        check_aminmax(put_nans(x), dim, True)


@each("dtype", INTEGER)
@each("shape", FEW)
def test_aminmax_of_integers(shape, dtype, device):
    x = draw(shape, dtype, device)
    check_aminmax(x)
    for dim in along(shape):
        check_aminmax(x, dim)
    if dtype is not torch.bool:
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        extremes = torch.tensor([[low, low, low], [high, high, high], [high - 1, high, low + 1]], device=device)
        for dim in None, 0, 1:
            check_aminmax(extremes.to(dtype), dim)


@layouts
@each("dtype", [torch.float32, torch.float16])
@each("shape", FEW)
def test_layouts(shape, dtype, layout, device):
    x = layout(draw(shape, dtype, device))
    check_aminmax(x)
    for dim in along(shape):
        check_aminmax(x, dim)
        check_logsumexp(x, [dim])


@each("values", [(nan, 0.0), (inf, 0.0), (inf, -2.0), (-inf, nan), (inf, -inf), (-inf, -inf), (-3e38, -3.4e38)])
def test_special_values(values, device):
    for others in 1.0, -inf:
        x = torch.full((40000,), others, device=device)
        x[[5, 33333]] = torch.tensor(values, device=device)
        for y, dim in (x, 0), (x.view(8, -1), 1), (x.view(8, -1).double(), 0):
            check_aminmax(y, dim)
            check_logsumexp(y, [dim])


@each("keepdim", [False, True])
@each("shape, dim", [((), 0), ((), -1), ((0, 3), -1), ((2, 0, 4), 0), ((3, 4), -2)])
def test_aminmax_of_an_empty_result_and_0_dim(shape, dim, keepdim, device):
    check_aminmax(torch.ones(shape, device=device), dim, keepdim)


@each("shape", [(), (1,), (3, 4)])
def test_aminmax_of_all_dimensions_keeps_them(shape, device):
    """As PyTorch's meta and CPU kernels do; that for CUDA warns and forgets them."""
    x = draw(shape, torch.float32, device)
    for ours, theirs in zip(aminmax(x, None, True), torch.aminmax(x.cpu(), keepdim=True), strict=True):
        assert_same(ours.cpu(), theirs)


@each("shape, dim", [((0,), None), ((2, 0), None), ((0,), 0), ((3, 0), 1), ((3, 4), 2), ((3, 4), -3), ((), 1)])
def test_aminmax_of_no_element_and_dimensions_that_are_not_there(shape, dim, device):
    x = torch.ones(shape, device=device)
    assert_same_error(lambda: aminmax(x, dim), lambda: torch.aminmax(x, dim=dim))


def test_aminmax_out(device):
    x = draw((40, 300), torch.float32, device)
    out = torch.empty(300, device=device), torch.empty(600, device=device)[::2]
    assert aminmax(x, 0, out=out)[1] is out[1]
    for ours, theirs in zip(out, torch.aminmax(x, dim=0), strict=True):
        assert torch.equal(ours, theirs)
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float, but got double instead"):
        aminmax(x, 0, out=(out[0], out[1].double()))


@each("dtype", FLOATING)
@each("shape", SHAPES)
def test_logsumexp(shape, dtype, device):
    x = draw(shape, dtype, device)
    for dim in along(shape):
        check_logsumexp(x, [dim])
        check_logsumexp(put_nans(x) * 30, [dim], True)


@each("dims", [[0, 2], [1, 3], [0, 1], [2, 3], [0, 2, 3], [-1, 0], [0, 1, 2, 3]])
def test_logsumexp_of_several_dimensions(dims, device):
    x = draw((7, 4, 11, 3), torch.float32, device) * 50
    for y in x, x.permute(2, 0, 3, 1), x[:, 1:3], torch.full_like(x, -inf), x.half():
        check_logsumexp(y, dims)
        check_logsumexp(y, dims, True)


@each("dtype", [torch.float32, torch.float64, torch.bfloat16])
@each("shape, dim", [((5, 20001), 1), ((3001, 40), 0)])
def test_logsumexp_neither_overflows_nor_vanishes(shape, dim, dtype, device):
    """Rising, falling, and far from 0: what was summed before is scaled again and again."""
    step = torch.linspace(-300, 300, shape[dim], device=device, dtype=torch.float64)
    x = step.view(-1, 1).expand(shape) if dim == 0 else step.expand(shape)
    for y in x, -x, x + 1e4, x * 1e3, -x * 1e3:
        check_logsumexp(y.to(dtype), [dim])


@each("shape, dims", [((0,), [0]), ((3, 0), [1]), ((3, 0), [0]), ((2, 0, 4), [0, 1]), ((), [0]), ((), [-1])])
def test_logsumexp_of_no_element_and_0_dim(shape, dims, device):
    x = torch.ones(shape, device=device)
    for keepdim in False, True:
        assert_same(logsumexp(x, dims, keepdim), torch.logsumexp(x, dims, keepdim))


@each("shape, dims", [((3, 4), [2]), ((3, 4), [0, -2]), ((), [1])])
def test_logsumexp_of_dimensions_that_are_not_there_or_come_twice(shape, dims, device):
    x = torch.ones(shape, device=device)
    assert_same_error(lambda: logsumexp(x, dims), lambda: torch.logsumexp(x, dims))


def test_dispatched_with_autograd(overridden, device):
    x = draw((5, 300), torch.float32, device).requires_grad_()

    def run():
        results = [torch.logsumexp(x, (0, 1)), x.logsumexp(1)]
        gradients = [torch.autograd.grad(result.sum(), x)[0] for result in results]
        # PyTorch 2.11 has no gradient of aminmax.
        return [*results, *gradients, *torch.aminmax(x.detach()), *torch.aminmax(x.detach(), dim=0)]

    native = run()
    with overridden():
        actual = run()
    for ours, theirs in zip(actual, native, strict=True):
        torch.testing.assert_close(ours, theirs)


@each("shape, dim", [((64, 64), 1), ((1, 40000), 1), ((2, 700, 24), 1)])
def test_the_same_bits_every_time(shape, dim, device):
    x = torch.randn(shape, device=device)
    first = logsumexp(x, dim)
    for _ in range(3):
        assert torch.equal(logsumexp(x, dim), first)
