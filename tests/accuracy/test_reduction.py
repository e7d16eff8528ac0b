# SPDX-License-Identifier: Apache-2.0
"""Every reduction, against PyTorch's own answer."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from accuracy.reductions import (
    FEW,
    FLOATING,
    INTEGER,
    ON_GPU,
    REDUCTIONS,
    SHAPES,
    along,
    assert_same,
    check,
    check_everywhere,
    check_outcome,
    check_rounded,
    draw,
    each,
    layouts,
    put_nans,
    reductions,
)

from flag_gems_overrides.ops.families.reduction import defaults, plan
from flag_gems_overrides.perf.launches import captured

nan, inf = float("nan"), float("inf")
# In the interpreter these take the ways of (64, 64), (5000, 3) and (3, 5000), and longer.
REPEATED = [((2, 700, 64), 0), ((2, 700, 64), 2), ((50, 4, 300), 1), ((3, 3001, 5), 0), ((3, 3001, 5), 2)]
WITH_DIM = [(shape, dim) for shape in SHAPES for dim in along(shape) if ON_GPU or (shape, dim) not in REPEATED]
FEW_WITH_DIM = [(shape, dim) for shape in FEW for dim in along(shape)]

every = reductions()
with_dim = reductions(lambda op: op.dim is not None)
whole = reductions(lambda op: op.whole)
several = reductions(lambda op: op.several)
rounding = reductions(lambda op: op.rounds)
selecting = reductions(lambda op: op.dim is not None and op.selects)


@whole
@each("dtype", FLOATING)
@each("shape", SHAPES)
def test_whole(shape, dtype, op, device):
    x = op.draw_exact(shape, dtype, device)
    check(op, x)
    check(op, put_nans(x))


@with_dim
@each("dtype", FLOATING)
@each("shape, dim", WITH_DIM)
def test_along_a_dimension(shape, dim, dtype, op, device):
    x = op.draw_exact(shape, dtype, device)
    check(op, x, dim)
    check(op, put_nans(x), dim, True)


@with_dim
@each("dtype", FLOATING)
@each(
    "shape",
    [
        (70, 17, 2),
        (33, 41, 4),
        (9, 10, 8),
        (37, 24, 3),
        (35, 32, 5),
        (9, 200, 7),
        (9, 150, 6),
    ],
)
def test_short_matrices_of_few_columns(shape, dtype, op, device, monkeypatch):
    """As many of them are read."""
    monkeypatch.setattr(defaults, "MIN_BYTES_OF_CLASSES", 0)
    x = op.draw_exact(shape, dtype, device)
    check(op, x, 1)
    check(op, put_nans(x), 1, True)


@with_dim
@each("dtype", FLOATING)
@each("shape", [(3, 700, 35), (2, 301, 99)])
def test_programs_within_a_matrix(shape, dtype, op, device, device_with):
    device_with(sm_count=2, l2_bytes=0)
    x = op.draw_exact(shape, dtype, device)
    check(op, x, 1)
    check(op, put_nans(x), 1, True)


@with_dim
@each("dtype", FLOATING)
@each("N", [20001, 33002, 8193])
def test_tiles_of_long_rows_from_whole_lines(N, dtype, op, device, device_with):
    """Several tiles to a program: before and after them is up to a line."""
    device_with(sm_count=1)
    x = op.draw_exact((3, N), dtype, device)
    check(op, x, 1)
    check(op, put_nans(x), 1, True)


@with_dim
@each("N", [258, 294])
def test_even_rows_two_at_a_time(N, op, device, device_with):
    device_with(sm_count=1)
    x = op.draw_exact((23, N), torch.float32, device)
    check(op, x, 1)
    check(op, put_nans(x), 1, True)


BY_SINGLE_WARPS = [
    (23, 301, torch.float16),
    (18, 545, torch.bfloat16),
    (13, 1002, torch.float16),
    (39, 1101, torch.int8),
]
BY_SEVERAL_WARPS = [(35, 437, torch.float32), (35, 437, torch.int32), (27, 301, torch.float64)]


@with_dim
@each("M, N, dtype", BY_SINGLE_WARPS + BY_SEVERAL_WARPS)
def test_rows_with_edges_of_several_programs(M, N, dtype, op, device, device_with):
    """Single warps have one row of 16 bits or two of bytes; several warps reduce their rows before the edges. The last
    program has fewer rows."""
    device_with(sm_count=1)
    if dtype not in op.dtypes:
        return
    x = op.draw_exact((M, N), dtype, device)
    check(op, x, 1)
    if dtype.is_floating_point:
        check(op, put_nans(x), 1, True)


@with_dim
def test_many_columns_of_less_than_a_vector_of_bytes(op, device, device_with):
    device_with(sm_count=1)
    if torch.int8 in op.dtypes:
        check(op, op.draw_exact((180, 14, 12), torch.int8, device), 1)


@with_dim
@each("M, dtype", [*itertools.product((2, 7), (torch.float16, torch.bfloat16)), *((1, dtype) for dtype in FLOATING)])
def test_rows_with_edges_in_one_large_tile(M, dtype, op, device, device_with):
    """Of one row for the multiprocessor any, else of 16 bits."""
    device_with(sm_count=1)
    x = op.draw_exact((M, 12301), dtype, device)
    check(op, x, 1)
    check(op, put_nans(x), 1, True)


@with_dim
@each("dtype", FLOATING)
@each("N", [1, 2, 3, 4, 7])
def test_short_rows(N, dtype, op, device, device_with):
    """So many to a thread that they are whole vectors; the last program has fewer."""
    device_with(sm_count=1)
    x = op.draw_exact((2049, N), dtype, device)
    check(op, x, 1)
    check(op, put_nans(x), 1, True)


@with_dim
@each("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.int64])
@each("N", [9, 33, 83, 127])
def test_short_odd_rows_by_lanes(N, dtype, op, device, device_with):
    """Lanes have whole groups of a row, and some of them one element more; the last program has fewer rows."""
    device_with(sm_count=1)
    if dtype not in op.dtypes or (dtype is torch.int64 and N > 31):
        return
    x = op.draw_exact((2051, N), dtype, device)
    check(op, x, 1)
    if dtype.is_floating_point:
        check(op, put_nans(x), 1, True)


@rounding
@each("dtype", FLOATING)
@each("shape", SHAPES)
def test_rounding(shape, dtype, op, device):
    """Of long rows and of large tensors, exact results are judged."""
    if op.whole and math.prod(shape) <= 65536:
        check_rounded(op, op.draw(shape, math.prod(shape), dtype, device))
    for dim in along(shape) if op.dim is not None else ():
        count = shape[dim] if shape else 1
        if count <= 65536 and math.prod(shape) <= 10**6:
            check_rounded(op, op.draw(shape, count, dtype, device), dim)


@every
@each("dtype", INTEGER)
@each("shape", FEW)
def test_integers(shape, dtype, op, device):
    if dtype in op.dtypes:
        check_everywhere(op, draw(shape, dtype, device))
        if op.rounds:
            check_everywhere(op, torch.ones(shape, dtype=dtype, device=device))
    else:
        check_outcome(op, torch.ones(shape, dtype=dtype, device=device), *([0] if op.dim else []))


@reductions(lambda op: torch.int64 in op.dtypes)
@each("dtype", [torch.int64, torch.int8, torch.uint8])
def test_extreme_integers(dtype, op, device):
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    rows = [[low, low, low], [high, high, high], [high - 1, high, high], [low, low + 1, low], [low + 1, low, low]]
    for part in rows[:2], rows[::2], rows[1::2], rows:
        check_everywhere(op, torch.tensor(part, dtype=dtype, device=device))


@selecting
@each("shape, dim", [((3, 5), 1), ((3, 5), 0), ((2, 40000), 1), ((9000, 3), 0), ((3, 3001, 5), 1)])
@each("value", [0.0, -inf, inf, nan])
def test_the_first_of_equals(shape, dim, value, op, device):
    """Wherever equal elements are, the first counts: of all, of the last few, of two far apart, and of zeros of
    different sign."""
    x = torch.full(shape, value, device=device)
    check(op, x, dim)
    if value == 0.0:
        x = torch.where(torch.rand(shape, device=device) < 0.5, 0.0, -0.0)
        check(op, x, dim)
    for others in -inf, inf:
        if value != others:
            far = torch.full(shape, others, device=device)
            far.select(dim, shape[dim] // 3).fill_(value)
            far.select(dim, shape[dim] - 1).fill_(value)
            check(op, far, dim)


# Short rows, unaligned rows, long ones in splits, with few K and with many; an odd number of rows.
ANYWHERE = [(33, 1), (301, 1), (5001, 1), (20001, 1), (301, 3), (3001, 3), (18, 20), (601, 40)]


@selecting
@each("dtype", [torch.float32, torch.float64])
@each("N, K", ANYWHERE)
def test_wherever_the_extreme_is(N, K, dtype, op, device):
    """In each row at another place; then everywhere from there on; and a NaN is more extreme still."""
    places = [0, N // 3, N // 2, 15, 16, N - 17, N - 16, N - 2, 1, 3, N - 4, N - 3, N - 1]
    x = draw((len(places), N, K), torch.int8, device).to(dtype)
    sign = -1 if "min" in op.name else 1
    extremes = torch.arange(101, 101 + K, device=device)  # another one of each column
    for row, place in enumerate(places):
        x[row, place] = extremes
    check(op, sign * (x - 200), 1)  # a padding of 0 would be more extreme
    for row, place in enumerate(places):
        x[row, place:] = extremes
    check(op, sign * x, 1)
    for row, place in enumerate(reversed(places)):
        x[row, place] = nan
    check(op, sign * x, 1)


@selecting
def test_wherever_the_extreme_of_few_columns_is(op, device, device_with, monkeypatch):
    """As they lie, with edges, as is planned for more than the interpreter reads in a second."""
    device_with()
    monkeypatch.setattr(defaults, "MIN_BYTES_OF_CLASSES", 0)
    listed = plan.configurations

    def classes_first(problem, limits):
        return sorted(listed(problem, limits), key=lambda each: each.kernel != "classes")

    monkeypatch.setattr(plan, "configurations", classes_first)
    if torch.device(device).type == "cpu":  # of few multiprocessors
        with captured() as launches:
            op.ours(torch.ones(13, 1201, 3, dtype=torch.float64, device=device), 1)
        (launched,) = (launch.row() for launch in launches)
        assert launched["kernel"] in ("reduce_classes_kernel", "locate_classes_kernel")
        assert launched["options"]["EDGE_LANES"] > 0
    test_wherever_the_extreme_is(1201, 3, torch.float64, op, device)


@selecting
def test_wherever_the_extreme_of_rows_with_many_lanes_of_edges_is(op, device, device_with, monkeypatch):
    """More lanes of edges than a row has vectors: positions of either are exchanged apart. None is planned so."""
    device_with()
    by_many_warps = plan.Configuration("rows", 4, 8, 32, 8)
    monkeypatch.setattr(plan, "configurations", lambda problem, limits: [by_many_warps])
    test_wherever_the_extreme_is(1001, 1, torch.float16, op, device)


@every
@each("values", [(nan, 0.0), (inf, 0.0), (inf, -2.0), (0.0, -1.0), (-inf, nan), (inf, -inf)])
def test_special_values(values, op, device):
    x = torch.ones(40000, device=device)
    x[[5, 33333]] = torch.tensor(values, device=device)
    if op.whole:
        check(op, x)
    if op.dim is not None:
        check(op, x.view(8, -1), 0)


NEAR_0 = [
    *((torch.int8, value) for value in (1, -128)),
    *((torch.uint8, value) for value in (1, 128)),
    *(
        (dtype, value)
        for dtype in (torch.int16, torch.int32, torch.int64)
        for value in (1, 256, torch.iinfo(dtype).min)
    ),
    *((torch.int64, value) for value in (1 << 31, 1 << 32, 1 << 62)),
    *((dtype, value) for dtype in FLOATING for value in (-0.0, nan, -nan, torch.finfo(dtype).smallest_normal)),
    (torch.float16, -(2.0**-24)),
    (torch.bfloat16, 2.0**-133),
    (torch.float32, 2.0**-149),
    (torch.float64, 5e-324),
    (torch.float64, -(2.0**-1042)),
]


@each("dtype, value", NEAR_0)
def test_bits_that_are_not_0(dtype, value, device):
    """One element among zeros, and all but one. -0 is 0, and a denormal number and NaN are not."""
    for op in (op for op in REDUCTIONS if op.name in ("any_dim", "all_dim")):
        for others in (0, value):
            x = torch.full((3, 1201), others, dtype=dtype, device=device)
            x[1, 77] = value if others == 0 else 0
            x[2] = value
            check(op, x, 1)
            check(op, x[:, :80].contiguous(), 0)


@every
@layouts
@each("shape", FEW)
def test_layouts(shape, layout, op, device):
    check_everywhere(op, layout(op.draw_exact(shape, torch.float16, device)))


@every
def test_upstream_s_strided_case(op, device):
    check_everywhere(op, op.draw_exact((200, 260, 3), torch.float32, device)[::2, ::2])


@whole
def test_ties_of_a_transposed_tensor_are_counted_row_by_row(op, device):
    for extreme in 2, 0:
        x = torch.ones(4, 5, device=device).t()
        x[1, 2] = x[3, 0] = extreme
        check(op, x)


@reductions(lambda op: op.dim not in (None, "int"))
@each("keepdim", [False, True])
@each("shape", [*FEW, (), (1,), (3, 400, 5)])
def test_whole_said_with_dim(shape, keepdim, op, device):
    x = op.draw_exact(shape, torch.float16, device)
    said = [(), list(range(len(shape)))] if op.several else [None]
    for dim in said:
        check(op, x, dim, keepdim)
    assert_same(op.ours(x, None, keepdim), op.native(x, None if "Optional" in op.dim else said[0], keepdim), op.ulps)


DIMS = [dims for count in range(5) for dims in itertools.combinations(range(4), count)] + [(1, 0), (3, 1, 0), (-1, 0)]


@several
@each("dims", DIMS)
@each("keepdim", [False, True])
def test_several_dimensions(dims, keepdim, op, device):
    x = put_nans(op.draw_exact((7, 4, 11, 3), torch.float32, device))
    check(op, x, dims, keepdim)
    check(op, x.permute(2, 0, 3, 1), dims, keepdim)
    check(op, x.to(memory_format=torch.channels_last), dims, keepdim)
    check(op, x[:, 1:3], dims, keepdim)


@several
@each("dims", [[0], [2], [0, 4], [1, 2], [0, 1, 2, 3, 4]])
def test_sizes_of_one(dims, op, device):
    check(op, op.draw_exact((1, 5, 1, 7, 1), torch.float32, device), dims)


@with_dim
@each("keepdim", [False, True])
@each("dtype", [torch.float32, torch.int32])
@each("shape, dim", [((0, 3), 1), ((3, 0), 0), ((0, 3), -1), ((2, 0, 4), 0), ((), 0), ((), -1), ((3, 4), -2)])
def test_empty_result_and_0_dim(shape, dim, dtype, keepdim, op, device):
    check_outcome(op, torch.ones(shape, dtype=dtype, device=device), dim, keepdim)


@with_dim
@each("dtype", [torch.float32, torch.int32])
@each("shape, dim", [((0,), 0), ((3, 0), 1), ((2, 0, 4), 1), ((3, 4), 2), ((3, 4), -3), ((), 1), ((1,) * 65, 64)])
def test_no_elements_and_dimensions_that_are_not_there(shape, dim, dtype, op, device):
    check_outcome(op, torch.ones(shape, dtype=dtype, device=device), dim)


@whole
@each("dtype", [torch.float32, torch.int32])
@each("shape", [(0,), (3, 0), (0, 3), (2, 0, 4)])
def test_no_elements_at_all(shape, dtype, op, device):
    check_outcome(op, torch.ones(shape, dtype=dtype, device=device))


@several
@each("shape, dims", [((0,), ()), ((3, 0), (0, 1)), ((2, 0, 4), (0, 2)), ((3, 4), [0, -3]), ((3, 4), [1, -1])])
def test_several_dimensions_that_are_empty_or_come_twice(shape, dims, op, device):
    check_outcome(op, torch.ones(shape, device=device), dims)


@reductions(lambda op: op.requestable)
@each("dtype", [torch.float64, torch.float16, torch.int64, torch.int32, torch.int8, torch.bool])
@each("source", [torch.float32, torch.bfloat16, torch.int32, torch.uint8, torch.bool])
def test_dtype_is_converted_to_first(source, dtype, op, device):
    x = (op.draw_exact((6, 5), torch.float32, device) * 2.75).to(source)
    if op.dim is not None:
        check_outcome(op, x, 1, dtype=dtype)
    if op.whole:
        check_outcome(op, x[:1, :3], dtype=dtype)


@with_dim
def test_the_type_of_the_result(op, device):
    x = torch.ones(2, 3, device=device)
    assert type(op.ours(x, 1)) is type(op.public(x, 1))


@every
@pytest.mark.parametrize("dim", [None, 0, 1])
def test_dispatched_with_autograd(dim, op, overridden, device):
    if (op.dim is None and dim is not None) or (not op.whole and dim is None):
        return
    x = op.draw_exact((5, 3000), torch.float32, device).requires_grad_()

    def run():
        result = op.public(x) if dim is None else op.public(x, dim)
        y = result if isinstance(result, torch.Tensor) else result.values
        return [y.detach(), *(torch.autograd.grad(y.sum(), x, allow_unused=True) if y.requires_grad else ())]

    native = run()
    with overridden():
        actual = run()
    for ours, theirs in zip(actual, native, strict=True):
        torch.testing.assert_close(ours, theirs)
