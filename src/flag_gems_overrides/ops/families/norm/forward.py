# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Forward kernels of layer normalization that read each element once.

Each row of an M x N input becomes ``y = (x - mean) * rstd * weight + bias`` with ``rstd = 1 / sqrt(variance + eps)``.
Everything between load and store is float32, or float64 for float64 input. rstd is one rsqrt: dividing by a square
root rounds twice, which shows in the gradients of rows of two elements.

With a residual, x + residual is what is normalized, rounded to their dtype: gradients are of what is stored.

In both kernels

    x_ptr, y_ptr: [M, N]                weight_ptr, bias_ptr: [N] or None
    residual_ptr: [M, N] or None        mean_ptr, rstd_ptr: [M], or None if they are not wanted
    sum_ptr: [M, N], x + residual, or None
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from .exchange import clear_last, clear_previous, publish_pair
from .statistics import (
    corrected_by,
    deviations,
    deviations_of_edges,
    divide_by,
    from_bits,
    group_statistics,
    reciprocal,
    slice_elements,
    store_statistics,
    sum_and_sum_squares,
    sum_and_sum_squares_of_edges,
    sum_squares,
    sums_are_exact,
    variance_by,
)
from .tile import (
    add_residual,
    add_rounded,
    body_offset,
    body_size,
    chunk,
    chunk_of_parameter,
    edge_offsets,
    edges,
    first_row,
    head_size,
    hidden_zero,
    load_chunks,
    load_edges,
    load_parameter_at,
    load_parameters,
    sum_chunks,
    unpack_chunks,
)
from .whole_rows import load_rows


@entry()
@triton.jit(do_not_specialize=["M", "eps_bits"])
def layer_norm_rows(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
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

    With LATE weight and bias are loaded after the statistics, AT_ONCE chunks at a time: they take no registers
    from the row before. PACKED: a row of 16 bits is held in pairs, of which float32 are made again each time.
    """
    tl.static_assert(BLOCK_N % VEC == 0)
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    EXACT: tl.constexpr = sums_are_exact(x_ptr.dtype.element_ty, CHUNKS * BLOCK_N + 2 * VEC * UNALIGNED)
    eps = from_bits(eps_bits, ACC)
    if INT64_ROWS:
        M = tl.cast(M, tl.int64)
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    # The rows of a tile are neighbours, unless they would have heads of different sizes.
    row_step = programs if UNALIGNED else 1
    head = head_size(program, N, VEC, UNALIGNED)
    end = tl.minimum(CHUNKS * BLOCK_N, body_size(head, N, VEC))  # the chunks hold all; it saves 1 or 2 registers
    if not LATE:
        weights, biases = load_parameters(weight_ptr, bias_ptr, head, 0, end, CHUNKS, BLOCK_N)
    if UNALIGNED:
        edge_columns, edge_mask = edges(head, N, BLOCK_N, VEC)
        if not PACKED:
            edge_weight = load_parameter_at(weight_ptr, edge_columns, edge_mask)
            edge_bias = load_parameter_at(bias_ptr, edge_columns, edge_mask)
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
        row_sum = sum_chunks(xs, CHUNKS)
        if UNALIGNED:
            edge_x = next_edge_x.to(ACC)
            rows_after = rows + programs * BLOCK_M
            next_edge_x = load_edges(x_ptr, rows_after, M, N, edge_columns, edge_mask)
            if residual_ptr is not None:
                edge_x = add_rounded(edge_x, next_edge_residual)
                next_edge_residual = load_edges(residual_ptr, rows_after, M, N, edge_columns, edge_mask)
                if sum_ptr is not None:
                    tl.store(sum_ptr + edge_offsets(rows, N, edge_columns), edge_x, mask=edge_mask & (rows < M))
            row_sum += tl.sum(edge_x, 1, keep_dims=True)
        mean = divide_by(row_sum, N, inverse)
        if PACKED:
            xs = unpack_chunks(packed, hidden_zero(N), CHUNKS, x_ptr.dtype.element_ty)
        differences = deviations(xs, mean, 0, end, CHUNKS, BLOCK_N, CHUNKS - 1)
        if EXACT:
            squares = sum_squares(differences, CHUNKS)
            if UNALIGNED:
                squares += sum_and_sum_squares_of_edges(deviations_of_edges(edge_x, mean, edge_mask))[1]
        else:
            deviation_sum, squares = sum_and_sum_squares(differences, CHUNKS)
            if UNALIGNED:
                edge_sum, edge_squares = sum_and_sum_squares_of_edges(deviations_of_edges(edge_x, mean, edge_mask))
                deviation_sum += edge_sum
                squares += edge_squares
            mean, squares = corrected_by(mean, deviation_sum, squares, inverse)
        variance = variance_by(squares, inverse)
        rstd = tl.rsqrt(variance + eps)
        store_statistics(mean_ptr, rstd_ptr, rows, mean, variance, rstd, row_mask)
        if PACKED:
            xs = unpack_chunks(packed, hidden_zero(M), CHUNKS, x_ptr.dtype.element_ty)
        for c in tl.static_range(CHUNKS):
            if LATE and c % AT_ONCE == 0:
                weights, biases = load_parameters(weight_ptr, bias_ptr, head, c * BLOCK_N, end, AT_ONCE, BLOCK_N)
            offsets, mask = chunk(c, 0, end, row_mask, BLOCK_N)
            weight, bias = chunk_of_parameter(weights, c % AT_ONCE), chunk_of_parameter(biases, c % AT_ONCE)
            tl.store(y_ptr + body + offsets, normalize(xs[c], mean, rstd, weight, bias), mask=mask)
        if UNALIGNED:
            if PACKED:
                edge_weight = load_parameter_at(weight_ptr, edge_columns, edge_mask)
                edge_bias = load_parameter_at(bias_ptr, edge_columns, edge_mask)
            y = normalize(edge_x, mean, rstd, edge_weight, edge_bias)
            tl.store(y_ptr + edge_offsets(rows, N, edge_columns), y, mask=edge_mask & (rows < M))


@triton.jit
def normalize(x, mean, rstd, weight, bias):
    """weight and bias are tuples of one, or empty where there is none."""
    y = (x - mean) * rstd
    if len(weight) > 0:
        y = y * weight[0].to(y.dtype)
    if len(bias) > 0:
        y = y + bias[0].to(y.dtype)
    return y


@entry()
@triton.jit(do_not_specialize=["M", "eps_bits", "GROUP"])
def layer_norm_split(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    residual_ptr,
    sum_ptr,
    workspace_ptr,
    M,
    N,
    eps_bits,
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
    their statistics (see exchange.py). While a program waits, the loads of its next rows are in flight.

    workspace_ptr: [M, GROUP] words, then a counter per group.
    """
    tl.static_assert(x_ptr.dtype.element_ty != tl.float64, "two float32 are exchanged at a time")
    EXACT: tl.constexpr = sums_are_exact(x_ptr.dtype.element_ty, CHUNKS * BLOCK_N + 2 * VEC * UNALIGNED)
    eps = from_bits(eps_bits, tl.float32)
    rank = tl.program_id(0) % GROUP
    group = tl.program_id(0) // GROUP
    groups = tl.num_programs(0) // GROUP
    head = head_size(group, N, VEC, UNALIGNED)
    begin = rank * SLICE
    end = tl.minimum(begin + SLICE, body_size(head, N, VEC))
    weights, biases = load_parameters(weight_ptr, bias_ptr, head, begin, end, CHUNKS, BLOCK_N)
    elements = tl.maximum(slice_elements(rank, 1, SLICE, head, N, VEC), 1)
    if UNALIGNED:
        edge_columns, edge_mask = edges(head, N, BLOCK_N, VEC)
        edge_mask = edge_mask & (rank == 0)
        edge_weight = load_parameter_at(weight_ptr, edge_columns, edge_mask)
        edge_bias = load_parameter_at(bias_ptr, edge_columns, edge_mask)
        next_edge_x = load_edges(x_ptr, group, M, N, edge_columns, edge_mask)
        if residual_ptr is not None:
            next_edge_residual = load_edges(residual_ptr, group, M, N, edge_columns, edge_mask)
    for row in tl.range(group, M, groups, num_stages=STAGES):
        body = body_offset(row, N, VEC, UNALIGNED)
        xs = load_chunks(x_ptr + body, None, begin, end, CHUNKS, BLOCK_N, tl.float32)
        xs = add_residual(xs, (), residual_ptr, sum_ptr, body, None, begin, end, CHUNKS, BLOCK_N)
        slice_sum = tl.sum(sum_chunks(xs, CHUNKS))
        if UNALIGNED:
            edge_x = next_edge_x.to(tl.float32)
            next_edge_x = load_edges(x_ptr, row + groups, M, N, edge_columns, edge_mask)
            if residual_ptr is not None:
                edge_x = add_rounded(edge_x, next_edge_residual)
                next_edge_residual = load_edges(residual_ptr, row + groups, M, N, edge_columns, edge_mask)
                if sum_ptr is not None:
                    tl.store(sum_ptr + edge_offsets(row, N, edge_columns), edge_x, mask=edge_mask)
            slice_sum += tl.sum(edge_x)
        inverse = reciprocal(elements, tl.float32)
        slice_mean = divide_by(slice_sum, elements, inverse)
        differences = deviations(xs, slice_mean, begin, end, CHUNKS, BLOCK_N, 0)
        if EXACT:
            slice_squares = tl.sum(sum_squares(differences, CHUNKS))
            if UNALIGNED:
                edge_deviations = deviations_of_edges(edge_x, slice_mean, edge_mask)
                slice_squares += tl.sum(sum_and_sum_squares_of_edges(edge_deviations)[1])
        else:
            deviation_sum, squares = sum_and_sum_squares(differences, CHUNKS)
            if UNALIGNED:
                edge_deviations = deviations_of_edges(edge_x, slice_mean, edge_mask)
                edge_sum, edge_squares = sum_and_sum_squares_of_edges(edge_deviations)
                deviation_sum += edge_sum
                squares += edge_squares
            slice_mean, slice_squares = corrected_by(slice_mean, tl.sum(deviation_sum), tl.sum(squares), inverse)
        row_workspace_ptr = workspace_ptr + tl.cast(row, tl.int64) * GROUP
        publish_pair(row_workspace_ptr, rank, slice_mean, slice_squares)
        mean, variance = group_statistics(row_workspace_ptr, GROUP, SLICE, head, N, VEC, BLOCK)
        clear_previous(row_workspace_ptr, row, GROUP, 1)
        rstd = tl.rsqrt(variance + eps)
        store_statistics(mean_ptr, rstd_ptr, row, mean, variance, rstd, rank == 0)
        for c in tl.static_range(CHUNKS):
            offsets, mask = chunk(c, begin, end, None, BLOCK_N)
            y = normalize(xs[c], mean, rstd, chunk_of_parameter(weights, c), chunk_of_parameter(biases, c))
            tl.store(y_ptr + body + offsets, y, mask=mask)
        if UNALIGNED:
            y = normalize(edge_x, mean, rstd, edge_weight, edge_bias)
            tl.store(y_ptr + edge_offsets(row, N, edge_columns), y, mask=edge_mask)
    clear_last(workspace_ptr, M, GROUP, 1, BLOCK)
