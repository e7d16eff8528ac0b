# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc, no-untyped-def, unreachable"
"""cumsum over N of [M, N, K] with few K, as they lie in memory.

A thread has VEC rows of K elements, which are K vectors, whatever K is. By columns it would load and store each element
by itself. 16384 x 648 x 3 bfloat16: 49.5 us, by columns 103 (H100).
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.vectors import apart, together
from .tile import append


@triton.jit
def _inside(begins, first, end, VEC: tl.constexpr, WHOLE: tl.constexpr):
    """Which of the vectors that begin there are of the row."""
    if WHOLE:
        return begins < end
    else:
        return (begins >= first) & (begins + VEC <= end)


@triton.jit
def _edge(begins, first, end, VEC: tl.constexpr):
    """Which elements of the other vectors are."""
    at = begins + tl.arange(0, VEC)[None, :]
    return (at >= first) & (at < end) & (_inside(begins, first, end, VEC, False) == 0)


@triton.jit
def _load(x_ptr, begins, first, end, K: tl.constexpr, VEC: tl.constexpr, WHOLE: tl.constexpr, FULL: tl.constexpr):
    """The elements of each thread's K vectors; FULL: all of which are of the row."""
    lanes = tl.arange(0, VEC)[None, :]
    elements = ()
    for i in tl.static_range(K):
        at = begins + i * VEC
        if FULL:
            x = tl.load(x_ptr + (at + lanes))
        else:
            inside = _inside(at, first, end, VEC, WHOLE)
            x = tl.load(x_ptr + (at + lanes), mask=inside, other=0)
            if not WHOLE:
                x = tl.where(inside, x, tl.load(x_ptr + (at + lanes), mask=_edge(at, first, end, VEC), other=0))
        elements = elements + apart(x, VEC)
    return elements


@triton.jit
def _store(
    out_ptr, elements, begins, first, end, K: tl.constexpr, VEC: tl.constexpr, WHOLE: tl.constexpr, FULL: tl.constexpr
):
    lanes = tl.arange(0, VEC)[None, :]
    for i in tl.static_range(K):
        at = begins + i * VEC
        vectors = together(elements, i * VEC, VEC)
        if FULL:
            tl.store(out_ptr + (at + lanes), vectors)
        else:
            tl.store(out_ptr + (at + lanes), vectors, mask=_inside(at, first, end, VEC, WHOLE))
            if not WHOLE:
                tl.store(out_ptr + (at + lanes), vectors, mask=_edge(at, first, end, VEC))


@entry()
@triton.jit
def cumsum_interleaved(
    x_ptr,
    out_ptr,
    N,
    K: tl.constexpr,
    CONVERTED: tl.constexpr,
    TILE: tl.constexpr,
    ACC: tl.constexpr,
    THREADS: tl.constexpr,
    VEC: tl.constexpr,
    COLUMNS: tl.constexpr,
    SINGLE: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Program m has x[m].

    Vectors begin where memory has them, not where x[m] does. A thread's elements that are K apart are of one column
    all the same, and for all threads of the same one.

    Args:
        x_ptr: [M, N, K].
        out_ptr: [M, N, K], may be x_ptr.
        CONVERTED, TILE, ACC: see ``cumsum_alone``.
        THREADS: of a program.
        COLUMNS: at least K, a power of two.
        SINGLE: there is one step.
        WHOLE: N * K is a multiple of VEC.
    """
    STEP: tl.constexpr = THREADS * VEC * K
    length = tl.cast(N, tl.int64) * K
    start = tl.program_id(0) * (length // VEC * VEC if WHOLE else length) // VEC * VEC
    head = (tl.program_id(0) * length - start).to(tl.int32)
    x_ptr += start
    out_ptr += start
    begins = tl.arange(0, THREADS)[:, None] * (VEC * K)
    carry = tl.zeros([1, COLUMNS], ACC)
    for step in range(0, STEP if SINGLE else head + length, STEP):
        end = tl.minimum(head + length - step, STEP).to(tl.int32)
        first = tl.where(step == 0, head, 0)
        # All steps but the first and the last are full, and have no edges.
        # 4096 x 3665 x 5 float32: 258 us, with edges in each step 545 (H100).
        full = (first == 0) & (end == STEP)
        if SINGLE:
            elements = _load(x_ptr + step, begins, first, end, K, VEC, WHOLE, False)
        elif full:
            elements = _load(x_ptr + step, begins, first, end, K, VEC, WHOLE, True)
        else:
            elements = _load(x_ptr + step, begins, first, end, K, VEC, WHOLE, False)
        sums = ()
        for i in tl.static_range(VEC * K):
            x = elements[i].to(CONVERTED).to(TILE)
            if i >= K:
                x += sums[i - K]
            sums = sums + (x,)
        totals = ()
        for k in tl.static_range(COLUMNS):
            totals = totals + (sums[(VEC - 1) * K + k] if k < K else tl.zeros_like(sums[0]),)
        total = together(totals, 0, COLUMNS)
        _, before = tl.associative_scan((total, tl.zeros_like(total)), 0, append)
        before = apart(carry + before.to(ACC), COLUMNS)
        scanned = ()
        for i in tl.static_range(VEC * K):
            scanned = scanned + ((before[i % K] + sums[i].to(ACC)).to(out_ptr.dtype.element_ty),)
        if SINGLE:
            _store(out_ptr + step, scanned, begins, first, end, K, VEC, WHOLE, False)
        elif full:
            _store(out_ptr + step, scanned, begins, first, end, K, VEC, WHOLE, True)
        else:
            _store(out_ptr + step, scanned, begins, first, end, K, VEC, WHOLE, False)
        carry += tl.sum(total, 0, keep_dims=True).to(ACC)
