# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Backward kernels of group normalization that read each element twice (backward.py has the formulas): for the sums of
channels, in tiles of channels x their elements (tile.py), and for dx, as it lies in memory (vectors.py).

The kernels do not know of G == 1: first channels would then be 0, weight would be loaded in vectors, and so that the
threads have the same elements x and dy too, one by one, each thread far from its neighbours.

PDL: see norm/backward.py.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ...launch.prepared import entry
from ...launch.products import product
from ..norm.backward import add_pairs, input_gradient, weighted
from ..norm.tile import body_offset, head_size
from .tile import load_parameter, scaled
from .vectors import edges_of, elements_of, of_channels, rows_from, sums_of_rows, vectors_from, zeros_of_vectors


@entry()
@triton.jit(do_not_specialize=["M", "G"])
def group_norm_backward_loop(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    a_ptr,
    b_ptr,
    M,
    G,
    D,
    HW,
    size,
    BLOCK_D: tl.constexpr,
    BLOCK_HW: tl.constexpr,
    REST_HW: tl.constexpr,
    WHOLE: tl.constexpr,
    SUMS_VEC: tl.constexpr,
    SUMS_UNALIGNED: tl.constexpr,
    SUMS_STAGES: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    SPAN: tl.constexpr,
    UNALIGNED: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """One program to a group: one pass for the sums and one, backwards, for dx.

    a_ptr, b_ptr: [N, C] or None
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    if PDL:
        gdc_launch_dependents()
    HW = HW // SUMS_VEC * SUMS_VEC  # HW itself, but the compiler now sees that SUMS_VEC divides it
    VECTOR: tl.constexpr = 128 // x_ptr.dtype.element_ty.primitive_bitwidth
    blocks = (D - 1) // BLOCK_D + 1
    for row in tl.range(tl.program_id(0), M, tl.num_programs(0)):
        mean = tl.load(mean_ptr + row).to(ACC)
        rstd = tl.load(rstd_ptr + row).to(ACC)
        if SUMS_UNALIGNED:
            c1, c2 = sums_of_unaligned_channels(
                dy_ptr, x_ptr, weight_ptr, a_ptr, b_ptr, mean, rstd, row, row // G, 0, blocks, 0, HW,
                G, D, HW, ACC, BLOCK_D, BLOCK_HW // VECTOR, VECTOR, WHOLE, SUMS_STAGES,
            )  # fmt: skip
        else:
            c1, c2 = sums_of_channels(
                dy_ptr, x_ptr, weight_ptr, a_ptr, b_ptr, mean, rstd, row, row // G, 0, blocks, 0, HW,
                G, D, HW, ACC, BLOCK_D, BLOCK_HW, REST_HW, WHOLE, SUMS_STAGES,
            )  # fmt: skip
        c1 /= size
        c2 /= size
        head = head_size(row, size, VEC, UNALIGNED)
        vectors = (size - head) // VEC
        last = (vectors - 1) // LANES
        for i in tl.range(0, last + 1, num_stages=STAGES):
            store_gradient(
                dy_ptr, x_ptr, weight_ptr, dx_ptr, mean, rstd, c1, c2, row, head, (last - i) * LANES, vectors,
                G, D, HW, size, ACC, LANES, VEC, SPAN, UNALIGNED,
            )  # fmt: skip
        if UNALIGNED:
            store_gradient_of_edges(
                dy_ptr, x_ptr, weight_ptr, dx_ptr, mean, rstd, c1, c2, row, head, vectors, G, D, HW, size,
                ACC, LANES, VEC,
            )  # fmt: skip


@triton.jit
def sums_of_channels(
    dy_ptr,
    x_ptr,
    weight_ptr,
    a_ptr,
    b_ptr,
    mean,
    rstd,
    row,
    out_row,
    first_block,
    last_block,
    begin,
    end,
    G,
    D,
    HW,
    ACC: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_HW: tl.constexpr,
    REST_HW: tl.constexpr,
    WHOLE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Sums over the elements [begin, end) of the channels of blocks [first_block, last_block) of group ``row``: a and b
    of each channel go to row ``out_row`` of ``a_ptr, b_ptr: [rows, C]``, those of weight * a and weight * b over all
    channels are returned.

    With WHOLE all elements of a channel are in one tile, of BLOCK_HW, or two, of BLOCK_HW and REST_HW.
    """
    start = tl.cast(row, tl.int64) * D * HW + begin
    dy_ptr += start
    x_ptr += start
    # As many bits as HW, or 32 where that is a constant; begin has 64.
    length = tl.cast(end - begin, (tl.zeros([], tl.int32) + HW).dtype)
    first_channel = row % G * D
    out = tl.cast(out_row, tl.int64) * G * D + first_channel
    if a_ptr is not None:
        a_ptr += out
    if b_ptr is not None:
        b_ptr += out
    c1 = tl.zeros([BLOCK_D, 1], ACC)
    c2 = tl.zeros([BLOCK_D, 1], ACC)
    within = tl.arange(0, BLOCK_D)[:, None]
    if WHOLE:
        # Loads of single numbers are not pipelined: they are issued an iteration ahead.
        channels = first_block * BLOCK_D + within
        next_weight = load_parameter(weight_ptr, first_channel + channels, channels < D, ACC)
        for block in tl.range(first_block, last_block, num_stages=STAGES):
            channels = block * BLOCK_D + within
            weight = next_weight
            next_channels = channels + BLOCK_D
            wanted = (next_channels < D) & (block + 1 < last_block)
            next_weight = load_parameter(weight_ptr, first_channel + next_channels, wanted, ACC)
            start = tl.cast(block, tl.int64) * BLOCK_D * HW
            dy, xhat = terms(
                dy_ptr + start, x_ptr + start, within * HW, channels < D, mean, rstd, 0, length, ACC, BLOCK_HW
            )
            if REST_HW > 0:
                # Loaded before anything is added up: no load moves across the barriers of a sum.
                rest_dy, rest_xhat = terms(
                    dy_ptr + start, x_ptr + start, within * HW, channels < D, mean, rstd, BLOCK_HW, length,
                    ACC, REST_HW,
                )  # fmt: skip
            a, b = sums_of_elements(dy * xhat, dy)
            if REST_HW > 0:
                rest_a, rest_b = sums_of_elements(rest_dy * rest_xhat, rest_dy)
                a += rest_a
                b += rest_b
            c1 += scaled(a, weight)
            c2 += scaled(b, weight)
            store_sums(a_ptr, b_ptr, a, b, channels, D)
    else:
        for block in tl.range(first_block, last_block):
            channels = block * BLOCK_D + within
            start = tl.cast(block, tl.int64) * BLOCK_D * HW
            tile_a = tl.zeros([BLOCK_D, BLOCK_HW], ACC)
            tile_b = tl.zeros([BLOCK_D, BLOCK_HW], ACC)
            for first in tl.range(0, length, BLOCK_HW, num_stages=STAGES):
                dy, xhat = terms(
                    dy_ptr + start, x_ptr + start, within * HW, channels < D, mean, rstd, first, length,
                    ACC, BLOCK_HW,
                )  # fmt: skip
                tile_a += dy * xhat
                tile_b += dy
            a, b = sums_of_elements(tile_a, tile_b)
            weight = load_parameter(weight_ptr, first_channel + channels, channels < D, ACC)
            c1 += scaled(a, weight)
            c2 += scaled(b, weight)
            store_sums(a_ptr, b_ptr, a, b, channels, D)
    return tl.sum(c1), tl.sum(c2)


@triton.jit
def sums_of_unaligned_channels(
    dy_ptr,
    x_ptr,
    weight_ptr,
    a_ptr,
    b_ptr,
    mean,
    rstd,
    row,
    out_row,
    first_block,
    last_block,
    begin,
    end,
    G,
    D,
    HW,
    ACC: tl.constexpr,
    BLOCK_D: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    WHOLE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The same, of BLOCK_D channels at a time as they lie: each as vectors from its first aligned element on, of which
    there are no more than LANES if WHOLE, and edges (vectors.py)."""
    first_of_group = tl.cast(row, tl.int64) * D * HW + begin
    length = tl.cast(end - begin, (tl.zeros([], tl.int32) + HW).dtype)
    first_channel = row % G * D
    out = tl.cast(out_row, tl.int64) * G * D + first_channel
    if a_ptr is not None:
        a_ptr += out
    if b_ptr is not None:
        b_ptr += out
    within = rows_from(0, BLOCK_D)
    c1 = tl.zeros_like(within.to(ACC))
    c2 = c1
    for block in tl.range(first_block, last_block):
        channels = block * BLOCK_D + within
        valid = channels < D
        weight = load_parameter(weight_ptr, first_channel + channels, valid, ACC)
        start = first_of_group + tl.cast(channels, tl.int64) * HW
        body = (start + (VEC - 1)) // VEC * VEC
        head = tl.minimum((body - start).to(length.dtype), length)  # the last slice may be shorter
        vectors = tl.where(valid, (length - head) // VEC, 0)
        edge, edge_mask = edges_of(head, vectors, length, LANES, VEC)
        edge_mask = edge_mask & valid
        edge_dy = tl.load(dy_ptr + start + edge, mask=edge_mask, other=0.0).to(ACC)
        edge_x = tl.load(x_ptr + start + edge, mask=edge_mask, other=0.0).to(ACC)
        if WHOLE:
            vector = vectors_from(0, LANES)
            mask = vector < vectors
            places = body + elements_of(vector, VEC)
            dy = tl.load(dy_ptr + places, mask=mask, other=0.0).to(ACC)
            x = tl.load(x_ptr + places, mask=mask, other=0.0).to(ACC)
            tile_a = dy * ((x - mean) * rstd)
            tile_b = dy
        else:
            tile_a = zeros_of_vectors(LANES, VEC, ACC)
            tile_b = tile_a
            for first in tl.range(0, length // VEC, LANES, num_stages=STAGES):
                vector = vectors_from(first, LANES)
                mask = vector < vectors
                places = body + elements_of(vector, VEC)
                dy = tl.load(dy_ptr + places, mask=mask, other=0.0).to(ACC)
                x = tl.load(x_ptr + places, mask=mask, other=0.0).to(ACC)
                tile_a += dy * ((x - mean) * rstd)
                tile_b += dy
        edge_a = product(edge_dy, (edge_x - mean) * rstd)
        a, b = sums_of_rows(tile_a, tile_b, (edge_a,), (edge_dy,))
        c1 += scaled(a, weight)
        c2 += scaled(b, weight)
        store_sums(a_ptr, b_ptr, a, b, channels, D)
    return tl.sum(c1), tl.sum(c2)


@triton.jit
def terms(dy_ptr, x_ptr, offsets, channel_mask, mean, rstd, first, end, ACC: tl.constexpr, BLOCK: tl.constexpr):
    """(dy, xhat) of the elements from ``first`` on, less than ``end``, of channels that start at ``offsets``, which
    need 32 bits: several channels are in a tile only if they are short."""
    elements = first + tl.arange(0, BLOCK)[None, :]
    mask = channel_mask & (elements < end)
    dy = tl.load(dy_ptr + offsets + elements, mask=mask, other=0.0).to(ACC)
    x = tl.load(x_ptr + offsets + elements, mask=mask, other=0.0).to(ACC)
    return dy, (x - mean) * rstd


@triton.jit
def sums_of_elements(a, b):
    """[channels, elements] to [channels, 1], of both: warps wait for each other as often as for one."""
    a, b = tl.reduce((a, b), 1, add_pairs)
    return a[:, None], b[:, None]


@triton.jit
def store_sums(a_ptr, b_ptr, a, b, channels, D):
    if a_ptr is not None:
        tl.store(a_ptr + channels, a, mask=channels < D)
    if b_ptr is not None:
        tl.store(b_ptr + channels, b, mask=channels < D)


@triton.jit
def store_gradient(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    mean,
    rstd,
    c1,
    c2,
    row,
    head,
    first,
    vectors,
    G,
    D,
    HW,
    size,
    ACC: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    SPAN: tl.constexpr,
    UNALIGNED: tl.constexpr,
):
    """dx of LANES vectors of group ``row``, those from ``first`` on."""
    vector = vectors_from(first, LANES)
    mask = vector < vectors
    weight = of_channels(weight_ptr, row % G * D, head + vector * VEC, mask, D, HW, VEC, SPAN)
    offsets = body_offset(row, size, VEC, UNALIGNED) + elements_of(vector, VEC)
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(ACC)
    xhat = (tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC) - mean) * rstd
    tl.store(dx_ptr + offsets, input_gradient(xhat, weighted(dy, weight, True), rstd, c1, c2), mask=mask)


@triton.jit
def store_gradient_of_edges(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    mean,
    rstd,
    c1,
    c2,
    row,
    head,
    vectors,
    G,
    D,
    HW,
    size,
    ACC: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
):
    places, mask = edges_of(head, vectors, size, LANES, VEC)
    weight = of_channels(weight_ptr, row % G * D, places, mask, D, HW, 1, 1)
    offsets = tl.cast(row, tl.int64) * size + places
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(ACC)
    xhat = (tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC) - mean) * rstd
    tl.store(dx_ptr + offsets, input_gradient(xhat, weighted(dy, weight, True), rstd, c1, c2), mask=mask)


@entry()
@triton.jit(do_not_specialize=["G", "SPLITS", "PARTS", "BLOCKS"])
def group_norm_backward_sums(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    a_ptr,
    b_ptr,
    partial_ptr,
    G,
    D,
    HW,
    SLICE,
    SPLITS,
    PARTS,
    BLOCKS,
    BLOCK_D: tl.constexpr,
    BLOCK_HW: tl.constexpr,
    REST_HW: tl.constexpr,
    WHOLE: tl.constexpr,
    SUMS_VEC: tl.constexpr,
    SUMS_UNALIGNED: tl.constexpr,
    SUMS_STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """Few, long groups, and gradients of weight and bias alone: the sums of one of PARTS parts of a group. A part is
    one of SPLITS slices, of SLICE elements, of BLOCKS blocks of channels.

    a_ptr, b_ptr: [N, SPLITS, C] or None
    partial_ptr: [N * G, PARTS, 2] or None, for dx: what each program has of a group's sums of weight * a and weight * b
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    if PDL:
        gdc_launch_dependents()
    HW = HW // SUMS_VEC * SUMS_VEC  # HW itself, but the compiler now sees that SUMS_VEC divides it
    part = tl.program_id(0) % PARTS
    row = tl.program_id(0) // PARTS
    split = part % SPLITS
    first_block = part // SPLITS * BLOCKS
    last_block = tl.minimum(first_block + BLOCKS, (D - 1) // BLOCK_D + 1)
    mean = tl.load(mean_ptr + row).to(ACC)
    rstd = tl.load(rstd_ptr + row).to(ACC)
    begin = 0
    end = HW
    if not WHOLE:
        begin = tl.cast(split, tl.int64) * (SLICE // SUMS_VEC * SUMS_VEC)
        end = tl.minimum(begin + SLICE, HW) // SUMS_VEC * SUMS_VEC
    VECTOR: tl.constexpr = 128 // x_ptr.dtype.element_ty.primitive_bitwidth
    out_row = row // G * SPLITS + split
    if SUMS_UNALIGNED:
        c1, c2 = sums_of_unaligned_channels(
            dy_ptr, x_ptr, weight_ptr, a_ptr, b_ptr, mean, rstd, row, out_row, first_block, last_block, begin, end,
            G, D, HW, ACC, BLOCK_D, BLOCK_HW // VECTOR, VECTOR, WHOLE, SUMS_STAGES,
        )  # fmt: skip
    else:
        c1, c2 = sums_of_channels(
            dy_ptr, x_ptr, weight_ptr, a_ptr, b_ptr, mean, rstd, row, out_row, first_block, last_block, begin, end,
            G, D, HW, ACC, BLOCK_D, BLOCK_HW, REST_HW, WHOLE, SUMS_STAGES,
        )  # fmt: skip
    if partial_ptr is not None:
        place = tl.cast(tl.program_id(0), tl.int64) * 2
        tl.store(partial_ptr + place, c1)
        tl.store(partial_ptr + place + 1, c2)


@entry()
@triton.jit(do_not_specialize=["PARTS", "TILES"])
def group_norm_backward_apply(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    partial_ptr,
    G,
    D,
    HW,
    size,
    PARTS,
    TILES,
    BLOCK: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    SPAN: tl.constexpr,
    UNALIGNED: tl.constexpr,
    PDL: tl.constexpr,
):
    """dx of one of TILES tiles of a group, from the sums of its parts. From the last to the first: what these have read
    last is in the cache.

    partial_ptr: [N * G, PARTS, 2]
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    row = program // TILES
    tile = program % TILES
    mean = tl.load(mean_ptr + row).to(ACC)
    rstd = tl.load(rstd_ptr + row).to(ACC)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    c1 = tl.zeros([BLOCK], ACC)
    c2 = tl.zeros([BLOCK], ACC)
    for i in tl.range(0, (PARTS - 1) // BLOCK + 1):
        part = i * BLOCK + tl.arange(0, BLOCK)
        places = partial_ptr + (tl.cast(row, tl.int64) * PARTS + part) * 2
        c1 += tl.load(places, mask=part < PARTS, other=0.0)
        c2 += tl.load(places + 1, mask=part < PARTS, other=0.0)
    group_c1 = tl.sum(c1) / size
    group_c2 = tl.sum(c2) / size
    head = head_size(row, size, VEC, UNALIGNED)
    vectors = (size - head) // VEC
    first = tl.cast(tile, vectors.dtype) * LANES  # of 64 bits where there are as many elements
    store_gradient(
        dy_ptr, x_ptr, weight_ptr, dx_ptr, mean, rstd, group_c1, group_c2, row, head, first, vectors,
        G, D, HW, size, ACC, LANES, VEC, SPAN, UNALIGNED,
    )  # fmt: skip
    if UNALIGNED and tile == 0:
        store_gradient_of_edges(
            dy_ptr, x_ptr, weight_ptr, dx_ptr, mean, rstd, group_c1, group_c2, row, head, vectors, G, D, HW,
            size, ACC, LANES, VEC,
        )  # fmt: skip
