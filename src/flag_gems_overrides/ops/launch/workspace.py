# SPDX-License-Identifier: Apache-2.0
"""Programs of one launch that exchange numbers, or count each other, through a zeroed workspace.

A workspace is an integer tensor of words, followed by counters. All of it is zero before a launch and after it.

Programs of a group (they share a row) exchange numbers like this. They must all be running: a cooperative launch.

    publish(word_ptr, encode(x))                  one word of its own for each program; 0 means "not yet published"
    words = collect(words_ptr, mask)              waits until all of these words are published
    x = decode(words, tl.float32)
    clear(word_ptr, mask)                         once every program of the group has collected it: each program, its
                                                  own word of the row before, after it has collected this row's
    if is_last(counter_ptr, group, "relaxed"):    after its last row: the last program clears that row's words

Where one program alone collects the words, and clears them, the others need not run beside it.

No word needs a fence or a flag, for each tells by itself whether it is there. What a word holds is up to the kernel:
one number of the word's width (``encode``, ``decode``), or two float32 in 64 bits (``encode_pair``, ``decode_pair``).

Programs that do not wait for each other need the counters alone: the last to arrive combines what others stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.runtime import driver

from .recording import note, recordings

_kept: dict[tuple[int, int, torch.dtype], torch.Tensor] = {}


class Counters(NamedTuple):
    """What was asked for, as recordings note it."""

    dtype: torch.dtype
    size: int


def counters(like: torch.Tensor, count: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """At least ``count`` zeros on the device of ``like`` that no other launch in flight uses.

    The kernel must leave them zero. Launches on one stream run one after another and share a buffer, which saves the
    memset (a zeroed allocation costs 7 us of host time on an H200 machine, more than a launch). A graph under capture
    may be replayed on any stream beside it, so it gets counters of its own, zeroed at each replay.
    """
    made = _counters(like, count, dtype)
    if recordings:
        note(Counters(dtype, count), made)
    return made


def _counters(like: torch.Tensor, count: int, dtype: torch.dtype) -> torch.Tensor:
    if not like.is_cuda or torch.cuda.is_current_stream_capturing():
        return torch.zeros(count, dtype=dtype, device=like.device)
    device = like.get_device()
    key = (device, driver.active.get_current_stream(device), dtype)
    kept = _kept.get(key)
    if kept is None or kept.numel() < count:
        # Powers of two, so that a growing sequence of shapes does not allocate for each.
        size = max(1024, 1 << (count - 1).bit_length())
        kept = _kept[key] = torch.zeros(size, dtype=dtype, device=like.device)
    return kept


def with_counters(
    launch: Callable[..., None], count: int, dtype: torch.dtype, first: torch.Tensor, *others: torch.Tensor | None
) -> None:
    """Call ``launch`` with the tensors and, after them, a workspace of ``count`` zeros."""
    launch(first, *others, counters(first, count, dtype))


@triton.jit
def encode(x):
    """A number as a word that is never 0. The float whose word would be 0 is a NaN that no operation yields."""
    x = tl.where(x == x, x, float("nan"))
    WORD: tl.constexpr = tl.int64 if x.dtype == tl.float64 else tl.int32
    return swap_zero(x.to(WORD, bitcast=True))


@triton.jit
def decode(word, dtype: tl.constexpr):
    """The number of a word that ``encode`` made."""
    return swap_zero(word).to(dtype, bitcast=True)


@triton.jit
def swap_zero(word):
    """Exchange 0 and the bits of an unusual NaN, and so on for all other bits: its own inverse."""
    if word.dtype == tl.int64:
        return word ^ 0x7FF8000000000BAD
    else:
        return word ^ 0x7FC00BAD


@triton.jit
def encode_pair(a, b):
    """Two float32 as one 64-bit word that is never 0: ``b`` = 0.0 becomes -0.0."""
    low = a.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    high = b.to(tl.int32, bitcast=True)
    high = tl.where(high == 0, -2147483648, high)
    return low | (high.to(tl.int64) << 32)


@triton.jit
def decode_pair(word):
    """The two float32 of a word that ``encode_pair`` made."""
    a = word.to(tl.int32).to(tl.float32, bitcast=True)
    b = (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return a, b


@triton.jit
def publish(word_ptr, word, mask=None):
    """Let the programs that wait in ``collect`` see ``word``, which is not 0."""
    tl.atomic_xchg(word_ptr, word, mask=mask, sem="relaxed", scope="gpu")


@triton.jit
def collect(words_ptr, mask):
    """The words at ``words_ptr``, once all of them are published; 1 where ``mask`` is false.

    Where a program has several warps and the tensor fewer elements than threads, each warp holds a copy of it and
    waits for itself, so that all of them see what they return. A tensor that is spread over warps must have as many
    elements as threads: of an element that two threads hold, one may see the word while the other does not.

    Triton does not pipeline a loop with another one inside: there, call this from a function that is not inlined.
    """
    words = tl.load(words_ptr, mask=mask, other=1, volatile=True)
    while not all_published(words):
        words = tl.load(words_ptr, mask=mask, other=1, volatile=True)
    return words


@triton.jit
def collect_two(first_ptr, second_ptr, mask):
    """As ``collect``, for two words of each program, whose loads are in flight together."""
    first = tl.load(first_ptr, mask=mask, other=1, volatile=True)
    second = tl.load(second_ptr, mask=mask, other=1, volatile=True)
    while not all_published(tl.where(first == 0, 0, second)):
        first = tl.load(first_ptr, mask=mask, other=1, volatile=True)
        second = tl.load(second_ptr, mask=mask, other=1, volatile=True)
    return first, second


@triton.jit
def all_published(words):
    return tl.sum((words == 0).to(tl.int32)) == 0


@triton.jit
def clear(words_ptr, mask):
    """Leave these words zero for the next launch. Every program of the group must have collected them."""
    tl.store(words_ptr, 0, mask=mask)


@triton.jit
def is_last(counter_ptr, group, SEM: tl.constexpr):
    """Whether this program is the last of ``group`` programs to get here. The counter is left zero.

    With "acq_rel" this program can then see what the others wrote before.
    """
    tl.debug_barrier()
    last = tl.atomic_add(counter_ptr, 1, sem=SEM) == group - 1
    if last:
        tl.store(counter_ptr, 0)
    return last


# Programs that count at one counter, at most: they wait for each other there. 1056 took 5 us (4096 x 1000 float32).
COUNTED = 32
