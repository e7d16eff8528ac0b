# SPDX-License-Identifier: Apache-2.0
"""What the kernels of the gradients of softmax and log_softmax share: y is the forward's result, g the gradient by it.

softmax:      dx = y * (g - sum(g * y))
log_softmax:  dx = g - exp(y) * sum(g)

The kernels are those of the forward, by the same names, in backward_rows.py and backward_columns.py; the sum
is all that the programs of a group exchange.
"""

import triton
import triton.language as tl

from ...launch.products import product
from ...launch.workspace import collect, decode
from .tile import exp, for_each_lane, lane_sum, load_tile, store_tile, sum_across_lanes


@triton.jit
def summand(g, y, mask, LOG: tl.constexpr):
    if LOG:
        # This is g: both are 0 outside the mask. With y in it ptxas loads y before the sum, all vectors at once.
        # 256 x 256 float32: 47 registers; otherwise 32, and a wait for each vector of y (sm_90).
        return tl.where(mask, g, y)
    else:
        return product(g, y)


@triton.jit
def gradient(g, y, row_sum, LOG: tl.constexpr, SHORT_ROW: tl.constexpr = False):
    """SHORT_ROW: a row in one tile of up to 4096 columns, so that ``exp`` of float64 takes less time.

    log_softmax 30 x 1000 float64: 3.79 us, by tl.exp 4.17 (H100). By ``exp`` 8 bytes of longer rows spill.
    """
    if LOG:
        power = exp(y) if SHORT_ROW or y.dtype != tl.float64 else tl.exp(y)
        return g - power * row_sum
    else:
        return y * (g - row_sum)


@triton.jit
def collect_sum(
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
    """The sum of a row from what the programs of the group publish of it."""
    sums = tl.zeros(words.shape, COMPUTE)
    for first in range(0, group, MEMBERS):
        mask = other + first < group
        more = collect(words_ptr + first * STATISTICS + words, mask)
        sums += tl.where(mask & counted, decode(more, COMPUTE), 0.0)
    return sum_across_lanes(sums, CONTIGUOUS)


@triton.jit
def read_tiles(
    g_ptr,
    y_ptr,
    start,
    offsets,
    tiles,
    stride,
    k,
    columns,
    LOG: tl.constexpr,
    TILE: tl.constexpr,
    EVEN_K: tl.constexpr,
    LANES: tl.constexpr,
    STATISTICS: tl.constexpr,
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """The sum for each lane of ``tiles`` whole tiles, and where the next one starts."""
    sums = for_each_lane(0.0, LANES, STATISTICS, COMPUTE)
    for _ in tl.range(0, tiles, num_stages=STAGES):
        term = load_tile(g_ptr + start + offsets, k, columns, EVEN_K, "evict_last").to(COMPUTE)
        if not LOG:
            term *= load_tile(y_ptr + start + offsets, k, columns, EVEN_K, "evict_last").to(COMPUTE)
        sums += lane_sum(term, STATISTICS == 1)
        start += TILE * stride
    return sums, start


@triton.jit
def write_tiles(
    g_ptr,
    y_ptr,
    dx_ptr,
    start,
    offsets,
    tiles,
    stride,
    k,
    columns,
    row_sum,
    LOG: tl.constexpr,
    TILE: tl.constexpr,
    EVEN_K: tl.constexpr,
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """The gradient of the ``tiles`` before ``start``. Backwards: what was read last is the surest to be in cache."""
    for _ in tl.range(0, tiles, num_stages=STAGES):
        start -= TILE * stride
        g = load_tile(g_ptr + start + offsets, k, columns, EVEN_K, "evict_first").to(COMPUTE)
        y = load_tile(y_ptr + start + offsets, k, columns, EVEN_K, "evict_first").to(COMPUTE)
        dx = gradient(g, y, row_sum, LOG)
        store_tile(dx_ptr + start + offsets, dx, k, columns, EVEN_K, "evict_first")
