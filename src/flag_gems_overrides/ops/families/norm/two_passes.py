# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Gradients of rows that no programs hold, in two launches: the sums of each row, then blocks of columns of all rows.

dy and x are read twice, and there are partial sums only where rows are many. Gradients of weight and bias without the
input's take the second launch alone. backward.py has the formula.

    dy_ptr, x_ptr, dx_ptr: [M, N]    weight_ptr: [N] or None    mean_ptr: [M], or None where none is subtracted
    rstd_ptr: [M]    dweight_ptr, dbias_ptr: [N] or None    sums_ptr: [M, 2], c1 and c2 of each row
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ...launch.prepared import entry
from ...launch.workspace import is_last
from .backward import add_pairs, input_gradient, weighted
from .tile import body_size, load_parameter_at


@entry()
@triton.jit(do_not_specialize=["M", "BLOCKS"])
def norm_backward_sums(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    sums_ptr,
    partial_ptr,
    workspace_ptr,
    M,
    N,
    BLOCKS,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    WORDS: tl.constexpr,
    SPREAD: tl.constexpr,
    SINGLE: tl.constexpr,
    PDL: tl.constexpr,
):
    """BLOCKS blocks of columns of BLOCK_M rows to a program; the last of some rows adds up what the others stored.

    SINGLE: of one row, which begins with a whole vector and may end with a part of one

    partial_ptr: [M, slices, 2]    workspace_ptr: a counter for each BLOCK_M rows
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    body = body_size(0, N, VEC)  # all columns, unless SINGLE
    part = tl.program_id(0)
    slice = tl.program_id(1)
    slices = tl.num_programs(1)
    rows = part * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    row_mask = rows < M
    mean, rstd = load_statistics(mean_ptr, rstd_ptr, rows, row_mask, ACC)
    starts = tl.cast(rows, tl.int64) * (0 if SINGLE else body)
    tensors = (dy_ptr + starts, x_ptr + starts, weight_ptr, row_mask, mean, rstd)
    products = tl.zeros([BLOCK_M, BLOCK_N], ACC)
    terms = tl.zeros([BLOCK_M, BLOCK_N], ACC)
    first = slice * BLOCKS
    for block in tl.range(first, tl.minimum(first + BLOCKS, (body - 1) // BLOCK_N + 1)):
        product, term = terms_of(*tensors, *block_of(block, body, BLOCK_N, SPREAD), ACC)
        products += product
        terms += term
    c1, c2 = tl.reduce((products, terms), 1, add_pairs, keep_dims=True)
    if SINGLE and slice == slices - 1:
        product, term = tl.reduce(terms_of(*tensors, *tail_of(body, N, VEC), ACC), 1, add_pairs, keep_dims=True)
        c1 += product
        c2 += term
    words_ptr = partial_ptr + rows * slices * 2
    tl.store(words_ptr + slice * 2, c1, mask=row_mask)
    tl.store(words_ptr + slice * 2 + 1, c2, mask=row_mask)
    if is_last(workspace_ptr + part, slices, "acq_rel"):
        c1s = tl.zeros([BLOCK_M, WORDS], ACC)
        c2s = tl.zeros([BLOCK_M, WORDS], ACC)
        for word in tl.range(0, slices, WORDS):
            words = word + tl.arange(0, WORDS)[None, :]
            mask = (words < slices) & row_mask
            a = tl.load(words_ptr + words * 2, mask=mask, other=0.0, cache_modifier=".cg")
            b = tl.load(words_ptr + words * 2 + 1, mask=mask, other=0.0, cache_modifier=".cg")
            c1s += a
            c2s += b
        c1, c2 = tl.reduce((c1s, c2s), 1, add_pairs, keep_dims=True)
        tl.store(sums_ptr + rows * 2, c1 / N, mask=row_mask)
        tl.store(sums_ptr + rows * 2 + 1, c2 / N, mask=row_mask)
    if PDL:
        gdc_launch_dependents()


@triton.jit
def terms_of(dy_ptr, x_ptr, weight_ptr, row_mask, mean, rstd, columns, mask, ACC: tl.constexpr):
    """(weight * dy * xhat, weight * dy) of some columns. dy_ptr, x_ptr: the starts of the rows, [BLOCK_M, 1]."""
    dy = tl.load(dy_ptr + columns, mask=row_mask & mask, other=0.0).to(ACC)
    x = tl.load(x_ptr + columns, mask=row_mask & mask, other=0.0).to(ACC)
    wdy = weighted(dy, load_parameter_at(weight_ptr, columns, mask), False)
    return (x - mean) * rstd * wdy, wdy


@entry()
@triton.jit(do_not_specialize=["M", "ROWS"])
def norm_backward_columns(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dweight_ptr,
    dbias_ptr,
    sums_ptr,
    M,
    N,
    stride,
    ROWS,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    SPREAD: tl.constexpr,
    SINGLE: tl.constexpr,
    PDL: tl.constexpr,
):
    """A program has a block of columns of ROWS rows. The last block goes first: L2 is most likely to hold it still.

    dx_ptr, sums_ptr: None where dx is not wanted    dweight_ptr, dbias_ptr: [M / ROWS, stride], see partial_sums.py
    """
    body = body_size(0, N, VEC)  # all columns, unless SINGLE
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    tensors = (dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, dweight_ptr, dbias_ptr, sums_ptr)
    sizes = (M, 0 if SINGLE else body, stride, ROWS)
    gradients_of_columns(*tensors, *block_of(block, body, BLOCK_N, SPREAD), *sizes, BLOCK_M, PDL)
    if SINGLE and block == 0:
        gradients_of_columns(*tensors, *tail_of(body, N, VEC), *sizes, BLOCK_M, PDL)


@triton.jit
def gradients_of_columns(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dweight_ptr,
    dbias_ptr,
    sums_ptr,
    columns,
    column_mask,
    M,
    row_stride,
    stride,
    ROWS,
    BLOCK_M: tl.constexpr,
    PDL: tl.constexpr,
):
    """columns, column_mask: [1, BLOCK_N]"""
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    part = tl.program_id(1)
    weight = load_parameter_at(weight_ptr, columns, column_mask)
    dweight = tl.zeros([1, columns.shape[1]], ACC)
    dbias = tl.zeros([1, columns.shape[1]], ACC)
    if PDL:
        gdc_wait()
    for first in tl.range(part * ROWS, tl.minimum(part * ROWS + ROWS, M), BLOCK_M):
        rows = first + tl.arange(0, BLOCK_M)[:, None]
        row_mask = rows < M
        mask = row_mask & column_mask
        offsets = tl.cast(rows, tl.int64) * row_stride + columns
        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(ACC)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
        mean, rstd = load_statistics(mean_ptr, rstd_ptr, rows, row_mask, ACC)
        xhat = (x - mean) * rstd
        if dweight_ptr is not None:
            dweight += tl.sum(dy * xhat, 0, keep_dims=True)
        if dbias_ptr is not None:
            dbias += tl.sum(dy, 0, keep_dims=True)
        if dx_ptr is not None:
            c1 = tl.load(sums_ptr + rows * 2, mask=row_mask, other=0.0)
            c2 = tl.zeros_like(c1)
            if mean_ptr is not None:
                c2 = tl.load(sums_ptr + rows * 2 + 1, mask=row_mask, other=0.0)
            tl.store(dx_ptr + offsets, input_gradient(xhat, weighted(dy, weight, False), rstd, c1, c2), mask=mask)
    if PDL:
        gdc_launch_dependents()
    offset = part * stride
    if dweight_ptr is not None:
        tl.store(dweight_ptr + offset + columns, dweight, mask=column_mask)
    if dbias_ptr is not None:
        tl.store(dbias_ptr + offset + columns, dbias, mask=column_mask)


@triton.jit
def block_of(block, N, BLOCK_N: tl.constexpr, SPREAD: tl.constexpr):
    """(columns of a block, which of them there are): [1, BLOCK_N]. SPREAD: neighbours belong to neighbouring threads.

    Of a row of almost 2**31 elements those after the last are no int32.
    """
    lanes = tl.arange(0, BLOCK_N)[None, :]
    columns = block * BLOCK_N + lanes
    return tl.multiple_of(columns, [1, 1]) if SPREAD else columns, lanes < N - block * BLOCK_N


@triton.jit
def tail_of(body, N, VEC: tl.constexpr):
    """The same of the columns after the last whole vector: [1, VEC]."""
    lanes = tl.arange(0, VEC)[None, :]
    return body + lanes, lanes < N - body


@triton.jit
def load_statistics(mean_ptr, rstd_ptr, rows, row_mask, ACC: tl.constexpr):
    rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0).to(ACC)
    mean = tl.zeros_like(rstd)
    if mean_ptr is not None:
        mean = tl.load(mean_ptr + rows, mask=row_mask, other=0.0).to(ACC)
    return mean, rstd
