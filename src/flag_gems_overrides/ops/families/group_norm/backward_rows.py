# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc"
"""Backward kernel of group normalization that reads each element once (backward.py has the formulas). PDL: see
norm/backward.py."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from ...launch.prepared import entry
from ...launch.products import product
from ..norm.backward import input_gradient, weighted
from ..norm.partial_sums import fold_columns
from ..norm.tile import body_offset, head_size
from .vectors import edges_of, elements_of, of_channels, sums_of_rows, vectors_from, zeros_of_vectors


@entry()
@triton.jit(do_not_specialize=["N"])
def group_norm_backward_rows(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    a_ptr,
    b_ptr,
    columns_ptr,
    N,
    G,
    D,
    HW,
    size,
    COLUMNS,
    CHUNKS: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    SPAN: tl.constexpr,
    ONE_CHANNEL: tl.constexpr,
    FOLD: tl.constexpr,
    UNALIGNED: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ONE_TILE: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """Each program holds the same group of one sample after the other, as CHUNKS times LANES vectors (vectors.py); with
    ONE_TILE of one sample only, without a loop. All these rows have a head of the same size, so that what it adds up
    for weight and bias stays in registers: a sum for each lane with ONE_CHANNEL, for each vector if that is of one
    channel (SPAN 1), else for each element. At the end it adds up those of a channel: all with ONE_CHANNEL; with FOLD
    through memory; else there is one.

    a_ptr, b_ptr: [num_programs / G, C] or None
    columns_ptr: [num_programs, 2, COLUMNS] with FOLD, vectors or elements of a row, else None
    dx_ptr: as x_ptr, or None
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    if PDL:
        gdc_launch_dependents()
    group = tl.program_id(0) % G
    first, step = tl.program_id(0) // G, tl.num_programs(0) // G
    head = head_size(first * G + group, size, VEC, UNALIGNED)
    vectors = (size - head) // VEC
    first_channel = group * D
    weights = ()
    a_sums = ()
    b_sums = ()
    for c in tl.static_range(CHUNKS):
        vector = vectors_from(c * LANES, LANES)
        if SPAN == 1:
            places = head + vector * VEC
            weight = of_channels(weight_ptr, first_channel, places, vector < vectors, D, HW, VEC, SPAN - ONE_CHANNEL)
            weights = weights + (weight,)
        if c == 0 or not ONE_CHANNEL:
            a_sums = a_sums + (zeros_of_vectors(LANES, 1 if SPAN == 1 else VEC, ACC),)
            b_sums = b_sums + (zeros_of_vectors(LANES, 1 if SPAN == 1 else VEC, ACC),)
    if UNALIGNED:
        edge, edge_mask = edges_of(head, vectors, size, LANES, VEC)
        edge_weight = of_channels(weight_ptr, first_channel, edge, edge_mask, D, HW, 1, 1)
        edge_a = tl.zeros(edge.shape, ACC)
        edge_b = tl.zeros(edge.shape, ACC)
        # Loads of single elements are not pipelined: they are issued an iteration ahead.
        start = (tl.cast(first, tl.int64) * G + group) * size
        next_dy = tl.load(dy_ptr + start + edge, mask=edge_mask & (first < N), other=0.0)
        next_x = tl.load(x_ptr + start + edge, mask=edge_mask & (first < N), other=0.0)
    # Nor are those of single numbers.
    next_mean = tl.load(mean_ptr + tl.cast(first, tl.int64) * G + group)
    next_rstd = tl.load(rstd_ptr + tl.cast(first, tl.int64) * G + group)
    for tile in tl.range(0 if ONE_TILE else first, 1 if ONE_TILE else N, 1 if ONE_TILE else step, num_stages=STAGES):
        n = first if ONE_TILE else tile
        row = tl.cast(n, tl.int64) * G + group
        start = body_offset(row, size, VEC, UNALIGNED)
        mean = next_mean.to(ACC)
        rstd = next_rstd.to(ACC)
        if not ONE_TILE:
            after = tl.cast(n + step, tl.int64) * G + group
            next_mean = tl.load(mean_ptr + after, mask=n + step < N)
            next_rstd = tl.load(rstd_ptr + after, mask=n + step < N)
        xhats = ()
        wdys = ()
        new_a = ()
        new_b = ()
        products = zeros_of_vectors(LANES, VEC, ACC)
        terms = products
        for c in tl.static_range(CHUNKS):
            vector = vectors_from(c * LANES, LANES)
            offsets = start + elements_of(vector, VEC)
            dy = tl.load(dy_ptr + offsets, mask=vector < vectors, other=0.0).to(ACC)
            xhat = (tl.load(x_ptr + offsets, mask=vector < vectors, other=0.0).to(ACC) - mean) * rstd
            if SPAN == 1:
                weight = weights[c]
            else:
                # Each time anew: one for each element has no registers.
                places = head + vector * VEC
                weight = of_channels(weight_ptr, first_channel, places, vector < vectors, D, HW, VEC, SPAN)
            wdy = weighted(dy, weight, True)
            products += xhat * wdy
            terms += wdy
            xhats = xhats + (xhat,)
            wdys = wdys + (wdy,)
            if c == 0 or not ONE_CHANNEL:
                new_a = new_a + (a_sums[c] + of_vectors(dy * xhat, SPAN),)
                new_b = new_b + (b_sums[c] + of_vectors(dy, SPAN),)
            else:
                new_a = (new_a[0] + of_vectors(dy * xhat, SPAN),)
                new_b = (new_b[0] + of_vectors(dy, SPAN),)
        a_sums = new_a
        b_sums = new_b
        if UNALIGNED:
            edge_start = row * size
            dy = next_dy.to(ACC)
            edge_xhat = (next_x.to(ACC) - mean) * rstd
            if not ONE_TILE:
                next_places = edge_start + tl.cast(step, tl.int64) * G * size + edge
                next_dy = tl.load(dy_ptr + next_places, mask=edge_mask & (n + step < N), other=0.0)
                next_x = tl.load(x_ptr + next_places, mask=edge_mask & (n + step < N), other=0.0)
            edge_wdy = weighted(dy, edge_weight, True)
            edge_a += dy * edge_xhat
            edge_b += dy
        if dx_ptr is not None:
            edge_products = ()
            edge_terms = ()
            if UNALIGNED:
                edge_products = (product(edge_xhat, edge_wdy),)
                edge_terms = (edge_wdy,)
            c1, c2 = sums_of_rows(products, terms, edge_products, edge_terms)
            c1 /= size
            c2 /= size
            for c in tl.static_range(CHUNKS):
                vector = vectors_from(c * LANES, LANES)
                dx = input_gradient(xhats[c], wdys[c], rstd, c1, c2)
                tl.store(dx_ptr + start + elements_of(vector, VEC), dx, mask=vector < vectors)
            if UNALIGNED:
                dx = input_gradient(edge_xhat, edge_wdy, rstd, c1, c2)
                tl.store(dx_ptr + edge_start + edge, dx, mask=edge_mask)
    out = tl.cast(first, tl.int64) * G * D + first_channel
    if ONE_CHANNEL:
        a_edges = ()
        b_edges = ()
        if UNALIGNED:
            a_edges = (edge_a,)
            b_edges = (edge_b,)
        a, b = sums_of_rows(a_sums[0], b_sums[0], a_edges, b_edges)
        place = out + tl.zeros([1, 1, 1], tl.int32)
        if a_ptr is not None:
            tl.store(a_ptr + place, a)
        if b_ptr is not None:
            tl.store(b_ptr + place, b)
    else:
        a_columns_ptr = a_ptr
        b_columns_ptr = b_ptr
        if FOLD:
            a_columns_ptr = columns_ptr + tl.cast(tl.program_id(0), tl.int64) * 2 * COLUMNS
            b_columns_ptr = a_columns_ptr + COLUMNS
        else:
            if a_ptr is not None:
                a_columns_ptr += out
            if b_ptr is not None:
                b_columns_ptr += out
        for c in tl.static_range(CHUNKS):
            vector = vectors_from(c * LANES, LANES)
            places = vector if SPAN == 1 else head + elements_of(vector, VEC)
            if a_ptr is not None:
                tl.store(a_columns_ptr + places, a_sums[c], mask=vector < vectors)
            if b_ptr is not None:
                tl.store(b_columns_ptr + places, b_sums[c], mask=vector < vectors)
        if UNALIGNED:
            if a_ptr is not None:
                tl.store(a_columns_ptr + edge, edge_a, mask=edge_mask)
            if b_ptr is not None:
                tl.store(b_columns_ptr + edge, edge_b, mask=edge_mask)
        if FOLD:
            tl.debug_barrier()
            K = HW // VEC if SPAN == 1 else HW
            if a_ptr is not None:
                fold_columns(a_columns_ptr, a_ptr + out, D, K, BLOCK_D, BLOCK_K)
            if b_ptr is not None:
                fold_columns(b_columns_ptr, b_ptr + out, D, K, BLOCK_D, BLOCK_K)


@triton.jit
def of_vectors(x, SPAN: tl.constexpr):
    """[1, LANES, VEC] summed over VEC if a vector is of one channel."""
    if SPAN == 1:
        return tl.sum(x, 2, keep_dims=True)
    else:
        return x
