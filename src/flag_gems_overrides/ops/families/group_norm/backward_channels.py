# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc"
"""Backward kernel of group normalization for short channels of large groups (backward.py has the formulas).

Two sums for each channel of each sample would be more bytes than its elements are. So a first kernel keeps only the
sums of groups, which it reads as they lie (vectors.py), and a second one makes dx of them, and holds the sums of the
same channels over all its samples. x and dy are read twice, and nothing else is written for each sample. The second one
does not know of G == 1, for the same reason as those of backward_passes.py.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.products import product
from ..norm.backward import add_pairs, input_gradient, weighted
from ..norm.tile import body_offset, head_size
from .tile import load_parameter
from .vectors import edges_of, elements_of, of_channels, sums_of_rows, vectors_from, zeros_of_vectors


@entry()
@triton.jit(do_not_specialize=["N", "G", "PARTS"])
def group_norm_backward_channels(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    a_ptr,
    b_ptr,
    partial_ptr,
    N,
    G,
    D,
    HW,
    size,
    PARTS,
    BLOCK_D: tl.constexpr,
    BLOCK_HW: tl.constexpr,
    BLOCK_P: tl.constexpr,
    VEC: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Each program holds a block of channels of one group, of one sample after the other. From the last to the first:
    what the sums have read last is in the cache.

    a_ptr, b_ptr: [programs / (G * blocks of channels), C] or None
    dx_ptr: as x_ptr, or None; partial_ptr: [N * G, PARTS, 2] with it, else None. BLOCK_P is at least PARTS.
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    HW = HW // VEC * VEC  # HW itself, but the compiler now sees that VEC divides it
    blocks = (D - 1) // BLOCK_D + 1
    block = tl.program_id(0) % blocks
    group = tl.program_id(0) // blocks % G
    share, shares = tl.program_id(0) // blocks // G, tl.num_programs(0) // blocks // G
    within = tl.arange(0, BLOCK_D)[:, None]
    elements = tl.arange(0, BLOCK_HW)[None, :]
    channels = block * BLOCK_D + within
    mask = (channels < D) & (elements < HW)
    offsets = within * HW + elements
    first = tl.cast(group * D + block * BLOCK_D, tl.int64)
    weight = load_parameter(weight_ptr, group * D + channels, channels < D, ACC)
    a = tl.zeros([BLOCK_D, BLOCK_HW], ACC)
    b = tl.zeros([BLOCK_D, BLOCK_HW], ACC)
    # Loads of single numbers are not pipelined: they are issued an iteration ahead.
    next_numbers = of_group(mean_ptr, rstd_ptr, partial_ptr, N - 1 - share, G, group, PARTS, BLOCK_P)
    if AHEAD:
        start = (tl.cast(N - 1 - share, tl.int64) * G * D + first) * HW
        next_dy = tl.load(dy_ptr + start + offsets, mask=mask, other=0.0)
        next_x = tl.load(x_ptr + start + offsets, mask=mask, other=0.0)
    for back in tl.range(share, N, shares):
        n = N - 1 - back
        start = (tl.cast(n, tl.int64) * G * D + first) * HW
        if AHEAD:
            dy = next_dy.to(ACC)
            x = next_x.to(ACC)
            after = start - tl.cast(shares, tl.int64) * G * D * HW
            next_dy = tl.load(dy_ptr + after + offsets, mask=mask & (n >= shares), other=0.0)
            next_x = tl.load(x_ptr + after + offsets, mask=mask & (n >= shares), other=0.0)
        else:
            dy = tl.load(dy_ptr + start + offsets, mask=mask, other=0.0).to(ACC)
            x = tl.load(x_ptr + start + offsets, mask=mask, other=0.0).to(ACC)
        numbers = next_numbers
        next_numbers = of_group(mean_ptr, rstd_ptr, partial_ptr, n - shares, G, group, PARTS, BLOCK_P)
        rstd = numbers[1].to(ACC)
        xhat = (x - numbers[0].to(ACC)) * rstd
        a += dy * xhat
        b += dy
        if dx_ptr is not None:
            c1, c2 = tl.reduce((numbers[2], numbers[3]), 0, add_pairs)
            dx = input_gradient(xhat, weighted(dy, weight, True), rstd, c1 / size, c2 / size)
            tl.store(dx_ptr + start + offsets, dx, mask=mask)
    a, b = tl.reduce((a, b), 1, add_pairs)
    out = tl.cast(share, tl.int64) * G * D + group * D + channels
    if a_ptr is not None:
        tl.store(a_ptr + out, a[:, None], mask=channels < D)
    if b_ptr is not None:
        tl.store(b_ptr + out, b[:, None], mask=channels < D)


@entry()
@triton.jit(do_not_specialize=["G", "PARTS", "SLICE"])
def group_norm_backward_group_sums(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    partial_ptr,
    G,
    D,
    HW,
    size,
    SLICE,
    PARTS,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    SPAN: tl.constexpr,
    UNALIGNED: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The two sums of a group, of one of PARTS slices of it, of SLICE vectors.

    partial_ptr: [N * G, PARTS, 2]
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    row = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    mean = tl.load(mean_ptr + row).to(ACC)
    rstd = tl.load(rstd_ptr + row).to(ACC)
    head = head_size(row, size, VEC, UNALIGNED)
    vectors = (size - head) // VEC
    begin = tl.cast(part, vectors.dtype) * SLICE
    end = tl.minimum(begin + SLICE, vectors)
    start = body_offset(row, size, VEC, UNALIGNED)
    products = zeros_of_vectors(LANES, VEC, ACC)
    terms = products
    for first in tl.range(begin, end, LANES, num_stages=STAGES):
        vector = vectors_from(first, LANES)
        mask = vector < end
        offsets = start + elements_of(vector, VEC)
        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(ACC)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
        weight = of_channels(weight_ptr, row % G * D, head + vector * VEC, mask, D, HW, VEC, SPAN)
        wdy = weighted(dy, weight, True)
        products += wdy * ((x - mean) * rstd)
        terms += wdy
    edge_products = ()
    edge_terms = ()
    if UNALIGNED:
        edge, edge_mask = edges_of(head, vectors, size, LANES, VEC)
        edge_mask = edge_mask & (part == 0)
        weight = of_channels(weight_ptr, row % G * D, edge, edge_mask, D, HW, 1, 1)
        places = tl.cast(row, tl.int64) * size + edge
        dy = tl.load(dy_ptr + places, mask=edge_mask, other=0.0).to(ACC)
        x = tl.load(x_ptr + places, mask=edge_mask, other=0.0).to(ACC)
        wdy = weighted(dy, weight, True)
        edge_products = (product(wdy, (x - mean) * rstd),)
        edge_terms = (wdy,)
    c1, c2 = sums_of_rows(products, terms, edge_products, edge_terms)
    place = partial_ptr + tl.cast(tl.program_id(0), tl.int64) * 2 + tl.zeros([1, 1, 1], tl.int32)
    tl.store(place, c1)
    tl.store(place + 1, c2)


@triton.jit
def of_group(mean_ptr, rstd_ptr, partial_ptr, n, G, group, PARTS, BLOCK_P: tl.constexpr):
    """(mean, rstd, and what each part has of the group's two sums, with partial_ptr) of a sample, if n is not less
    than 0."""
    row = tl.cast(n, tl.int64) * G + group
    numbers = (tl.load(mean_ptr + row, mask=n >= 0, other=0.0), tl.load(rstd_ptr + row, mask=n >= 0, other=0.0))
    if partial_ptr is not None:
        part = tl.arange(0, BLOCK_P)
        places = partial_ptr + (row * PARTS + part) * 2
        wanted = (part < PARTS) & (n >= 0)
        numbers = numbers + (tl.load(places, mask=wanted, other=0.0), tl.load(places + 1, mask=wanted, other=0.0))
    return numbers
