# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc"
"""Backward kernels of RMS normalization: both gradients from one read of x and dy.

With ``xhat = x * rstd`` and ``wdy = weight * dy``, of an M x N input

    dx = (wdy - xhat * c) * rstd    c = sum(xhat * wdy) / N over each row
    dweight = sum(dy * xhat) over all rows

Everything between load and store is float32, or float64 for float64 input. A masked element has dy = 0, so that all its
products are 0.

In all kernels

    dy_ptr, x_ptr, dx_ptr: [M, N]    weight_ptr: [N] or None    rstd_ptr: [M]
    dweight_ptr: [partial sums, stride] or None; partial_sums.py says what becomes of them
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from ...launch.prepared import entry
from ...launch.products import product
from .backward import weighted
from .columns import sum_columns_of_rows
from .partial_sums import store_partial_sums, store_partial_sums_of_edges, zeros
from .tile import (
    body_offset,
    body_size,
    chunk,
    chunk_of_parameter,
    edge_offsets,
    edges,
    first_row,
    head_size,
    load_edges,
    load_parameter_at,
    load_parameters,
)


@entry()
@triton.jit(do_not_specialize=["M"])
def rms_norm_backward_rows(
    dy_ptr,
    x_ptr,
    weight_ptr,
    rstd_ptr,
    dx_ptr,
    dweight_ptr,
    M,
    N,
    stride,
    BLOCK_M: tl.constexpr,
    CHUNKS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    UNALIGNED: tl.constexpr,
    INT64_ROWS: tl.constexpr,
    ONE_TILE: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """Each program holds BLOCK_M whole rows at a time, in a grid-stride loop over all rows. dx_ptr may be None.

    Its partial sum of dweight stays in registers until the end. PDL (programmatic dependent launch) lets the next
    kernel, which adds them up, start before they are stored; it then waits for them.
    """
    tl.static_assert(BLOCK_N % VEC == 0)
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    if INT64_ROWS:
        M = tl.cast(M, tl.int64)
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    # The rows of a tile are neighbours, unless they would have heads of different sizes.
    row_step = programs if UNALIGNED else 1
    head = head_size(program, N, VEC, UNALIGNED)
    end = tl.minimum(CHUNKS * BLOCK_N, body_size(head, N, VEC))
    weights, _ = load_parameters(weight_ptr, None, head, 0, end, CHUNKS, BLOCK_N)
    dweights = zeros(BLOCK_M, CHUNKS, BLOCK_N, ACC)
    if UNALIGNED:
        edge_columns, edge_mask = edges(head, N, BLOCK_N, VEC)
        edge_weight = load_parameter_at(weight_ptr, edge_columns, edge_mask)
        edge_dweight = tl.zeros([BLOCK_M, edge_mask.shape[1]], ACC)
        next_rows = program + tl.arange(0, BLOCK_M)[:, None] * row_step
        next_edge_x = load_edges(x_ptr, next_rows, M, N, edge_columns, edge_mask)
        next_edge_dy = load_edges(dy_ptr, next_rows, M, N, edge_columns, edge_mask)
    start, step = first_row(program, BLOCK_M, UNALIGNED, INT64_ROWS), programs * BLOCK_M
    for tile in tl.range(0 if ONE_TILE else start, 1 if ONE_TILE else M, 1 if ONE_TILE else step, num_stages=STAGES):
        first = start if ONE_TILE else tile
        rows = first + tl.arange(0, BLOCK_M)[:, None] * row_step
        body = body_offset(rows, N, VEC, UNALIGNED)
        rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0).to(ACC)
        xhats = ()
        wdys = ()
        new_dweights = ()
        for c in tl.static_range(CHUNKS):
            offsets, mask = chunk(c, 0, end, rows < M, BLOCK_N)
            x = tl.load(x_ptr + body + offsets, mask=mask, other=0.0)
            dy = tl.load(dy_ptr + body + offsets, mask=mask, other=0.0)
            xhat, wdy, dweight = accumulate(x, dy, rstd, chunk_of_parameter(weights, c), dweights[c])
            xhats = xhats + (xhat,)
            wdys = wdys + (wdy,)
            new_dweights = new_dweights + (dweight,)
        dweights = new_dweights
        if UNALIGNED:
            edge_xhat, edge_wdy, edge_dweight = accumulate(next_edge_x, next_edge_dy, rstd, edge_weight, edge_dweight)
            next_edge_x = load_edges(x_ptr, rows + programs * BLOCK_M, M, N, edge_columns, edge_mask)
            next_edge_dy = load_edges(dy_ptr, rows + programs * BLOCK_M, M, N, edge_columns, edge_mask)
        if dx_ptr is not None:
            products = xhats[0] * wdys[0]
            for c in tl.static_range(1, CHUNKS):
                products += xhats[c] * wdys[c]
            mean_product = tl.sum(products, 1, keep_dims=True)
            if UNALIGNED:
                mean_product += tl.sum(product(edge_xhat, edge_wdy), 1, keep_dims=True)
            mean_product /= N
            for c in tl.static_range(CHUNKS):
                offsets, mask = chunk(c, 0, end, rows < M, BLOCK_N)
                tl.store(dx_ptr + body + offsets, (wdys[c] - xhats[c] * mean_product) * rstd, mask=mask)
            if UNALIGNED:
                dx = (edge_wdy - edge_xhat * mean_product) * rstd
                tl.store(dx_ptr + edge_offsets(rows, N, edge_columns), dx, mask=edge_mask & (rows < M))
    if PDL:
        gdc_launch_dependents()
    # Not ``end``: the mask would wait all the time for this, and 8 bytes spill with Triton 3.6 (float32, 1024 columns).
    store_partial_sums(dweight_ptr, dweights, program, stride, head, 0, body_size(head, N, VEC), CHUNKS, BLOCK_N)
    if UNALIGNED:
        store_partial_sums_of_edges(dweight_ptr, edge_dweight, program, stride, edge_columns, edge_mask)


@triton.jit
def accumulate(x, dy, rstd, weight, dweight):
    """(xhat, wdy, dweight + dy * xhat). weight is a tuple of one, or empty."""
    dy = dy.to(rstd.dtype)
    xhat = x.to(rstd.dtype) * rstd
    return xhat, weighted(dy, weight, False), dweight + dy * xhat


@entry()
@triton.jit(do_not_specialize=["M"])
def rms_norm_backward_few_rows(
    dy_ptr,
    x_ptr,
    weight_ptr,
    rstd_ptr,
    dx_ptr,
    dweight_ptr,
    M,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    COLUMN_ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Both gradients of few rows in one launch, by two kinds of programs, as layer_norm_backward_few_rows."""
    row_programs = 0
    if dx_ptr is not None:
        row_programs = (M - 1) // BLOCK_M + 1
    program = tl.program_id(0)
    if program >= row_programs:
        sum_columns_of_rows(
            dy_ptr, x_ptr, None, rstd_ptr, dweight_ptr, None, program - row_programs, M, N, COLUMN_ROWS, COLUMNS
        )
    elif dx_ptr is not None:
        gradient_of_rows(dy_ptr, x_ptr, weight_ptr, rstd_ptr, dx_ptr, program * BLOCK_M, M, N, BLOCK_M, BLOCK_N)


@triton.jit
def gradient_of_rows(
    dy_ptr, x_ptr, weight_ptr, rstd_ptr, dx_ptr, first, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """dx of the rows from ``first``, of no more than BLOCK_N columns."""
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    rows = first + tl.arange(0, BLOCK_M)[:, None]
    columns = tl.arange(0, BLOCK_N)[None, :]
    mask = (rows < M) & (columns < N)
    offsets = tl.cast(rows, tl.int64) * N + columns
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0)
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0).to(ACC)
    weight = load_parameter_at(weight_ptr, columns, columns < N)
    xhat, wdy, _ = accumulate(x, dy, rstd, weight, dy.to(ACC))
    mean_product = tl.sum(xhat * wdy, 1, keep_dims=True) / N
    tl.store(dx_ptr + offsets, (wdy - xhat * mean_product) * rstd, mask=mask)
