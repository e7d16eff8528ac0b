# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Forward kernels of layer normalization, each element read once.

Of an M x N input each row becomes ``y = (x - mean) * rstd * weight + bias`` with ``rstd = 1 / sqrt(var + eps)``. The
variance is the mean of squared deviations, never the difference of two large sums. Everything between load and store is
float32, or float64 for float64 input; rstd is one rsqrt, since dividing by a square root rounds twice, which the
gradients of rows of two elements show. eps comes as the bits of a float64, because Triton hands floats over as float32.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from .tile import (
    clear_last,
    clear_own,
    collect,
    edges_at,
    piece,
    publish,
    row_base,
    row_edges,
    row_head,
    whole_vectors,
)


@triton.jit
def from_bits(eps_bits, ACC: tl.constexpr):
    return tl.cast(eps_bits, tl.int64).to(tl.float64, bitcast=True).to(ACC)


@entry()
@triton.jit(do_not_specialize=["M", "eps_bits"])
def whole_rows_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    M,
    N,
    eps_bits,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
    WIDTH: tl.constexpr,
    VEC: tl.constexpr,
    CUT: tl.constexpr,
    FAR: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Programs that hold ROWS whole rows, grid-stride over all rows."""
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    eps = from_bits(eps_bits, ACC)
    if FAR:
        M = tl.cast(M, tl.int64)
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    head = row_head(program, N, VEC, CUT)
    end = CHUNKS * WIDTH
    weights = ()
    biases = ()
    for c in tl.static_range(CHUNKS):
        position, mask = piece(c, 0, end, head, N, WIDTH, VEC)
        if weight_ptr is not None:
            weights = weights + (tl.load(weight_ptr + head + position, mask=mask, other=0.0),)
        if bias_ptr is not None:
            biases = biases + (tl.load(bias_ptr + head + position, mask=mask, other=0.0),)
    # The rows of a tile are neighbours, unless that gives them different heads.
    gap = programs if CUT else 1
    if CUT:
        edge, edge_mask = row_edges(head, N, WIDTH, VEC)
        if weight_ptr is not None:
            edge_weight = tl.load(weight_ptr + edge, mask=edge_mask, other=0.0)
        if bias_ptr is not None:
            edge_bias = tl.load(bias_ptr + edge, mask=edge_mask, other=0.0)
        next_rows = program + tl.arange(0, ROWS)[:, None] * gap
        next_edge = load_edges(x_ptr, next_rows, M, N, edge, edge_mask)
    for first in tl.range(program * (1 if CUT else ROWS), M, programs * ROWS, num_stages=STAGES):
        rows = first + tl.arange(0, ROWS)[:, None] * gap
        base = row_base(rows, N, VEC, CUT)
        xs = ()
        for c in tl.static_range(CHUNKS):
            position, mask = piece(c, 0, end, head, N, WIDTH, VEC)
            xs = xs + (tl.load(x_ptr + base + position, mask=mask & (rows < M), other=0.0).to(ACC),)
        total = sum_of(xs, CHUNKS)
        if CUT:
            edge_x = next_edge.to(ACC)
            next_edge = load_edges(x_ptr, rows + programs * ROWS, M, N, edge, edge_mask)
            total += tl.sum(edge_x, 1, keep_dims=True)
        mean = total / N
        squares = ()
        for c in tl.static_range(CHUNKS):
            deviation = xs[c] - mean
            if c == CHUNKS - 1:  # the pieces before the last are full
                position, mask = piece(c, 0, end, head, N, WIDTH, VEC)
                deviation = tl.where(mask, deviation, 0.0)
            squares = squares + (deviation * deviation,)
        square = sum_of(squares, CHUNKS)
        if CUT:
            square += squares_of_edges(edge_x, mean, edge_mask)
        variance = square / N
        rstd = tl.rsqrt(variance + eps)
        tl.store(mean_ptr + rows, stored_mean(mean, variance), mask=rows < M)
        tl.store(rstd_ptr + rows, rstd, mask=rows < M)
        for c in tl.static_range(CHUNKS):
            position, mask = piece(c, 0, end, head, N, WIDTH, VEC)
            y = (xs[c] - mean) * rstd
            if weight_ptr is not None:
                y = y * weights[c].to(ACC)
            if bias_ptr is not None:
                y = y + biases[c].to(ACC)
            tl.store(y_ptr + base + position, y, mask=mask & (rows < M))
        if CUT:
            y = (edge_x - mean) * rstd
            if weight_ptr is not None:
                y = y * edge_weight.to(ACC)
            if bias_ptr is not None:
                y = y + edge_bias.to(ACC)
            tl.store(y_ptr + edges_at(rows, N, edge), y, mask=edge_mask & (rows < M))


@triton.jit
def load_edges(ptr, rows, M, N, edge, mask):
    """Loads of single elements are not pipelined, so kernels ask for them one turn ahead."""
    return tl.load(ptr + edges_at(rows, N, edge), mask=mask & (rows < M), other=0.0)


@triton.jit
def squares_of_edges(x, mean, mask):
    """Sum of squared deviations: [ROWS, 1]."""
    deviation = tl.where(mask, x - mean, 0.0)
    return tl.sum(deviation * deviation, 1, keep_dims=True)


@triton.jit
def stored_mean(mean, variance):
    """NaN in a row with an infinity, as PyTorch has it, whose running mean passes through inf - inf."""
    return tl.where(variance == variance, mean, variance)


@triton.jit
def sum_of(pieces, CHUNKS: tl.constexpr):
    """Over the pieces of each row: [ROWS, 1]."""
    total = pieces[0]
    for c in tl.static_range(1, CHUNKS):
        total += pieces[c]
    return tl.sum(total, 1, keep_dims=True)


@entry()
@triton.jit(do_not_specialize=["M", "eps_bits", "GROUP"])
def split_rows_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    slots_ptr,
    M,
    N,
    eps_bits,
    SLICE,
    GROUP,
    CHUNKS: tl.constexpr,
    WIDTH: tl.constexpr,
    VEC: tl.constexpr,
    CUT: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Rows too long for one program: GROUP programs hold a slice of SLICE columns each and exchange their statistics.

    All programs must be running (cooperative launch). slots_ptr: M * GROUP + groups zeros, left zero. While a program
    waits, the loads of its next rows are in flight.
    """
    eps = from_bits(eps_bits, tl.float32)
    member = tl.program_id(0) % GROUP
    group = tl.program_id(0) // GROUP
    groups = tl.num_programs(0) // GROUP
    head = row_head(group, N, VEC, CUT)
    begin = member * SLICE
    end = begin + SLICE
    weights = ()
    biases = ()
    for c in tl.static_range(CHUNKS):
        position, mask = piece(c, begin, end, head, N, WIDTH, VEC)
        if weight_ptr is not None:
            weights = weights + (tl.load(weight_ptr + head + position, mask=mask, other=0.0),)
        if bias_ptr is not None:
            biases = biases + (tl.load(bias_ptr + head + position, mask=mask, other=0.0),)
    columns = columns_of(member, SLICE, head, N, VEC)
    if CUT:
        edge, edge_mask = row_edges(head, N, WIDTH, VEC)
        edge_mask = edge_mask & (member == 0)
        if weight_ptr is not None:
            edge_weight = tl.load(weight_ptr + edge, mask=edge_mask, other=0.0)
        if bias_ptr is not None:
            edge_bias = tl.load(bias_ptr + edge, mask=edge_mask, other=0.0)
        next_edge = load_edges(x_ptr, group, M, N, edge, edge_mask)
    for row in tl.range(group, M, groups, num_stages=STAGES):
        base = row_base(row, N, VEC, CUT)
        xs = ()
        for c in tl.static_range(CHUNKS):
            position, mask = piece(c, begin, end, head, N, WIDTH, VEC)
            xs = xs + (tl.load(x_ptr + base + position, mask=mask, other=0.0).to(tl.float32),)
        total = tl.sum(sum_of(xs, CHUNKS))
        if CUT:
            edge_x = next_edge.to(tl.float32)
            next_edge = load_edges(x_ptr, row + groups, M, N, edge, edge_mask)
            total += tl.sum(edge_x)
        mean = total / tl.maximum(columns, 1)
        squares = ()
        for c in tl.static_range(CHUNKS):
            position, mask = piece(c, begin, end, head, N, WIDTH, VEC)
            deviation = tl.where(mask, xs[c] - mean, 0.0)
            squares = squares + (deviation * deviation,)
        square = tl.sum(sum_of(squares, CHUNKS))
        if CUT:
            square += tl.sum(squares_of_edges(edge_x, mean, edge_mask))
        slots = slots_ptr + tl.cast(row, tl.int64) * GROUP
        publish(slots + member, mean, square)
        mean, variance = group_statistics(slots, GROUP, SLICE, head, N, VEC, BLOCK)
        clear_own(slots, row, GROUP)
        rstd = tl.rsqrt(variance + eps)
        tl.store(mean_ptr + row, stored_mean(mean, variance), mask=member == 0)
        tl.store(rstd_ptr + row, rstd, mask=member == 0)
        for c in tl.static_range(CHUNKS):
            position, mask = piece(c, begin, end, head, N, WIDTH, VEC)
            y = (xs[c] - mean) * rstd
            if weight_ptr is not None:
                y = y * weights[c].to(tl.float32)
            if bias_ptr is not None:
                y = y + biases[c].to(tl.float32)
            tl.store(y_ptr + base + position, y, mask=mask)
        if CUT:
            y = (edge_x - mean) * rstd
            if weight_ptr is not None:
                y = y * edge_weight.to(tl.float32)
            if bias_ptr is not None:
                y = y + edge_bias.to(tl.float32)
            tl.store(y_ptr + edges_at(row, N, edge), y, mask=edge_mask)
    clear_last(slots_ptr, M, GROUP, BLOCK)


@triton.jit
def columns_of(member, SLICE, head, N, VEC: tl.constexpr):
    """How many of a row's elements a member holds: those in its slice, and the first one the edges. It may be none."""
    whole = whole_vectors(head, N, VEC)
    inside = tl.maximum(tl.minimum(member * SLICE + SLICE, whole) - member * SLICE, 0)
    return inside + tl.where(member == 0, N - whole, 0)


@triton.jit(noinline=True)
def group_statistics(slots_ptr, GROUP, SLICE, head, N, VEC: tl.constexpr, BLOCK: tl.constexpr):
    """(mean, variance) of a row from the mean and the sum of squared deviations of each slice, merged block by block
    (Chan, Golub and LeVeque)."""
    count = 0.0
    mean = 0.0
    square = 0.0
    for first in tl.range(0, GROUP, BLOCK):
        means, squares = collect(slots_ptr, first, GROUP, BLOCK)
        member = first + tl.arange(0, BLOCK)
        counts = tl.where(member < GROUP, columns_of(member, SLICE, head, N, VEC), 0).to(tl.float32)
        block_count = tl.sum(counts, 0)
        block_mean = tl.sum(means * counts, 0) / tl.maximum(block_count, 1.0)
        apart = means - block_mean
        delta = block_mean - mean
        total = count + block_count
        square += tl.sum(squares + counts * apart * apart, 0) + delta * delta * count * block_count / total
        mean += delta * block_count / total
        count = total
    return mean, square / N
