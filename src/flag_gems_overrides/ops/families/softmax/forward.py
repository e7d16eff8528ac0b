# SPDX-License-Identifier: Apache-2.0
"""What the kernels of softmax and log_softmax share: forward_rows.py has those of rows, forward_columns.py of columns.

With row_max = max(x) and row_sum = sum(exp(x - row_max)) over the reduced dimension,

    softmax(x) = exp(x - row_max) / row_sum        log_softmax(x) = (x - row_max) - log(row_sum)

NaN and infinities come out as in PyTorch without a special case: a NaN or +inf makes row_sum NaN, and a row of -inf
has x - row_max = NaN. Only a part of a row may be all -inf without harm, which is what ``finite`` is for.

    kernel                      reduces      a program reads
    softmax_single              N = 1        BLOCK elements
    softmax_short_columns       K > 1        COLUMNS whole columns, in tiles of LANES elements of each
    softmax_rows                K = 1        BLOCK_M whole rows in one tile
    softmax_unaligned_rows      K = 1        one row in one tile, and its edges
    softmax_split_rows          K = 1        its share of a row in one tile; a group of programs has the row
    softmax_looped_rows         K = 1        a row, or its share of it, in a loop, and again to write the result
    softmax_columns             K > 1        BLOCK_K columns, or its share of them, in one tile
    softmax_looped_columns      K > 1        BLOCK_K columns, or its share of them, in a loop, and again

Programs of a group wait for each other, so all of them must be running (cooperative launch).
"""

import triton
import triton.language as tl

from ...launch.products import product
from ...launch.workspace import collect_two, decode, encode, publish
from .tile import (
    exp,
    for_each_lane,
    lane_max,
    lane_sum,
    larger,
    load_tile,
    max_across_lanes,
    store_tile,
    sum_across_lanes,
)


@triton.jit
def finite(x_max):
    """``x_max``, or 0 where that is -inf: what to subtract in a part of a row, so that exp(-inf) is 0 and not NaN."""
    return tl.where(x_max == float("-inf"), 0.0, x_max)


@triton.jit
def normalize(x, row_max, row_sum, LOG: tl.constexpr, CLAMPED: tl.constexpr = False):
    if LOG:
        return (x - row_max) - tl.log(row_sum)
    else:
        return exp(x - row_max, CLAMPED) * (1.0 / row_sum)


@triton.jit
def normalize_held(x, x_max, numerator, row_max, row_sum, LOG: tl.constexpr):
    """``normalize`` where numerator = exp(x - x_max) is in registers still."""
    if LOG:
        return normalize(x, row_max, row_sum, LOG)
    else:
        return numerator * (exp(x_max - row_max) * (1.0 / row_sum))


@triton.jit
def merge_lanes(maxima, sums, CONTIGUOUS: tl.constexpr):
    """(maximum, sum) of a row from those of its lanes, or of the programs of a group."""
    row_max = max_across_lanes(maxima, CONTIGUOUS)
    return row_max, sum_across_lanes(product(sums, exp(maxima - finite(row_max))), CONTIGUOUS)


@triton.jit
def merge_edges(row_max, row_sum, edge):
    """(maximum, sum) of a row from those of its interior, and its edges."""
    new_max = tl.maximum(row_max, tl.max(edge))
    return new_max, row_sum * exp(row_max - finite(new_max)) + tl.sum(exp(edge - finite(new_max)))


@triton.jit
def publish_statistics(own_ptr, row_max, row_sum, STATISTICS: tl.constexpr):
    publish(own_ptr, encode(row_max))
    publish(own_ptr + STATISTICS, encode(row_sum))


@triton.jit
def collect_statistics(
    words_ptr,
    words,
    other,
    counted,
    group,
    MEMBERS: tl.constexpr,
    STATISTICS: tl.constexpr,
    CONTIGUOUS: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """(maximum, sum) of a row from what the programs of the group publish of it."""
    maxima = tl.full(words.shape, float("-inf"), COMPUTE)
    sums = tl.zeros(words.shape, COMPUTE)
    for first in range(0, group, MEMBERS):
        mask = other + first < group
        read_ptr = words_ptr + first * (2 * STATISTICS) + words
        more_maxima, more_sums = collect_two(read_ptr, read_ptr + STATISTICS, mask)
        more_maxima = tl.where(mask & counted, decode(more_maxima, COMPUTE), float("-inf"))
        more_sums = tl.where(mask & counted, decode(more_sums, COMPUTE), 0.0)
        new_maxima = tl.maximum(maxima, more_maxima)
        sums = sums * exp(maxima - finite(new_maxima)) + more_sums * exp(more_maxima - finite(new_maxima))
        maxima = new_maxima
    return merge_lanes(maxima, sums, CONTIGUOUS)


@triton.jit
def read_tiles(
    x_ptr,
    start,
    offsets,
    tiles,
    stride,
    k,
    columns,
    TILE: tl.constexpr,
    EVEN_K: tl.constexpr,
    LANES: tl.constexpr,
    STATISTICS: tl.constexpr,
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
    CLAMPED: tl.constexpr = False,
):
    """(maximum, sum) for each lane of ``tiles`` whole tiles, and where the next one starts."""
    CONTIGUOUS: tl.constexpr = STATISTICS == 1
    x_max = for_each_lane(float("-inf"), LANES, STATISTICS, COMPUTE)
    x_sum = for_each_lane(0.0, LANES, STATISTICS, COMPUTE)
    for _ in tl.range(0, tiles, num_stages=STAGES):
        x = load_tile(x_ptr + start + offsets, k, columns, EVEN_K, "evict_last").to(COMPUTE)
        new_max = larger(x_max, lane_max(x, CONTIGUOUS))
        x_sum *= exp(x_max - finite(new_max), CLAMPED)
        x_sum += lane_sum(exp(x - finite(new_max), CLAMPED), CONTIGUOUS)
        x_max = new_max
        start += TILE * stride
    return x_max, x_sum, start


@triton.jit
def merge_held(x_max, x_sum, held, CONTIGUOUS: tl.constexpr, CLAMPED: tl.constexpr = False):
    """(maximum, sum) of a row from those of the tiles that were read in a loop, and the tile in registers."""
    held_max = larger(lane_max(held, CONTIGUOUS), x_max)
    held_sum = lane_sum(exp(held - finite(held_max), CLAMPED), CONTIGUOUS)
    held_sum += x_sum * exp(x_max - finite(held_max), CLAMPED)
    return merge_lanes(held_max, held_sum, CONTIGUOUS)


@triton.jit
def write_tiles(
    x_ptr,
    out_ptr,
    start,
    offsets,
    tiles,
    stride,
    k,
    columns,
    row_max,
    row_sum,
    LOG: tl.constexpr,
    TILE: tl.constexpr,
    EVEN_K: tl.constexpr,
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
    CLAMPED: tl.constexpr = False,
):
    """The result of the ``tiles`` before ``start``. Backwards: what was read last is the surest to be in cache."""
    for _ in tl.range(0, tiles, num_stages=STAGES):
        start -= TILE * stride
        x = load_tile(x_ptr + start + offsets, k, columns, EVEN_K, "evict_first").to(COMPUTE)
        x = normalize(x, row_max, row_sum, LOG, CLAMPED)
        store_tile(out_ptr + start + offsets, x, k, columns, EVEN_K, "evict_first")
