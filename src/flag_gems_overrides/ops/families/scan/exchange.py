# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""How programs that share a row or columns tell each other the sums of their tiles."""

import triton
import triton.language as tl

from ...launch.workspace import all_published, clear, decode, encode, publish


@triton.jit
def publish_sums(own_ptr, sums):
    """One word for a float or for 32 bits. Two words for 64 bits, each with 32 of the bits and a bit that it is
    published. All words are of 64 bits, so that the words of columns are read in the layout of their tiles."""
    if sums.dtype.is_floating():
        publish(own_ptr, encode(sums).to(tl.int64))
    else:
        publish(own_ptr, low_bits(sums) | (1 << 32))
        if sums.dtype == tl.int64:
            publish(own_ptr + 1, low_bits(sums >> 32) | (1 << 32))


@triton.jit
def low_bits(x):
    return x.to(tl.int64) & 0xFFFFFFFF


@triton.jit
def clear_sums(own_ptr, WORDS: tl.constexpr):
    for word in tl.static_range(WORDS):
        clear(own_ptr + word, None)


@triton.jit
def look(words_ptr, group, WORDS: tl.constexpr, LANES: tl.constexpr, MEMBERS: tl.constexpr, COPIES: tl.constexpr):
    """Pointers to the words, which of them are of the group, and what is there, once or in two: for ``collect_sums``.

    words_ptr: [group, LANES, WORDS]. Each word is read COPIES times, so that no two threads hold the same element: one
    might see the word while the other does not.
    """
    other, lane = tl.arange(0, MEMBERS * COPIES)[:, None] // COPIES, tl.arange(0, LANES)[None, :]
    read_ptr, known = words_ptr + (other * LANES + lane) * WORDS, (other < group) & (lane < LANES)
    low, high = read(read_ptr, known, WORDS)
    return read_ptr, known, low, high


@triton.jit
def read(read_ptr, known, WORDS: tl.constexpr):
    low = tl.load(read_ptr, mask=known, other=1, volatile=True)
    if WORDS == 1:
        return low, low
    else:
        return low, tl.load(read_ptr + 1, mask=known, other=1, volatile=True)


@triton.jit
def collect_sums(looked, member, TILE: tl.constexpr, ACC: tl.constexpr, WORDS: tl.constexpr, COPIES: tl.constexpr):
    """Sums over the members before this one, and over all, [1, LANES], once all of them are published."""
    read_ptr, known, low, high = looked
    if WORDS == 1:
        while not all_published(low):
            low = tl.load(read_ptr, mask=known, other=1, volatile=True)
    else:
        while not all_published(tl.where(low == 0, 0, high)):
            low, high = read(read_ptr, known, WORDS)
    if TILE.is_floating():
        sums = decode(low.to(tl.int32) if tl.float32 == TILE else low, TILE)
    elif WORDS == 1:
        sums = low.to(tl.int32).to(ACC)
    else:
        sums = low_bits(low) | (high << 32)
    index = tl.arange(0, low.shape[0])[:, None]
    # The copies are the same, and one is enough.
    sums = tl.where(known & (index % COPIES == 0), sums, 0)
    return tl.reduce((tl.where(index // COPIES < member, sums, 0), sums), 0, _add, keep_dims=True)


@triton.jit
def _add(a, b, x, y):
    return a + x, b + y
