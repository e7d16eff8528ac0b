# SPDX-License-Identifier: Apache-2.0
"""Which layer_norm kernel to launch, and how. Constants were measured on an H200 (132 SMs, 64 K registers each)."""

from __future__ import annotations

import math
from typing import NamedTuple

from ._device import Limits

# Bytes that the programs of one SM load at a time, at each stage of their pipelines. DRAM is busy from here on: with 8
# warps of 16 KB or 16 warps of 2 KB alike, fewer bytes lose bandwidth and more programs cost partial sums.
BYTES_IN_FLIGHT = 32768
# Programs that fit one SM on every device that Triton supports.
PROGRAMS_PER_SM = 16
# A group that one warp can watch: beyond, programs of four warps hold longer slices.
NARROW_GROUP = 128


class Rows(NamedTuple):
    """Programs that hold whole rows: tiles of ``rows`` x (``chunks`` x ``width``)."""

    programs: int
    rows: int
    chunks: int
    width: int
    vec: int
    cut: bool
    stages: int
    warps: int


class Split(NamedTuple):
    """``group`` programs to a row, each with a slice of ``slice_size`` columns in ``chunks`` x ``width``."""

    programs: int
    group: int
    slice_size: int
    block: int
    chunks: int
    width: int
    vec: int
    cut: bool
    stages: int
    warps: int
    registers: int


class Loop(NamedTuple):
    """Programs that go over a row in blocks."""

    programs: int
    block: int
    warps: int


def plan_forward(M: int, N: int, element_size: int, limits: Limits) -> Rows | Split | Loop:
    """How to normalize M rows of N elements of ``element_size`` bytes."""
    vec, cut = _vectors(N, element_size)
    span = N // vec * vec
    lanes = 32 * 16 // element_size
    if 2 * span * element_size <= limits.registers_per_sm:
        # 8192 x 4096 bf16: 82 % of the copy bandwidth with 8 pieces and 2 warps, 78 % with 4 and 4, 71 % with 2 and 8.
        warps = _warps(span, 8 * lanes)
        width = min(power_of_two(span), warps * lanes)
        chunks = -(-span // width)
        # 32768 x 1024 bf16: 81 % with 4 pieces, be they of one row or of several.
        rows = _power_of_two_within(4 * lanes // (chunks * width))
        tile_bytes = rows * chunks * width * element_size
        per_sm = max(1, BYTES_IN_FLIGHT // tile_bytes)
        programs = _programs(M, rows, limits.sm_count * per_sm, vec, cut)
        return Rows(programs, rows, chunks, width, vec, cut, _stages(4, per_sm * tile_bytes, limits), warps)
    if element_size < 8:
        # A misaligned weight and bias take a register for each element, half ones too: 144 bytes spill with 4 pieces.
        chunks = 2 * element_size - (cut and element_size == 2)
        registers = 152 if element_size == 4 else 128
        if limits.capability[0] != 9:
            registers += 24  # the same code takes more of them on sm_80, and with Triton 3.7 on sm_100
        for warps in (1, 4):
            split = _split(M, N, element_size, 1, warps, chunks, registers, limits)
            if split is not None:
                return split
    # 4096 float64 spill.
    return Loop(min(M, limits.sm_count * 2), min(32768 // element_size, 131072 // element_size**2), 8)


def plan_backward(M: int, N: int, element_size: int, limits: Limits) -> Rows | Split | Loop:
    """How to compute the gradients of M rows of N elements of ``element_size`` bytes."""
    vec, cut = _vectors(N, element_size)
    span = N // vec * vec
    lanes = 32 * 16 // element_size
    # sm_100 takes more registers for the same code: 8 to 24 bytes spill with what sm_80 and sm_90 get.
    tight = limits.capability >= (10, 0)
    # dweight, dbias, xhat and g are in registers, two for a float64 each.
    if 8 * span * max(1, element_size // 4) <= limits.registers_per_sm:
        per_thread = 32 if element_size < 8 else 8  # 16 float64 spill
        # A row goes over all warps: Triton's pipeline mixes up the layout of a tile whose rows share them.
        row_bytes = span * element_size
        most = 4 if row_bytes <= 8192 else 8 if row_bytes <= 12288 or element_size == 8 else 16
        if cut or (tight and row_bytes > 16384):
            most = min(most, 8)  # edges: 72 bytes spill with 16
        warps = min(_warps(span, lanes), most)
        width = min(power_of_two(span), warps * lanes)
        chunks = -(-span // width)
        if element_size < 8 and (warps == 16 or (element_size == 4 and chunks == 1 and warps > 1)):
            per_thread = 16  # a thread of 16 warps has 128 registers; 8 rows of 512 float32 spill
        if limits.capability < (9, 0) and width < lanes:
            per_thread = min(per_thread, 16)  # 16 rows of 64 spill on sm_80
        rows = _power_of_two_within(warps * 32 * per_thread // (chunks * width))
        tile_bytes = 2 * rows * chunks * width * element_size
        per_sm = max(1, BYTES_IN_FLIGHT // tile_bytes)
        stages = 4 if per_sm == 1 else 3
        if tight and tile_bytes >= BYTES_IN_FLIGHT:
            stages = 3
        stages = _stages(stages, per_sm * tile_bytes, limits)
        # Each program stores a row of partial sums: two to an SM, or one for every 8 tiles, whichever is more.
        most = min(limits.sm_count * per_sm, max(2 * limits.sm_count, -(-M // (8 * rows))))
        return Rows(_programs(M, rows, most, vec, cut), rows, chunks, width, vec, cut, stages, warps)
    if element_size < 8:
        for warps, chunks, registers in (
            (1, element_size, 128),
            (4, element_size * 3 // 2 if cut or tight else element_size * 2, 255),
        ):
            split = _split(M, N, element_size, 2, warps, chunks, registers, limits)
            if split is not None:
                return split
    return Loop(min(M, limits.sm_count * 2), 16384 // element_size, 8)


def _vectors(N: int, element_size: int) -> tuple[int, bool]:
    """(elements to a load, whether rows start inside one)."""
    most = 16 // element_size
    common = math.gcd(N, most)
    # Short rows are mostly edges.
    return (most, True) if common < most and N >= 256 else (common, False)


def _programs(M: int, rows: int, most: int, vec: int, cut: bool) -> int:
    if cut:
        # All rows of a program start equally far from a vector.
        return M if most >= M else max(most // vec, 1) * vec
    return min(most, -(-M // rows))


def _split(
    M: int, N: int, element_size: int, tensors: int, warps: int, chunks: int, registers: int, limits: Limits
) -> Split | None:
    """None where a row takes more programs than one warp can watch, or than can run at once."""
    vec, cut = _vectors(N, element_size)
    width = warps * 32 * 16 // element_size
    stages = 4
    shared = (stages - 1) * chunks * width * element_size * tensors + 2048
    # Each quarter of a multiprocessor has its own registers: at 152 a thread, 12 warps run at once and not 13.
    quarter = limits.registers_per_sm // 4 // (-(-registers // 8) * 8 * 32)
    per_sm = min(PROGRAMS_PER_SM, 4 * quarter // warps)
    programs = limits.sm_count * max(1, min(per_sm, limits.shared_bytes // shared))
    span = N // vec * vec
    # Slices of a multiple of 16 elements are of whole vectors, and what Triton compiles for.
    slice_size = -(-span // (16 * -(-span // (chunks * width)))) * 16
    group = -(-span // slice_size)
    if group > programs or (warps == 1 and group > NARROW_GROUP):
        return None
    groups = min(programs // group, M)
    if cut and groups < M:
        # All rows of a group start equally far from a vector: a multiple of vec groups.
        vec = min(vec, _power_of_two_within(groups))
        groups = groups // vec * vec
        cut = N % vec != 0
    block = 32 if warps > 1 or group <= 32 else NARROW_GROUP
    return Split(groups * group, group, slice_size, block, chunks, width, vec, cut, stages, warps, registers)


def _stages(stages: int, bytes_per_sm: int, limits: Limits) -> int:
    """As many as shared memory holds; with two, a load is waited for at once, which is slower than with one."""
    fit = 1 + (limits.shared_bytes - 8192) // bytes_per_sm
    return min(stages, fit) if fit >= 3 else 1


def _warps(span: int, elements: int) -> int:
    """Warps of ``elements`` each that hold ``span``: a power of two up to 16."""
    return min(power_of_two(-(-span // elements)), 16)


def power_of_two(n: int) -> int:
    """The next."""
    return 1 << (n - 1).bit_length()


def _power_of_two_within(n: int) -> int:
    """The last, at least 1."""
    return 1 << max(n.bit_length() - 1, 0)
