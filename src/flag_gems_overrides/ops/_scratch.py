# SPDX-License-Identifier: Apache-2.0
"""Zeroed counters for programs of one launch that wait for, or count, each other."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.runtime import driver

_kept: dict[tuple[int, int], torch.Tensor] = {}


def counters(like: torch.Tensor, count: int) -> torch.Tensor:
    """At least ``count`` int32 zeros on the device of ``like`` that no other launch in flight uses.

    The kernel must leave them zero. Launches on one stream run one after another and share a buffer, which saves the
    memset (a zeroed allocation costs 7 us of host time on an H200 machine, more than a launch). A graph under capture
    may be replayed on any stream beside it, so it gets counters of its own, zeroed at each replay.
    """
    if not like.is_cuda or torch.cuda.is_current_stream_capturing():
        return torch.zeros(count, dtype=torch.int32, device=like.device)
    device = like.get_device()
    key = (device, driver.active.get_current_stream(device))
    kept = _kept.get(key)
    if kept is None or kept.numel() < count:
        # Powers of two, so that a growing sequence of shapes does not allocate for each.
        size = max(1024, 1 << (count - 1).bit_length())
        kept = _kept[key] = torch.zeros(size, dtype=torch.int32, device=like.device)
    return kept


@triton.jit
def is_last_to_leave(count_ptr, group):
    """Whether the other programs of a group have come here, and so need nothing more of what the group exchanged.

    The counter is left zero.
    """
    tl.debug_barrier()
    left = tl.atomic_add(count_ptr, 1, sem="relaxed", scope="gpu")
    if left == group - 1:
        tl.store(count_ptr, 0)
    return left == group - 1
