# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def,attr-defined"
"""Kernels of our own that fill and read memory: to flush the L2 cache, and to measure what memory can do.

Not aten's ``zero_`` and ``copy_``: those may be the very operators that flag_gems has overridden.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# One H200, triton 3.6.0, 1 GiB: copies 4305 GB/s with 16 bytes per thread in one tile (4100 with 32, 3900 in a
# grid-stride loop; torch's copy_ 4270), reads 4545 GB/s with 16 loads of 16 bytes per thread (4430 with 4 or 32).
_TILE, _READ_TILE, READ_TILES, _WARPS = 1024, 4096, 4, 8


@triton.jit
def _fill(y_ptr, count, TILE: tl.constexpr):
    """y_ptr: [count] int32."""
    i = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    tl.store(y_ptr + i, tl.zeros([TILE], tl.int32), mask=i < count)


@triton.jit
def _copy(x_ptr, y_ptr, count, TILE: tl.constexpr):
    """x_ptr, y_ptr: [count] int32."""
    i = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < count), mask=i < count)


@triton.jit
def _read(x_ptr, y_ptr, count, TILE: tl.constexpr, TILES: tl.constexpr):
    """x_ptr: [count] int32; y_ptr: [programs] int32, which keeps the loads from being optimized away."""
    combined = tl.zeros([TILE], tl.int32)
    for tile in tl.static_range(TILES):
        i = (tl.program_id(0).to(tl.int64) * TILES + tile) * TILE + tl.arange(0, TILE)
        combined |= tl.load(x_ptr + i, mask=i < count, other=0)
    tl.store(y_ptr + tl.program_id(0), tl.max(combined, 0))


class Memory:
    """A buffer of ``size`` bytes on a GPU, and the three things to do with it."""

    def __init__(self, size: int, device: torch.device) -> None:
        self._count = size // 8
        self._x, self._y = torch.empty(2, self._count, dtype=torch.int32, device=device)
        self._tiles = triton.cdiv(self._count, _TILE)
        self._combined = torch.empty(triton.cdiv(self._count, _READ_TILE), dtype=torch.int32, device=device)

    def fill(self) -> None:
        """Write half of the buffer. The next kernel finds the cache full of lines that must be written back, as in
        the middle of a program: each line that it leaves in the cache unwritten displaces one of these."""
        _fill[(self._tiles,)](self._y, self._count, TILE=_TILE, num_warps=_WARPS)

    def copy(self) -> int:
        """Copy one half onto the other; returns the bytes moved."""
        _copy[(self._tiles,)](self._x, self._y, self._count, TILE=_TILE, num_warps=_WARPS)
        return 8 * self._count

    def read(self, tiles: int = READ_TILES) -> int:
        """Read one half, ``tiles`` tiles of 16 KiB per program; returns the bytes moved."""
        readers = triton.cdiv(self._count, _READ_TILE * tiles)
        _read[(readers,)](self._x, self._combined, self._count, TILE=_READ_TILE, TILES=tiles, num_warps=_WARPS)
        return 4 * self._count
