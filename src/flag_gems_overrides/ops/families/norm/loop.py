# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Layer normalization of rows that not even all programs of the device together can hold: a row is read twice, in
blocks of BLOCK_N columns, by one program or by the GROUP programs of a group, each with a slice of SLICE columns.
Slices are of the body of an unaligned row, whose edges are the first program's.

Loops count blocks, not columns: in a row of almost 2**31 elements the first column after the last block is no int32.

    x_ptr, y_ptr: [M, N]    weight_ptr, bias_ptr: [N] or None    mean_ptr, rstd_ptr: [M], or None
    residual_ptr, sum_ptr: [M, N] or None, see forward.py
    workspace_ptr: [M, 2, GROUP] words, then a counter per group (exchange.py); None where GROUP is 1
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from .exchange import clear_last, clear_previous, collect_both, publish_two
from .forward import normalize
from .statistics import from_bits, merge, store_statistics, variance_of
from .tile import (
    block_columns,
    body_offset,
    body_size,
    edge_offsets,
    edges,
    head_size,
    load_parameter_at,
    load_sum,
)


@entry()
@triton.jit(do_not_specialize=["M", "eps_bits", "GROUP"])
def layer_norm_loop(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    residual_ptr,
    sum_ptr,
    workspace_ptr,
    M,
    N,
    eps_bits,
    SLICE,
    GROUP,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    UNALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Two passes over the columns of a slice, the second backwards, so that it starts with what is in the cache.

    What is read for the last time, and what is written, leaves the cache first, except for rows with edges, of which 8
    bytes would spill. 12 x 7 x 1586562 float32: 836 us, otherwise 882 (H100). What is read again stays.
    112 x 600000 bf16: 133 us, otherwise 140; 8 x 5000000 float32: 200 and 198 (H100).

    The first pass updates the mean and the sum of squared deviations of each lane's elements (Welford); the lanes are
    merged at the end, and the programs of the group.
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    FIRST: tl.constexpr = None if UNALIGNED else "evict_last"
    LAST: tl.constexpr = None if UNALIGNED else "evict_first"
    if not UNALIGNED:
        N = N // VEC * VEC  # N itself, but the compiler now sees that VEC divides it
    eps = from_bits(eps_bits, ACC)
    rank = tl.program_id(0) % GROUP
    groups = tl.num_programs(0) // GROUP
    begin = rank * SLICE
    lanes = tl.arange(0, BLOCK_N)
    if weight_ptr is not None:
        weight_ptr += begin
    if bias_ptr is not None:
        bias_ptr += begin
    for row in tl.range(tl.program_id(0) // GROUP, M, groups):
        head = head_size(row, N, VEC, UNALIGNED)
        body = body_size(head, N, VEC)
        start = body_offset(row, N, VEC, UNALIGNED) + begin
        size = tl.minimum(SLICE, body - begin)
        if UNALIGNED:
            size = tl.maximum(size, 0)  # the last slice may be of edges alone, and then has a block of nothing
        last = (size - 1) // BLOCK_N
        x_row_ptr = x_ptr + start
        y_row_ptr = y_ptr + start
        residual_row_ptr = None if residual_ptr is None else residual_ptr + start
        if UNALIGNED:
            edge_columns, edge_mask = edges(head, N, BLOCK_N, VEC)
            edge_mask = edge_mask & (rank == 0)
            edge_places = edge_offsets(row, N, edge_columns)
            edge_x = load_sum(x_ptr, residual_ptr, edge_places, edge_mask, ACC)
            # Only the first program, whose slice begins with the row, has edges.
            edge_weight = load_parameter_at(weight_ptr, edge_columns, edge_mask)
            edge_bias = load_parameter_at(bias_ptr, edge_columns, edge_mask)
        lane_mean = tl.zeros([BLOCK_N], ACC)
        lane_squares = tl.zeros([BLOCK_N], ACC)
        for block in tl.range(0, last + 1, num_stages=STAGES):
            columns = block_columns(x_ptr, residual_ptr, block, BLOCK_N, VEC)
            mask = block_mask(columns, block, size, residual_ptr, BLOCK_N)
            x = load_sum(x_row_ptr, residual_row_ptr, columns, mask, ACC, FIRST)
            delta = tl.where(mask, x - lane_mean, 0.0)
            # One division for all elements. 20 x 393216 float64: 248 us, with a division for each element 365.
            lane_mean += delta * (1.0 / tl.cast(block + 1, ACC))
            lane_squares += delta * tl.where(mask, x - lane_mean, 0.0)
        counts = tl.where(last * BLOCK_N + lanes < size, last + 1, last).to(ACC)
        zero = tl.zeros([], ACC)
        count, mean, squares = merge(zero, zero, zero, size.to(ACC), counts, lane_mean, lane_squares)
        if UNALIGNED:
            edge_counts = tl.ravel(edge_mask).to(ACC)
            edge_count = tl.sum(edge_counts, 0)
            _, mean, squares = merge(
                count, mean, squares, edge_count, edge_counts, tl.ravel(edge_x), tl.zeros_like(edge_counts)
            )
        if workspace_ptr is not None:
            row_workspace_ptr = workspace_ptr + tl.cast(row, tl.int64) * (2 * GROUP)
            publish_two(row_workspace_ptr, rank, GROUP, mean, squares)
            mean, squares = slice_statistics(row_workspace_ptr, GROUP, SLICE, body, N - body, BLOCK, ACC, UNALIGNED)
            clear_previous(row_workspace_ptr, row, GROUP, 2)
        variance = variance_of(squares, N)
        rstd = tl.rsqrt(variance + eps)
        store_statistics(mean_ptr, rstd_ptr, row, mean, variance, rstd, rank == 0)
        for i in tl.range(0, last + 1, num_stages=STAGES):
            block = last - i
            columns = block_columns(x_ptr, residual_ptr, block, BLOCK_N, VEC)
            mask = block_mask(columns, block, size, residual_ptr, BLOCK_N)
            x = load_sum(x_row_ptr, residual_row_ptr, columns, mask, ACC, LAST)
            if sum_ptr is not None:
                tl.store(sum_ptr + start + columns, x, mask=mask)
            weight = load_parameter_at(weight_ptr, head + columns, mask)
            bias = load_parameter_at(bias_ptr, head + columns, mask)
            y = normalize(x, mean, rstd, weight, bias)
            tl.store(y_row_ptr + columns, y, mask=mask, eviction_policy=LAST)
        if UNALIGNED:
            if sum_ptr is not None:
                tl.store(sum_ptr + edge_places, edge_x, mask=edge_mask)
            tl.store(y_ptr + edge_places, normalize(edge_x, mean, rstd, edge_weight, edge_bias), mask=edge_mask)
    if workspace_ptr is not None:
        clear_last(workspace_ptr, M, GROUP, 2, BLOCK)


@triton.jit
def block_mask(columns, block, size, residual_ptr, BLOCK_N: tl.constexpr):
    """Which columns of a block a slice has. With a residual the lanes are compared: with the columns 32 bytes of
    8 x 8883675 float16 spill on sm_90, without a residual 8 bytes of 72 x 248638 bf16 with the lanes (Triton 3.7).
    """
    if residual_ptr is None:
        return columns < size
    return tl.arange(0, BLOCK_N) < size - block * BLOCK_N


@triton.jit
def slice_statistics(
    row_workspace_ptr, GROUP, SLICE, body, edge_count, BLOCK: tl.constexpr, ACC: tl.constexpr, UNALIGNED: tl.constexpr
):
    """(mean, sum of squared deviations) of a row from those of its slices, the first of which has the edges."""
    count = tl.zeros([], ACC)
    mean = count
    squares = count
    for first in tl.range(0, GROUP, BLOCK):
        means, slice_squares = collect_both(row_workspace_ptr, first, GROUP, BLOCK, ACC)
        rank = first + tl.arange(0, BLOCK)
        counts = tl.where(rank < GROUP, tl.minimum(SLICE, body - rank * SLICE), 0)
        end = tl.cast(first + BLOCK, tl.int64) * SLICE
        block_count = tl.minimum(end, body) - first * SLICE
        if UNALIGNED:
            counts = tl.maximum(counts, 0) + tl.where(rank == 0, edge_count, 0)
            block_count = tl.maximum(block_count, 0) + tl.where(first == 0, edge_count, 0)
        count, mean, squares = merge(count, mean, squares, block_count.to(ACC), counts.to(ACC), means, slice_squares)
    return mean, squares
