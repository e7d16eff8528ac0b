# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Backward kernels of layer normalization: all three gradients from one read of x and dy.

With ``xhat = (x - mean) * rstd`` and ``wdy = weight * dy``, of an M x N input

    dx = (wdy - (xhat * c1 + c2)) * rstd    c1 = sum(xhat * wdy) / N, c2 = sum(wdy) / N over each row
    dweight = sum(dy * xhat)                dbias = sum(dy) over all rows

Everything between load and store is float32, or float64 for float64 input. A masked element has dy = 0, so that all its
products are 0.

In both kernels

    dy_ptr, x_ptr: [M, N]      weight_ptr: [N] or None      mean_ptr, rstd_ptr: [M]      dx_ptr: [M, N] or None
    dweight_ptr, dbias_ptr: [partial sums, stride] or None; partial_sums.py says what becomes of them
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from ...launch.prepared import entry
from ...launch.products import product
from .exchange import clear_last, clear_previous, collect_pairs, publish_pair
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
def layer_norm_backward_rows(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dweight_ptr,
    dbias_ptr,
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
    """Each program holds BLOCK_M whole rows at a time, in a grid-stride loop over all rows.

    Its partial sums of dweight and dbias stay in registers until the end. PDL (programmatic dependent launch) lets the
    next kernel, which adds them up, start before they are stored; it then waits for them.
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
    end = tl.minimum(CHUNKS * BLOCK_N, body_size(head, N, VEC))  # the chunks hold all; it saves 1 or 2 registers
    weights, _ = load_parameters(weight_ptr, None, head, 0, end, CHUNKS, BLOCK_N)
    dweights = zeros(BLOCK_M, CHUNKS, BLOCK_N, ACC)
    dbiases = zeros(BLOCK_M, CHUNKS, BLOCK_N, ACC)
    if UNALIGNED:
        edge_columns, edge_mask = edges(head, N, BLOCK_N, VEC)
        edge_weight = load_parameter_at(weight_ptr, edge_columns, edge_mask)
        edge_dweight = tl.zeros([BLOCK_M, edge_mask.shape[1]], ACC)
        edge_dbias = tl.zeros([BLOCK_M, edge_mask.shape[1]], ACC)
        next_rows = program + tl.arange(0, BLOCK_M)[:, None] * row_step
        next_edge_x = load_edges(x_ptr, next_rows, M, N, edge_columns, edge_mask)
        next_edge_dy = load_edges(dy_ptr, next_rows, M, N, edge_columns, edge_mask)
    start, step = first_row(program, BLOCK_M, UNALIGNED, INT64_ROWS), programs * BLOCK_M
    for tile in tl.range(0 if ONE_TILE else start, 1 if ONE_TILE else M, 1 if ONE_TILE else step, num_stages=STAGES):
        first = start if ONE_TILE else tile
        rows = first + tl.arange(0, BLOCK_M)[:, None] * row_step
        body = body_offset(rows, N, VEC, UNALIGNED)
        mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0).to(ACC)
        rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0).to(ACC)
        xhats, wdys, dweights, dbiases = accumulate_chunks(
            x_ptr + body, dy_ptr + body, rows < M, mean, rstd, weights, dweights, dbiases, 0, end, CHUNKS, BLOCK_N, True
        )
        if UNALIGNED:
            edge_xhat, edge_wdy, edge_dweight, edge_dbias = accumulate(
                next_edge_x, next_edge_dy, mean, rstd, edge_weight, edge_dweight, edge_dbias, True
            )
            next_edge_x = load_edges(x_ptr, rows + programs * BLOCK_M, M, N, edge_columns, edge_mask)
            next_edge_dy = load_edges(dy_ptr, rows + programs * BLOCK_M, M, N, edge_columns, edge_mask)
        if dx_ptr is not None:
            c1, c2 = row_sums(xhats, wdys, CHUNKS)
            if UNALIGNED:
                edge_c1, edge_c2 = row_sums_of_edges(edge_xhat, edge_wdy)
                c1 += edge_c1
                c2 += edge_c2
            c1 /= N
            c2 /= N
            for c in tl.static_range(CHUNKS):
                offsets, mask = chunk(c, 0, end, rows < M, BLOCK_N)
                dx = input_gradient(xhats[c], wdys[c], rstd, c1, c2)
                tl.store(dx_ptr + body + offsets, dx, mask=mask)
            if UNALIGNED:
                dx = input_gradient(edge_xhat, edge_wdy, rstd, c1, c2)
                tl.store(dx_ptr + edge_offsets(rows, N, edge_columns), dx, mask=edge_mask & (rows < M))
    if PDL:
        gdc_launch_dependents()
    store_partial_sums(dweight_ptr, dweights, program, stride, head, 0, end, CHUNKS, BLOCK_N)
    store_partial_sums(dbias_ptr, dbiases, program, stride, head, 0, end, CHUNKS, BLOCK_N)
    if UNALIGNED:
        store_partial_sums_of_edges(dweight_ptr, edge_dweight, program, stride, edge_columns, edge_mask)
        store_partial_sums_of_edges(dbias_ptr, edge_dbias, program, stride, edge_columns, edge_mask)


@triton.jit
def accumulate_chunks(
    x_ptr,
    dy_ptr,
    row_mask,
    mean,
    rstd,
    weights,
    dweights,
    dbiases,
    begin,
    end,
    CHUNKS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ROUND: tl.constexpr,
):
    """(xhat, wdy, dweight, dbias) of each chunk, as four tuples; see :func:`accumulate`.

    x_ptr, dy_ptr: where the body starts, scalar or [BLOCK_M, 1].
    """
    xhats = ()
    wdys = ()
    new_dweights = ()
    new_dbiases = ()
    for c in tl.static_range(CHUNKS):
        offsets, mask = chunk(c, begin, end, row_mask, BLOCK_N)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0)
        weight = chunk_of_parameter(weights, c)
        xhat, wdy, dweight, dbias = accumulate(x, dy, mean, rstd, weight, dweights[c], dbiases[c], ROUND)
        xhats = xhats + (xhat,)
        wdys = wdys + (wdy,)
        new_dweights = new_dweights + (dweight,)
        new_dbiases = new_dbiases + (dbias,)
    return xhats, wdys, new_dweights, new_dbiases


@triton.jit
def accumulate(x, dy, mean, rstd, weight, dweight, dbias, ROUND: tl.constexpr):
    """(xhat, wdy, dweight + dy * xhat, dbias + dy). weight is a tuple of one, or empty."""
    dy = dy.to(mean.dtype)
    xhat = (x.to(mean.dtype) - mean) * rstd
    dweight += dy * xhat
    dbias += dy
    return xhat, weighted(dy, weight, ROUND), dweight, dbias


@triton.jit
def weighted(dy, weight, ROUND: tl.constexpr):
    """weight * dy; weight is a tuple of one, or empty where there is none.

    With ROUND the product is rounded. Otherwise the compiler fuses it with a later difference, and dx of rows of one
    column is not exactly 0.
    """
    if len(weight) == 0:
        return dy
    elif ROUND:
        return tl.fma(dy, weight[0].to(dy.dtype), tl.full([], 0.0, dy.dtype))
    else:
        return dy * weight[0].to(dy.dtype)


@triton.jit
def row_sums(xhats, wdys, CHUNKS: tl.constexpr):
    """The sums of xhat * wdy and of wdy over the chunks of each row: [BLOCK_M, 1]."""
    products = xhats[0] * wdys[0]
    terms = wdys[0]
    for c in tl.static_range(1, CHUNKS):
        products += xhats[c] * wdys[c]
        terms += wdys[c]
    return tl.reduce((products, terms), 1, add_pairs, keep_dims=True)


@triton.jit
def row_sums_of_edges(xhat, wdy):
    """The same of the edges, of which a lane has one."""
    return tl.reduce((product(xhat, wdy), wdy), 1, add_pairs, keep_dims=True)


@triton.jit
def add_pairs(a, b, c, d):
    return a + c, b + d


@triton.jit
def input_gradient(xhat, wdy, rstd, c1, c2):
    return (wdy - (xhat * c1 + c2)) * rstd


@entry()
@triton.jit(do_not_specialize=["M", "GROUP"])
def layer_norm_backward_split(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dweight_ptr,
    dbias_ptr,
    workspace_ptr,
    M,
    N,
    stride,
    SLICE,
    GROUP,
    CHUNKS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    UNALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """For rows too long for one program: each of GROUP programs holds a slice of SLICE columns, and they exchange
    their sums (see exchange.py). While a program waits, the loads of its next rows are in flight.

    workspace_ptr: [M, GROUP] words, then a counter per group.
    """
    tl.static_assert(x_ptr.dtype.element_ty != tl.float64, "two float32 are exchanged at a time")
    tl.static_assert(dx_ptr is not None)
    rank = tl.program_id(0) % GROUP
    group = tl.program_id(0) // GROUP
    groups = tl.num_programs(0) // GROUP
    head = head_size(group, N, VEC, UNALIGNED)
    begin = rank * SLICE
    end = tl.minimum(begin + SLICE, body_size(head, N, VEC))
    weights, _ = load_parameters(weight_ptr, None, head, begin, end, CHUNKS, BLOCK_N)
    dweights = zeros(1, CHUNKS, BLOCK_N, tl.float32)
    dbiases = zeros(1, CHUNKS, BLOCK_N, tl.float32)
    if UNALIGNED:
        edge_columns, edge_mask = edges(head, N, BLOCK_N, VEC)
        edge_mask = edge_mask & (rank == 0)
        edge_weight = load_parameter_at(weight_ptr, edge_columns, edge_mask)
        edge_dweight = tl.zeros(edge_mask.shape, tl.float32)
        edge_dbias = tl.zeros(edge_mask.shape, tl.float32)
        next_edge_x = load_edges(x_ptr, group, M, N, edge_columns, edge_mask)
        next_edge_dy = load_edges(dy_ptr, group, M, N, edge_columns, edge_mask)
    for row in tl.range(group, M, groups, num_stages=STAGES):
        body = body_offset(row, N, VEC, UNALIGNED)
        mean = tl.full([], 0.0, tl.float32)
        if mean_ptr is not None:
            mean = tl.load(mean_ptr + row).to(tl.float32)
        rstd = tl.load(rstd_ptr + row).to(tl.float32)
        xhats, wdys, dweights, dbiases = accumulate_chunks(
            x_ptr + body,
            dy_ptr + body,
            None,
            mean,
            rstd,
            weights,
            dweights,
            dbiases,
            begin,
            end,
            CHUNKS,
            BLOCK_N,
            False,
        )
        slice_c1, slice_c2 = row_sums(xhats, wdys, CHUNKS)
        if UNALIGNED:
            edge_xhat, edge_wdy, edge_dweight, edge_dbias = accumulate(
                next_edge_x, next_edge_dy, mean, rstd, edge_weight, edge_dweight, edge_dbias, False
            )
            next_edge_x = load_edges(x_ptr, row + groups, M, N, edge_columns, edge_mask)
            next_edge_dy = load_edges(dy_ptr, row + groups, M, N, edge_columns, edge_mask)
            edge_c1, edge_c2 = row_sums_of_edges(edge_xhat, edge_wdy)
            slice_c1 += edge_c1
            slice_c2 += edge_c2
        row_workspace_ptr = workspace_ptr + tl.cast(row, tl.int64) * GROUP
        publish_pair(row_workspace_ptr, rank, tl.sum(slice_c1), tl.sum(slice_c2))
        c1, c2 = group_sums(row_workspace_ptr, GROUP, BLOCK)
        c1 /= N
        c2 /= N
        if mean_ptr is None:
            c2 = 0.0
        for c in tl.static_range(CHUNKS):
            offsets, mask = chunk(c, begin, end, None, BLOCK_N)
            dx = input_gradient(xhats[c], wdys[c], rstd, c1, c2)
            tl.store(dx_ptr + body + offsets, dx, mask=mask)
        if UNALIGNED:
            dx = input_gradient(edge_xhat, edge_wdy, rstd, c1, c2)
            tl.store(dx_ptr + edge_offsets(row, N, edge_columns), dx, mask=edge_mask)
        clear_previous(row_workspace_ptr, row, GROUP, 1)
    store_partial_sums(dweight_ptr, dweights, group, stride, head, begin, end, CHUNKS, BLOCK_N)
    store_partial_sums(dbias_ptr, dbiases, group, stride, head, begin, end, CHUNKS, BLOCK_N)
    if UNALIGNED:
        store_partial_sums_of_edges(dweight_ptr, edge_dweight, group, stride, edge_columns, edge_mask)
        store_partial_sums_of_edges(dbias_ptr, edge_dbias, group, stride, edge_columns, edge_mask)
    clear_last(workspace_ptr, M, GROUP, 1, BLOCK)


@triton.jit(noinline=True)
def group_sums(row_workspace_ptr, GROUP, BLOCK: tl.constexpr):
    """The two sums over what all programs of the group published. Not inlined, see :func:`collect`."""
    a = 0.0
    b = 0.0
    for first in tl.range(0, GROUP, BLOCK):
        block_a, block_b = tl.reduce(collect_pairs(row_workspace_ptr, first, GROUP, BLOCK), 0, add_pairs)
        a += block_a
        b += block_b
    return a, b
