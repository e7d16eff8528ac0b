# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc"
"""Kernels of batch normalization whose programs hold one channel in tiles, whose number is no power of two, and of 16
bits as pairs, so that several programs fit on a multiprocessor: one alone loads, computes and stores in turns.

Names are those of :mod:`.forward` and :mod:`.backward`. A tile is BLOCK elements of a channel. Where loads are of
single elements, VEC = 1, each pair has elements of two tiles.
"""

import triton
import triton.language as tl

from ...launch.pairs import numbers, pair
from ...launch.prepared import entry
from ..norm.statistics import add_pairs, corrected_by, divide_by, from_bits, reciprocal, sums_are_exact
from .backward import input_gradient, store_gradients
from .statistics import rstd_of, store_statistics
from .tile import edges_at, load_of_channels, quotient


@triton.jit
def places_of(
    tile, channel, C, vectors, total, unknown, BLOCK: tl.constexpr, VEC: tl.constexpr, EDGES: tl.constexpr,
    STEP: tl.constexpr = 1,
):  # fmt: skip
    """(offsets, mask) of each STEP-th element of a tile.

    ``unknown`` is 0, but the compiler does not know it, and computes offsets again where it would hold them.
    """
    elements = tl.arange(0, BLOCK // STEP) * STEP + (tile + unknown) * BLOCK
    exists = elements < total * VEC
    if EDGES:
        # As unaligned_tile_at.
        of_run = vectors // VEC
        number = tl.minimum(quotient(elements // VEC, of_run), total // of_run - 1)
        run = (number * C + channel) * vectors
        body = (run + VEC - 1) // VEC * VEC
        after = body + (elements // VEC - number * of_run + 1) * VEC
        return body + (elements - number * (of_run * VEC)), exists & (after <= run + vectors)
    else:
        number = quotient(elements // VEC, vectors)
        return (number * (C - 1) + channel) * (vectors * VEC) + elements, exists


@triton.jit
def load_tile(
    ptr, tile, channel, C, vectors, total, BLOCK: tl.constexpr, VEC: tl.constexpr, EDGES: tl.constexpr,
    LAST: tl.constexpr,
):  # fmt: skip
    offsets, mask = places_of(tile, channel, C, vectors, total, 0, BLOCK, VEC, EDGES)
    if LAST or EDGES:
        return tl.load(ptr + offsets, mask=mask, other=0.0)
    else:
        return tl.load(ptr + offsets)


@triton.jit
def store_tile(
    ptr, y, tile, channel, C, vectors, total, unknown, BLOCK: tl.constexpr, VEC: tl.constexpr, EDGES: tl.constexpr,
    LAST: tl.constexpr,
):  # fmt: skip
    offsets, mask = places_of(tile, channel, C, vectors, total, unknown, BLOCK, VEC, EDGES)
    if LAST or EDGES:
        tl.store(ptr + offsets, y, mask=mask)
    else:
        tl.store(ptr + offsets, y)


@triton.jit
def load_held(
    ptr, channel, C, vectors, total, BLOCK: tl.constexpr, VEC: tl.constexpr, EDGES: tl.constexpr, DEPTH: tl.constexpr
):
    """All elements of a channel: tiles of 32 bits; of 16 bits pairs of neighbours, or with VEC = 1 of two tiles."""
    held = ()
    if ptr.dtype.element_ty.primitive_bitwidth == 32:
        for i in tl.static_range(DEPTH):
            held = held + (load_tile(ptr, i, channel, C, vectors, total, BLOCK, VEC, EDGES, i == DEPTH - 1),)
    elif VEC > 1:
        for i in tl.static_range(DEPTH):
            x = load_tile(ptr, i, channel, C, vectors, total, BLOCK, VEC, EDGES, i == DEPTH - 1)
            low, high = tl.split(x.reshape([BLOCK // 2, 2]))
            held = held + (pair(low, high),)
    else:
        for i in tl.static_range(0, DEPTH, 2):
            low = load_tile(ptr, i, channel, C, vectors, total, BLOCK, VEC, EDGES, i == DEPTH - 2)
            high = load_tile(ptr, i + 1, channel, C, vectors, total, BLOCK, VEC, EDGES, i == DEPTH - 2)
            held = held + (pair(low, high),)
    return held


@triton.jit
def count_and_edges(channel, C, vectors, total, VEC: tl.constexpr, EDGES: tl.constexpr, ACC: tl.constexpr):
    """The elements of a channel, and (offsets, mask) of its heads and tails, which are empty tuples without EDGES."""
    if EDGES:
        runs = total // (vectors // VEC)
        count = tl.cast(runs * vectors, ACC)
        at_edges, in_edges = edges_at(0, runs, channel, C, vectors, EDGES, VEC)
        return count, at_edges, in_edges
    else:
        return tl.cast(total * VEC, ACC), (), ()


@triton.jit
def numbers_of(held, unknown, dtype: tl.constexpr):
    """The float32 of a tile, or of both elements of its pairs."""
    if dtype.primitive_bitwidth == 32:
        return (held,)
    else:
        return numbers(held, unknown, dtype)


@triton.jit
def only_existing(
    x, i, part, channel, C, vectors, total, unknown, BLOCK: tl.constexpr, VEC: tl.constexpr, EDGES: tl.constexpr,
    PAIRS: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """What was computed of ``numbers_of``, 0 for elements that are not there."""
    if LAST or EDGES:
        if not PAIRS:
            _, mask = places_of(i, channel, C, vectors, total, unknown, BLOCK, VEC, EDGES)
        elif VEC > 1:
            _, mask = places_of(i, channel, C, vectors, total, unknown, BLOCK, VEC, EDGES, 2)
        else:
            _, mask = places_of(2 * i + part, channel, C, vectors, total, unknown, BLOCK, VEC, EDGES)
        return tl.where(mask, x, 0.0)
    else:
        return x


@triton.jit
def store_held(
    ptr, y, i, channel, C, vectors, total, unknown, BLOCK: tl.constexpr, VEC: tl.constexpr, EDGES: tl.constexpr,
    PAIRS: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """What was computed of ``numbers_of`` it."""
    if not PAIRS:
        store_tile(ptr, y[0], i, channel, C, vectors, total, unknown, BLOCK, VEC, EDGES, LAST)
    elif VEC > 1:
        both = tl.join(y[0].to(ptr.dtype.element_ty), y[1].to(ptr.dtype.element_ty)).reshape([BLOCK])
        store_tile(ptr, both, i, channel, C, vectors, total, unknown, BLOCK, VEC, EDGES, LAST)
    else:
        store_tile(ptr, y[0], 2 * i, channel, C, vectors, total, unknown, BLOCK, VEC, EDGES, LAST)
        store_tile(ptr, y[1], 2 * i + 1, channel, C, vectors, total, unknown, BLOCK, VEC, EDGES, LAST)


@entry()
@triton.jit(do_not_specialize=["total", "eps_bits", "momentum_bits"])
def batch_norm_held(
    x_ptr,
    weight_ptr,
    bias_ptr,
    running_mean_ptr,
    running_var_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    C,
    vectors,
    total,
    eps_bits,
    momentum_bits,
    BLOCK: tl.constexpr,
    VEC: tl.constexpr,
    EDGES: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Training where a program holds a channel in DEPTH tiles: x is read once. EDGES: as in batch_norm_channels"""
    ACC: tl.constexpr = tl.float32
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    PAIRS: tl.constexpr = dtype.primitive_bitwidth == 16
    channel = tl.program_id(0)
    held = load_held(x_ptr, channel, C, vectors, total, BLOCK, VEC, EDGES, DEPTH)
    LAST: tl.constexpr = len(held) - 1
    count, at_edges, in_edges = count_and_edges(channel, C, vectors, total, VEC, EDGES, ACC)
    if EDGES:
        edges = tl.load(x_ptr + at_edges, mask=in_edges, other=0.0).to(ACC)
    # All loads at once, so that none waits for another.
    weight = load_of_channels(weight_ptr, channel, C, ACC, 1.0)
    bias = load_of_channels(bias_ptr, channel, C, ACC, 0.0)
    running_mean = load_of_channels(running_mean_ptr, channel, C, ACC, 0.0)
    running_var = load_of_channels(running_var_ptr, channel, C, ACC, 0.0)
    inverse = reciprocal(count, ACC)
    sums = tl.zeros(held[0].shape, ACC)
    for i in tl.static_range(LAST + 1):
        x = numbers_of(held[i], total >> 31, dtype)
        for part in tl.static_range(len(x)):
            sums += x[part]
    whole_sum = tl.sum(sums, 0)
    if EDGES:
        whole_sum += tl.sum(edges, 0)
    EXACT: tl.constexpr = sums_are_exact(dtype, BLOCK * DEPTH + EDGES)
    mean = divide_by(whole_sum, count, inverse) if EXACT else whole_sum * inverse
    deviation_sums = tl.zeros(held[0].shape, ACC)
    squares = tl.zeros(held[0].shape, ACC)
    for i in tl.static_range(LAST + 1):
        x = numbers_of(held[i], total >> 30, dtype)
        for part in tl.static_range(len(x)):
            deviation = x[part] - mean
            deviation = only_existing(
                deviation, i, part, channel, C, vectors, total, total >> 30, BLOCK, VEC, EDGES, PAIRS, i == LAST
            )
            if not EXACT:
                deviation_sums += deviation
            squares += deviation * deviation
    if EDGES:
        of_edges = tl.where(in_edges, edges - mean, 0.0)
    if EXACT:
        squares = tl.sum(squares, 0)
        if EDGES:
            squares += tl.sum(of_edges * of_edges, 0)
    else:
        # What the mean was rounded by, all elements of a channel are off by.
        deviation_sum, squares = tl.reduce((deviation_sums, squares), 0, add_pairs)
        if EDGES:
            edges_sum, edges_squares = tl.reduce((of_edges, of_edges * of_edges), 0, add_pairs)
            deviation_sum += edges_sum
            squares += edges_squares
        mean, squares = corrected_by(mean, deviation_sum, squares, inverse)
    rstd = store_statistics(
        mean, squares, running_mean, running_var, channel, C, count,
        from_bits(eps_bits, ACC), from_bits(momentum_bits, ACC),
        mean_ptr, rstd_ptr, running_mean_ptr, running_var_ptr,
    )  # fmt: skip
    scale = rstd * weight
    for i in tl.static_range(LAST + 1):
        x = numbers_of(held[i], 0, dtype)
        y = ()
        for part in tl.static_range(len(x)):
            y = y + ((x[part] - mean) * scale + bias,)
        store_held(y_ptr, y, i, channel, C, vectors, total, total >> 31, BLOCK, VEC, EDGES, PAIRS, i == LAST)
    if EDGES:
        tl.store(y_ptr + at_edges, (edges - mean) * scale + bias, mask=in_edges)


@entry()
@triton.jit(do_not_specialize=["total", "eps_bits"])
def batch_norm_backward_held(
    dy_ptr,
    x_ptr,
    weight_ptr,
    center_ptr,
    spread_ptr,
    dx_ptr,
    dweight_ptr,
    dbias_ptr,
    C,
    vectors,
    total,
    eps_bits,
    BLOCK: tl.constexpr,
    VEC: tl.constexpr,
    EDGES: tl.constexpr,
    DEPTH: tl.constexpr,
    EVALUATION: tl.constexpr,
):
    """All gradients where a program holds a channel of x and dy in DEPTH tiles: they are read once."""
    ACC: tl.constexpr = tl.float32
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    PAIRS: tl.constexpr = dtype.primitive_bitwidth == 16
    channel = tl.program_id(0)
    mean = load_of_channels(center_ptr, channel, C, ACC, 0.0)
    rstd = rstd_of(load_of_channels(spread_ptr, channel, C, ACC, 1.0), from_bits(eps_bits, ACC), EVALUATION)
    held_dy = load_held(dy_ptr, channel, C, vectors, total, BLOCK, VEC, EDGES, DEPTH)
    held_x = load_held(x_ptr, channel, C, vectors, total, BLOCK, VEC, EDGES, DEPTH)
    LAST: tl.constexpr = len(held_x) - 1
    count, at_edges, in_edges = count_and_edges(channel, C, vectors, total, VEC, EDGES, ACC)
    if EDGES:
        edges_dy = tl.load(dy_ptr + at_edges, mask=in_edges, other=0.0).to(ACC)
        edges_x = tl.load(x_ptr + at_edges, mask=in_edges, other=0.0).to(ACC)
    weight = load_of_channels(weight_ptr, channel, C, ACC, 1.0)
    sums_dy = tl.zeros(held_x[0].shape, ACC)
    sums_dyx = tl.zeros(held_x[0].shape, ACC)
    for i in tl.static_range(LAST + 1):
        dy = numbers_of(held_dy[i], total >> 31, dtype)
        x = numbers_of(held_x[i], total >> 31, dtype)
        for part in tl.static_range(len(x)):
            term = dy[part] * (x[part] - mean)
            term = only_existing(
                term, i, part, channel, C, vectors, total, total >> 30, BLOCK, VEC, EDGES, PAIRS, i == LAST
            )
            sums_dy += dy[part]
            sums_dyx += term
    sum_dy, sum_dyx = tl.reduce((sums_dy, sums_dyx), 0, add_pairs)
    if EDGES:
        of_edges = tl.where(in_edges, edges_dy * (edges_x - mean), 0.0)
        more_dy, more_dyx = tl.reduce((edges_dy, of_edges), 0, add_pairs)
        sum_dy += more_dy
        sum_dyx += more_dyx
    store_gradients(sum_dy, sum_dyx, rstd, channel, C, dweight_ptr, dbias_ptr)
    if dx_ptr is not None:
        scale = rstd * weight
        for i in tl.static_range(LAST + 1):
            dy = numbers_of(held_dy[i], 0, dtype)
            x = numbers_of(held_x[i], 0, dtype)
            dx = ()
            for part in tl.static_range(len(x)):
                if EVALUATION:
                    dx = dx + (dy[part] * scale,)
                else:
                    of_part = input_gradient(dy[part], x[part] - mean, sum_dy, sum_dyx, rstd, scale, count)
                    dx = dx + (of_part,)
            store_held(dx_ptr, dx, i, channel, C, vectors, total, total >> 31, BLOCK, VEC, EDGES, PAIRS, i == LAST)
        if EDGES:
            if EVALUATION:
                dx = edges_dy * scale
            else:
                dx = input_gradient(edges_dy, edges_x - mean, sum_dy, sum_dyx, rstd, scale, count)
            tl.store(dx_ptr + at_edges, dx, mask=in_edges)
