# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Mean and variance of rows that programs hold in registers.

The variance is the mean of squared deviations, never the difference of two large sums. The mean of elements that are
all equal is exactly their value, as PyTorch's: where a sum may be rounded, the deviations from its mean are added too.
"""

import triton
import triton.language as tl

from ...launch.products import product
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
def sum_and_sum_squares(chunks, CHUNKS: tl.constexpr):
    """The sums of each row over all chunks, of the elements and of their squares: [BLOCK_M, 1] each."""
    chunk_sum = chunks[0]
    squares = chunks[0] * chunks[0]
    for c in tl.static_range(1, CHUNKS):
        chunk_sum += chunks[c]
        squares += chunks[c] * chunks[c]
    return tl.reduce((chunk_sum, squares), 1, add_pairs, keep_dims=True)


@triton.jit
def sum_and_sum_squares_of_edges(x):
    """The same of the edges, of which a lane has one."""
    return tl.reduce((x, product(x, x)), 1, add_pairs, keep_dims=True)


@triton.jit
def add_pairs(a, b, c, d):
    return a + c, b + d


@triton.jit
def reciprocal(count, DTYPE: tl.constexpr):
    """1 / count, rounded once.

    Kernels of one tile compute it when all loads are issued, before the first result is used: no load is moved across
    its branch for rare operands. Left to itself the compiler has the weight, which is needed last, wait for what is
    needed first, to save registers.
    """
    count = tl.cast(count, DTYPE)
    one = tl.full(count.shape, 1.0, DTYPE)
    return tl.div_rn(one, count) if count.dtype == tl.float32 else one / count


@triton.jit
def divide(x, count):
    return divide_by(x, count, reciprocal(count, x.dtype))


@triton.jit
def divide_by(x, count, inverse):
    """x / count, rounded once: a fast division of count * x by count need not be x. inverse: their :func:`reciprocal`

    Every quotient of a row is refined with one reciprocal, which does not wait for x. A division takes 13 instructions
    and a branch; 8 of them one after the other are a fifth of the kernel of 206596 x 15.
    """
    quotient = x * inverse
    refined = tl.fma(tl.fma(-quotient, tl.cast(count, x.dtype), x), inverse, quotient)
    # The remainder of an infinity is NaN.
    return tl.where(tl.abs(quotient) < float("inf"), refined, quotient)


@triton.jit
def variance_of(squares, N):
    return variance_by(squares, tl.full([], 1.0, squares.dtype) / N)


@triton.jit
def variance_by(squares, inverse):
    """squares / N, rounded before eps is added to it. Otherwise the compiler fuses the two where the variance has no
    other use, and the bits of a row depend on whether its statistics are stored: 5 % of 700 x 3 float32.
    """
    return tl.fma(squares, inverse, tl.full([], 0.0, squares.dtype))


@triton.constexpr_function
def sums_are_exact(dtype, elements):
    """Whether a float32 holds any multiple, up to ``elements``, of a number of this dtype."""
    return elements <= {"bf16": 2**16, "fp16": 2**13}.get(str(dtype), 0)


@triton.jit
def corrected(mean, deviation_sum, squares, count):
    return corrected_by(mean, deviation_sum, squares, tl.full([], 1.0, squares.dtype) / count)


@triton.jit
def corrected_by(mean, deviation_sum, squares, inverse):
    """(mean, sum of squared deviations) from a rounded mean and the sums of the deviations from it.

    inverse: 1 / their number, which does not wait for the sums.
    """
    correction = deviation_sum * inverse
    excess = tl.minimum(correction * deviation_sum, squares)
    return mean + correction, tl.where(squares < float("inf"), squares - excess, squares)


@triton.jit
def deviations_of_edges(x, center, mask):
    """The same of the edges of each row."""
    return tl.where(mask, x - center, 0.0)


@triton.jit
def mean_to_store(mean, variance):
    """NaN in a row with an infinity, as in PyTorch, whose running mean passes through inf - inf."""
    return tl.where(variance == variance, mean, variance)


@triton.jit
def store_statistics(mean_ptr, rstd_ptr, rows, mean, variance, rstd, mask):
    """Into ``mean_ptr, rstd_ptr: [M]``, if they are wanted."""
    if mean_ptr is not None:
        tl.store(mean_ptr + rows, mean_to_store(mean, variance), mask=mask)
        tl.store(rstd_ptr + rows, rstd, mask=mask)


@triton.jit
def slice_elements(rank, SLICES: tl.constexpr, SLICE, head, N, VEC: tl.constexpr):
    """How many elements of a row are in SLICES slices from that of program ``rank`` on, the edges in that of program 0.
    May be 0.
    """
    body = body_size(head, N, VEC)
    held = tl.maximum(tl.minimum((rank + SLICES) * SLICE, body) - rank * SLICE, 0)
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
        counts = tl.where(rank < GROUP, slice_elements(rank, 1, SLICE, head, N, VEC), 0).to(tl.float32)
        block_count = slice_elements(first, BLOCK, SLICE, head, N, VEC).to(tl.float32)
        count, mean, squares = merge(count, mean, squares, block_count, counts, slice_means, slice_squares)
    return mean, squares / N


@triton.jit
def merge(count, mean, squares, block_count, counts, means, block_squares):
    """(count, mean, sum of squared deviations) of some elements and ``block_count`` others, given as these three of
    each lane (Chan, Golub and LeVeque). Equal means have exactly that mean: the differences to it are added again.
    There may be no others, or none but others; the square of a difference to no elements may be infinite.
    """
    block_divisor = tl.maximum(block_count, 1.0)
    block_mean = tl.sum(product(means, counts), 0) / block_divisor
    block_mean += tl.sum(product(means - block_mean, counts), 0) / block_divisor
    deviation = means - block_mean
    delta = block_mean - mean
    share = block_count / tl.maximum(count + block_count, 1.0)
    squares += tl.sum(block_squares + counts * deviation * deviation, 0) + delta * (delta * share * count)
    return count + block_count, mean + delta * share, squares
