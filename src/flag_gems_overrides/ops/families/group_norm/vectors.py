# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc"
"""A group as it lies in memory: a row of ``size = D * HW`` neighbouring elements, whatever D and HW are.

A row is loaded in vectors of VEC elements, 16 bytes if that divides anything. Where VEC does not divide the size
(UNALIGNED) a row is

    head (fewer than VEC elements) | vectors | tail (fewer than VEC elements)

Head and tail are the *edges*; they are loaded and stored element by element. All tensors here have three dimensions,
[rows, LANES, VEC], or 1 in place of any of them; the numbers of a row are [rows, 1, 1]. Where Triton lays threads along
the first dimension before the second, so that neighbouring threads would have different rows, these two are exchanged.

An element's channel is its place in the row divided by HW. SPAN is how many channels a vector has elements of, at most:
1, 2, or more; 0 if all vectors of a row are of the same one.
"""

import triton
import triton.language as tl

from ...launch.pairs import numbers, pair
from ...launch.products import product
from ...launch.triton_versions import LANES_BEFORE_DEPTH
from ..norm.backward import add_pairs

# Functions have it as a default: if they looked a global up, Triton's cache would know a kernel by another key after
# some other kernels had been compiled.
ROWS_AXIS = 1 if LANES_BEFORE_DEPTH else 0


@triton.jit
def rows_from(first, ROWS: tl.constexpr, AXIS: tl.constexpr = ROWS_AXIS):
    """The numbers of ROWS neighbouring rows: [ROWS, 1, 1]."""
    return tl.expand_dims((first + tl.arange(0, ROWS))[:, None], 1 - AXIS)


@triton.jit
def vectors_from(first, LANES: tl.constexpr, AXIS: tl.constexpr = ROWS_AXIS):
    """The numbers of LANES neighbouring vectors: [1, LANES, 1]."""
    return tl.expand_dims((first + tl.arange(0, LANES))[:, None], AXIS)


@triton.jit
def zeros_of_vectors(LANES: tl.constexpr, VEC: tl.constexpr, DTYPE: tl.constexpr):
    """[1, LANES, VEC]"""
    return tl.zeros_like(elements_of(vectors_from(0, LANES), VEC).to(DTYPE))


@triton.jit
def elements_of(vectors, VEC: tl.constexpr):
    """Their elements, counted from the first vector: [1, LANES, VEC]. VEC divides the first of each, visibly."""
    return vectors * VEC + tl.arange(0, VEC)[None, None, :]


@triton.jit
def pairs_of_vectors(x):
    """[rows, LANES, VEC] of 16 bits as [rows, LANES, VEC // 2] pairs."""
    low, high = tl.split(x.reshape([x.shape[0], x.shape[1], x.shape[2] // 2, 2]))
    return pair(low, high)


@triton.jit
def vectors_of(x, unknown, dtype: tl.constexpr, ACC: tl.constexpr, PACKED: tl.constexpr):
    """The numbers of elements, or of their pairs, with an ``unknown`` 0 as :mod:`...launch.pairs` says."""
    if PACKED:
        low, high = numbers(x, unknown, dtype)
        return tl.join(low, high).reshape([x.shape[0], x.shape[1], x.shape[2] * 2])
    else:
        return x.to(ACC)


@triton.jit
def edges_of(head, vectors, size, LANES: tl.constexpr, VEC: tl.constexpr):
    """(places in the row, mask) of the edges of a row of ``vectors`` vectors, one to a lane: [1, LANES, 1] each."""
    tl.static_assert(LANES >= 2 * VEC)
    lane = vectors_from(0, LANES)
    places = tl.where(lane < VEC, lane, head + vectors * VEC + (lane - VEC))
    return places, tl.where(lane < VEC, lane < head, places < size)


@triton.jit
def of_channels(ptr, first_channel, places, mask, D, HW, VEC: tl.constexpr, SPAN: tl.constexpr):
    """weight or bias, ``ptr: [C]``, of vectors whose first elements are at ``places``, as a tuple of one; the empty
    tuple if ``ptr`` is None. One division for each vector; with SPAN 0 one number for each row.

    first_channel: of the group, D channels of HW elements
    """
    values = ()
    if ptr is not None:
        channels = places // HW
        ptr += first_channel
        if SPAN == 0:
            values = values + (tl.load(ptr),)
        elif SPAN == 1:
            values = values + (tl.load(ptr + channels, mask=mask, other=0.0),)
        else:
            within = places - channels * HW + tl.arange(0, VEC)[None, None, :]
            if SPAN == 2:
                this = tl.load(ptr + channels, mask=mask, other=0.0)
                after = tl.load(ptr + channels + 1, mask=mask & (channels + 1 < D), other=0.0)
                values = values + (tl.where(within < HW, this, after),)
            else:
                # HW < VEC <= 16, and within < HW + VEC: a division of small numbers.
                channels += within * ((65535 + HW) // HW) >> 16
                values = values + (tl.load(ptr + channels, mask=mask, other=0.0),)
    return values


@triton.jit
def affine(x, mean, rstd, weight, bias):
    """weight and bias are tuples of one, or empty where there is none. It is one subtraction and one fma."""
    scale = rstd
    if len(weight) > 0:
        scale = rstd * weight[0].to(x.dtype)
    y = (x - mean) * scale
    if len(bias) > 0:
        y = y + bias[0].to(x.dtype)
    return y


@triton.jit
def with_edges(x, edges):
    """[rows, LANES, VEC] summed over VEC, and the edges of each lane, a tuple of one [1, LANES, 1], or empty."""
    x = tl.sum(x, 2)
    if len(edges) > 0:
        x += tl.sum(edges[0], 2)
    return x


@triton.jit
def sum_rows(x, edges, AXIS: tl.constexpr = ROWS_AXIS):
    """[rows, LANES, VEC] and edges to [rows, 1, 1]. With the dimension kept in between Triton 3.6 may give all LANES
    numbers to each thread: 1552 bytes spill (sm_80)."""
    return tl.expand_dims(tl.sum(with_edges(x, edges), 1 - AXIS)[:, None], 1 - AXIS)


@triton.jit
def sums_of_rows(a, b, a_edges, b_edges, AXIS: tl.constexpr = ROWS_AXIS):
    """The same of two at once: warps wait for each other as often as for one."""
    a, b = tl.reduce((with_edges(a, a_edges), with_edges(b, b_edges)), 1 - AXIS, add_pairs)
    return tl.expand_dims(a[:, None], 1 - AXIS), tl.expand_dims(b[:, None], 1 - AXIS)


@triton.jit
def store_tile(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean,
    rstd,
    first_channel,
    head,
    first,
    vectors,
    D,
    HW,
    ACC: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    SPAN: tl.constexpr,
):
    """y of the vectors from ``first`` on of the row whose first of ``vectors`` vectors x_ptr and y_ptr point to."""
    vector = vectors_from(first, LANES)
    mask = vector < vectors
    weight = of_channels(weight_ptr, first_channel, head + vector * VEC, mask, D, HW, VEC, SPAN)
    bias = of_channels(bias_ptr, first_channel, head + vector * VEC, mask, D, HW, VEC, SPAN)
    x = tl.load(x_ptr + elements_of(vector, VEC), mask=mask, other=0.0).to(ACC)
    tl.store(y_ptr + elements_of(vector, VEC), affine(x, mean, rstd, weight, bias), mask=mask)


@triton.jit
def store_edges(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean,
    rstd,
    first_channel,
    head,
    vectors,
    size,
    HW,
    ACC: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
):
    """The same of the edges of the row that x_ptr and y_ptr point to."""
    places, mask = edges_of(head, vectors, size, LANES, VEC)
    weight = of_channels(weight_ptr, first_channel, places, mask, 1, HW, 1, 1)
    bias = of_channels(bias_ptr, first_channel, places, mask, 1, HW, 1, 1)
    x = tl.load(x_ptr + places, mask=mask, other=0.0).to(ACC)
    tl.store(y_ptr + places, affine(x, mean, rstd, weight, bias), mask=mask)


@triton.jit
def running_statistics(x_ptr, vectors, ACC: tl.constexpr, LANES: tl.constexpr, VEC: tl.constexpr, STAGES: tl.constexpr):
    """(number of elements, their mean, their sum of squared deviations) of each lane, [1, LANES, VEC], over the
    ``vectors`` vectors from x_ptr on, in one pass (Welford)."""
    last = (vectors - 1) // LANES
    lane_mean = zeros_of_vectors(LANES, VEC, ACC)
    lane_squares = zeros_of_vectors(LANES, VEC, ACC)
    for tile in tl.range(0, last + 1, num_stages=STAGES):
        vector = vectors_from(tile * LANES, LANES)
        mask = vector < vectors
        x = tl.load(x_ptr + elements_of(vector, VEC), mask=mask, other=0.0).to(ACC)
        delta = tl.where(mask, x - lane_mean, 0.0)
        lane_mean += delta * (1.0 / tl.cast(tile + 1, ACC))
        lane_squares += delta * tl.where(mask, x - lane_mean, 0.0)
    count = tl.where(vectors_from(last * LANES, LANES) < vectors, last + 1, last).to(ACC)
    return count + tl.zeros_like(lane_mean), lane_mean, lane_squares


@triton.jit
def merged(
    lane_count,
    lane_mean,
    lane_squares,
    row_ptr,
    head,
    vectors,
    size,
    count,
    has_edges,
    ACC: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    UNALIGNED: tl.constexpr,
):
    """(mean, sum of squared deviations) of ``count`` elements: those of all lanes and, if it ``has_edges``, the edges
    of the row that row_ptr points to (Chan, Golub and LeVeque)."""
    edges = ()
    if UNALIGNED:
        edge, mask = edges_of(head, vectors, size, LANES, VEC)
        mask = mask & has_edges
        edges = (tl.load(row_ptr + edge, mask=mask, other=0.0).to(ACC),)
    mean = sum_rows(product(lane_mean, lane_count), edges) / count
    if UNALIGNED:
        deviation = tl.where(mask, edges[0] - mean, 0.0)
        edges = (product(deviation, deviation),)
    deviation = tl.where(lane_count > 0, lane_mean - mean, 0.0)
    squares = sum_rows(lane_squares + lane_count * deviation * deviation, edges)
    return mean, squares
