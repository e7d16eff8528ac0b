# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Kernels of cumsum over N of [M, N, K], row by row in memory whatever K is.

    kernel            a program
    cumsum_whole      has all of N in one tile of [BLOCK_M, BLOCK_N, BLOCK_K]
    cumsum_in_steps   has BLOCK_K columns of one [N, K], a tile after the other; or every ``group``-th tile of them
    cumsum_chunks     has BLOCK_K columns of a chunk of N, a tile after the other; cumsum_chunk_sums has added it up

A group of programs shares its columns like this: each adds its tile up and publishes the sums, and waits for those of
the others; then it knows what comes before its tile, and before the next ``group`` tiles. So x is read once, and sums
are added in the same order in every call. Programs of a group must be running (cooperative launch).

Chunks take two launches and read x twice, the second time from the L2 cache where it fits, but no program waits.

A thread has ROWS neighbouring rows of a few columns: it adds them up by itself, and only its sums are scanned across
threads.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.workspace import clear, collect, collect_two, decode, encode, is_last, publish


@triton.jit
def load(x_ptr, mask, CONVERTED: tl.constexpr, ACC: tl.constexpr):
    return tl.load(x_ptr, mask=mask, other=0).to(CONVERTED).to(ACC)


@triton.jit
def load_rows(x_ptr, left, right, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, ROWS: tl.constexpr):
    """A tile of BLOCK_N rows, as ROWS tiles [BLOCK_N / ROWS, BLOCK_K] of every ROWS-th; outside of x 0."""
    n, lanes = first_rows(BLOCK_N, ROWS), tl.arange(0, BLOCK_K)[None, :]
    offsets = n.to(tl.int64) * K + lanes
    tiles = ()
    for r in tl.static_range(ROWS):
        mask = (n + r < left) & (lanes < right)
        tiles = tiles + (tl.load(x_ptr + tl.cast(K, tl.int64) * r + offsets, mask=mask, other=0),)
    return tiles


@triton.jit
def store_scanned(
    out_ptr, before, sums, left, right, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, ROWS: tl.constexpr
):
    """``before`` plus the sums up to each row. sums: what :func:`add_up` gave."""
    n, lanes = first_rows(BLOCK_N, ROWS), tl.arange(0, BLOCK_K)[None, :]
    offsets = n.to(tl.int64) * K + lanes
    if ROWS == 1:
        tl.store(out_ptr + offsets, before + tl.cumsum(sums[0], 0), mask=(n < left) & (lanes < right))
    else:
        _, above = tl.associative_scan((sums[ROWS - 1], tl.zeros_like(sums[ROWS - 1])), 0, append)
        above += before
        for r in tl.static_range(ROWS):
            mask = (n + r < left) & (lanes < right)
            tl.store(out_ptr + tl.cast(K, tl.int64) * r + offsets, above + sums[r], mask=mask)


@triton.jit
def first_rows(BLOCK_N: tl.constexpr, ROWS: tl.constexpr):
    return tl.arange(0, BLOCK_N // ROWS)[:, None] * ROWS


@triton.jit
def add_up(tiles, CONVERTED: tl.constexpr, ACC: tl.constexpr, ROWS: tl.constexpr):
    """The sums of each thread's rows up to each of them."""
    sums = (tiles[0].to(CONVERTED).to(ACC),)
    for r in tl.static_range(1, ROWS):
        sums = sums + (sums[r - 1] + tiles[r].to(CONVERTED).to(ACC),)
    return sums


@triton.jit
def append(left, left_but_last, right, right_but_last):
    """Sums, and sums of all but the last: what comes before it cannot be had from the sum if the last is infinite."""
    return left + right, left + right_but_last


@triton.jit
def divided(N, K, BLOCK_K: tl.constexpr, DIVISOR: tl.constexpr):
    """(N, K), but the compiler now sees that DIVISOR divides the one along which elements are neighbours."""
    if BLOCK_K == 1:
        return N // DIVISOR * DIVISOR, K
    else:
        return N, K // DIVISOR * DIVISOR


@entry()
@triton.jit
def cumsum_whole(
    x_ptr,
    out_ptr,
    M,
    N,
    K,
    CONVERTED: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    DIVISOR: tl.constexpr,
):
    """All of N in one tile.

    Args:
        x_ptr: [M, N, K].
        out_ptr: [M, N, K], may be x_ptr.
        CONVERTED: what elements are converted to before they are added in ACC.
        DIVISOR: a power of two that divides K, or N where K is 1.
    """
    N, K = divided(N, K, BLOCK_K, DIVISOR)
    blocks_k = tl.cdiv(K, BLOCK_K)
    program = tl.program_id(0)
    m = (program // blocks_k).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None, None]
    n = tl.arange(0, BLOCK_N)[None, :, None]
    k = program % blocks_k * BLOCK_K + tl.arange(0, BLOCK_K)[None, None, :]
    mask = (m < M) & (n < N) & (k < K)
    offsets = (m * N + n) * K + k
    x = load(x_ptr + offsets, mask, CONVERTED, ACC)
    tl.store(out_ptr + offsets, tl.cumsum(x, 1), mask=mask)


@entry()
@triton.jit
def cumsum_in_steps(
    x_ptr,
    out_ptr,
    workspace_ptr,
    group,
    blocks,
    N,
    K,
    CONVERTED: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    DIVISOR: tl.constexpr,
    ROWS: tl.constexpr,
    MEMBERS: tl.constexpr,
    COPIES: tl.constexpr,
):
    """N in steps of ``group`` tiles, each group for every ``groups``-th block of columns.

    Args:
        x_ptr: [M, N, K].
        out_ptr: [M, N, K], may be x_ptr.
        workspace_ptr: [blocks, steps, group, BLOCK_K, WORDS] words, and [groups] counters; None for groups of 1.
        blocks: M times blocks of BLOCK_K columns.
        ROWS: of a thread, one after the other; 1 where K is 1.
        MEMBERS: a power of two that is not below ``group``; 1 for groups of 1.
        COPIES: of each word that is read: with BLOCK_K and MEMBERS as many elements as threads, as ``collect`` wants.
    """
    N, K = divided(N, K, BLOCK_K, DIVISOR)
    if MEMBERS == 1:
        group = 1  # known when compiling
    blocks_k = tl.cdiv(K, BLOCK_K)
    first, member, groups = tl.program_id(0) // group, tl.program_id(0) % group, tl.num_programs(0) // group
    steps = tl.cdiv(N, group * BLOCK_N)
    lanes = tl.arange(0, BLOCK_K)[None, :]
    WORDS: tl.constexpr = 1 if ACC.is_floating() else 2
    counter_ptr = workspace_ptr
    words_ptr = workspace_ptr
    if MEMBERS > 1:
        counter_ptr += tl.cast(blocks, tl.int64) * steps * group * (BLOCK_K * WORDS) + first
        words_ptr += first.to(tl.int64) * steps * group * (BLOCK_K * WORDS)

    stride = tl.cast(group * BLOCK_N, tl.int64) * K
    for block in range(first, blocks, groups):
        k = block % blocks_k * BLOCK_K
        start = ((block // blocks_k).to(tl.int64) * N + member * BLOCK_N) * K + k
        left = N - member * BLOCK_N
        carry = tl.zeros([1, BLOCK_K], ACC)
        tiles = load_rows(x_ptr + start, left, K - k, K, BLOCK_N, BLOCK_K, ROWS)
        for step in range(steps):
            sums = add_up(tiles, CONVERTED, ACC, ROWS)
            own = tl.sum(sums[ROWS - 1], 0, keep_dims=True)
            if MEMBERS > 1:
                own_ptr = words_ptr + (member * BLOCK_K + lanes) * WORDS
                publish_sums(own_ptr, own)
            # On their way while this program waits for the others, or scans.
            tiles = load_rows(x_ptr + start + stride, left - group * BLOCK_N, K - k, K, BLOCK_N, BLOCK_K, ROWS)
            if MEMBERS > 1:
                before, total = collect_sums(words_ptr, group, member, ACC, BLOCK_K, MEMBERS, COPIES)
                # A program that has published for this step has read what was published for the one before.
                if (step > 0) | (block > first):
                    previous = tl.where(step > 0, 1, (groups - 1) * steps + 1).to(tl.int64)
                    clear_sums(own_ptr - previous * group * (BLOCK_K * WORDS), ACC)
                words_ptr += group * (BLOCK_K * WORDS)
                store_scanned(out_ptr + start, carry + before, sums, left, K - k, K, BLOCK_N, BLOCK_K, ROWS)
                carry += total
            else:
                store_scanned(out_ptr + start, carry, sums, left, K - k, K, BLOCK_N, BLOCK_K, ROWS)
                carry += own
            left -= group * BLOCK_N
            start += stride
        if MEMBERS > 1:
            words_ptr += tl.cast((groups - 1) * steps, tl.int64) * group * (BLOCK_K * WORDS)
    if MEMBERS > 1:
        last = is_last(counter_ptr, group, "relaxed")
        member_words = tl.arange(0, MEMBERS)[:, None] * (BLOCK_K * WORDS)
        words_ptr -= tl.cast((groups - 1) * steps + 1, tl.int64) * group * (BLOCK_K * WORDS)
        for word in tl.static_range(WORDS):
            clear(
                words_ptr + member_words + lanes * WORDS + word,
                mask=(tl.arange(0, MEMBERS)[:, None] < group) & (lanes < BLOCK_K) & last,
            )


@entry()
@triton.jit
def cumsum_chunk_sums(
    x_ptr,
    sums_ptr,
    chunks,
    rows,
    N,
    K,
    CONVERTED: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    DIVISOR: tl.constexpr,
):
    """The sums of all chunks but the last.

    Args:
        x_ptr: [M, N, K].
        sums_ptr: [M, chunks - 1, K] in ACC.
        rows: of a chunk, a multiple of BLOCK_N.
    """
    N, K = divided(N, K, BLOCK_K, DIVISOR)
    blocks_k = tl.cdiv(K, BLOCK_K)
    chunk = tl.program_id(0) // blocks_k
    n = tl.arange(0, BLOCK_N)[:, None]
    k = tl.program_id(0) % blocks_k * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
    start = ((chunk // (chunks - 1)).to(tl.int64) * N + (chunk % (chunks - 1)).to(tl.int64) * rows) * K
    offsets = n.to(tl.int64) * K + k
    total = tl.zeros([BLOCK_N, BLOCK_K], ACC)
    for _ in range(0, rows, BLOCK_N):
        total += load(x_ptr + start + offsets, (n < rows) & (k < K), CONVERTED, ACC)
        start += tl.cast(BLOCK_N, tl.int64) * K
    tl.store(sums_ptr + chunk.to(tl.int64) * K + k, tl.sum(total, 0, keep_dims=True), mask=k < K)


@entry()
@triton.jit
def cumsum_chunks(
    x_ptr,
    out_ptr,
    sums_ptr,
    chunks,
    rows,
    N,
    K,
    CONVERTED: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    DIVISOR: tl.constexpr,
    ROWS: tl.constexpr,
):
    """N in chunks of ``rows`` rows; arguments as for cumsum_chunk_sums, and out_ptr: [M, N, K], may be x_ptr.

    ROWS: of a thread, one after the other; 1 where K is 1.
    """
    N, K = divided(N, K, BLOCK_K, DIVISOR)
    blocks_k = tl.cdiv(K, BLOCK_K)
    m, chunk = tl.program_id(0) // blocks_k // chunks, tl.program_id(0) // blocks_k % chunks
    k = tl.program_id(0) % blocks_k * BLOCK_K
    right, stride = K - k, tl.cast(BLOCK_N, tl.int64) * K
    begin = chunk.to(tl.int64) * rows
    start = (m.to(tl.int64) * N + begin) * K + k
    left = tl.minimum(rows, N - begin)
    tiles = load_rows(x_ptr + start, left, right, K, BLOCK_N, BLOCK_K, ROWS)
    carry = tl.zeros([1, BLOCK_K], ACC)
    sums_ptr += m.to(tl.int64) * (chunks - 1) * K + k
    for first in range(0, chunk, BLOCK_N):
        earlier = load_rows(sums_ptr, chunk - first, right, K, BLOCK_N, BLOCK_K, ROWS)
        carry += tl.sum(add_up(earlier, ACC, ACC, ROWS)[ROWS - 1], 0, keep_dims=True)
        sums_ptr += stride
    for _ in range(0, rows, BLOCK_N):
        sums = add_up(tiles, CONVERTED, ACC, ROWS)
        # On its way while this tile is scanned.
        tiles = load_rows(x_ptr + start + stride, left - BLOCK_N, right, K, BLOCK_N, BLOCK_K, ROWS)
        store_scanned(out_ptr + start, carry, sums, left, right, K, BLOCK_N, BLOCK_K, ROWS)
        carry += tl.sum(sums[ROWS - 1], 0, keep_dims=True)
        left -= BLOCK_N
        start += stride


@triton.jit
def publish_sums(own_ptr, sums):
    """One word for a float; two for an integer, for any 64 bits may be a sum: 32 of them in each, and a bit beside."""
    if sums.dtype.is_floating():
        publish(own_ptr, encode(sums).to(tl.int64))
    else:
        publish(own_ptr, low_bits(sums) | (1 << 32))
        publish(own_ptr + 1, low_bits(sums.to(tl.int64) >> 32) | (1 << 32))


@triton.jit
def low_bits(x):
    return x.to(tl.int64) & 0xFFFFFFFF


@triton.jit
def clear_sums(own_ptr, ACC: tl.constexpr):
    clear(own_ptr, None)
    if not ACC.is_floating():
        clear(own_ptr + 1, None)


@triton.jit
def collect_sums(
    words_ptr, group, member, ACC: tl.constexpr, BLOCK_K: tl.constexpr, MEMBERS: tl.constexpr, COPIES: tl.constexpr
):
    """Sums over the members before this one, and over all, [1, BLOCK_K]."""
    WORDS: tl.constexpr = 1 if ACC.is_floating() else 2
    lanes = tl.arange(0, BLOCK_K)[None, None, :]
    copy = tl.arange(0, COPIES)[None, :, None]
    other = tl.arange(0, MEMBERS)[:, None, None] + 0 * (copy + lanes)
    read_ptr = words_ptr + (other * BLOCK_K + lanes) * WORDS
    if ACC.is_floating():
        words = collect(read_ptr, other < group)
        if tl.float32 == ACC:
            words = words.to(tl.int32)
        sums = decode(words, ACC)
    else:
        low, high = collect_two(read_ptr, read_ptr + 1, other < group)
        sums = (low_bits(low) | (high << 32)).to(ACC)
    # The copies are the same, and one is enough.
    sums = tl.where((other < group) & (copy == 0), sums, 0)
    before = tl.sum(tl.sum(tl.where(other < member, sums, 0), 1), 0, keep_dims=True)
    return before, tl.sum(tl.sum(sums, 1), 0, keep_dims=True)
