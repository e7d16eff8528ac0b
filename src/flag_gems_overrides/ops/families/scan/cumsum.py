# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Kernels of cumsum over N of [M, N, K].

    kernel            a program has
    cumsum_alone      a block, rows or LANES columns: a step after the other, or all of N in one
    cumsum_chunks     a chunk of a block, which cumsum_chunk_sums has added up
    cumsum_shared     every ``group``-th step of a block

Chunks take two launches and read x twice, but no program waits for others. With PDL (programmatic dependent launch) the
second launch starts while the first runs, and loads its first tiles of a row. It waits for all of the first before it
stores anything: out may be x. The first launch starts once all before it have ended: both read an x that is complete.
1 x 8704 x 64 int8: 11.6 us, otherwise 12.8 (H100).

A group of programs shares a block. Each program adds up its tiles, publishes the sums, and waits for those of the
others. Then it knows the sums before its tiles, and before the next ``group`` steps. x is read once, and sums are added
in the same order in every call. A program publishes its sums of the next step before it waits for the sums of this one:
they are on their way meanwhile. All programs of a group must be running (cooperative launch).
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ...launch.prepared import entry
from ...launch.workspace import clear, is_last
from .exchange import clear_sums, collect_sums, look, publish_sums
from .tile import (
    across_units,
    add_up,
    along,
    edges,
    load_tiles,
    pack,
    place,
    scanned_edges,
    split,
    store_scanned,
    sum_before,
    tile_mask,
    unpack,
)


@triton.jit
def divided(N, K, COLUMNS: tl.constexpr, DIVISOR: tl.constexpr):
    """(N, K), but the compiler now sees that DIVISOR divides the one along which elements are neighbours."""
    if COLUMNS:
        return N, K // DIVISOR * DIVISOR
    else:
        return N // DIVISOR * DIVISOR, K


@triton.jit
def scan_tiles(
    out_ptr,
    carry,
    tiles,
    where,
    left,
    K,
    CONVERTED: tl.constexpr,
    TILE: tl.constexpr,
    UNITS: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    SEGMENTED: tl.constexpr,
    COLUMNS: tl.constexpr,
    WHOLE: tl.constexpr = False,
):
    """Scan and store a step whose tiles ``load_tiles`` gave. Returns ``carry`` plus the sums of the step."""
    ACC: tl.constexpr = carry.dtype
    sums = add_up(tiles, CONVERTED, TILE, DEPTH, COLUMNS)
    before, total = carry, sums[DEPTH - 1]
    if SEGMENTED:
        before, total = across_units(sums[DEPTH - 1], UNITS, COLUMNS)
        before = carry + before.to(ACC)
    store_scanned(out_ptr, before, tiles, sums, where, left, K, CONVERTED, TILE, DEPTH, LANES, COLUMNS, WHOLE)
    return carry + total.to(ACC)


@entry()
@triton.jit
def cumsum_alone(
    x_ptr,
    out_ptr,
    M,
    N,
    K,
    CONVERTED: tl.constexpr,
    TILE: tl.constexpr,
    ACC: tl.constexpr,
    UNITS: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    SEGMENTED: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNALIGNED: tl.constexpr,
    DIVISOR: tl.constexpr,
    SINGLE: tl.constexpr,
    WHOLE: tl.constexpr,
    GRID: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """A block for each program.

    Args:
        x_ptr: [M, N, K].
        out_ptr: [M, N, K], may be x_ptr.
        CONVERTED: what elements are converted to before they are added: in TILE within a step, in ACC across steps.
        UNITS, DEPTH, LANES, VEC, SEGMENTED, COLUMNS, UNALIGNED: see ``tile``.
        DIVISOR: a power of two that divides K, or N where K is 1.
        SINGLE: there is one step.
        WHOLE: of a step a unit has all tiles or none.
        GRID: programs are [M, blocks of columns], so none divides.
        AT_ONCE: a program has one tile, which is a row without edges, and scans across its warps: they tell each other
            where they end, in place of sums that all would add up before. SEGMENTED, SINGLE, DEPTH is 1.
    """
    N, K = divided(N, K, COLUMNS, DIVISOR)
    if GRID:
        row, column = tl.program_id(1), tl.program_id(0)
    else:
        row, column = split(tl.program_id(0), K, LANES, COLUMNS)
    where = place(row, column, M, N, K, UNITS, DEPTH, LANES, VEC, SEGMENTED, COLUMNS, UNALIGNED)
    STEP: tl.constexpr = DEPTH * (UNITS if SEGMENTED else 1) * (1 if COLUMNS else LANES)
    ROWS: tl.constexpr = 1 if SEGMENTED else UNITS
    carry = tl.zeros([ROWS, LANES] if COLUMNS else [ROWS], ACC)
    if UNALIGNED:
        edge_rows, edge_at, edge_mask = edges(row, M, N, ROWS, VEC, LANES)
        edge = tl.load(x_ptr + edge_rows + edge_at, mask=edge_mask, other=0)
    if SINGLE:
        # On their way while warps exchange the sums of the edges.
        tiles = load_tiles(x_ptr, where, where[2], K, DEPTH, LANES, COLUMNS, WHOLE)
    if UNALIGNED:
        edge = edge.to(CONVERTED).to(TILE)
        carry += sum_before(edge).to(ACC)
    if AT_ONCE:
        scanned = tl.cumsum(tiles[0].to(CONVERTED).to(TILE).reshape([UNITS * LANES]), 0)
        mask = tile_mask(where[0], where[2], 0, 0, LANES, COLUMNS, WHOLE)
        tl.store(out_ptr + where[1], scanned.reshape([UNITS, LANES]), mask=mask)
    elif SINGLE:
        carry = scan_tiles(
            out_ptr, carry, tiles, where, where[2], K, CONVERTED, TILE, UNITS, DEPTH, LANES, SEGMENTED, COLUMNS, WHOLE
        )
    else:
        for index in range((N // VEC * VEC - 1) // STEP + 1):
            begin, left = along(index * STEP, K, COLUMNS), where[2] - index * STEP
            tiles = load_tiles(x_ptr + begin, where, left, K, DEPTH, LANES, COLUMNS, WHOLE)
            carry = scan_tiles(
                out_ptr + begin, carry, tiles, where, left, K, CONVERTED, TILE, UNITS, DEPTH, LANES, SEGMENTED,
                COLUMNS, WHOLE,
            )  # fmt: skip
    if UNALIGNED:
        tl.store(out_ptr + edge_rows + edge_at, scanned_edges(edge, carry), mask=edge_mask)


@entry()
@triton.jit
def cumsum_chunk_sums(
    x_ptr,
    sums_ptr,
    chunks,
    length,
    M,
    N,
    K,
    CONVERTED: tl.constexpr,
    ACC: tl.constexpr,
    UNITS: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNALIGNED: tl.constexpr,
    DIVISOR: tl.constexpr,
    PDL: tl.constexpr,
):
    """The sum of each chunk of a block but the last. The first chunk also has the edge before an interior.

    Args:
        x_ptr: [M, N, K].
        sums_ptr: [blocks, chunks - 1, LANES or 1], in ACC.
        length: of a chunk along N, a multiple of a step.
        PDL: the next kernel, which adds them up, may start; it waits for them.
        others: see ``cumsum_alone``.
    """
    if PDL:
        gdc_launch_dependents()
    N, K = divided(N, K, COLUMNS, DIVISOR)
    block, chunk = tl.program_id(0) // (chunks - 1), (tl.program_id(0) % (chunks - 1)).to(N.dtype)
    row, column = split(block, K, LANES, COLUMNS)
    where = place(row, column, M, N, K, UNITS, DEPTH, LANES, VEC, True, COLUMNS, UNALIGNED)
    STEP: tl.constexpr = DEPTH * UNITS * (1 if COLUMNS else LANES)
    left = tl.minimum(length, where[2] - chunk * length)
    x_ptr += along(chunk * length, K, COLUMNS)
    total = tl.zeros([UNITS, LANES], ACC)
    for first in range(0, length, STEP):
        tiles = load_tiles(x_ptr + along(first, K, COLUMNS), where, left - first, K, DEPTH, LANES, COLUMNS)
        for v in tl.static_range(DEPTH):
            total += tiles[v].to(CONVERTED).to(ACC)
    if COLUMNS:
        own_ptr = sums_ptr + tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
        tl.store(own_ptr, tl.sum(total, 0))
    else:
        own = tl.sum(total)
        if UNALIGNED:
            edge_rows, edge_at, edge_mask = edges(block, M, N, 1, VEC, LANES)
            edge_ptr = x_ptr - along(chunk * length, K, COLUMNS) + edge_rows + edge_at
            edge = tl.load(edge_ptr, mask=edge_mask & (chunk == 0), other=0).to(CONVERTED).to(ACC)
            own += tl.sum(sum_before(edge))
        tl.store(sums_ptr + tl.program_id(0), own)


@entry()
@triton.jit
def cumsum_chunks(
    x_ptr,
    out_ptr,
    sums_ptr,
    chunks,
    length,
    M,
    N,
    K,
    CONVERTED: tl.constexpr,
    TILE: tl.constexpr,
    ACC: tl.constexpr,
    UNITS: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNALIGNED: tl.constexpr,
    DIVISOR: tl.constexpr,
    PDL: tl.constexpr,
):
    """A chunk of a block for each program, once ``cumsum_chunk_sums`` has added them up. The first and the
    last have an edge each.

    Args:
        out_ptr: [M, N, K], may be x_ptr.
        others: see ``cumsum_chunk_sums`` and ``cumsum_alone``.
    """
    N, K = divided(N, K, COLUMNS, DIVISOR)
    block, chunk = tl.program_id(0) // chunks, (tl.program_id(0) % chunks).to(N.dtype)
    row, column = split(block, K, LANES, COLUMNS)
    where = place(row, column, M, N, K, UNITS, DEPTH, LANES, VEC, True, COLUMNS, UNALIGNED)
    STEP: tl.constexpr = DEPTH * UNITS * (1 if COLUMNS else LANES)
    WIDTH: tl.constexpr = LANES if COLUMNS else 1
    word = tl.arange(0, UNITS)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    sums_ptr += block.to(tl.int64) * (chunks - 1) * WIDTH
    earlier = tl.zeros([UNITS, LANES], ACC)
    AT_ONCE: tl.constexpr = 8 if COLUMNS else 1
    begin, left = along(chunk * length, K, COLUMNS), tl.minimum(length, where[2] - chunk * length)
    stride = along(STEP, K, COLUMNS)
    if not COLUMNS:
        coming = load_tiles(x_ptr + begin, where, left, K, DEPTH, LANES, COLUMNS)
    if PDL:
        gdc_wait()
    # Several loads on their way at once: 1000000 x 64 has 264 of these tiles before its last chunk.
    for first in range(0, chunk * WIDTH, AT_ONCE * UNITS * LANES):
        for v in tl.static_range(AT_ONCE):
            at = first + v * UNITS * LANES + word
            earlier += tl.load(sums_ptr + at, mask=at < chunk * WIDTH, other=0)
    carry = tl.sum(earlier, 0, keep_dims=True) if COLUMNS else tl.zeros([1], ACC) + tl.sum(earlier)
    if UNALIGNED:
        edge_rows, edge_at, edge_mask = edges(block, M, N, 1, VEC, LANES)
        edge_mask = edge_mask & (chunk == tl.arange(0, 2)[None, :, None] * (chunks - 1))
        edge = tl.load(x_ptr + edge_rows + edge_at, mask=edge_mask, other=0).to(CONVERTED).to(TILE)
        carry += sum_before(edge).to(ACC)
    for _ in range(0, length, STEP):
        if COLUMNS:
            tiles = load_tiles(x_ptr + begin, where, left, K, DEPTH, LANES, COLUMNS)
        else:
            tiles = coming
            # The next tiles are on their way while these are scanned. Columns have no registers for it.
            coming = load_tiles(x_ptr + begin + stride, where, left - STEP, K, DEPTH, LANES, COLUMNS)
        carry = scan_tiles(
            out_ptr + begin, carry, tiles, where, left, K, CONVERTED, TILE, UNITS, DEPTH, LANES, True, COLUMNS
        )
        begin += stride
        left -= STEP
    if UNALIGNED:
        tl.store(out_ptr + edge_rows + edge_at, scanned_edges(edge, carry), mask=edge_mask)


@entry()
@triton.jit
def cumsum_shared(
    x_ptr,
    out_ptr,
    workspace_ptr,
    group,
    M,
    N,
    K,
    CONVERTED: tl.constexpr,
    TILE: tl.constexpr,
    ACC: tl.constexpr,
    UNITS: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNALIGNED: tl.constexpr,
    DIVISOR: tl.constexpr,
    SINGLE: tl.constexpr,
    PACKED: tl.constexpr,
    MEMBERS: tl.constexpr,
    COPIES: tl.constexpr,
    LATE: tl.constexpr,
):
    """A block for each ``group`` of programs; SEGMENTED.

    Args:
        workspace_ptr: [blocks, steps, group, LANES or 1, WORDS] words, and [blocks] counters.
        PACKED: a thread has pairs of elements of 16 bits.
        MEMBERS: a power of two that is not below ``group``.
        COPIES: of each word that is read: with MEMBERS and columns at least as many elements as threads.
        LATE: what is after the interior of a row is loaded in the end, for no registers in the loop. UNALIGNED.
        others: see ``cumsum_alone``.
    """
    N, K = divided(N, K, COLUMNS, DIVISOR)
    block, member = tl.program_id(0) // group, tl.program_id(0) % group
    row, column = split(block, K, LANES, COLUMNS)
    where = place(row, column, M, N, K, UNITS, DEPTH, LANES, VEC, True, COLUMNS, UNALIGNED)
    OWN: tl.constexpr = DEPTH * UNITS * (1 if COLUMNS else LANES)
    step = group * OWN
    steps = 1 if SINGLE else (N // VEC * VEC - 1) // step + 1

    DTYPE: tl.constexpr = x_ptr.dtype.element_ty
    WORDS: tl.constexpr = 2 if tl.int64 == TILE else 1
    WIDTH: tl.constexpr = LANES if COLUMNS else 1
    words = group * (WIDTH * WORDS)
    words_ptr = workspace_ptr + block.to(tl.int64) * steps * words
    counter_ptr = workspace_ptr + (tl.num_programs(0) // group).to(tl.int64) * steps * words + block
    own_ptr = words_ptr + member * (WIDTH * WORDS)
    if COLUMNS:
        own_ptr += tl.arange(0, WIDTH)[None, :] * WORDS

    begin, left, stride = along(member * OWN, K, COLUMNS), where[2] - member * OWN, along(step, K, COLUMNS)
    tiles = load_tiles(x_ptr + begin, where, left, K, DEPTH, LANES, COLUMNS)
    if UNALIGNED:
        edge_rows, edge_at, edge_mask = edges(block, M, N, 1, VEC, LANES)
        edge_mask = edge_mask & (member == 0)
        edge = tl.load(x_ptr + edge_rows + edge_at, mask=edge_mask, other=0)
    sums = add_up(tiles, CONVERTED, TILE, DEPTH, COLUMNS)
    inner, own = across_units(sums[DEPTH - 1], UNITS, COLUMNS)
    if UNALIGNED:
        edge = edge.to(CONVERTED).to(TILE)
        inner += sum_before(edge)
        own += tl.sum(sum_before(edge))
        if LATE:
            scanned = scanned_edges(edge, tl.zeros([1], ACC))
            tl.store(out_ptr + edge_rows + edge_at, scanned, mask=edge_mask & (tl.arange(0, 2)[None, :, None] == 0))
    publish_sums(own_ptr, own)
    carry = tl.zeros([1, WIDTH], ACC)
    if not SINGLE:
        # Between iterations a program of columns keeps sums, and a program of rows elements.
        tiles = pack(tiles, PACKED)
        coming = pack(load_tiles(x_ptr + begin + stride, where, left - step, K, DEPTH, LANES, COLUMNS), PACKED)
        for index in range(1, steps):
            looked = look(words_ptr, group, WORDS, WIDTH, MEMBERS, COPIES)
            next_tiles = coming
            next_sums = add_up(unpack(next_tiles, DTYPE, PACKED), CONVERTED, TILE, DEPTH, COLUMNS)
            next_inner, own = across_units(next_sums[DEPTH - 1], UNITS, COLUMNS)
            publish_sums(own_ptr + words, own)
            begin += stride
            left -= step
            coming = pack(load_tiles(x_ptr + begin + stride, where, left - step, K, DEPTH, LANES, COLUMNS), PACKED)
            earlier, total = collect_sums(looked, member, TILE, ACC, WORDS, COPIES)
            if index > 2:
                # A program that has published for this step has read what was published two steps before.
                clear_sums(own_ptr - 2 * words, WORDS)
            store_scanned(
                out_ptr + begin - stride,
                before_units(carry + earlier, inner, COLUMNS),
                unpack(tiles, DTYPE, PACKED),
                sums,
                where,
                left + step,
                K,
                CONVERTED,
                TILE,
                DEPTH,
                LANES,
                COLUMNS,
            )
            carry += total
            words_ptr += words
            own_ptr += words
            tiles, sums, inner = next_tiles, next_sums, next_inner
        tiles = unpack(tiles, DTYPE, PACKED)
    looked = look(words_ptr, group, WORDS, WIDTH, MEMBERS, COPIES)
    earlier, total = collect_sums(looked, member, TILE, ACC, WORDS, COPIES)
    if steps > 2:
        clear_sums(own_ptr - 2 * words, WORDS)
    before = before_units(carry + earlier, inner, COLUMNS)
    store_scanned(out_ptr + begin, before, tiles, sums, where, left, K, CONVERTED, TILE, DEPTH, LANES, COLUMNS)
    if UNALIGNED:
        if LATE:
            end = (row + 1).to(tl.int64) * N
            tail = end // VEC * VEC + tl.arange(0, VEC)
            tail_mask = (tail < end) & (member == 0)
            elements = tl.load(x_ptr + tail, mask=tail_mask, other=0).to(CONVERTED).to(TILE)
            scanned = tl.sum(carry + total) + tl.cumsum(elements, 0).to(ACC)
            tl.store(out_ptr + tail, scanned, mask=tail_mask)
        else:
            scanned = scanned_edges(edge, tl.sum(carry + total, 1))
            tl.store(out_ptr + edge_rows + edge_at, scanned, mask=edge_mask)
    if is_last(counter_ptr, group, "relaxed"):
        word = tl.arange(0, MEMBERS)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
        for i in tl.static_range(WORDS):
            clear(words_ptr + word * WORDS + i, word * WORDS < words)
            clear(words_ptr - words + word * WORDS + i, (word * WORDS < words) & (steps > 1))


@triton.jit
def before_units(before, inner, COLUMNS: tl.constexpr):
    """The sums before each unit of a program.

    before: the sums before the program, [1, LANES] or [1, 1]. inner: the sums before each unit within it.
    """
    if COLUMNS:
        return before + inner.to(before.dtype)
    else:
        return tl.sum(before) + inner.to(before.dtype)
