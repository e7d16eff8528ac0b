# SPDX-License-Identifier: Apache-2.0
"""Zeroed counters for programs of one launch that wait for, or count, each other."""

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
    """``launch`` of the tensors with counters behind them."""
    launch(first, *others, counters(first, count, dtype))


@triton.jit
def is_last(count_ptr, among, SEM: tl.constexpr):
    """Whether the other programs ``among`` so many have come here. The counter is left zero.

    With "acq_rel" this program can then see what the others wrote before.
    """
    tl.debug_barrier()
    last = tl.atomic_add(count_ptr, 1, sem=SEM) == among - 1
    if last:
        tl.store(count_ptr, 0)
    return last
