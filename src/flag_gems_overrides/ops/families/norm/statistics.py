# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Mean and variance of rows that programs hold in registers.

The variance is the mean of squared deviations, never the difference of two large sums.
"""

import triton
import triton.language as tl

from .exchange import collect_pairs
from .tile import body_size, chunk


@triton.jit
def from_bits(eps_bits, ACC: tl.constexpr):
    """eps. It is passed as the bits of a float64, because Triton passes floats as float32."""
    return tl.cast(eps_bits, tl.int64).to(tl.float64, bitcast=True).to(ACC)


@triton.jit
def squared_deviations(
    chunks, mean, begin, end, CHUNKS: tl.constexpr, BLOCK_N: tl.constexpr, FULL_CHUNKS: tl.constexpr
):
    """(x - mean)**2 of each element, 0 outside of the row. The first FULL_CHUNKS chunks need no mask."""
    squares = ()
    for c in tl.static_range(CHUNKS):
        deviation = chunks[c] - mean
        if c >= FULL_CHUNKS:
            _, mask = chunk(c, begin, end, None, BLOCK_N)
            deviation = tl.where(mask, deviation, 0.0)
        squares = squares + (deviation * deviation,)
    return squares


@triton.jit
def sum_squared_deviations_of_edges(x, mean, mask):
    """The sum over the edges of each row: [BLOCK_M, 1]."""
    deviation = tl.where(mask, x - mean, 0.0)
    return tl.sum(deviation * deviation, 1, keep_dims=True)


@triton.jit
def mean_to_store(mean, variance):
    """NaN in a row with an infinity, as in PyTorch, whose running mean passes through inf - inf."""
    return tl.where(variance == variance, mean, variance)


@triton.jit
def slice_elements(rank, SLICE, head, N, VEC: tl.constexpr):
    """How many elements of a row program ``rank`` of its group holds: its slice, and rank 0 the edges. May be 0."""
    body = body_size(head, N, VEC)
    held = tl.maximum(tl.minimum(rank * SLICE + SLICE, body) - rank * SLICE, 0)
    return held + tl.where(rank == 0, N - body, 0)


@triton.jit(noinline=True)
def group_statistics(row_workspace_ptr, GROUP, SLICE, head, N, VEC: tl.constexpr, BLOCK: tl.constexpr):
    """(mean, variance) of a row from what each program of the group published: the mean and the sum of squared
    deviations of its slice. Merged block by block (Chan, Golub and LeVeque). Not inlined, see :func:`collect`.
    """
    count = 0.0
    mean = 0.0
    squares = 0.0
    for first in tl.range(0, GROUP, BLOCK):
        slice_means, slice_squares = collect_pairs(row_workspace_ptr, first, GROUP, BLOCK)
        rank = first + tl.arange(0, BLOCK)
        counts = tl.where(rank < GROUP, slice_elements(rank, SLICE, head, N, VEC), 0).to(tl.float32)
        block_count = tl.sum(counts, 0)
        block_mean = tl.sum(slice_means * counts, 0) / tl.maximum(block_count, 1.0)
        deviation = slice_means - block_mean
        delta = block_mean - mean
        new_count = count + block_count
        block_squares = tl.sum(slice_squares + counts * deviation * deviation, 0)
        squares += block_squares + delta * delta * count * block_count / new_count
        mean += delta * block_count / new_count
        count = new_count
    return mean, squares / N
