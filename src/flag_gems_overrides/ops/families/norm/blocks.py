# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, no-untyped-def"
"""All gradients of a few long rows in one launch. Each program has columns of all rows: sums over rows are its own, and
those of rows are exchanged once, by all programs, which run at the same time (launch/workspace.py).

    dy_ptr, x_ptr, dx_ptr: [M, N]    weight_ptr: [N] or None    mean_ptr: [M], or None where none is subtracted
    rstd_ptr: [M]    dweight_ptr, dbias_ptr: [N] or None    workspace_ptr: [M, programs] words, then a counter
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.workspace import clear, decode_pair, encode_pair, is_last
from .backward import add_pairs, input_gradient, weighted
from .tile import load_parameter_at


@entry()
@triton.jit(do_not_specialize=["M", "BLOCKS", "PROGRAMS"])
def norm_backward_blocks(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dweight_ptr,
    dbias_ptr,
    workspace_ptr,
    M,
    N,
    BLOCKS,
    PROGRAMS,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WORDS: tl.constexpr,
    ONCE: tl.constexpr,
    VEC: tl.constexpr,
    HELD: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Each program has BLOCKS blocks of BLOCK_N columns of all rows, at most BLOCK_M. HELD of them stay in registers,
    all or none; otherwise they are read again, backwards, for the last is the likeliest to be in the cache still.
    """
    N = N // VEC * VEC  # N itself, but the compiler now sees that VEC divides it
    rank = tl.program_id(0)
    rows = tl.arange(0, BLOCK_M)[:, None]
    row_mask = rows < M
    rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0).to(tl.float32)
    mean = tl.zeros([BLOCK_M, 1], tl.float32)
    if mean_ptr is not None:
        mean = tl.load(mean_ptr + rows, mask=row_mask, other=0.0).to(tl.float32)
    if not HELD:
        rows = tl.cast(rows, tl.int64)  # of those that are held there are fewer than 2**31 elements
    first = rank * BLOCKS
    last = tl.minimum(first + BLOCKS, (N - 1) // BLOCK_N + 1)
    products = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    terms = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    xhats = ()
    wdys = ()
    if HELD:
        for held in tl.static_range(HELD):
            xhat, wdy = load_block(
                dy_ptr, x_ptr, weight_ptr, mean, rstd, dweight_ptr, dbias_ptr, rows, row_mask, first + held, N, BLOCK_N
            )
            products += xhat * wdy
            terms += wdy
            xhats = xhats + (xhat,)
            wdys = wdys + (wdy,)
    else:
        for block in tl.range(first, last, num_stages=STAGES):
            xhat, wdy = load_block(
                dy_ptr, x_ptr, weight_ptr, mean, rstd, dweight_ptr, dbias_ptr, rows, row_mask, block, N, BLOCK_N
            )
            products += xhat * wdy
            terms += wdy
    c1, c2 = tl.reduce((products, terms), 1, add_pairs, keep_dims=True)
    words_ptr = workspace_ptr + rows * PROGRAMS
    tl.atomic_xchg(words_ptr + rank, encode_pair(c1, c2), mask=row_mask, sem="relaxed", scope="gpu")
    c1, c2 = sums_of_all(words_ptr, row_mask, PROGRAMS, WORDS, ONCE)
    c1 /= N
    c2 /= N
    if mean_ptr is None:
        c2 = tl.zeros_like(c2)
    if HELD:
        for held in tl.static_range(HELD):
            store_block(dx_ptr, xhats[held], wdys[held], rstd, c1, c2, rows, row_mask, first + held, N, BLOCK_N)
    else:
        for i in tl.range(0, last - first, num_stages=STAGES):
            block = last - 1 - i
            xhat, wdy = load_block(dy_ptr, x_ptr, weight_ptr, mean, rstd, None, None, rows, row_mask, block, N, BLOCK_N)
            store_block(dx_ptr, xhat, wdy, rstd, c1, c2, rows, row_mask, block, N, BLOCK_N)
    clear_all(workspace_ptr, M, PROGRAMS)


@triton.jit
def load_block(
    dy_ptr, x_ptr, weight_ptr, mean, rstd, dweight_ptr, dbias_ptr, rows, row_mask, block, N, BLOCK_N: tl.constexpr
):
    """(xhat, wdy) of a block of columns, whose gradients of weight and bias are stored."""
    columns = block * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    column_mask = columns < N
    mask = row_mask & column_mask
    offsets = rows * N + columns
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    weight = load_parameter_at(weight_ptr, columns, column_mask)
    xhat = (x - mean) * rstd
    if dweight_ptr is not None:
        tl.store(dweight_ptr + columns, tl.sum(dy * xhat, 0, keep_dims=True), mask=column_mask)
    if dbias_ptr is not None:
        tl.store(dbias_ptr + columns, tl.sum(dy, 0, keep_dims=True), mask=column_mask)
    return xhat, weighted(dy, weight, False)


@triton.jit
def store_block(dx_ptr, xhat, wdy, rstd, c1, c2, rows, row_mask, block, N, BLOCK_N: tl.constexpr):
    columns = block * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    offsets = rows * N + columns
    tl.store(dx_ptr + offsets, input_gradient(xhat, wdy, rstd, c1, c2), mask=row_mask & (columns < N))


@triton.jit
def sums_of_all(words_ptr, row_mask, PROGRAMS, WORDS: tl.constexpr, ONCE: tl.constexpr):
    """The two sums of each row over what all programs published: [BLOCK_M, 1] each. words_ptr: [BLOCK_M, 1]

    ONCE: with one load, without a loop, which takes registers.
    """
    if ONCE:
        return sums_of_words(words_ptr, row_mask, 0, PROGRAMS, WORDS)
    else:
        c1 = tl.zeros(row_mask.shape, tl.float32)
        c2 = tl.zeros(row_mask.shape, tl.float32)
        for first in tl.range(0, PROGRAMS, WORDS):
            a, b = sums_of_words(words_ptr, row_mask, first, PROGRAMS, WORDS)
            c1 += a
            c2 += b
        return c1, c2


@triton.jit
def sums_of_words(words_ptr, row_mask, first, PROGRAMS, WORDS: tl.constexpr):
    """Waits as :func:`collect` does, for a tile of two dimensions, which has a word for each thread at least."""
    rank = first + tl.arange(0, WORDS)[None, :]
    mask = (rank < PROGRAMS) & row_mask
    words = tl.load(words_ptr + rank, mask=mask, other=1, volatile=True)
    while tl.sum(tl.sum((words == 0).to(tl.int32), 1), 0) > 0:
        words = tl.load(words_ptr + rank, mask=mask, other=1, volatile=True)
    a, b = decode_pair(words)
    return tl.reduce((tl.where(mask, a, 0.0), tl.where(mask, b, 0.0)), 1, add_pairs, keep_dims=True)


@triton.jit(noinline=True)
def clear_all(workspace_ptr, M, PROGRAMS, CLEARED: tl.constexpr = 1024):
    """The last program to have collected the words clears them, CLEARED at a time, and the counter."""
    if is_last(workspace_ptr + M * PROGRAMS, PROGRAMS, "relaxed"):
        for first in tl.range(0, M * PROGRAMS, CLEARED):
            word = first + tl.arange(0, CLEARED)
            clear(workspace_ptr + word, word < M * PROGRAMS)
