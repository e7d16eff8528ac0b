# SPDX-License-Identifier: Apache-2.0
"""The numbers of a device that plans are made from."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from flag_gems.runtime import device as backend
from flag_gems.runtime import torch_device_fn

# torch.cuda.current_device() first looks whether CUDA is initialized, which it is where there is a tensor. That is
# half of its time, and a small operator asks two or three times.
current_device: Callable[[], int] = (
    torch._C._cuda_getDevice if backend.name == "cuda" else torch_device_fn.current_device
)


class Limits(NamedTuple):
    """What one device has. Plans take it as an argument, so they can be tested for any GPU without having it."""

    sm_count: int
    l2_bytes: int
    registers_per_sm: int  # of 32 bits
    threads_per_sm: int
    shared_bytes: int  # most dynamic shared memory one program can ask for
    capability: tuple[int, int]


@functools.cache
def limits(device: int) -> Limits:
    """The limits of the device with this index (-1, the CPU, stands for the interpreter's device)."""
    properties = torch_device_fn.get_device_properties(max(device, 0))
    return Limits(
        sm_count=properties.multi_processor_count,
        l2_bytes=properties.L2_cache_size,
        registers_per_sm=properties.regs_per_multiprocessor,
        threads_per_sm=properties.max_threads_per_multi_processor,
        shared_bytes=properties.shared_memory_per_block_optin,
        capability=(properties.major, properties.minor),
    )
