# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def, assignment"
"""Where the tiles of a running sum lie, how they are loaded, added up and stored.

A program has DEPTH tiles [UNITS, LANES] of [M, N, K] at once. Their lanes are neighbours in memory: elements of a row
(K = 1), or COLUMNS. Their units are

    SEGMENTED       parts of one row, or of the columns: each has DEPTH tiles that follow each other along N
    otherwise       rows, or blocks of columns of other rows of M: the DEPTH tiles have the same part of each

A warp has all of a unit's tile, or several units. So what is before an element in its unit is known without other
warps, and only the sums of units are exchanged between them.

A load that begins anywhere goes element by element. So UNALIGNED rows, whose N is no multiple of VEC elements
(16 bytes), are split into an *interior* of whole vectors and the *edges*, fewer than VEC elements before it and after.
"""

import triton
import triton.language as tl


@triton.jit
def split(block, K, LANES: tl.constexpr, COLUMNS: tl.constexpr):
    """(row, column) of a block: its rows, or its index along M, and its LANES columns."""
    if COLUMNS:
        blocks_k = tl.cdiv(K, LANES)
        return block // blocks_k, block % blocks_k
    else:
        return block, 0


@triton.jit
def place(
    row,
    column,
    M,
    N,
    K,
    UNITS: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    SEGMENTED: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNALIGNED: tl.constexpr,
):
    """(n, offsets, length, right) of the block at (row, column): where each lane of its first tile is along N, and in
    x; the elements along N, without edges; and the columns from the block's first one to the last of all."""
    unit, lane = tl.arange(0, UNITS)[:, None], tl.arange(0, LANES)[None, :]
    row, k = row.to(tl.int64), column * LANES
    if SEGMENTED:
        n, length = unit * (DEPTH if COLUMNS else DEPTH * LANES), N
    else:
        row = row * UNITS + unit
        n, length = unit * 0, tl.where(row < M, N, 0)
    if COLUMNS:
        return n, row * N * K + k + (n.to(tl.int64) * K + lane), length, K - k
    elif UNALIGNED:
        start = (row * N + (VEC - 1)) // VEC * VEC
        length = tl.where(length > 0, (row * N + N) // VEC * VEC - start, 0).to(tl.int32)
        return n + lane, start + (n + lane), length, 0
    else:
        return n + lane, row * N + (n + lane), length, 0


@triton.jit
def along(n, K, COLUMNS: tl.constexpr):
    """How far ``n`` elements along N are apart in memory."""
    if COLUMNS:
        return tl.cast(n, tl.int64) * K
    else:
        return tl.cast(n, tl.int64)


@triton.jit
def tile_mask(n, left, right, tile, LANES: tl.constexpr, COLUMNS: tl.constexpr, WHOLE: tl.constexpr):
    """Which elements of a unit's ``tile``-th tile exist. WHOLE tiles share one mask: there are few predicates, and
    loads with more masks than predicates wait for each other.
    8 x 16 x 152 int32, 16 rows at once: 3.17 us, otherwise 4.36 (H100)."""
    if not WHOLE:
        left -= tile * (1 if COLUMNS else LANES)
    if COLUMNS:
        return (n < left) & (tl.arange(0, LANES)[None, :] < right)
    else:
        return n < left


@triton.jit
def load_tiles(
    x_ptr, where, left, K, DEPTH: tl.constexpr, LANES: tl.constexpr, COLUMNS: tl.constexpr, WHOLE: tl.constexpr = False
):
    """DEPTH tiles from x_ptr on, of which ``left`` elements along N are of the block; others are 0.

    Args:
        WHOLE: a unit has all of its DEPTH tiles, or none.
    """
    n, offsets, _, right = where
    WIDTH: tl.constexpr = 1 if COLUMNS else LANES
    BOOL: tl.constexpr = x_ptr.dtype.element_ty == tl.int1
    if BOOL:
        x_ptr = x_ptr.to(tl.pointer_type(tl.uint8))
    tiles = ()
    for v in tl.static_range(DEPTH):
        mask = tile_mask(n, left, right, v, LANES, COLUMNS, WHOLE)
        x = tl.load(x_ptr + along(v * WIDTH, K, COLUMNS) + offsets, mask=mask, other=0)
        tiles = tiles + (ones(x) if BOOL else x,)
    return tiles


@triton.jit
def ones(x):
    """Bytes of bools as 0 or 1, without a comparison. A bool would be a predicate: there are few, and loads would wait
    for each other. 16 bools to a thread spill 8 bytes (4096 x 1024 along 0)."""
    return ((x.to(tl.int32) + 255) >> 8).to(tl.int8)


@triton.jit
def add_up(tiles, CONVERTED: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr, COLUMNS: tl.constexpr):
    """The sums of each unit up to and with each of the tiles: [UNITS], or [UNITS, LANES] of COLUMNS."""
    sums = ()
    for v in tl.static_range(DEPTH):
        total = tiles[v].to(CONVERTED).to(TILE)
        if not COLUMNS:
            total = tl.sum(total, 1)
        if v > 0:
            total += sums[v - 1]
        sums = sums + (total,)
    return sums


@triton.jit
def across_units(sums, UNITS: tl.constexpr, COLUMNS: tl.constexpr):
    """Of SEGMENTED units: the sums before each, and of all: a number, or [1, LANES] of COLUMNS."""
    up_to, before = tl.associative_scan((sums, tl.zeros_like(sums)), 0, append)
    if COLUMNS:
        return before, tl.sum(sums, 0, keep_dims=True)
    else:
        return before, tl.sum(tl.where(tl.arange(0, UNITS) == UNITS - 1, up_to, 0))


@triton.jit
def append(left, left_but_last, right, right_but_last):
    """Sums, and sums of all but the last element, which cannot be subtracted from the sum if it is infinite."""
    return left + right, left + right_but_last


@triton.jit
def store_scanned(
    out_ptr,
    before,
    tiles,
    sums,
    where,
    left,
    K,
    CONVERTED: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    COLUMNS: tl.constexpr,
    WHOLE: tl.constexpr = False,
):
    """The sums up to each element of the tiles that ``load_tiles`` gave, from out_ptr on.

    Args:
        before: of what comes before each unit: [UNITS], or [UNITS, LANES] of COLUMNS.
        sums: what ``add_up`` gave.
        WHOLE: as ``load_tiles`` has it.
    """
    n, offsets, _, right = where
    ACC: tl.constexpr = before.dtype
    WIDTH: tl.constexpr = 1 if COLUMNS else LANES
    for v in tl.static_range(DEPTH):
        if COLUMNS:
            scanned = before + sums[v].to(ACC)
        else:
            until = before if v == 0 else before + sums[v - 1].to(ACC)
            scanned = until[:, None] + tl.cumsum(tiles[v].to(CONVERTED).to(TILE), 1).to(ACC)
        mask = tile_mask(n, left, right, v, LANES, COLUMNS, WHOLE)
        tl.store(out_ptr + along(v * WIDTH, K, COLUMNS) + offsets, scanned, mask=mask)


@triton.jit
def edges(block, M, N, ROWS: tl.constexpr, VEC: tl.constexpr, LANES: tl.constexpr):
    """The elements before and after the interiors of a block of ROWS UNALIGNED rows: the offsets of the rows
    [ROWS, 1, 1], the offsets of the elements from there, and their mask [ROWS, 2, WIDTH]. The edges of several rows
    have as many threads as a row's tile of LANES: a row's warp has its edges too, and warps exchange nothing."""
    WIDTH: tl.constexpr = VEC if ROWS == 1 else LANES // VEC
    row = tl.cast(block, tl.int64) * ROWS + tl.arange(0, ROWS)[:, None, None]
    side, lane = tl.arange(0, 2)[None, :, None], tl.arange(0, WIDTH)[None, None, :]
    before = (row * N + (VEC - 1)) // VEC * VEC - row * N - VEC
    after = (row * N + N) // VEC * VEC - row * N
    at = tl.where(side == 0, before, after).to(N.dtype) + lane
    return row * N, at, (lane < VEC) & (at >= 0) & (at < N) & (row < M)


@triton.jit
def sum_before(edge):
    """Of what :func:`edges` says where it is: the sum before the interior, [ROWS]."""
    side = tl.arange(0, 2)[None, :, None]
    return tl.sum(tl.sum(tl.where(side == 0, edge, 0).to(edge.dtype), 2), 1)


@triton.jit
def scanned_edges(edge, carry):
    """carry: the sums before what comes after the interiors, [ROWS]."""
    side = tl.arange(0, 2)[None, :, None]
    return tl.where(side == 0, 0, carry[:, None, None]) + tl.cumsum(edge, 2).to(carry.dtype)


@triton.jit
def pack(tiles, PACKED: tl.constexpr):
    """Pairs of 16-bit elements as int32. Carried from one iteration to the next, 16 bits fill a register too."""
    if PACKED:
        packed = ()
        for v in tl.static_range(len(tiles)):
            x = tiles[v]
            low, high = tl.split(x.reshape([x.shape[0], x.shape[1] // 2, 2]))
            low = low.to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
            packed = packed + (low | (high.to(tl.int16, bitcast=True).to(tl.int32) << 16),)
        return packed
    else:
        return tiles


@triton.jit
def unpack(tiles, dtype: tl.constexpr, PACKED: tl.constexpr):
    """What :func:`pack` was given."""
    if PACKED:
        unpacked = ()
        for v in tl.static_range(len(tiles)):
            x = tiles[v]
            pair = tl.join(x.to(tl.int16), (x >> 16).to(tl.int16))
            unpacked = unpacked + (pair.reshape([x.shape[0], x.shape[1] * 2]).to(dtype, bitcast=True),)
        return unpacked
    else:
        return tiles
