# SPDX-License-Identifier: Apache-2.0
"""What the softmax kernels share: where a row lies, sums over a tile, and programs that wait for each other.

A row of N contiguous elements is read as vectors of VEC elements (16 bytes). Where N is no multiple of VEC, rows
start anywhere, and a load that starts anywhere goes element by element. So a row is cut into an *interior* of whole
aligned vectors and the *edges*, fewer than VEC elements before it and behind it, loaded and stored by themselves.

Tiles have three dimensions: lanes, depth, and the last. The depth is within a thread: what is reduced along it costs
no exchange between threads.
"""

import triton
import triton.language as tl

from ...launch.triton_versions import LANES_BEFORE_DEPTH

# Functions have it as a default: if they looked a global up, Triton's cache would know a kernel by another key after
# some other kernels had been compiled.
DEPTH_AXIS = 1 if LANES_BEFORE_DEPTH else 0


@triton.jit
def lanes_and_depths(LANES: tl.constexpr, DEPTH: tl.constexpr, AXIS: tl.constexpr = DEPTH_AXIS):
    """Indices along the first two dimensions of a tile, shaped to be broadcast over it."""
    return tl.expand_dims(tl.arange(0, LANES)[:, None], AXIS), tl.expand_dims(tl.arange(0, DEPTH)[:, None], 1 - AXIS)


@triton.jit
def for_each_lane(
    value, LANES: tl.constexpr, STATISTICS: tl.constexpr, COMPUTE: tl.constexpr, AXIS: tl.constexpr = DEPTH_AXIS
):
    """``value`` in the shape of a tile that was reduced along its depth."""
    return tl.expand_dims(tl.full([LANES, STATISTICS], value, COMPUTE), AXIS)


@triton.jit
def exp(x):
    """e**x. In float32 a result below 2**-126 is 0: tl.exp keeps such numbers, which doubles its instructions."""
    if x.dtype == tl.float64:
        return tl.exp(x)
    else:
        return tl.exp2(x * 1.4426950408889634)


@triton.jit
def row_interior(row, N, VEC: tl.constexpr, EDGES: tl.constexpr):
    """(offset, length) of the aligned part of a row; ``row`` is int64."""
    if EDGES:
        begin = (row * N + (VEC - 1)) // VEC * VEC
        length = (row * N + N) // VEC * VEC - begin
    else:
        length = N // VEC * VEC  # N itself, but the compiler now sees that VEC divides it
        begin = row * length
    return begin, length


@triton.jit
def row_edges(row, N, VEC: tl.constexpr):
    """(offsets, mask) of the elements before and behind the interior: [2 * VEC]."""
    begin, length = row_interior(row, N, VEC, True)
    lane = tl.arange(0, 2 * VEC)
    at = begin + tl.where(lane < VEC, 0, length) + (lane - VEC)
    return at, (at >= row * N) & (at < row * N + N)


@triton.jit
def share(block, part, group, N, K, INNER: tl.constexpr, VEC: tl.constexpr, EDGES: tl.constexpr, BLOCK_K: tl.constexpr):
    """(offset, length, columns) of what one program of a group reads of a block of columns of [M, N, K].

    INNER stands for K = 1: a row of N contiguous elements is [N / VEC, VEC], and ``columns`` means nothing.
    """
    if INNER:
        at, length = row_interior(tl.cast(block, tl.int64), N, VEC, EDGES)
        length = length // VEC
        columns = length
        stride = VEC
    else:
        blocks = (K + (BLOCK_K - 1)) // BLOCK_K
        first = block % blocks * BLOCK_K
        at = tl.cast(block // blocks, tl.int64) * N * K + first
        length = N
        columns = K - first
        stride = tl.cast(K, tl.int64)
    size = (length + (group - 1)) // group
    return at + part * size * stride, tl.minimum(size, length - part * size), columns


@triton.jit
def inside_tile(n, k, length, columns, INNER: tl.constexpr, EVEN: tl.constexpr):
    """Mask of a tile: its rows below ``length`` and columns below ``columns``. EVEN: all or nothing."""
    if EVEN:
        return (n >= 0) & (k >= 0) & (length > 0)
    elif INNER:
        return (n < length) & (k >= 0)
    else:
        return (n < length) & (k < columns)


@triton.jit
def load_tile(pointers, k, columns, EVEN: tl.constexpr, EVICT: tl.constexpr):
    """A tile whose rows all exist; 0 behind the last column."""
    if EVEN:
        return tl.load(pointers, eviction_policy=EVICT)
    else:
        return tl.load(pointers, mask=k < columns, other=0.0, eviction_policy=EVICT)


@triton.jit
def store_tile(pointers, x, k, columns, EVEN: tl.constexpr, EVICT: tl.constexpr):
    if EVEN:
        tl.store(pointers, x, eviction_policy=EVICT)
    else:
        tl.store(pointers, x, mask=k < columns, eviction_policy=EVICT)


@triton.jit
def pack(x):
    """Pairs of 16-bit elements as int32. Carried from one turn of a loop to the next, 16 bits fill a register too."""
    if x.dtype.primitive_bitwidth == 16:
        low, high = tl.split(x.reshape([x.shape[0], x.shape[1], x.shape[2] // 2, 2]))
        low = low.to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
        return low | (high.to(tl.int16, bitcast=True).to(tl.int32) << 16)
    else:
        return x


@triton.jit
def unpack(x, dtype: tl.constexpr, COMPUTE: tl.constexpr):
    """What ``pack`` was given, in COMPUTE precision."""
    if dtype == tl.bfloat16:
        low = (x << 16).to(tl.float32, bitcast=True)
        high = (x & -0x10000).to(tl.float32, bitcast=True)
        return tl.join(low, high).reshape([x.shape[0], x.shape[1], x.shape[2] * 2])
    elif dtype == tl.float16:
        low = x.to(tl.int16).to(tl.float16, bitcast=True).to(COMPUTE)
        high = (x >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(COMPUTE)
        return tl.join(low, high).reshape([x.shape[0], x.shape[1], x.shape[2] * 2])
    else:
        return x.to(COMPUTE)


@triton.jit
def largest(x, INNER: tl.constexpr, AXIS: tl.constexpr = DEPTH_AXIS):
    """Along the depth of a tile, and the last too where that is part of the row."""
    x = tl.max(x, AXIS, keep_dims=True)
    if INNER:
        x = tl.max(x, 2, keep_dims=True)
    return x


@triton.jit
def added(x, INNER: tl.constexpr, AXIS: tl.constexpr = DEPTH_AXIS):
    """As ``largest``."""
    x = tl.sum(x, AXIS, keep_dims=True)
    if INNER:
        x = tl.sum(x, 2, keep_dims=True)
    return x


@triton.jit
def added_across(x, INNER: tl.constexpr):
    """What ``added`` left, across threads: a scalar, or [1, 1, BLOCK_K]."""
    if INNER:
        return tl.sum(x)
    else:
        return tl.sum(tl.sum(x, 1, keep_dims=True), 0, keep_dims=True)


@triton.jit
def coded(word):
    """The bits of a float, so that 0 stands for "nothing yet"; and back. The float with those bits is a NaN that no
    operation yields."""
    if word.dtype == tl.int64:
        return word ^ 0x7FF8000000000BAD
    else:
        return word ^ 0x7FC00BAD


@triton.jit
def publish(word_ptr, x):
    """Let the programs that wait in ``collect`` see ``x``. No fence: each word tells by itself that it is there."""
    x = tl.where(x == x, x, float("nan"))
    WORD: tl.constexpr = tl.int64 if x.dtype == tl.float64 else tl.int32
    tl.atomic_xchg(word_ptr, coded(x.to(WORD, bitcast=True)), sem="relaxed", scope="gpu")


@triton.jit
def published(word, COMPUTE: tl.constexpr):
    return coded(word).to(COMPUTE, bitcast=True)


@triton.jit
def all_there(word):
    return tl.sum((word == 0).to(tl.int32)) == 0


@triton.jit
def group_words(part, PARTS: tl.constexpr, NUMBERS: tl.constexpr, STATISTICS: tl.constexpr, THREADS: tl.constexpr):
    """Where the words of the first PARTS programs of a group are, of a block's NUMBERS the first: (offsets [PARTS,
    copies, STATISTICS], number of the program, which of them count, offsets of this program's own).

    There are at least as many elements as threads, so that no element is held by two threads: that one of them sees a
    word would say nothing about what the other read.
    """
    COPIES: tl.constexpr = max(THREADS // (PARTS * STATISTICS), 1)
    statistic = tl.arange(0, STATISTICS)[None, None, :]
    copy = tl.arange(0, COPIES)[None, :, None]
    other = tl.arange(0, PARTS)[:, None, None] + 0 * (copy + statistic)
    own = part * (NUMBERS * STATISTICS)
    if STATISTICS > 1:
        own += statistic
    return other * (NUMBERS * STATISTICS) + statistic, other, copy == 0, own
