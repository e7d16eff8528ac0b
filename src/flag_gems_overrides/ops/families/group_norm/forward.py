# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc, unreachable, var-annotated"
"""Forward kernels of group normalization.

Each group of an [N, C, HW] input, D = C / G channels of a sample, becomes ``y = (x - mean) * rstd * weight + bias``
with ``rstd = 1 / sqrt(variance + eps)`` and the weight and bias of the element's channel. Everything between load and
store is float32, or float64 for float64 input. vectors.py says how a group is read.

In all kernels

    x_ptr, y_ptr: [N, C, HW]    weight_ptr, bias_ptr: [C] or None    mean_ptr, rstd_ptr: [N, G]
    M = N * G groups of size = D * HW elements
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ...launch.prepared import entry
from ...launch.products import product
from ..norm.statistics import (
    corrected_by,
    divide_by,
    from_bits,
    mean_to_store,
    reciprocal,
    sums_are_exact,
    variance_by,
)
from ..norm.tile import body_offset, head_size
from .vectors import (
    affine,
    edges_of,
    elements_of,
    merged,
    of_channels,
    pairs_of_vectors,
    rows_from,
    running_statistics,
    store_edges,
    store_tile,
    sum_rows,
    sums_of_rows,
    vectors_from,
    vectors_of,
)


@entry()
@triton.jit(do_not_specialize=["eps_bits"])
def group_norm_rows(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    M,
    G,
    D,
    HW,
    size,
    eps_bits,
    BLOCK_M: tl.constexpr,
    CHUNKS: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    SPAN: tl.constexpr,
    UNALIGNED: tl.constexpr,
    EARLY: tl.constexpr,
    PACKED: tl.constexpr,
    INT64_ROWS: tl.constexpr,
):
    """Groups that a program holds: BLOCK_M of them, CHUNKS times LANES vectors each, so that x is read once.

    All chunks but the last are full. With EARLY weight and bias are loaded with x, so that no store waits for them;
    they take registers. PACKED: of 16 bits pairs are held.
    """
    tl.static_assert(BLOCK_M == 1 or not UNALIGNED, "heads differ")
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    EXACT: tl.constexpr = sums_are_exact(x_ptr.dtype.element_ty, CHUNKS * LANES * VEC + 2 * VEC * UNALIGNED)
    first = tl.program_id(0)
    if INT64_ROWS:
        first = tl.cast(first, tl.int64)
    first *= BLOCK_M
    rows = rows_from(first, BLOCK_M)
    head = head_size(first, size, VEC, UNALIGNED)
    start = body_offset(rows, size, VEC, UNALIGNED)
    vectors = (size - head) // VEC
    first_channel = rows % G * D
    xs = ()
    weights = ()
    biases = ()
    for c in tl.static_range(CHUNKS):
        vector = vectors_from(c * LANES, LANES)
        mask = (vector < vectors) & (rows < M)
        x = tl.load(x_ptr + start + elements_of(vector, VEC), mask=mask, other=0.0)
        xs = xs + (pairs_of_vectors(x) if PACKED else x,)
        if EARLY:
            places = head + vector * VEC
            weights = weights + (of_channels(weight_ptr, first_channel, places, mask, D, HW, VEC, SPAN),)
            biases = biases + (of_channels(bias_ptr, first_channel, places, mask, D, HW, VEC, SPAN),)
    edges = ()
    if UNALIGNED:
        edge, edge_mask = edges_of(head, vectors, size, LANES, VEC)
        edge_offsets = tl.cast(first, tl.int64) * size + edge
        edges = (tl.load(x_ptr + edge_offsets, mask=edge_mask, other=0.0).to(ACC),)
        edge_weight = of_channels(weight_ptr, first_channel, edge, edge_mask, D, HW, 1, 1)
        edge_bias = of_channels(bias_ptr, first_channel, edge, edge_mask, D, HW, 1, 1)
    # Divisions of float64 are long, so they run while the loads are on their way: 3 x 14 takes 3.15 us, otherwise 3.46.
    # float32 would take up to 2 % more (H100).
    LONG: tl.constexpr = ACC.primitive_bitwidth == 64
    if LONG:
        inverse = reciprocal(size, ACC)
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    total = vectors_of(xs[0], size >> 31, dtype, ACC, PACKED)
    for c in tl.static_range(1, CHUNKS):
        total += vectors_of(xs[c], size >> 31, dtype, ACC, PACKED)
    if not LONG:
        inverse = reciprocal(size, ACC)
    mean = divide_by(sum_rows(total, edges), size, inverse)
    squares = tl.zeros_like(total)
    rest = squares
    for c in tl.static_range(CHUNKS):
        deviation = vectors_of(xs[c], size >> 30, dtype, ACC, PACKED) - mean
        if c == CHUNKS - 1:
            deviation = tl.where(vectors_from(c * LANES, LANES) < vectors, deviation, 0.0)
        squares += deviation * deviation
        if not EXACT:
            rest += deviation
    edge_deviation = ()
    edge_squares = ()
    if UNALIGNED:
        deviation = tl.where(edge_mask, edges[0] - mean, 0.0)
        edge_deviation = (deviation,)
        edge_squares = (product(deviation, deviation),)
    if EXACT:
        squares = sum_rows(squares, edge_squares)
    else:
        squares, rest = sums_of_rows(squares, rest, edge_squares, edge_deviation)
        mean, squares = corrected_by(mean, rest, squares, inverse)
    variance = variance_by(squares, inverse)
    rstd = tl.rsqrt(variance + from_bits(eps_bits, ACC))
    tl.store(mean_ptr + rows, mean_to_store(mean, variance), mask=rows < M)
    tl.store(rstd_ptr + rows, rstd, mask=rows < M)
    for c in tl.static_range(CHUNKS):
        vector = vectors_from(c * LANES, LANES)
        mask = (vector < vectors) & (rows < M)
        if EARLY:
            weight = weights[c]
            bias = biases[c]
        else:
            places = head + vector * VEC
            weight = of_channels(weight_ptr, first_channel, places, mask, D, HW, VEC, SPAN)
            bias = of_channels(bias_ptr, first_channel, places, mask, D, HW, VEC, SPAN)
        y = affine(vectors_of(xs[c], 0, dtype, ACC, PACKED), mean, rstd, weight, bias)
        tl.store(y_ptr + start + elements_of(vector, VEC), y, mask=mask)
    if UNALIGNED:
        y = affine(edges[0], mean, rstd, edge_weight, edge_bias)
        tl.store(y_ptr + edge_offsets, y, mask=edge_mask)


@entry()
@triton.jit(do_not_specialize=["M", "eps_bits"])
def group_norm_loop(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    M,
    G,
    D,
    HW,
    size,
    eps_bits,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    SPAN: tl.constexpr,
    UNALIGNED: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One program to a group: one pass for the statistics and one, backwards, for the result. The second finds in the
    cache what the first has read.
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    eps = from_bits(eps_bits, ACC)
    for row in tl.range(tl.program_id(0), M, tl.num_programs(0)):
        head = head_size(row, size, VEC, UNALIGNED)
        start = body_offset(row, size, VEC, UNALIGNED)
        vectors = (size - head) // VEC
        edge_start = tl.cast(row, tl.int64) * size
        lane_count, lane_mean, lane_squares = running_statistics(x_ptr + start, vectors, ACC, LANES, VEC, STAGES)
        mean, squares = merged(
            lane_count, lane_mean, lane_squares, x_ptr + edge_start, head, vectors, size, size, True,
            ACC, LANES, VEC, UNALIGNED,
        )  # fmt: skip
        variance = squares / size
        rstd = tl.rsqrt(variance + eps)
        scalar = tl.zeros([1, 1, 1], tl.int32)
        tl.store(mean_ptr + row + scalar, mean_to_store(mean, variance))
        tl.store(rstd_ptr + row + scalar, rstd)
        first_channel = row % G * D
        last = (vectors - 1) // LANES
        for i in tl.range(0, last + 1, num_stages=STAGES):
            store_tile(
                x_ptr + start, weight_ptr, bias_ptr, y_ptr + start, mean, rstd, first_channel, head,
                (last - i) * LANES, vectors, D, HW, ACC, LANES, VEC, SPAN,
            )  # fmt: skip
        if UNALIGNED:
            store_edges(
                x_ptr + edge_start, weight_ptr, bias_ptr, y_ptr + edge_start, mean, rstd, first_channel, head,
                vectors, size, HW, ACC, LANES, VEC,
            )  # fmt: skip


@entry()
@triton.jit(do_not_specialize=["SPLITS"])
def group_norm_partial_statistics(
    x_ptr,
    partial_mean_ptr,
    partial_squares_ptr,
    size,
    SLICE,
    SPLITS,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    UNALIGNED: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """Few, long groups: the statistics of a slice of SLICE vectors of one of them; the first slice has the edges.

    partial_mean_ptr, partial_squares_ptr: [M, SPLITS]; PDL: see norm/backward.py
    """
    if PDL:
        gdc_launch_dependents()
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    row = tl.program_id(0) // SPLITS
    split = tl.program_id(0) % SPLITS
    head = head_size(row, size, VEC, UNALIGNED)
    vectors = (size - head) // VEC
    begin = tl.cast(split, tl.int64) * SLICE
    count = tl.minimum(vectors - begin, SLICE).to(SLICE.dtype)
    start = body_offset(row, size, VEC, UNALIGNED) + begin * VEC
    lane_count, lane_mean, lane_squares = running_statistics(x_ptr + start, count, ACC, LANES, VEC, STAGES)
    # None in a slice that is there for other rows, whose heads are shorter.
    elements = tl.maximum(slice_elements(split, SLICE, vectors, size, VEC), 1)
    mean, squares = merged(
        lane_count, lane_mean, lane_squares, x_ptr + tl.cast(row, tl.int64) * size, head, vectors, size, elements,
        split == 0, ACC, LANES, VEC, UNALIGNED,
    )  # fmt: skip
    place = tl.program_id(0) + tl.zeros([1, 1, 1], tl.int32)
    tl.store(partial_mean_ptr + place, mean)
    tl.store(partial_squares_ptr + place, squares)


@triton.jit
def slice_elements(split, SLICE, vectors, size, VEC: tl.constexpr):
    """Elements of a slice of a row; the edges are in the first."""
    held = tl.minimum(vectors - tl.cast(split, tl.int64) * SLICE, SLICE) * VEC
    return held + tl.where(split == 0, size - vectors * VEC, 0)


@entry()
@triton.jit(do_not_specialize=["SPLITS", "eps_bits"])
def group_norm_apply(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    partial_mean_ptr,
    partial_squares_ptr,
    G,
    D,
    HW,
    size,
    SLICE,
    SPLITS,
    eps_bits,
    TILES,
    BLOCK_S: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    SPAN: tl.constexpr,
    UNALIGNED: tl.constexpr,
    PDL: tl.constexpr,
):
    """One of TILES tiles of a group, whose statistics are merged from those of its slices (Chan, Golub and LeVeque).
    From the last to the first: what the statistics have read last is in the cache.

    partial_mean_ptr, partial_squares_ptr: [M, SPLITS]; BLOCK_S is at least SPLITS.
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    row = program // TILES
    tile = program % TILES
    head = head_size(row, size, VEC, UNALIGNED)
    start = body_offset(row, size, VEC, UNALIGNED)
    vectors = (size - head) // VEC
    split = tl.arange(0, BLOCK_S)
    places = row * SPLITS + split
    if PDL:
        gdc_wait()
    means = tl.load(partial_mean_ptr + places, mask=split < SPLITS, other=0.0)
    squares = tl.load(partial_squares_ptr + places, mask=split < SPLITS, other=0.0)
    count = tl.where(split < SPLITS, slice_elements(split, SLICE, vectors, size, VEC), 0).to(ACC)
    mean = tl.sum(product(means, count), 0) / size
    deviation = tl.where(split < SPLITS, means - mean, 0.0)
    variance = tl.sum(squares + count * deviation * deviation, 0) / size
    rstd = tl.rsqrt(variance + from_bits(eps_bits, ACC))
    tl.store(mean_ptr + row, mean_to_store(mean, variance), mask=tile == 0)
    tl.store(rstd_ptr + row, rstd, mask=tile == 0)
    first_channel = row % G * D
    first = tl.cast(tile, vectors.dtype) * LANES  # of 64 bits where there are as many elements
    store_tile(
        x_ptr + start, weight_ptr, bias_ptr, y_ptr + start, mean, rstd, first_channel, head, first, vectors,
        D, HW, ACC, LANES, VEC, SPAN,
    )  # fmt: skip
    if UNALIGNED and tile == 0:
        edge_start = tl.cast(row, tl.int64) * size
        store_edges(
            x_ptr + edge_start, weight_ptr, bias_ptr, y_ptr + edge_start, mean, rstd, first_channel, head,
            vectors, size, HW, ACC, LANES, VEC,
        )  # fmt: skip
