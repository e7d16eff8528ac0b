# SPDX-License-Identifier: Apache-2.0
"""Which rms_norm kernel to launch, and how."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits

# Bytes that the programs of one SM load at a time; layer_norm's, measured on an H200.
BYTES_IN_FLIGHT = 32768
# Bytes of a row up to which a program has one tile and no loop: all loads are in flight without a pipeline.
MAX_BYTES_OF_ONE_TILE = {2: 2048, 4: 16384, 8: 0}


class Rows(NamedTuple):
    """Programs that hold whole rows: tiles of ``block_m`` x (``chunks`` x ``block_n``)."""

    programs: int
    block_m: int
    chunks: int
    block_n: int
    vec: int
    unaligned: bool
    stages: int
    warps: int

    def int64_rows(self, M: int) -> bool:
        """Whether row numbers exceed int32, including those of the iteration after the last row."""
        return M + self.programs * self.block_m > 2**31


class Loop(NamedTuple):
    """Programs that go over a row in blocks of ``block_n`` columns."""

    programs: int
    block_n: int
    stages: int
    warps: int


class Split(NamedTuple):
    """``splits`` programs to a row, each with ``slice_size`` columns, for its sum; then one for each block of
    ``block_n`` columns, in the gradient of ``rows`` rows."""

    splits: int
    slice_size: int
    rows: int
    block_n: int
    vec: int
    stages: int
    warps: int


def plan_forward(M: int, N: int, element_size: int, limits: Limits) -> Rows | Loop | Split:
    """How to normalize M rows of N elements of ``element_size`` bytes."""
    vec, unaligned = vectors(N, element_size)
    span = N // vec * vec
    lanes = 32 * 16 // element_size
    registers = max(1, element_size // 4)  # of an element
    # A quarter of the registers: what is loaded, the weight and the result.
    if 4 * span * registers > limits.registers_per_sm:
        if limits.sm_count > M:
            return _split(M, N, element_size, limits)
        return Loop(min(M, 2 * limits.sm_count), (8192 if unaligned else 16384) // element_size, 3, 8)
    one_tile = not unaligned and span * element_size <= MAX_BYTES_OF_ONE_TILE[element_size]
    if one_tile:
        # Up to 8 vectors to a thread; few rows rather go to more programs.
        warps = _warps(span, 4 * lanes, 16)
        block_n = min(power_of_two(span), warps * lanes)
        chunks = -(-span // block_n)
        block_m = power_of_two_within(min(8 * warps * lanes // (chunks * block_n), M // (2 * limits.sm_count)))
        return Rows(min(-(-M // block_m), 2**30 // block_m), block_m, chunks, block_n, vec, False, 1, warps)
    # With few rows, more warps to each are faster.
    warps = _warps(span, (8 if limits.sm_count < M else 2) * lanes, 16)
    block_n = min(power_of_two(span), warps * lanes)
    chunks = -(-span // block_n)
    block_m = power_of_two_within(4 * lanes // (chunks * block_n))
    tile_bytes = block_m * chunks * block_n * element_size
    per_sm = max(1, BYTES_IN_FLIGHT // tile_bytes)
    programs = _programs(M, block_m, limits.sm_count * per_sm, vec, unaligned)
    stages = 1 if programs * block_m >= M else _stages(4, per_sm * tile_bytes, limits)
    return Rows(programs, block_m, chunks, block_n, vec, unaligned, stages, warps)


def plan_backward(M: int, N: int, element_size: int, limits: Limits) -> Rows | Split:
    """How to compute the gradients of M rows of N elements of ``element_size`` bytes."""
    vec, unaligned = vectors(N, element_size)
    span = N // vec * vec
    lanes = 32 * 16 // element_size
    registers = max(1, element_size // 4)  # of an element
    # xhat, wdy, weight and dweight are in registers.
    if 8 * span * registers > limits.registers_per_sm:
        return _split(M, N, element_size, limits)
    # What follows is layer_norm's, whose gradient holds dbias as well, as measured there.
    elements = power_of_two(M) * power_of_two(N)
    if element_size < 8 and N <= 128 and elements <= min(4096 if N <= 64 else 2048, 256 * vec * element_size):
        # One program, and so no second kernel to launch.
        warps = 4 if elements > 2048 else 2 if elements > 256 else 1
        return Rows(1, power_of_two(M), 1, power_of_two(N), vec, False, 1, warps)
    per_thread = 8 if element_size == 8 else 32
    row_bytes = span * element_size
    max_warps = 4 if row_bytes <= 8192 else 8 if row_bytes <= 12288 or element_size == 8 else 16
    if unaligned or (element_size == 4 and row_bytes <= 16384):
        max_warps = min(max_warps, 8)
    warps = _tight_warps(span, lanes, max_warps, per_thread * element_size // 16)
    block_n = min(power_of_two(span), warps * lanes)
    chunks = -(-span // block_n)
    # Unaligned float32 rows of 32 elements a thread spill 32 bytes on sm_80 (1024 x 1001).
    if element_size < 8 and (warps == 16 or (element_size == 4 and (unaligned or chunks == 1 or warps == 1))):
        per_thread = 16
    block_m = power_of_two_within(warps * 32 * per_thread // (chunks * block_n))
    tile_bytes = 2 * block_m * chunks * block_n * element_size
    per_sm = max(1, BYTES_IN_FLIGHT // tile_bytes)
    stages = _stages(4 if per_sm == 1 and block_m == 1 else 3, per_sm * tile_bytes, limits)
    # Each program stores a row of partial sums: two to an SM, or one for every 8 tiles, whichever is more.
    max_programs = min(limits.sm_count * per_sm, max(2 * limits.sm_count, -(-M // (8 * block_m))))
    programs = _programs(M, block_m, max_programs, vec, unaligned)
    return Rows(programs, block_m, chunks, block_n, vec, unaligned, stages, warps)


def _split(M: int, N: int, element_size: int, limits: Limits) -> Split:
    block_n = 4 * 32 * 16 // element_size  # one vector to a thread
    programs = 4 * limits.sm_count
    splits = max(1, min(programs // M, N // (4 * block_n), 1024))
    slice_size = -(-N // (splits * block_n)) * block_n
    blocks = -(-N // block_n)
    rows = -(-M // max(1, min(programs // blocks, M)))
    return Split(-(-N // slice_size), slice_size, rows, block_n, math.gcd(N, 16 // element_size), 4, 4)


def vectors(N: int, element_size: int) -> tuple[int, bool]:
    """(elements of a load, whether rows start inside one)."""
    widest = 16 // element_size
    common = math.gcd(N, widest)
    # Short rows are mostly edges.
    return (widest, True) if common < widest and N >= 256 else (common, False)


def _programs(M: int, block_m: int, max_programs: int, vec: int, unaligned: bool) -> int:
    if unaligned:
        # All rows of a program start equally far from a vector.
        return M if max_programs >= M else max(max_programs // vec, 1) * vec
    return min(max_programs, -(-M // block_m))


def _stages(stages: int, bytes_per_sm: int, limits: Limits) -> int:
    """As many as shared memory holds; with two, a load is waited for at once, which is slower than with one."""
    fit = 1 + (limits.shared_bytes - 8192) // bytes_per_sm
    return min(stages, fit) if fit >= 3 else 1


def _warps(span: int, elements: int, most: int) -> int:
    """Warps of ``elements`` each that hold ``span``: a power of two up to ``most``."""
    return min(power_of_two(-(-span // elements)), most)


def _tight_warps(span: int, lanes: int, max_warps: int, chunks: int) -> int:
    """Warps, up to ``max_warps``, that hold ``span`` in at most ``chunks`` chunks with the least left over."""
    max_warps = min(_warps(span, lanes, 16), max_warps)
    max_chunks = max(chunks, -(-span // (max_warps * lanes)))
    fit = [w for w in (16, 8, 4, 2, 1) if w <= max_warps and -(-span // (w * lanes)) <= max_chunks]
    return min(fit, key=lambda w: -(-span // (w * lanes)) * w)


def power_of_two(n: int) -> int:
    """The next."""
    return 1 << (n - 1).bit_length()


def power_of_two_within(n: int) -> int:
    """The last, at least 1."""
    return 1 << max(n.bit_length() - 1, 0)
