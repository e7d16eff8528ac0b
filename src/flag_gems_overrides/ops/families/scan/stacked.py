# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc, no-untyped-def, unreachable"
"""cumsum over N of [M, N, K] with few N and K, several [N, K] to a program, as they lie in memory.

As in :mod:`.interleaved` a thread has VEC rows of K elements, which are K vectors. Rows of one [N, K] follow those of
another, so sums begin again with every N-th row.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.vectors import apart, together


@triton.jit
def _append(left, left_sum, left_before, right, right_sum, right_before):
    """Sums since an [N, K] began: up to a thread's last row, and up to the one before its first.

    left, right: the [N, K] of that last row, shifted, and that of the row before the first.
    """
    sums = tl.where(left >> 16 == right >> 16, left_sum + right_sum, right_sum)
    before = tl.where(left >> 16 == right & 0xFFFF, left_sum + right_before, right_before)
    return right, sums, before


@triton.jit
def _vectors(x_ptr, begins, lanes, end, K: tl.constexpr, VEC: tl.constexpr, WHOLE: tl.constexpr):
    """The elements of each thread's K vectors from ``begins`` on. WHOLE: ``end`` is in none of them."""
    elements = ()
    for i in tl.static_range(K):
        # A mask whose limit is a multiple of a vector is one for all of it.
        at = begins + i * VEC + lanes
        mask = begins + i * VEC < end if WHOLE else at < end
        elements = elements + apart(tl.load(x_ptr + at, mask=mask, other=0), VEC)
    return elements


@entry()
@triton.jit
def cumsum_stacked(
    x_ptr,
    out_ptr,
    M,
    N,
    rows,
    K: tl.constexpr,
    CONVERTED: tl.constexpr,
    ACC: tl.constexpr,
    THREADS: tl.constexpr,
    VEC: tl.constexpr,
    COLUMNS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """A program for so many ``rows``.

    Args:
        x_ptr: [M, N, K].
        out_ptr: [M, N, K], may be x_ptr.
        rows: of K elements, at most THREADS * VEC: all of some of M, and whole vectors.
        CONVERTED: what elements are converted to before they are added in ACC.
        THREADS: of a program.
        COLUMNS: at least K, a power of two.
        WHOLE: M * N * K is a multiple of VEC.
    """
    start = tl.program_id(0).to(tl.int64) * (rows * K // VEC * VEC)
    end = tl.minimum(tl.cast(M, tl.int64) * N * K - start, rows * K).to(tl.int32)
    x_ptr += start
    out_ptr += start
    row = tl.arange(0, THREADS)[:, None] * VEC
    begins = row * K
    lanes = tl.arange(0, VEC)[None, :]
    # One branch: loads in branches of their own wait for each other.
    if WHOLE or end == rows * K:
        elements = _vectors(x_ptr, begins, lanes, end, K, VEC, True)
    else:
        elements = _vectors(x_ptr, begins, lanes, end, K, VEC, False)
    # Of each row: whether sums begin with it, and whether they go on from the rows of other threads.
    begin = row % N == 0
    goes_on = begin == 0
    goes_on_until = ()
    sums = ()
    for v in tl.static_range(VEC):
        if v > 0:
            begin = (row + v) % N == 0
            goes_on = goes_on & (begin == 0)
        goes_on_until = goes_on_until + (goes_on,)
        for k in tl.static_range(K):
            x = elements[v * K + k].to(CONVERTED).to(ACC)
            if v > 0:
                x += tl.where(begin, 0, sums[(v - 1) * K + k]).to(ACC)
            sums = sums + (x,)
    totals = ()
    for k in tl.static_range(COLUMNS):
        totals = totals + (sums[(VEC - 1) * K + k] if k < K else tl.zeros_like(sums[0]),)
    total = together(totals, 0, COLUMNS)
    where = ((row + VEC - 1) // N << 16) | (((row + N - 1) // N - 1) & 0xFFFF)
    where += tl.zeros(total.shape, tl.int32)
    _, _, before = tl.associative_scan((where, total, tl.zeros_like(total)), 0, _append)
    before = apart(before, COLUMNS)
    scanned = ()
    for v in tl.static_range(VEC):
        for k in tl.static_range(K):
            earlier = tl.where(goes_on_until[v], before[k], 0).to(ACC)
            scanned = scanned + ((earlier + sums[v * K + k]).to(out_ptr.dtype.element_ty),)
    for i in tl.static_range(K):
        at = begins + i * VEC + lanes
        vectors = together(scanned, i * VEC, VEC)
        if WHOLE or end == rows * K:
            tl.store(out_ptr + at, vectors, mask=begins + i * VEC < end)
        else:
            tl.store(out_ptr + at, vectors, mask=at < end)
