# SPDX-License-Identifier: Apache-2.0
"""GPUs that need not be here: what compiling, occupancy and the roofline need to know of them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple


class Gpu(NamedTuple):
    """One model. Sizes in bytes, from NVIDIA's tuning guides and ``cudaGetDeviceProperties``."""

    name: str
    arch: int
    """Compute capability times ten: 90 for sm_90."""
    sm_count: int
    l2_bytes: int
    threads_per_sm: int
    shared_bytes: int
    """The most that one program can have."""
    shared_per_sm: int
    registers_per_sm: int = 65536
    programs_per_sm: int = 32
    copy_gbps: float = math.nan
    """Reading and writing; measured where we could, else 90 % of the data sheet's bandwidth."""
    read_gbps: float = math.nan


A100 = Gpu("NVIDIA A100", 80, 108, 40 << 20, 2048, 163 << 10, 164 << 10, copy_gbps=1835, read_gbps=1835)
H200 = Gpu("NVIDIA H200", 90, 132, 60 << 20, 2048, 227 << 10, 228 << 10, copy_gbps=4305, read_gbps=4545)
B200 = Gpu("NVIDIA B200", 100, 148, 126 << 20, 2048, 227 << 10, 228 << 10, copy_gbps=7200, read_gbps=7200)
KNOWN = (A100, H200, B200)


def here() -> Gpu:
    """The current GPU as it describes itself, which does not say how fast it copies and reads."""
    import torch

    found: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    return Gpu(
        found.name,
        found.major * 10 + found.minor,
        found.multi_processor_count,
        found.L2_cache_size,
        found.max_threads_per_multi_processor,
        found.shared_memory_per_block_optin,
        found.shared_memory_per_multiprocessor,
        found.regs_per_multiprocessor,
    )


def occupancy(gpu: Gpu, warps: int, registers: int, shared: int) -> float:
    """The share of a multiprocessor's threads that programs of this kind can fill.

    Args:
        warps: of one program.
        registers: of one thread; handed out by warp in steps of 256, from those of a quarter of the multiprocessor.
        shared: bytes of one program; the driver takes another 1024.
    """
    per_warp = -(-registers * 32 // 256) * 256
    limits = [
        gpu.programs_per_sm,
        gpu.threads_per_sm // (32 * warps),
        4 * (gpu.registers_per_sm // 4 // per_warp) // warps if registers else gpu.programs_per_sm,
        gpu.shared_per_sm // (shared + 1024),
    ]
    return min(limits) * warps * 32 / gpu.threads_per_sm
