# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Mean and variance of rows that programs hold in registers.

The variance is the mean of squared deviations, never the difference of two large sums. The mean is the first element
and the mean of the differences to it: of elements that are all equal it is exactly their value, as PyTorch's.
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
def deviations(chunks, center, begin, end, CHUNKS: tl.constexpr, BLOCK_N: tl.constexpr, FULL_CHUNKS: tl.constexpr):
    """x - center of each element, 0 outside of the row. The first FULL_CHUNKS chunks need no mask."""
    differences = ()
    for c in tl.static_range(CHUNKS):
        difference = chunks[c] - center
        if c >= FULL_CHUNKS:
            _, mask = chunk(c, begin, end, None, BLOCK_N)
            difference = tl.where(mask, difference, 0.0)
        differences = differences + (difference,)
    return differences


@triton.jit
def sum_squares(chunks, CHUNKS: tl.constexpr):
    """The sum of the squares of each row over all chunks: [BLOCK_M, 1]."""
    squares = chunks[0] * chunks[0]
    for c in tl.static_range(1, CHUNKS):
        squares += chunks[c] * chunks[c]
    return tl.sum(squares, 1, keep_dims=True)


@triton.jit
def deviations_of_edges(x, center, mask):
    """The same of the edges of each row."""
    return tl.where(mask, x - center, 0.0)


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
    deviations of its slice. Not inlined, see :func:`collect`.
    """
    count = 0.0
    mean = 0.0
    squares = 0.0
    for first in tl.range(0, GROUP, BLOCK):
        slice_means, slice_squares = collect_pairs(row_workspace_ptr, first, GROUP, BLOCK)
        rank = first + tl.arange(0, BLOCK)
        counts = tl.where(rank < GROUP, slice_elements(rank, SLICE, head, N, VEC), 0).to(tl.float32)
        count, mean, squares = merge(count, mean, squares, counts, slice_means, slice_squares)
    return mean, squares / N


@triton.jit
def merge(count, mean, squares, counts, means, block_squares):
    """(count, mean, sum of squared deviations) of some elements and a block of others, given as these three of each
    lane (Chan, Golub and LeVeque). Equal means have exactly that mean, because the differences to it are added again.
    """
    block_count = tl.sum(counts, 0)
    divisor = tl.maximum(block_count, 1.0)
    block_mean = tl.sum(means * counts, 0) / divisor
    block_mean += tl.sum((means - block_mean) * counts, 0) / divisor
    deviation = means - block_mean
    delta = block_mean - mean
    new_count = count + block_count
    squares += (
        tl.sum(block_squares + counts * deviation * deviation, 0) + delta * delta * count * block_count / new_count
    )
    return new_count, mean + delta * (block_count / new_count), squares
