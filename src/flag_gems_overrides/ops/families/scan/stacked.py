# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc, no-untyped-def, unreachable, var-annotated"
"""cumsum over N of [M, N, K] with few N and K, several [N, K] to a program, as they lie in memory.

A thread has VEC rows of K elements, which are vectors of WIDTH elements. Rows of one [N, K] follow those of another, so
sums begin again with every N-th row.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.vectors import apart, together


@triton.jit
def _append(left, left_sum, left_before, right, right_sum, right_before):
    """Sums since an [N, K] began, up to a thread's last row, and the sums before its first row.

    left, right: the index of the last row's [N, K] in the upper 16 bits, and that of the first row's in the lower 16.
    """
    sums = tl.where(left >> 16 == right >> 16, left_sum + right_sum, right_sum)
    before = tl.where(left >> 16 == right & 0xFFFF, left_sum + right_before, right_before)
    return right, sums, before


@triton.jit
def _vectors(x_ptr, begins, lanes, end, COUNT: tl.constexpr, WIDTH: tl.constexpr):
    """Each thread's COUNT vectors from ``begins`` on; 0 for a vector that is not wholly before the end."""
    vectors = ()
    for i in tl.static_range(COUNT):
        at = begins + i * WIDTH
        vectors = vectors + (tl.load(x_ptr + (at + lanes), mask=at + WIDTH <= end, other=0),)
    return vectors


@triton.jit
def _cut(begins, end, COUNT: tl.constexpr, WIDTH: tl.constexpr):
    """Where a thread's vector is that the end is in, and whether the thread has it."""
    at = begins + end // WIDTH % COUNT * WIDTH
    return at, (at < end) & (at + WIDTH > end)


@triton.jit
def _with_cut(vectors, x_ptr, begins, lanes, end, COUNT: tl.constexpr, WIDTH: tl.constexpr):
    """The vectors, with the elements before the end in the vector that the end is in."""
    at, is_cut = _cut(begins, end, COUNT, WIDTH)
    x = tl.load(x_ptr + (at + lanes), mask=is_cut & (at + lanes < end), other=0)
    whole = ()
    for i in tl.static_range(COUNT):
        whole = whole + (tl.where(is_cut & (at == begins + i * WIDTH), x, vectors[i]),)
    return whole


@triton.jit
def _store_cut(out_ptr, elements, begins, lanes, end, COUNT: tl.constexpr, WIDTH: tl.constexpr):
    at, is_cut = _cut(begins, end, COUNT, WIDTH)
    x = together(elements, 0, WIDTH)
    for i in tl.static_range(1, COUNT):
        x = tl.where(at == begins + i * WIDTH, together(elements, i * WIDTH, WIDTH), x)
    tl.store(out_ptr + (at + lanes), x, mask=is_cut & (at + lanes < end))


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
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """A program for each ``rows`` rows.

    Args:
        x_ptr: [M, N, K].
        out_ptr: [M, N, K], may be x_ptr.
        rows: of K elements, at most THREADS * VEC: all of some of M, and whole vectors.
        CONVERTED: what elements are converted to before they are added in ACC.
        THREADS: of a program.
        COLUMNS: at least K, a power of two.
        WHOLE: M * N * K is a multiple of WIDTH, which divides VEC * K.
    """
    start = tl.program_id(0).to(tl.int64) * (rows * K // WIDTH * WIDTH)
    end = tl.minimum(tl.cast(M, tl.int64) * N * K - start, rows * K).to(tl.int32)
    x_ptr += start
    out_ptr += start
    row = tl.arange(0, THREADS)[:, None] * VEC
    begins = row * K
    lanes = tl.arange(0, WIDTH)[None, :]
    COUNT: tl.constexpr = VEC * K // WIDTH
    vectors = _vectors(x_ptr, begins, lanes, end, COUNT, WIDTH)
    if not WHOLE and end % WIDTH > 0:
        vectors = _with_cut(vectors, x_ptr, begins, lanes, end, COUNT, WIDTH)
    elements = ()
    for i in tl.static_range(COUNT):
        elements = elements + apart(vectors[i], WIDTH)
    # For each row: its index in its [N, K], and whether its sums go on from the rows of other threads.
    first = row // N
    position = row - first * N
    last = first
    goes_on = position > 0
    goes_on_until = ()
    sums = ()
    for v in tl.static_range(VEC):
        if v > 0:
            begin = position == N - 1
            position = tl.where(begin, 0, position + 1)
            last += tl.where(begin, 1, 0)
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
    where = (last << 16) | (first & 0xFFFF)
    where += tl.zeros(total.shape, tl.int32)
    _, _, before = tl.associative_scan((where, total, tl.zeros_like(total)), 0, _append)
    before = apart(before, COLUMNS)
    scanned = ()
    for v in tl.static_range(VEC):
        for k in tl.static_range(K):
            earlier = tl.where(goes_on_until[v], before[k], 0).to(ACC)
            scanned = scanned + ((earlier + sums[v * K + k]).to(out_ptr.dtype.element_ty),)
    for i in tl.static_range(COUNT):
        at = begins + i * WIDTH
        tl.store(out_ptr + (at + lanes), together(scanned, i * WIDTH, WIDTH), mask=at + WIDTH <= end)
    if not WHOLE and end % WIDTH > 0:
        _store_cut(out_ptr, scanned, begins, lanes, end, COUNT, WIDTH)
