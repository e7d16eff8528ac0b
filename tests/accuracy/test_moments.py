# SPDX-License-Identifier: Apache-2.0
"""Variances, standard deviations and means, against PyTorch's answer in float64."""

from __future__ import annotations

import pytest
import torch
from accuracy.reductions import FLOATING, LAYOUTS, SHAPES, assert_same_error, each

from flag_gems_overrides.ops.families.reduction import moments_call
from flag_gems_overrides.ops.families.reduction.launches import Configuration, Problem, launch_or_none
from flag_gems_overrides.ops.families.reduction.moments import variance
from flag_gems_overrides.ops.families.reduction.moments_call import moments
from flag_gems_overrides.ops.launch.devices import limits
from flag_gems_overrides.ops.std import std
from flag_gems_overrides.ops.var import var_correction
from flag_gems_overrides.ops.var_mean import var_mean

nan, inf = float("nan"), float("inf")
# What a result may be off by, of itself: a few roundings of the dtype in which it is computed, one of its own.
ULPS = 24


def check(x: torch.Tensor, *args, **kwargs) -> None:
    """All three, and the mean as close as the elements allow; NaN and infinities where PyTorch has them."""
    wide = x.double()
    variance, mean = var_mean(x, *args, **kwargs)
    truth, center = torch.ops.aten.var_mean.correction(wide, *args, **kwargs)
    # Of another kernel: multiplications and additions may be fused otherwise.
    ulp = torch.finfo(variance.dtype).eps
    torch.testing.assert_close(
        var_correction(x, *args, **kwargs), variance, rtol=4 * ulp, atol=4 * ulp * ulp, equal_nan=True
    )
    computed = torch.finfo(torch.promote_types(x.dtype, torch.float32)).eps
    # PyTorch's own answer to float64 is rounded more than ours: all of its elements one after the other.
    relative = ULPS * computed * (20 if x.dtype is torch.float64 else 1) + torch.finfo(x.dtype).eps
    spread = truth.sqrt().nan_to_num(0, 0).max().item() if truth.numel() else 0.0
    for ours, theirs, atol in (
        (variance, truth, 0.0),
        (std(x, *args, **kwargs), truth.sqrt(), 0.0),
        (mean, center, ULPS * computed * spread),
    ):
        assert ours.dtype == x.dtype
        theirs = theirs.to(x.dtype).double()
        torch.testing.assert_close(ours.double(), theirs, rtol=relative, atol=atol, equal_nan=True)
        assert ours.stride() == theirs.stride()


def draw(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    return (torch.randn(shape, device=device, dtype=torch.float64) + 0.25).to(dtype)


@each("dtype", FLOATING)
@each("shape", SHAPES)
def test_shapes(shape, dtype, device):
    x = draw(shape, dtype, device)
    if x.numel() != 1:
        check(x)
    if len(shape) > 1:
        dim = SHAPES.index(shape) % len(shape)
        check(x, [dim] if shape[dim] > 1 else [0, 1], keepdim=dtype is torch.float16)


@each("dims", [[0, 2], [1, 3], [0, 1], [2, 3], [0, 2, 3], [-1, 0], []])
def test_several_dimensions(dims, device):
    x = draw((7, 4, 11, 3), torch.float32, device)
    for y in x, x.permute(2, 0, 3, 1), x[:, 1:3]:
        check(y, dims)
        check(y + 1e4, dims, correction=0, keepdim=True)


@each("layout", list(LAYOUTS))
def test_layouts(layout, device):
    check(LAYOUTS[layout](draw((3, 3001, 5), torch.float32, device)), [0, 1])


@each("mean, deviation", [(1e4, 1.0), (1e8, 100.0), (-1e8, 1000.0)])
@each("shape, dims", [((40000,), None), ((3, 5001), [1]), ((5000, 3), [0]), ((2, 700, 64), [1]), ((5, 301, 4), [0, 2])])
def test_beside_a_large_mean(shape, dims, mean, deviation, device):
    check((draw(shape, torch.float64, device) * deviation + mean).float(), dims)


def test_the_first_element_far_from_all_others(device):
    """Not worse than Welford's error, which grows with what the mean is above the first element, in deviations."""
    x = draw((2, 4096), torch.float32, device) + 100
    x[:, 0] = 0
    truth = torch.var(x.double(), 1)
    assert ((var_correction(x, [1]).double() - truth).abs() / truth).max().item() < 1e-4


@each("dtype", [torch.float16, torch.bfloat16])
@each("mean", [0.0, 100.0, -1000.0])
@each("shape, dim", [((3, 2007), 1), ((3, 2000), 1), ((2, 700, 64), 1), ((2, 701, 3), 1), ((5, 40, 33), 1)])
def test_halves_beside_a_large_mean(shape, dim, mean, dtype, device):
    """Nothing is subtracted from halves before they are added."""
    check((draw(shape, torch.float64, device) + mean).to(dtype), [dim])
    check(torch.full(shape, 1 + mean, dtype=dtype, device=device), [dim])


CONFIGURATIONS = [
    (1, Configuration("rows", 16, 4, 24, 8, block_k=8)),  # several rows to a warp, in a loop
    (1, Configuration("rows", 8, 4, 24, 8)),
    (1, Configuration("rows", 8, 1, 24, 1, stages=2)),
    (1, Configuration("rows", 16, 1, 16, 1, block_k=8)),  # short ones, one or more to a thread
    (3, Configuration("classes", 8, 1, 16, 8)),
    (3, Configuration("classes", 8, 1, 16, 4)),  # with edges in float32 too
    (3, Configuration("classes", 8, 4, 16, 1, split=False)),
    (8, Configuration("classes", 8, 2, 16, 4)),
    (2, Configuration("short_classes", 2, 1, 16, 2)),
    (4, Configuration("short_classes", 8, 2, 16, 4)),  # two vectors to a thread
    (8, Configuration("short_classes", 4, 2, 16, 4)),
    (33, Configuration("columns", 8, 2, 24, 1, 32)),
    (40, Configuration("columns", 1, 1, 24, 1, 32, split=False)),  # an element to a lane
    (40, Configuration("columns", 8, 2, 24, 1, 16, stages=3)),
    (264, Configuration("columns", 32, 1, 16, 1, 128, split=False)),  # groups of elements, not a power of two
    (40, Configuration("columns", 16, 4, 24, 1, 32)),  # groups of 4 and 16 elements side by side
]


@each("dtype", [torch.bfloat16, torch.float32])
@each("K, configuration", CONFIGURATIONS)
@each("N", [2, 3, 41, 1001, 1544])
def test_configurations(N, K, configuration, dtype, device, device_with):
    """Whatever is planned; lengths that end anywhere in a tile, and in a pair of them."""
    device_with(sm_count=132)  # as many programs share a row as on an H200
    M = 5 if K < 33 else 2  # tiles of columns may end in the next [N, K]
    x = draw((M, N, K), dtype, device)
    x[:, 0] += 4
    problem = Problem(M, N, K, x.element_size(), 3)
    if launch_or_none(problem, configuration, limits(x.get_device())) is None:
        pytest.skip("not legal for this length")
    squares, mean = moments(variance, x, 1, 0.0, False, means=True, configuration=configuration)
    truth, center = torch.var_mean(x.double(), 1, correction=0)
    eps = torch.finfo(dtype).eps + ULPS * torch.finfo(torch.float32).eps
    torch.testing.assert_close(squares.double(), truth, rtol=20 * eps, atol=1e-5)
    torch.testing.assert_close(mean.double(), center, rtol=eps, atol=1e-4)


@each("dtype", FLOATING)
@each("N", [1, 2, 3, 7])
@pytest.mark.filterwarnings("ignore:var")
def test_short_rows(N, dtype, device, device_with):
    """So many to a thread that they are whole vectors; the last program has fewer."""
    device_with(sm_count=1)
    x = draw((2049, N), dtype, device)
    x[77] = 3.0
    x[2048, 0] = nan
    for correction in (0, 1):
        check(x, [1], correction=correction)
    assert N == 1 or var_mean(x, [1])[0][77] == 0.0


@each(
    "M, N, dtype",
    [
        (9, 1023, torch.float32),  # a program for each row that fills a tile
        (9, 777, torch.float32),
        (9, 2048, torch.bfloat16),
        (9, 7777, torch.float16),  # groups of whole vectors, with edges
        (9, 1543, torch.float32),  # of which some rows have an element in the last
        (9, 5240, torch.float32),
        (9, 4096, torch.bfloat16),  # all groups are full
        (300, 24, torch.float32),  # lanes that share a row
        (300, 96, torch.float32),
        (300, 66, torch.float32),
        (300, 65, torch.float32),
        (300, 33, torch.float32),
        (300, 200, torch.float32),  # of whole vectors
        (300, 424, torch.bfloat16),
        (1, 691, torch.float32),
    ],
)
def test_rows_of_one_tile(M, N, dtype, device, device_with):
    """Of more rows than are little to the device, each in one tile; the last program may have fewer."""
    device_with(sm_count=1)
    x = draw((M, N), dtype, device)
    x[:, 0] += 4
    check(x, [1])


@each("N", [776, 777, 781, 783])
@each("dtype", [torch.float16, torch.float32])
def test_groups_have_the_last_vector_of_each_row(N, dtype, device, device_with):
    """Rows begin anywhere in a vector; those that begin with a whole one have the most, which fill the groups."""
    device_with()
    x = torch.zeros(9, N, dtype=dtype, device=device)
    x[:, -16:] = torch.arange(16, device=device) + 1
    configuration = Configuration("rows", 16 // x.element_size(), 1, 24, 16 // x.element_size())
    result, mean = moments(variance, x, 1, 1.0, False, means=True, configuration=configuration)
    truth, center = torch.var_mean(x.double(), 1)
    torch.testing.assert_close(result.double(), truth, rtol=1e-3, atol=0.0)
    torch.testing.assert_close(mean.double(), center, rtol=1e-3, atol=0.0)


@each("N", [200, 301, 302, 700])
def test_classes_of_a_ramp(N, device):
    """Programs that share a row have other means, and not as many elements of each class."""
    x = draw((5, N, 3), torch.float32, device) + torch.arange(N, device=device)[:, None]
    configuration = Configuration("classes", 8, 1, 16, 4)
    result, mean = moments(variance, x, 1, 1.0, False, means=True, configuration=configuration)
    truth, center = torch.var_mean(x.double(), 1)
    torch.testing.assert_close(result.double(), truth, rtol=1e-5, atol=0.0)
    torch.testing.assert_close(mean.double(), center, rtol=1e-6, atol=0.0)


@each("dtype, K", [(torch.float32, 3), (torch.bfloat16, 5)])
@each("groups, more", [(0, 8), (3, 8), (4, 0), (5, 8), (7, 0), (11, 8)])
def test_the_last_group_of_classes(groups, more, K, dtype, device):
    """Programs that share nothing know its length: none, a step and a part of the next one, all."""
    N = groups * (84 if K == 3 else 48) + more
    x = draw((5, N, K), dtype, device)
    x[:, -1] += 4
    configuration = Configuration("classes", 8, 1, 16, 4, split=False)
    result, mean = moments(variance, x, 1, 1.0, False, means=True, configuration=configuration)
    truth, center = torch.var_mean(x.double(), 1)
    eps = torch.finfo(dtype).eps + ULPS * torch.finfo(torch.float32).eps
    torch.testing.assert_close(result.double(), truth, rtol=20 * eps, atol=1e-5)
    torch.testing.assert_close(mean.double(), center, rtol=eps, atol=1e-4)


# Both by columns; by columns and then by rows with edges, several to a program and one; in a loop, split and not.
MEANS = [
    ((2, 37, 3, 41, 5), (1, 3), Configuration("columns", 4, 1, 24, 1, 16, split=False)),
    ((2, 37, 3, 41, 5), (1, 3), Configuration("columns", 4, 1, 24, 1, 16)),
    ((151, 7, 141), (0, 2), Configuration("rows", 2, 1, 24, 2, 2, split=False)),
    ((301, 2, 299), (0, 2), Configuration("rows", 2, 1, 24, 2)),
]


@each("shape, dims, of_means", MEANS)
def test_means_in_a_loop(shape, dims, of_means, device, device_with, monkeypatch):
    """The second launch adds up sums of squares; its tiles end anywhere, with other numbers behind them."""
    first = Configuration("columns", 4, 1, 24, 1, 16)
    monkeypatch.setattr(moments_call, "_choose", lambda problem, elements, limits: first if elements else of_means)
    device_with()
    x = draw(shape, torch.float32, device) + 100
    result, mean = moments(variance, x, dims, 1.0, False, means=True)
    truth, center = torch.var_mean(x.double(), dims)
    torch.testing.assert_close(result.double(), truth, rtol=1e-5, atol=0.0)
    torch.testing.assert_close(mean.double(), center, rtol=1e-6, atol=0.0)


@each("correction", [0, 1, 0.5, 2, 5, 7.5, None])
@pytest.mark.filterwarnings("ignore:var")
def test_corrections(correction, device):
    check(draw((4, 5), torch.float32, device), [1], correction=correction)
    check(torch.tensor([[3.0], [nan], [-0.0]], device=device), [1], correction=correction)


@each("values", [(nan, 0.0), (inf, 0.0), (inf, -inf), (-inf, nan)])
def test_special_values(values, device):
    x = torch.ones(40000, device=device)
    x[[5, 33333]] = torch.tensor(values, device=device)
    assert var_mean(x)[0].isnan()
    assert std(x.view(8, -1), [0])[5].isnan()


# Rows in tiles and in groups of elements, columns in one tile and in a loop, classes of interleaved ones.
KERNELS = [((8, 5000), 1), ((7, 53), 1), ((9000, 5), 1), ((4, 16, 8), 1), ((3, 700, 40), 1), ((3, 1000, 3), 1)]
KERNELS += [((5, 2), 0)]


@each("value", [nan, inf, -inf])
@each("shape, dim", KERNELS)
def test_values_that_are_not_finite_in_every_kernel(shape, dim, value, device):
    """They stay in their result. Whether PyTorch's mean is NaN or infinite is up to where the infinity is."""
    rows = torch.ones((*(n for d, n in enumerate(shape) if d != dim), shape[dim]), device=device)
    harmed = torch.zeros(rows.shape[:-1], dtype=torch.bool, device=device)
    for result, place in ((0, 0), (1, -1), (-1, shape[dim] // 2)):
        rows.view(-1, shape[dim])[result, place] = value
        harmed.view(-1)[result] = True
    variance, mean = var_mean(rows.movedim(-1, dim).contiguous(), [dim])
    assert torch.equal(variance.isnan(), harmed)
    assert torch.equal(mean.isfinite(), ~harmed)


@each("dtype", FLOATING)
@each("sizes", [(1,), (1, 4), (1, 1)])
@pytest.mark.filterwarnings("ignore:var")
def test_mean_of_one_element_is_itself(sizes, dtype, device):
    x = torch.tensor([inf, -inf, nan, 0.0, 60000.0, -3.0], device=device, dtype=dtype)
    check(x.view(6, *[1] * len(sizes)).expand(6, *sizes).contiguous(), [1])


@each("dtype", [torch.float32, torch.bfloat16])
@each("shape, dim", KERNELS)
def test_squares_that_overflow(shape, dim, dtype, device):
    """The variance of finite numbers is infinite then, as PyTorch's, and their mean is not."""
    x = (draw(shape, torch.float64, device) * 1e25).to(dtype)
    variance, mean = var_mean(x, [dim])
    assert variance.isposinf().all()
    assert mean.isfinite().all()
    assert std(x, [dim]).isposinf().all()


@each("shape, dims", [((0,), None), ((0, 3), [0]), ((3, 0), [0]), ((), None), ((1, 3), [0]), ((2, 0, 4), [1])])
@pytest.mark.filterwarnings("ignore:var")
def test_no_element_and_one(shape, dims, device):
    for correction in (1, 0, -1):
        check(torch.ones(shape, device=device), dims, correction=correction)


@each("shape, dims", [((3, 4), [2]), ((3, 4), [0, -2]), ((), [1])])
def test_dimensions_that_are_not_there_or_come_twice(shape, dims, device):
    x = torch.ones(shape, device=device)
    for ours, theirs in ((var_mean, torch.var_mean), (std, torch.std), (var_correction, torch.var)):
        assert_same_error(lambda ours=ours: ours(x, dims), lambda theirs=theirs: theirs(x, dims))
