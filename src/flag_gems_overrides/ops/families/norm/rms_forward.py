# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Forward kernels of RMS normalization.

Each row of an M x N input becomes ``y = x * rstd * weight`` with ``rstd = 1 / sqrt(mean(x * x) + eps)``. Everything
between load and store is float32, or float64 for float64 input.

With a residual, x + residual is what is normalized, rounded to their dtype: gradients are of what is stored.

In all kernels

    x_ptr, y_ptr: [M, N]                weight_ptr: [N] or None
    residual_ptr: [M, N] or None        rstd_ptr: [M], or None if it is not wanted
    sum_ptr: [M, N], x + residual; None without a residual

y_ptr may be x_ptr, and sum_ptr residual_ptr.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.products import product
from .exchange import clear_last, clear_previous, publish_one, sum_of_group
from .statistics import from_bits
from .tile import (
    add_rounded,
    block_columns,
    body_offset,
    body_size,
    chunk,
    chunk_of_parameter,
    edge_offsets,
    edges,
    first_row,
    head_size,
    hidden_zero,
    load_edges,
    load_parameter_at,
    load_parameters,
    load_sum,
    unpack_chunks,
)
from .whole_rows import load_rows


@entry()
@triton.jit(do_not_specialize=["M", "eps_bits"])
def rms_norm_rows(
    x_ptr,
    weight_ptr,
    y_ptr,
    rstd_ptr,
    residual_ptr,
    sum_ptr,
    M,
    N,
    eps_bits,
    BLOCK_M: tl.constexpr,
    CHUNKS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    UNALIGNED: tl.constexpr,
    INT64_ROWS: tl.constexpr,
    ONE_TILE: tl.constexpr,
    STAGES: tl.constexpr,
    LATE: tl.constexpr,
    AT_ONCE: tl.constexpr,
    PACKED: tl.constexpr,
):
    """Each program holds BLOCK_M whole rows at a time, in a grid-stride loop over all rows.

    With LATE the weight is loaded after the statistics, AT_ONCE chunks at a time: it takes no registers from the row
    before. PACKED: a row of 16 bits is held in pairs, of which float32 are made again each time.
    """
    tl.static_assert(BLOCK_N % VEC == 0)
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    eps = from_bits(eps_bits, ACC)
    if INT64_ROWS:
        M = tl.cast(M, tl.int64)
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    # The rows of a tile are neighbours, unless they would have heads of different sizes.
    row_step = programs if UNALIGNED else 1
    head = head_size(program, N, VEC, UNALIGNED)
    end = tl.minimum(CHUNKS * BLOCK_N, body_size(head, N, VEC))
    if not LATE:
        weights, _ = load_parameters(weight_ptr, None, head, 0, end, CHUNKS, BLOCK_N)
    if UNALIGNED:
        edge_columns, edge_mask = edges(head, N, BLOCK_N, VEC)
        if not PACKED:
            edge_weight = load_parameter_at(weight_ptr, edge_columns, edge_mask)
        next_rows = program + tl.arange(0, BLOCK_M)[:, None] * row_step
        next_edge_x = load_edges(x_ptr, next_rows, M, N, edge_columns, edge_mask)
        if residual_ptr is not None:
            next_edge_residual = load_edges(residual_ptr, next_rows, M, N, edge_columns, edge_mask)
    start, step = first_row(program, BLOCK_M, UNALIGNED, INT64_ROWS), programs * BLOCK_M
    for tile in tl.range(0 if ONE_TILE else start, 1 if ONE_TILE else M, 1 if ONE_TILE else step, num_stages=STAGES):
        first = start if ONE_TILE else tile
        rows = first + tl.arange(0, BLOCK_M)[:, None] * row_step
        row_mask = None if ONE_TILE and BLOCK_M == 1 and (PACKED or not UNALIGNED) else rows < M
        body = body_offset(rows, N, VEC, UNALIGNED)
        xs, packed, inverse = load_rows(
            x_ptr, residual_ptr, sum_ptr, body, row_mask, end, N, CHUNKS, BLOCK_N, ACC,
            STAGES > 1 and not ONE_TILE, PACKED,
        )  # fmt: skip
        squares = sum_squares(xs, CHUNKS)
        if UNALIGNED:
            edge_x = next_edge_x.to(ACC)
            rows_after = rows + programs * BLOCK_M
            next_edge_x = load_edges(x_ptr, rows_after, M, N, edge_columns, edge_mask)
            if residual_ptr is not None:
                edge_x = add_rounded(edge_x, next_edge_residual)
                next_edge_residual = load_edges(residual_ptr, rows_after, M, N, edge_columns, edge_mask)
                tl.store(sum_ptr + edge_offsets(rows, N, edge_columns), edge_x, mask=edge_mask & (rows < M))
            squares += tl.sum(product(edge_x, edge_x), 1, keep_dims=True)
        rstd = tl.rsqrt(squares * inverse + eps)
        if rstd_ptr is not None:
            tl.store(rstd_ptr + rows, rstd, mask=row_mask)
        if PACKED:
            xs = unpack_chunks(packed, hidden_zero(N), CHUNKS, x_ptr.dtype.element_ty)
        for c in tl.static_range(CHUNKS):
            if LATE and c % AT_ONCE == 0:
                weights, _ = load_parameters(weight_ptr, None, head, c * BLOCK_N, end, AT_ONCE, BLOCK_N)
            offsets, mask = chunk(c, 0, end, row_mask, BLOCK_N)
            y = scale(xs[c], rstd, chunk_of_parameter(weights, c % AT_ONCE))
            tl.store(y_ptr + body + offsets, y, mask=mask)
        if UNALIGNED:
            if PACKED:
                edge_weight = load_parameter_at(weight_ptr, edge_columns, edge_mask)
            y = scale(edge_x, rstd, edge_weight)
            tl.store(y_ptr + edge_offsets(rows, N, edge_columns), y, mask=edge_mask & (rows < M))


@triton.jit
def sum_squares(chunks, CHUNKS: tl.constexpr):
    """The sum of squares of each row over all chunks: [BLOCK_M, 1]."""
    squares = product(chunks[0], chunks[0])
    for c in tl.static_range(1, CHUNKS):
        squares += chunks[c] * chunks[c]
    return tl.sum(squares, 1, keep_dims=True)


@triton.jit
def scale(x, rstd, weight):
    """weight is a tuple of one, or empty where there is none."""
    y = x * rstd
    if len(weight) > 0:
        y = y * weight[0].to(y.dtype)
    return y


@entry()
@triton.jit(do_not_specialize=["M", "eps_bits", "GROUP"])
def rms_norm_loop(
    x_ptr,
    weight_ptr,
    y_ptr,
    rstd_ptr,
    residual_ptr,
    sum_ptr,
    workspace_ptr,
    M,
    N,
    eps_bits,
    SLICE,
    GROUP,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    UNALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """For rows too long for registers: two passes over the columns of a row, the second backwards, so that it starts
    with what is in the cache, where y does not stay; by one program, or by the GROUP programs of a group, each with a
    slice of SLICE columns. Loops count blocks: the first column after the last block may be no int32. Slices are of the
    body of an unaligned row, whose edges are the first program's.

    workspace_ptr: [M, GROUP] words, then a counter per group (exchange.py); None where GROUP is 1
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    # Of rows with edges 8 bytes would spill with these.
    FIRST: tl.constexpr = None if UNALIGNED or residual_ptr is not None else "evict_last"
    LAST: tl.constexpr = None if UNALIGNED else "evict_first"
    if not UNALIGNED:
        N = N // VEC * VEC  # N itself, but the compiler now sees that VEC divides it
    eps = from_bits(eps_bits, ACC)
    rank = tl.program_id(0) % GROUP
    groups = tl.num_programs(0) // GROUP
    begin = rank * SLICE
    for row in tl.range(tl.program_id(0) // GROUP, M, groups):
        head = head_size(row, N, VEC, UNALIGNED)
        start = body_offset(row, N, VEC, UNALIGNED) + begin
        size = tl.minimum(SLICE, body_size(head, N, VEC) - begin)
        last = (size - 1) // BLOCK_N
        if UNALIGNED:
            edge_columns, edge_mask = edges(head, N, BLOCK_N, VEC)
            edge_mask = edge_mask & (rank == 0)
            edge_places = edge_offsets(row, N, edge_columns)
            edge_x = load_sum(x_ptr, residual_ptr, edge_places, edge_mask, ACC)
            edge_weight = load_parameter_at(weight_ptr, edge_columns, edge_mask)
            if residual_ptr is not None:
                tl.store(sum_ptr + edge_places, edge_x, mask=edge_mask)
        lane_squares = tl.zeros([BLOCK_N], ACC)
        for block in tl.range(0, last + 1, num_stages=STAGES):
            columns = block_columns(x_ptr, residual_ptr, block, BLOCK_N, VEC)
            x = load_sum(x_ptr, residual_ptr, start + columns, columns < size, ACC, FIRST)
            if residual_ptr is not None:
                tl.store(sum_ptr + start + columns, x, mask=columns < size)
            lane_squares += x * x
        squares = tl.sum(lane_squares, 0)
        if UNALIGNED:
            squares += tl.sum(tl.sum(edge_x * edge_x, 1), 0)
        if workspace_ptr is not None:
            row_workspace_ptr = workspace_ptr + tl.cast(row, tl.int64) * GROUP
            publish_one(row_workspace_ptr, rank, squares)
            squares = sum_of_group(row_workspace_ptr, GROUP, BLOCK, ACC)
            clear_previous(row_workspace_ptr, row, GROUP, 1)
        rstd = tl.rsqrt(squares / N + eps)
        if rstd_ptr is not None:
            tl.store(rstd_ptr + row, rstd, mask=rank == 0)
        if residual_ptr is not None:
            # What one thread stored is another's to load.
            tl.debug_barrier()
        for i in tl.range(0, last + 1, num_stages=STAGES):
            columns = block_columns(x_ptr, residual_ptr, last - i, BLOCK_N, VEC)
            mask = columns < size
            stored_ptr = x_ptr if residual_ptr is None else sum_ptr
            x = tl.load(stored_ptr + start + columns, mask=mask, other=0.0, eviction_policy="evict_first").to(ACC)
            weight = load_parameter_at(weight_ptr, head + begin + columns, mask)
            tl.store(y_ptr + start + columns, scale(x, rstd, weight), mask=mask, eviction_policy=LAST)
        if UNALIGNED:
            tl.store(y_ptr + edge_places, scale(edge_x, rstd, edge_weight), mask=edge_mask)
    if workspace_ptr is not None:
        clear_last(workspace_ptr, M, GROUP, 1, BLOCK)


@entry()
@triton.jit(do_not_specialize=["SPLITS"])
def rms_norm_partial_squares(
    x_ptr,
    residual_ptr,
    sum_ptr,
    squares_ptr,
    N,
    SLICE,
    SPLITS,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    STAGES: tl.constexpr,
    TAIL: tl.constexpr,
):
    """Few, long rows: the sum of squares of a slice of SLICE columns of one of them. squares_ptr: [M, SPLITS]

    TAIL: there is one row, which ends with less than a vector. Otherwise VEC divides N.
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    end = N
    N = N // VEC * VEC  # without a tail N itself, but the compiler now sees that VEC divides it
    row = tl.cast(tl.program_id(0) // SPLITS, tl.int64)
    begin = tl.cast(tl.program_id(0) % SPLITS, tl.int64) * SLICE
    count = tl.minimum(N - begin, SLICE).to(tl.int32)
    start = row * N + begin
    squares = tl.zeros([BLOCK_N], ACC)
    for block in tl.range(0, (count - 1) // BLOCK_N + 1, num_stages=STAGES):
        columns = block_columns(x_ptr, residual_ptr, block, BLOCK_N, VEC)
        x = load_sum(x_ptr, residual_ptr, start + columns, columns < count, ACC)
        if residual_ptr is not None:
            tl.store(sum_ptr + start + columns, x, mask=columns < count)
        squares += x * x
    total = tl.sum(squares, 0)
    if TAIL:
        tail = N + tl.arange(0, VEC)
        mask = (tail < end) & (tl.program_id(0) == SPLITS - 1)
        x = load_sum(x_ptr, residual_ptr, tail, mask, ACC)
        if residual_ptr is not None:
            tl.store(sum_ptr + tail, x, mask=mask)
        total += tl.sum(x * x, 0)
    tl.store(squares_ptr + tl.program_id(0), total)


@entry()
@triton.jit(do_not_specialize=["SPLITS", "eps_bits"])
def rms_norm_apply(
    x_ptr,
    weight_ptr,
    y_ptr,
    rstd_ptr,
    squares_ptr,
    N,
    SPLITS,
    eps_bits,
    BLOCK_N: tl.constexpr,
    BLOCK_S: tl.constexpr,
    VEC: tl.constexpr,
    TAIL: tl.constexpr,
):
    """The same rows, or their sums with the residual, as x: one block of columns, the last one with the tail.

    squares_ptr: [M, SPLITS]; BLOCK_S is at least SPLITS.
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    end = N
    N = N // VEC * VEC  # without a tail N itself, but the compiler now sees that VEC divides it
    blocks = (N - 1) // BLOCK_N + 1
    row = tl.cast(tl.program_id(0) // blocks, tl.int64)
    block = tl.program_id(0) % blocks
    columns = block_columns(x_ptr, None, block, BLOCK_N, VEC)
    mask = columns < N
    start = row * N
    # Before the sum, whose barrier no load is moved across.
    x = tl.load(x_ptr + start + columns, mask=mask, other=0.0).to(ACC)
    weight = load_parameter_at(weight_ptr, columns, mask)
    if TAIL:
        tail = N + tl.arange(0, VEC)
        tail_mask = (tail < end) & (block == blocks - 1)
        tail_x = tl.load(x_ptr + tail, mask=tail_mask, other=0.0).to(ACC)
        tail_weight = load_parameter_at(weight_ptr, tail, tail_mask)
    split = tl.arange(0, BLOCK_S)
    squares = tl.load(squares_ptr + row * SPLITS + split, mask=split < SPLITS, other=0.0)
    rstd = tl.rsqrt(tl.sum(squares, 0) / end + from_bits(eps_bits, ACC))
    if rstd_ptr is not None:
        tl.store(rstd_ptr + row, rstd, mask=block == 0)
    tl.store(y_ptr + start + columns, scale(x, rstd, weight), mask=mask)
    if TAIL:
        tl.store(y_ptr + tail, scale(tail_x, rstd, tail_weight), mask=tail_mask)
