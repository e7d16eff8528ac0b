# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""What the softmax kernels share: where a row lies, how a tile of it is loaded, and sums and maxima over a tile.

A row of N contiguous elements (K = 1) is read as vectors of VEC elements (16 bytes). Where N is no multiple of VEC,
rows start anywhere, and a load that starts anywhere goes element by element. So an UNALIGNED row is split into an
*interior* of whole aligned vectors and the *edges*, fewer than VEC elements before it and after it, which are loaded
and stored by themselves.

Tiles have three dimensions: LANES, DEPTH, and the last, which is VEC elements of a row (CONTIGUOUS) or BLOCK_K columns.
The depth is within a thread: what is reduced along it costs no exchange between threads.
"""

import triton
import triton.language as tl

from ...launch.pairs import numbers, pair
from ...launch.triton_versions import LANES_BEFORE_DEPTH

# Functions have it as a default: if they looked a global up, Triton's cache would know a kernel by another key after
# some other kernels had been compiled.
DEPTH_AXIS = 1 if LANES_BEFORE_DEPTH else 0


@triton.jit
def exp(x, CLAMPED: tl.constexpr = False):
    """e**x of numbers up to 709. A result that is no normal number is 0. tl.exp keeps those: that doubles its
    instructions in float32, and is a branch for each element in float64, so that elements are computed one by one.

    softmax 13 x 131411 float64: 21.5 us, by tl.exp 26.4 (H100).

    Args:
        CLAMPED: of float64, how small numbers become 0: by which of the two nothing spills.
    """
    if x.dtype == tl.float64:
        return _exp_of_float64(x, CLAMPED)
    else:
        return tl.exp2(x * 1.4426950408889634)


@triton.jit
def _exp_of_float64(x, CLAMPED: tl.constexpr):
    """2**n * e**r, where n is x / log(2), rounded: the polynomial of libdevice."""
    if CLAMPED:
        x = tl.where(x < -709.0, -709.0, x)  # n is -1023, of which the bits of 2**n are those of 0
    shifted = x * 1.4426950408889634 + 6755399441055744.0  # 1.5 * 2**52: the last bits are n
    n = shifted - 6755399441055744.0
    # log(2) in two parts, of which n times the first is exact.
    r = x - n * 0.6931471803691238
    r -= n * 1.9082149292705877e-10
    result = r * 2.502232253650299e-08 + 2.763090348817311e-07
    result = result * r + 2.755751454588244e-06
    result = result * r + 2.4801491039099165e-05
    result = result * r + 1.9841269589115497e-04
    result = result * r + 1.388888894591638e-03
    result = result * r + 0.008333333333455043
    result = result * r + 0.041666666666519754
    result = result * r + 0.16666666666666477
    result = result * r + 0.5000000000000012
    result = result * r + 1.0
    result = result * r + 1.0
    scale = ((shifted.to(tl.int64, bitcast=True) + 1023) << 52).to(tl.float64, bitcast=True)
    if CLAMPED:
        return result * scale
    else:
        # Not by x, which would need registers up to here. A number compared with is rounded to float32 by Triton.
        last = tl.full([], 6755399441055744.0 - 1021, tl.float64)
        return tl.where(shifted < last, 0.0, result * scale)


# Where a tile lies


@triton.jit
def lanes_and_depths(LANES: tl.constexpr, DEPTH: tl.constexpr, AXIS: tl.constexpr = DEPTH_AXIS):
    """Indices along the first two dimensions of a tile, shaped to be broadcast over it."""
    return tl.expand_dims(tl.arange(0, LANES)[:, None], AXIS), tl.expand_dims(tl.arange(0, DEPTH)[:, None], 1 - AXIS)


@triton.jit
def row_tile(LANES: tl.constexpr, DEPTH: tl.constexpr, VEC: tl.constexpr):
    """(n, k, offsets) of a tile of one row: which of the row's vectors, which element of the vector, and where."""
    lane, depth = lanes_and_depths(LANES, DEPTH)
    n = lane + LANES * depth
    k = tl.arange(0, VEC)[None, None, :]
    # In 64 bits the depth is a constant within the instruction; in 32 bits each vector has an address in registers,
    # which spilled 8 bytes of rows of 32000 bfloat16 on sm_90.
    return n, k, tl.cast(lane * VEC + k, tl.int64) + depth * (LANES * VEC)


@triton.jit
def column_tile(K, LANES: tl.constexpr, DEPTH: tl.constexpr, BLOCK_K: tl.constexpr):
    """(n, k, offsets) of a tile of BLOCK_K columns; the offsets have K's width."""
    lane, depth = lanes_and_depths(LANES, DEPTH)
    n = lane + LANES * depth
    k = tl.arange(0, BLOCK_K)[None, None, :]
    return n, k, (lane * K + k) + depth * (LANES * K)


@triton.jit
def short_columns(
    M, N, K, LANES: tl.constexpr, COLUMNS: tl.constexpr, VEC: tl.constexpr, AXIS: tl.constexpr = DEPTH_AXIS
):
    """(offsets, which n, mask) of the first LANES elements of COLUMNS neighbours of the M * K columns of [M, N, K].

    LANES are along AXIS, the columns along the other. Where nothing tells Triton which dimension is contiguous, it lays
    threads along the first (3.6) or the last (3.7). Threads should be along the columns, or loads are not coalesced:
    7072 x 5 x 1647 bf16 takes 636 us with threads along N.

    There are less than 2**31 columns, so that no division is of 64 bits: 110 instructions fewer. VEC divides K, as
    :func:`whole_vectors` says it to the compiler, and COLUMNS: so many neighbours share a load, and a division by K.
    """
    vectors = K // VEC
    start = tl.program_id(0) * (COLUMNS // VEC)
    lane = tl.expand_dims(tl.arange(0, COLUMNS), AXIS)
    # Counted from where the first [N, K] begins.
    vector = start % vectors + lane // VEC
    row = (start // vectors + vector // vectors).to(tl.int64)
    n = tl.expand_dims(tl.arange(0, LANES), 1 - AXIS)
    # A multiplication for each column and each n, not for each element.
    offsets = row * N * K + (vector % vectors * VEC + lane % VEC)
    return offsets + n * tl.cast(K, tl.int64), n, (row < M) & (n >= 0)


@triton.jit
def short_blocks(
    M, N, K: tl.constexpr, LANES: tl.constexpr, BLOCKS: tl.constexpr, WIDTH: tl.constexpr, AXIS: tl.constexpr
):
    """(offset of the first, offsets from there on, which n, mask) of the same of BLOCKS neighbouring [N, K], all K
    columns of each.

    WIDTH: K, or the power of two above. A warp reads what lies side by side: threads are laid along the columns, then
    along the lanes, which are along AXIS, as :data:`LANES_BEFORE_DEPTH` says.
    """
    block = tl.expand_dims(tl.expand_dims(tl.arange(0, BLOCKS), AXIS), 2)
    n = tl.expand_dims(tl.expand_dims(tl.arange(0, LANES), 1 - AXIS), 2)
    k = tl.arange(0, WIDTH)[None, None, :]
    first = tl.program_id(0) * BLOCKS
    mask = (first + block < M) & (n >= 0) & (k < K)
    return tl.cast(first, tl.int64) * (N * K), block * (N * K) + (n * K + k), n, mask


@triton.jit
def whole_vectors(K, VEC: tl.constexpr):
    """K itself, but the compiler now sees that VEC divides it."""
    return K // VEC * VEC


@triton.jit
def short_mask(mask, n, N, i, LANES: tl.constexpr, DEPTH: tl.constexpr):
    """Of the i-th of DEPTH times LANES elements of each column. Only the last can be in part."""
    if LANES == 1 or i < DEPTH - 1:
        return mask
    else:
        return mask & (n + i * LANES < N)


@triton.jit
def load_short_columns(
    x_ptr, offsets, mask, n, N, K, other: tl.constexpr, LANES: tl.constexpr, DEPTH: tl.constexpr, COMPUTE: tl.constexpr
):
    """DEPTH tiles, each LANES elements further along N than the one before."""
    tiles = ()
    for i in tl.static_range(DEPTH):
        # The same for all threads first: with an offset of its own for each tile 33 bf16 take 128 registers, so 80.
        pointers = x_ptr + i * LANES * tl.cast(K, tl.int64) + offsets
        x = tl.load(pointers, mask=short_mask(mask, n, N, i, LANES, DEPTH), other=other)
        tiles = tiles + (x.to(COMPUTE),)
    return tiles


@triton.jit
def row_interior(row, N, VEC: tl.constexpr, UNALIGNED: tl.constexpr):
    """(offset, length) of the aligned part of a row; ``row`` is int64."""
    if UNALIGNED:
        start = (row * N + (VEC - 1)) // VEC * VEC
        length = (row * N + N) // VEC * VEC - start
    else:
        length = N // VEC * VEC  # N itself, but the compiler now sees that VEC divides it
        start = row * length
    return start, length


@triton.jit
def row_edges(row, N, VEC: tl.constexpr):
    """(offsets, mask) of the elements before and after the interior: [2 * VEC]."""
    row = tl.cast(row, tl.int64)
    start, length = row_interior(row, N, VEC, True)
    lane = tl.arange(0, 2 * VEC)
    offsets = start + tl.where(lane < VEC, 0, length) + (lane - VEC)
    return offsets, (offsets >= row * N) & (offsets < row * N + N)


@triton.jit
def row_share(row, member, group, N, VEC: tl.constexpr, UNALIGNED: tl.constexpr):
    """(offset, vectors) of what one of ``group`` programs reads of a row's interior."""
    start, length = row_interior(tl.cast(row, tl.int64), N, VEC, UNALIGNED)
    length = length // VEC
    size = (length + (group - 1)) // group
    return start + member * size * VEC, tl.minimum(size, length - member * size).to(tl.int32)


@triton.jit
def column_share(block, member, group, N, K, BLOCK_K: tl.constexpr):
    """(offset, length, columns) of what one of ``group`` programs reads of a block of columns of [M, N, K].

    ``columns`` are those that exist, of the block's BLOCK_K.
    """
    blocks = (K + (BLOCK_K - 1)) // BLOCK_K
    first = block % blocks * BLOCK_K
    start = tl.cast(block // blocks, tl.int64) * N * K + first
    size = (N + (group - 1)) // group
    return start + member * size * tl.cast(K, tl.int64), tl.minimum(size, N - member * size), K - first


@triton.jit
def row_mask(n, k, length, EVEN: tl.constexpr):
    """Mask of a tile of a row of ``length`` vectors. EVEN: all of the tile or nothing."""
    if EVEN:
        return (n >= 0) & (k >= 0) & (length > 0)
    else:
        return (n < length) & (k >= 0)


@triton.jit
def store_mask(mask, n, k, length, VEC: tl.constexpr, EVEN: tl.constexpr, COMPUTE: tl.constexpr):
    """``mask`` for a store of float64, by another comparison. Eight vectors have more masks than a thread predicates;
    kept from load to store, each load waits for the one before it.
    """
    if EVEN or tl.float64 != COMPUTE:
        return mask
    else:
        return n * VEC + k < length * VEC


@triton.jit
def column_mask(n, k, length, columns, EVEN: tl.constexpr):
    """Mask of a tile: n below ``length`` and k below ``columns``. EVEN: all of the tile or nothing."""
    if EVEN:
        return (n >= 0) & (k >= 0) & (length > 0)
    else:
        return (n < length) & (k < columns)


# Loads and stores


@triton.jit
def load_tile(pointers, k, columns, EVEN_K: tl.constexpr, EVICT: tl.constexpr):
    """A tile that exists for all n; 0 after the last column."""
    if EVEN_K:
        return tl.load(pointers, eviction_policy=EVICT)
    else:
        return tl.load(pointers, mask=k < columns, other=0.0, eviction_policy=EVICT)


@triton.jit
def store_tile(pointers, x, k, columns, EVEN_K: tl.constexpr, EVICT: tl.constexpr):
    if EVEN_K:
        tl.store(pointers, x, eviction_policy=EVICT)
    else:
        tl.store(pointers, x, mask=k < columns, eviction_policy=EVICT)


@triton.jit
def pack(x):
    """Pairs of 16-bit elements as int32. Carried from one iteration to the next, 16 bits fill a register too."""
    if x.dtype.primitive_bitwidth == 16:
        low, high = tl.split(x.reshape([x.shape[0], x.shape[1], x.shape[2] // 2, 2]))
        return pair(low, high)
    else:
        return x


@triton.jit
def unpack(x, dtype: tl.constexpr, COMPUTE: tl.constexpr):
    """What ``pack`` was given, in COMPUTE precision."""
    if dtype.primitive_bitwidth == 16:
        low, high = numbers(x, 0, dtype)
        return tl.join(low, high).reshape([x.shape[0], x.shape[1], x.shape[2] * 2])
    else:
        return x.to(COMPUTE)


# Sums and maxima, in two steps: within each lane, then across lanes. CONTIGUOUS: the last dimension is of the row.


@triton.jit
def for_each_lane(
    value, LANES: tl.constexpr, STATISTICS: tl.constexpr, COMPUTE: tl.constexpr, AXIS: tl.constexpr = DEPTH_AXIS
):
    """``value`` in the shape of what ``lane_max`` and ``lane_sum`` return."""
    return tl.expand_dims(tl.full([LANES, STATISTICS], value, COMPUTE), AXIS)


@triton.jit
def greater(a, b):
    """The greater of two numbers, in three instructions of float64, where tl.maximum takes seven. Which of them it is
    if one is NaN does not matter.
    """
    return tl.where(a > b, a, b)


@triton.jit
def larger(a, b):
    return greater(a, b) if a.dtype == tl.float64 else tl.maximum(a, b)


@triton.jit
def largest(x, AXIS: tl.constexpr):
    if x.dtype == tl.float64:
        return tl.reduce(x, AXIS, greater, keep_dims=True)
    else:
        return tl.max(x, AXIS, keep_dims=True)


@triton.jit
def lane_max(x, CONTIGUOUS: tl.constexpr, AXIS: tl.constexpr = DEPTH_AXIS):
    x = largest(x, AXIS)
    if CONTIGUOUS:
        x = largest(x, 2)
    return x


@triton.jit
def lane_sum(x, CONTIGUOUS: tl.constexpr, AXIS: tl.constexpr = DEPTH_AXIS):
    x = tl.sum(x, AXIS, keep_dims=True)
    if CONTIGUOUS:
        x = tl.sum(x, 2, keep_dims=True)
    return x


@triton.jit
def max_across_lanes(x, CONTIGUOUS: tl.constexpr):
    """A scalar, or [1, 1, BLOCK_K]."""
    if CONTIGUOUS:
        if x.dtype == tl.float64:
            return tl.reduce(x, None, greater)
        else:
            return tl.max(x)
    else:
        return largest(largest(x, 1), 0)


@triton.jit
def sum_across_lanes(x, CONTIGUOUS: tl.constexpr):
    """A scalar, or [1, 1, BLOCK_K]."""
    if CONTIGUOUS:
        return tl.sum(x)
    else:
        return tl.sum(tl.sum(x, 1, keep_dims=True), 0, keep_dims=True)
