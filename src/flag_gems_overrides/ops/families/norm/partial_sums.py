# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Gradients of weight and bias, which are sums over all rows, in two steps.

Each program (or group of programs that share rows) adds up its own rows in registers and stores one row of a
[P, stride] tensor; :func:`sum_partials` adds these P rows, always in the same order. With P = 1 the first step stores
the gradients themselves.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from ...launch.prepared import entry
from .tile import chunk


@triton.jit
def zeros(BLOCK_M: tl.constexpr, CHUNKS: tl.constexpr, BLOCK_N: tl.constexpr, DTYPE: tl.constexpr):
    """Sums to start from: a tuple of chunks."""
    chunks = ()
    for _ in tl.static_range(CHUNKS):
        chunks = chunks + (tl.zeros([BLOCK_M, BLOCK_N], DTYPE),)
    return chunks


@triton.jit
def store_partial_sums(
    partial_ptr, sums, partial, stride, head, begin, end, CHUNKS: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Store the chunks of the columns [begin, end) of the body, added over their rows, as row ``partial``.

    partial_ptr: [P, stride], or None, which stores nothing.
    """
    if partial_ptr is not None:
        row_ptr = partial_ptr + tl.cast(partial, tl.int64) * stride
        for c in tl.static_range(CHUNKS):
            offsets, mask = chunk(c, begin, end, None, BLOCK_N)
            tl.store(row_ptr + head + offsets, tl.sum(sums[c], 0, keep_dims=True), mask=mask)


@triton.jit
def store_partial_sums_of_edges(partial_ptr, sums, partial, stride, columns, mask):
    """The same for the edges."""
    if partial_ptr is not None:
        row_ptr = partial_ptr + tl.cast(partial, tl.int64) * stride
        tl.store(row_ptr + columns, tl.sum(sums, 0, keep_dims=True), mask=mask)


@entry()
@triton.jit(do_not_specialize=["P"])
def sum_partials(
    dweight_partial_ptr,
    dbias_partial_ptr,
    dweight_ptr,
    dbias_ptr,
    P,
    N,
    stride,
    BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PDL: tl.constexpr,
):
    """dweight and dbias from their partial sums.

    dweight_partial_ptr, dbias_partial_ptr: [P, stride]; dweight_ptr, dbias_ptr: [N]. Those of an absent gradient are
    None. Where both are asked for, the grid's second axis says which.

    With PDL (programmatic dependent launch) this kernel starts before the one that stores the partial sums has ended.
    """
    if PDL:
        gdc_wait()
    if dweight_ptr is None:
        sum_columns(dbias_partial_ptr, dbias_ptr, P, N, stride, BLOCK_P, BLOCK_N)
    elif dbias_ptr is None or tl.program_id(1) == 0:
        sum_columns(dweight_partial_ptr, dweight_ptr, P, N, stride, BLOCK_P, BLOCK_N)
    else:
        sum_columns(dbias_partial_ptr, dbias_ptr, P, N, stride, BLOCK_P, BLOCK_N)


@triton.jit
def sum_columns(partial_ptr, out_ptr, P, N, stride, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr):
    """One block of columns. partial_ptr: [P, stride]; out_ptr: [N]."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    column_sum = tl.zeros([BLOCK_P, BLOCK_N], partial_ptr.dtype.element_ty)
    for first in tl.range(0, P, BLOCK_P):
        rows = first + tl.arange(0, BLOCK_P)[:, None]
        # Pointers before the mask: the other way round takes 37 registers instead of 32 on sm_80 (Triton 3.7).
        partials = partial_ptr + tl.cast(rows, tl.int64) * stride + columns
        column_sum += tl.load(partials, mask=(rows < P) & (columns < N), other=0.0)
    tl.store(out_ptr + columns, tl.sum(column_sum, 0, keep_dims=True), mask=columns < N)


@triton.jit
def fold_columns(columns_ptr, out_ptr, N, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """The sum of each of N rows of K neighbouring numbers, which this program has stored before a barrier.

    columns_ptr: [N, K]; out_ptr: [N]
    """
    for first in tl.range(0, N, BLOCK_N):
        rows = first + tl.arange(0, BLOCK_N)[:, None]
        sums = tl.zeros([BLOCK_N, BLOCK_K], columns_ptr.dtype.element_ty)
        for k in tl.range(0, K, BLOCK_K):
            columns = k + tl.arange(0, BLOCK_K)[None, :]
            sums += tl.load(columns_ptr + rows * K + columns, mask=(rows < N) & (columns < K), other=0.0)
        tl.store(out_ptr + rows, tl.sum(sums, 1, keep_dims=True), mask=rows < N)
