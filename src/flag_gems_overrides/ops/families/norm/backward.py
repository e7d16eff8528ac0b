# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Backward kernels of layer normalization: all three gradients from one read of x and dy.

With ``xhat = (x - mean) * rstd`` and ``g = weight * dy``, of an M x N input

    dx = (g - (xhat * c1 + c2)) * rstd      c1 = sum(xhat * g) / N, c2 = sum(g) / N over each row
    dweight = sum(dy * xhat)                dbias = sum(dy) over all rows

Everything between load and store is float32, or float64 for float64 input. A masked element has dy = 0, which makes all
its products vanish.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ...launch.prepared import entry
from .tile import (
    add_pairs,
    clear_last,
    clear_own,
    collect,
    edges_at,
    piece,
    publish,
    row_base,
    row_edges,
    row_head,
)


@entry()
@triton.jit(do_not_specialize=["M"])
def merged_kernel(
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
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
    WIDTH: tl.constexpr,
    VEC: tl.constexpr,
    CUT: tl.constexpr,
    FAR: tl.constexpr,
    STAGES: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Programs that hold ROWS whole rows, grid-stride over all rows.

    Each keeps its share of dweight and dbias in registers and stores it at the end, as its row of
    dweight_ptr[programs, stride] and dbias_ptr[programs, stride].
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    if FAR:
        M = tl.cast(M, tl.int64)
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    head = row_head(program, N, VEC, CUT)
    end = CHUNKS * WIDTH
    weights = ()
    dweights = ()
    dbiases = ()
    for c in tl.static_range(CHUNKS):
        position, mask = piece(c, 0, end, head, N, WIDTH, VEC)
        if weight_ptr is not None:
            weights = weights + (tl.load(weight_ptr + head + position, mask=mask, other=0.0),)
        dweights = dweights + (tl.zeros([ROWS, WIDTH], ACC),)
        dbiases = dbiases + (tl.zeros([ROWS, WIDTH], ACC),)
    # The rows of a tile are neighbours, unless that gives them different heads.
    gap = programs if CUT else 1
    if CUT:
        edge, edge_mask = row_edges(head, N, WIDTH, VEC)
        if weight_ptr is not None:
            edge_weight = tl.load(weight_ptr + edge, mask=edge_mask, other=0.0)
        edge_dweight = tl.zeros([ROWS, edge_mask.shape[1]], ACC)
        edge_dbias = tl.zeros([ROWS, edge_mask.shape[1]], ACC)
        next_rows = program + tl.arange(0, ROWS)[:, None] * gap
        next_x, next_dy = load_edges(x_ptr, dy_ptr, next_rows, M, N, edge, edge_mask)
    for first in tl.range(program * (1 if CUT else ROWS), M, programs * ROWS, num_stages=STAGES):
        rows = first + tl.arange(0, ROWS)[:, None] * gap
        base = row_base(rows, N, VEC, CUT)
        mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0).to(ACC)
        rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0).to(ACC)
        xhats = ()
        gs = ()
        new_dweights = ()
        new_dbiases = ()
        for c in tl.static_range(CHUNKS):
            position, mask = piece(c, 0, end, head, N, WIDTH, VEC)
            x = tl.load(x_ptr + base + position, mask=mask & (rows < M), other=0.0)
            dy = tl.load(dy_ptr + base + position, mask=mask & (rows < M), other=0.0).to(ACC)
            xhat = (x.to(ACC) - mean) * rstd
            new_dweights = new_dweights + (dweights[c] + dy * xhat,)
            new_dbiases = new_dbiases + (dbiases[c] + dy,)
            g = dy
            if weight_ptr is not None:
                g = product(dy, weights[c].to(ACC))
            xhats = xhats + (xhat,)
            gs = gs + (g,)
        dweights = new_dweights
        dbiases = new_dbiases
        if CUT:
            edge_xhat = (next_x.to(ACC) - mean) * rstd
            edge_g = next_dy.to(ACC)
            edge_dweight += edge_g * edge_xhat
            edge_dbias += edge_g
            if weight_ptr is not None:
                edge_g = product(edge_g, edge_weight.to(ACC))
            next_x, next_dy = load_edges(x_ptr, dy_ptr, rows + programs * ROWS, M, N, edge, edge_mask)
        if dx_ptr is not None:
            c1, c2 = row_sums(xhats, gs, CHUNKS)
            if CUT:
                edge_c1, edge_c2 = tl.reduce((edge_xhat * edge_g, edge_g), 1, add_pairs, keep_dims=True)
                c1 += edge_c1
                c2 += edge_c2
            c1 /= N
            c2 /= N
            for c in tl.static_range(CHUNKS):
                position, mask = piece(c, 0, end, head, N, WIDTH, VEC)
                dx = (gs[c] - (xhats[c] * c1 + c2)) * rstd
                tl.store(dx_ptr + base + position, dx, mask=mask & (rows < M))
            if CUT:
                dx = (edge_g - (edge_xhat * c1 + c2)) * rstd
                tl.store(dx_ptr + edges_at(rows, N, edge), dx, mask=edge_mask & (rows < M))
    if OVERLAP:
        gdc_launch_dependents()
    partial = tl.cast(program, tl.int64) * stride
    for c in tl.static_range(CHUNKS):
        position, mask = piece(c, 0, end, head, N, WIDTH, VEC)
        if dweight_ptr is not None:
            tl.store(dweight_ptr + partial + head + position, tl.sum(dweights[c], 0, keep_dims=True), mask=mask)
        if dbias_ptr is not None:
            tl.store(dbias_ptr + partial + head + position, tl.sum(dbiases[c], 0, keep_dims=True), mask=mask)
    if CUT:
        if dweight_ptr is not None:
            tl.store(dweight_ptr + partial + edge, tl.sum(edge_dweight, 0, keep_dims=True), mask=edge_mask)
        if dbias_ptr is not None:
            tl.store(dbias_ptr + partial + edge, tl.sum(edge_dbias, 0, keep_dims=True), mask=edge_mask)


@triton.jit
def product(a, b):
    """Rounded. As a plain product the compiler fuses it with a difference: dx of one column would not be exactly 0."""
    return tl.fma(a, b, tl.full([], 0.0, a.dtype))


@triton.jit
def load_edges(x_ptr, dy_ptr, rows, M, N, edge, mask):
    """Loads of single elements are not pipelined, so kernels ask for them one turn ahead."""
    at = edges_at(rows, N, edge)
    x = tl.load(x_ptr + at, mask=mask & (rows < M), other=0.0)
    return x, tl.load(dy_ptr + at, mask=mask & (rows < M), other=0.0)


@triton.jit
def row_sums(xhats, gs, CHUNKS: tl.constexpr):
    """sum(xhat * g) and sum(g) over the pieces of each row: [ROWS, 1]."""
    a = xhats[0] * gs[0]
    b = gs[0]
    for c in tl.static_range(1, CHUNKS):
        a += xhats[c] * gs[c]
        b += gs[c]
    return tl.reduce((a, b), 1, add_pairs, keep_dims=True)


@entry()
@triton.jit(do_not_specialize=["M", "GROUP"])
def split_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dweight_ptr,
    dbias_ptr,
    slots_ptr,
    M,
    N,
    stride,
    SLICE,
    GROUP,
    CHUNKS: tl.constexpr,
    WIDTH: tl.constexpr,
    VEC: tl.constexpr,
    CUT: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Rows too long for one program: GROUP programs hold a slice of SLICE columns each and exchange their sums.

    All programs must be running (cooperative launch). slots_ptr: M * GROUP + groups zeros, left zero. While a program
    waits, the loads of its next rows are in flight.
    """
    member = tl.program_id(0) % GROUP
    group = tl.program_id(0) // GROUP
    groups = tl.num_programs(0) // GROUP
    head = row_head(group, N, VEC, CUT)
    begin = member * SLICE
    end = begin + SLICE
    weights = ()
    dweights = ()
    dbiases = ()
    for c in tl.static_range(CHUNKS):
        position, mask = piece(c, begin, end, head, N, WIDTH, VEC)
        if weight_ptr is not None:
            weights = weights + (tl.load(weight_ptr + head + position, mask=mask, other=0.0),)
        dweights = dweights + (tl.zeros([1, WIDTH], tl.float32),)
        dbiases = dbiases + (tl.zeros([1, WIDTH], tl.float32),)
    if CUT:
        edge, edge_mask = row_edges(head, N, WIDTH, VEC)
        edge_mask = edge_mask & (member == 0)
        if weight_ptr is not None:
            edge_weight = tl.load(weight_ptr + edge, mask=edge_mask, other=0.0)
        edge_dweight = tl.zeros(edge_mask.shape, tl.float32)
        edge_dbias = tl.zeros(edge_mask.shape, tl.float32)
        next_x, next_dy = load_edges(x_ptr, dy_ptr, group, M, N, edge, edge_mask)
    for row in tl.range(group, M, groups, num_stages=STAGES):
        base = row_base(row, N, VEC, CUT)
        mean = tl.load(mean_ptr + row).to(tl.float32)
        rstd = tl.load(rstd_ptr + row).to(tl.float32)
        xhats = ()
        gs = ()
        new_dweights = ()
        new_dbiases = ()
        for c in tl.static_range(CHUNKS):
            position, mask = piece(c, begin, end, head, N, WIDTH, VEC)
            x = tl.load(x_ptr + base + position, mask=mask, other=0.0)
            dy = tl.load(dy_ptr + base + position, mask=mask, other=0.0).to(tl.float32)
            xhat = (x.to(tl.float32) - mean) * rstd
            new_dweights = new_dweights + (dweights[c] + dy * xhat,)
            new_dbiases = new_dbiases + (dbiases[c] + dy,)
            g = dy
            if weight_ptr is not None:
                g = dy * weights[c].to(tl.float32)
            xhats = xhats + (xhat,)
            gs = gs + (g,)
        dweights = new_dweights
        dbiases = new_dbiases
        a, b = row_sums(xhats, gs, CHUNKS)
        if CUT:
            edge_xhat = (next_x.to(tl.float32) - mean) * rstd
            edge_g = next_dy.to(tl.float32)
            edge_dweight += edge_g * edge_xhat
            edge_dbias += edge_g
            if weight_ptr is not None:
                edge_g = edge_g * edge_weight.to(tl.float32)
            next_x, next_dy = load_edges(x_ptr, dy_ptr, row + groups, M, N, edge, edge_mask)
            edge_a, edge_b = tl.reduce((edge_xhat * edge_g, edge_g), 1, add_pairs, keep_dims=True)
            a += edge_a
            b += edge_b
        slots = slots_ptr + tl.cast(row, tl.int64) * GROUP
        publish(slots + member, tl.sum(a), tl.sum(b))
        c1, c2 = group_sums(slots, GROUP, BLOCK)
        c1 /= N
        c2 /= N
        for c in tl.static_range(CHUNKS):
            position, mask = piece(c, begin, end, head, N, WIDTH, VEC)
            dx = (gs[c] - (xhats[c] * c1 + c2)) * rstd
            tl.store(dx_ptr + base + position, dx, mask=mask)
        if CUT:
            dx = (edge_g - (edge_xhat * c1 + c2)) * rstd
            tl.store(dx_ptr + edges_at(row, N, edge), dx, mask=edge_mask)
        clear_own(slots, row, GROUP)
    partial = tl.cast(group, tl.int64) * stride
    for c in tl.static_range(CHUNKS):
        position, mask = piece(c, begin, end, head, N, WIDTH, VEC)
        if dweight_ptr is not None:
            tl.store(dweight_ptr + partial + head + position, dweights[c], mask=mask)
        if dbias_ptr is not None:
            tl.store(dbias_ptr + partial + head + position, dbiases[c], mask=mask)
    if CUT:
        if dweight_ptr is not None:
            tl.store(dweight_ptr + partial + edge, edge_dweight, mask=edge_mask)
        if dbias_ptr is not None:
            tl.store(dbias_ptr + partial + edge, edge_dbias, mask=edge_mask)
    clear_last(slots_ptr, M, GROUP, BLOCK)


@triton.jit(noinline=True)
def group_sums(slots_ptr, GROUP, BLOCK: tl.constexpr):
    """The two sums over what all programs of the group published."""
    a = 0.0
    b = 0.0
    for first in tl.range(0, GROUP, BLOCK):
        c, d = collect(slots_ptr, first, GROUP, BLOCK)
        c, d = tl.reduce((c, d), 0, add_pairs)
        a += c
        b += d
    return a, b


@entry()
@triton.jit(do_not_specialize=["P"])
def combine_kernel(
    dweight_partial_ptr,
    dbias_partial_ptr,
    dweight_ptr,
    dbias_ptr,
    P,
    N,
    stride,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """dweight and dbias as column sums of P partial rows each, always added in the same order."""
    if OVERLAP:
        gdc_wait()
    if dweight_ptr is None:
        store_column_sums(dbias_partial_ptr, dbias_ptr, P, N, stride, ROWS, COLUMNS)
    elif dbias_ptr is None or tl.program_id(1) == 0:
        store_column_sums(dweight_partial_ptr, dweight_ptr, P, N, stride, ROWS, COLUMNS)
    else:
        store_column_sums(dbias_partial_ptr, dbias_ptr, P, N, stride, ROWS, COLUMNS)


@triton.jit
def store_column_sums(partial_ptr, out_ptr, P, N, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    total = tl.zeros([ROWS, COLUMNS], partial_ptr.dtype.element_ty)
    for first in tl.range(0, P, ROWS):
        rows = first + tl.arange(0, ROWS)[:, None]
        partial = partial_ptr + tl.cast(rows, tl.int64) * stride + columns
        total += tl.load(partial, mask=(rows < P) & (columns < N), other=0.0)
    tl.store(out_ptr + columns, tl.sum(total, 0, keep_dims=True), mask=columns < N)
