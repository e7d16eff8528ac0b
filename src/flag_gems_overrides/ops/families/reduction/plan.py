# SPDX-License-Identifier: Apache-2.0
"""How reductions are divided among programs.

Constants were chosen on an H200 (132 SMs, triton 3.6.0) with the L2 cache full of clean lines; times are of amax.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from triton import cdiv, next_power_of_2

from ...launch.devices import Limits


class Plan(NamedTuple):
    """What one program does and how many there are."""

    flat: bool  # rows of N * K as they lie in memory, or tiles of [N, K]
    block_m: int
    block_n: int  # along the row if flat
    block_k: int
    step: int  # how much of block_n is used
    vector: int  # elements that a load takes together
    edge_lanes: int  # for the elements of a row that are in no whole vector, 0 if there are none
    neighbours: int  # of which a reduction with positions combines the values before it compares
    splits: int  # programs that share an output
    num_warps: int
    num_stages: int  # tiles in flight
    registers: int  # that a thread may have
    evict: str = ""  # the policy of the L2 cache for the input

    def blocks(self, M: int, K: int) -> int:
        return cdiv(M, self.block_m) * cdiv(K, self.block_k)

    def max_offset(self, N: int, K: int) -> int:
        """A bound for the offsets in a row of N * K elements, those included that are masked."""
        if self.flat:
            return N * K + self.splits * self.step + self.edge_lanes
        return (N + self.splits * self.step) * K


# Warps that a multiprocessor has to work on. More programs than fit at once leave a part of the last round idle:
# 64 x 16384 x 64 bf16 along 1 took 47 us with 4 programs of 8 warps, 57 us with 6. With 80 registers and more a
# thread, as an index reduction has that keeps every element apart, fewer fit.
_WARPS_PER_SM, _WARPS_PER_SM_POSITIONS = 32, 24
# A program of 8 warps has 16 KB in flight: 2**29 bf16 at 4283 GB/s; half of that or 4 warps cost 1 to 4 %.
_TILE_BYTES, _WARPS, _MAX_ELEMENTS = 16384, 8, 8192
# Where row ends need care, fewer, and of 16-bit elements several tiles in flight: 8192 x 50257 bf16 202 us, without
# the second 210, without the first 241.
_TILE_WITH_EDGES = 4096
# Rows up to 4 KB, several to a program, with 4 warps: less to fold across warps. Twice as many for a warp where a row
# needs more than reading: 65536 x 1023 bf16 36 us, not 42, max.dim 65536 x 768 bf16 30 us by 2 warps, not 38 by 4,
# 65536 x 1023 41 us, not 50, 200000 x 130 float32 57, not 72; not if rows are very short (1048576 x 16) or few.
_SHORT_BYTES, _SHORT_WARPS, _MIN_BYTES_OF_LONG, _BYTES_WITH_ALL_WARPS = 4096, 4, 512, 64
# Where there is not enough for all multiprocessors, 8 elements to a thread. bf16 with 16: 33 x 100 2.5 us, not 2.4,
# max.dim 128 x 32 2.5, not 2.4, 1000 x 50 3.5, not 2.8; argmin 64 x 64 uint8 with 32 2.8, not 2.4.
_LITTLE_TILE = 1024
# K classes in a row: a warp for each tile of 512, where that leaves few enough partial results. bf16 by programs of
# four warps, and so: max.dim 20000 x 1000 x 3 158 and 54 us, 200 x 40999 x 3 32 and 28, amax of the first 73 and 42.
_CLASSES_TILE, _WARPS_PER_SM_CLASSES, _WARPS_PER_SM_CLASSES_POSITIONS, _MAX_SPLITS_OF_A_WARP = 512, 24, 16, 256
# Neighbours are combined before they are compared in rows longer than this, of 16-bit and of larger elements: max.dim
# 2**20 x 16 bf16 25 us, without 15; 2**20 x 64 bf16 40 us, without 49; 262144 x 128 float32 38 us, without 37.
_MAX_LENGTH_WITHOUT_NEIGHBOURS, _MAX_LENGTH_WITHOUT_NEIGHBOURS_LARGE = 32, 128
# K up to which a row is read as it lies, its K classes folded one after the other.
_MAX_FLAT_K = 8
# Tiles of 64 x 32 by 4 warps were best or within 5 % for every split shape, 32 x 64 where there are outputs enough
# (256 x 1024 x 1024 bf16 along 1 129 us, not 157). Of 16-bit elements several tiles are in flight (64 x 512 x 512
# bf16 along 1 14.3 us, without 16.3), of larger ones that costs more than it brings. 64 columns also where a program
# has a dozen tiles or more: 64 x 16384 x 64 bf16 along 1 43 us, not 49, x 128 78, not 95; with 8 it is 5 % slower.
_TILED_ELEMENTS, _TILED_WARPS, _BLOCK_K, _WIDE_BLOCK_K, _STAGES = 2048, 4, 32, 64, 3
_TILES_TO_WIDEN = 12
# Many results of few elements each: a warp for each tile, nothing is folded across warps. Tiles of 8 x 64, for up to
# 8 elements of 8 x 256 (512 bytes wide), for up to 4 of 1024 in all. Along 1, by programs of four warps, and so: amax
# 16 x 21 x 262144 bf16 187 and 57 us, float32 118 and 96, max.dim bf16 358 and 86, 4096 x 5 x 1000 302 and 28. It takes
# 24 warps on a multiprocessor, fewer if they are soon done: 1024 of them (8 x 300 x 8192) take 1.4 times as long. 1000
# elements (16 x 1000 x 4096) take up to 7 % longer. Tiles of 8 x 128 spill in 64 registers.
_BY_WARPS_BLOCK_K, _BY_WARPS_MAX_TILE, _BY_WARPS_MAX_N, _BY_WARPS_PER_SM, _FEW_ROUNDS = 64, 1024, 512, 24, 4
# An input that passes through the L2 cache need not displace what others left there and what must be written back
# first: amax of 65536 x 768 bf16 29 us, not 34; 64 x 512 x 512 along 1 15.5 us, not 18.5, though not pipelined. Smaller
# inputs may be wanted again; with larger ones it costs: 2**30 float32 1003 us, not 958.

# Partial results that a warp of the last program of a block can have in registers, of up to 4 and of 8 bytes. Where
# they are too few for all programs, programs are twice as large: amax of 1000000 x 64 along 0 bf16 43 us, not 74.
_MAX_PARTIALS, _MAX_WIDE_PARTIALS = 1024, 512


def plan(M: int, N: int, K: int, itemsize: int, positions: bool, limits: Limits) -> Plan:
    """How to reduce a contiguous [M, N, K] over N.

    Args:
        M, N, K: sizes; M and K at least 1.
        itemsize: bytes of an element of the input.
        positions: whether the position of the result is wanted too.
        limits: of the device.
    """
    through = limits.l2_bytes // 2 < M * N * K * itemsize <= 4 * limits.l2_bytes
    if K == 1 or (K <= _MAX_FLAT_K and N * K * itemsize > _SHORT_BYTES):
        planned = _flat(M, max(N * K, 1), K, itemsize, positions, limits)
    else:
        planned = _by_warps(M, N, K, itemsize, limits) or _tiled(M, max(N, 1), K, itemsize, positions, limits)
        if through:
            planned = planned._replace(num_stages=1)  # asynchronous copies take no policy
    return planned._replace(evict="evict_first" if through else "")


def _flat(M: int, length: int, K: int, itemsize: int, positions: bool, limits: Limits) -> Plan:
    vector = 16 // itemsize
    if length < 16 * vector:
        # Too short to be worth reading its ends apart from the rest.
        vector = math.gcd(length, vector)
    edges = length % vector != 0
    row_bytes = length * itemsize
    short = row_bytes <= _SHORT_BYTES
    warps_per_sm, stages = _WARPS_PER_SM, 1
    if short:
        long = positions and row_bytes >= _MIN_BYTES_OF_LONG
        double = edges or (long and itemsize > 2)
        tile, warps = _SHORT_BYTES * (2 if double else 1) // itemsize, _SHORT_WARPS
        many = M * next_power_of_2(length) >= limits.sm_count * tile
        # A thread holds 64 elements at most. On sm_100 8 bytes of 300000 x 50 bf16 spill.
        fits = tile <= 64 * 32 * warps // 2 and limits.capability < (10, 0)
        if positions and many and fits and row_bytes > _BYTES_WITH_ALL_WARPS:
            warps //= 2
    elif K > 1:
        warps_per_sm = _WARPS_PER_SM_CLASSES_POSITIONS if positions else _WARPS_PER_SM_CLASSES
        tile, warps = _CLASSES_TILE // (1 if K <= 4 and itemsize > 1 else 2), 1
        if limits.sm_count * warps_per_sm > _MAX_SPLITS_OF_A_WARP * M:
            tile, warps = _SHORT_BYTES // itemsize, _SHORT_WARPS
            if positions:
                stages = _STAGES
            else:
                warps_per_sm = _WARPS_PER_SM
    else:
        tile, warps = min(_TILE_BYTES // itemsize, _TILE_WITH_EDGES if edges else _MAX_ELEMENTS), _WARPS
        if edges and not positions and itemsize <= 2:
            stages = _STAGES
        if itemsize == 1 and not (edges or positions):
            # amax 16384 x 16384 uint8 75 us, not 83, bool 91, not 104, prod 136, not 177.
            tile, warps = tile // 2, warps // 2
    max_alone = _MAX_LENGTH_WITHOUT_NEIGHBOURS if itemsize <= 2 else _MAX_LENGTH_WITHOUT_NEIGHBOURS_LARGE
    block_n = min(next_power_of_2(length), tile)
    block_m = min(next_power_of_2(M), tile // block_n) if short else 1
    if short and not many:
        block_m = min(block_m, max(_LITTLE_TILE // block_n, 1))
    period = math.lcm(K, vector)
    step = block_n // period * period
    block_k = next_power_of_2(K)
    programs = limits.sm_count * warps_per_sm // warps
    splits = min(cdiv(length, step), programs // cdiv(M, block_m), _max_partials(itemsize, warps) // block_m // block_k)
    return Plan(
        flat=True,
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        step=step,
        vector=vector,
        # One for each thread: a smaller tensor Triton loads in the tile's layout, each element by many threads.
        edge_lanes=max(2 * vector, warps * 32 // block_m) if edges else 0,
        neighbours=vector if K == 1 and length > max_alone else 1,
        splits=max(splits, 1),
        num_warps=warps,
        num_stages=stages,
        # 8 bytes of uint8 spill in 64 registers.
        registers=_registers(warps_per_sm // (2 if itemsize == 1 and not positions else 1), limits),
    )


def _by_warps(M: int, N: int, K: int, itemsize: int, limits: Limits) -> Plan | None:
    """A warp for each tile, where there are many results of few elements each: nothing is folded across warps."""
    warps_per_sm = _WARPS_PER_SM
    if N > 8:
        block_n, block_k = 8, _BY_WARPS_BLOCK_K
        enough = min(cdiv(N, block_n), _BY_WARPS_PER_SM) if _FEW_ROUNDS * block_n < N else 0
        fits = N <= _BY_WARPS_MAX_N and block_k < 2 * K
    elif N > 4:
        warps_per_sm //= 2
        block_n, block_k = 8, min(512 // max(itemsize, 2), next_power_of_2(K))
        enough, fits = 0, _BY_WARPS_BLOCK_K < 2 * K
    else:
        block_n = next_power_of_2(max(N, 1))
        block_k = _BY_WARPS_MAX_TILE // block_n
        enough, fits = _BY_WARPS_PER_SM, itemsize <= 2 and block_k <= K
    if not fits or M * cdiv(K, block_k) < enough * limits.sm_count:
        return None
    return Plan(
        flat=False,
        block_m=1,
        block_n=block_n,
        block_k=block_k,
        step=block_n,
        vector=math.gcd(K, 16),
        edge_lanes=0,
        neighbours=1,
        splits=1,
        num_warps=1,
        num_stages=_STAGES if itemsize <= 2 else 1,
        registers=_registers(warps_per_sm, limits),
    )


def _tiled(M: int, N: int, K: int, itemsize: int, positions: bool, limits: Limits) -> Plan:
    tile = min(_TILE_BYTES // 2 // itemsize, _TILED_ELEMENTS)
    warps_per_sm = _WARPS_PER_SM_POSITIONS if positions else _WARPS_PER_SM
    # With 4 vectors to a thread ptxas may make two of them wait: min.dim of 64 x 512 x 512 int64 41 us, not 55; max.dim
    # 42, not 40.
    warps = _TILED_WARPS * (2 if positions and itemsize == 8 else 1)
    programs = limits.sm_count * warps_per_sm // warps
    max_partials = _max_partials(itemsize, warps)
    tiles = M * N * K // (programs * tile)  # of a program, if all had as many
    block_k, blocks = _WIDE_BLOCK_K, M * cdiv(K, _WIDE_BLOCK_K)
    if blocks < programs and (tiles < _TILES_TO_WIDEN or 8 * blocks * (max_partials // block_k) < 7 * programs):
        block_k = _BLOCK_K
    block_k = min(block_k, next_power_of_2(K))
    if tiles >= 2 and 4 * M * cdiv(K, block_k) * (max_partials // block_k) < 3 * programs:
        tile, warps, programs, max_partials = 2 * tile, 2 * warps, programs // 2, 2 * max_partials
    block_k = min(max(block_k, tile // next_power_of_2(N)), next_power_of_2(K))
    block_n = min(next_power_of_2(N), tile // block_k)
    block_m = min(next_power_of_2(M), tile // block_k // block_n)
    blocks = cdiv(M, block_m) * cdiv(K, block_k)
    splits = min(cdiv(N, block_n), programs // blocks, max_partials // block_m // block_k)
    return Plan(
        flat=False,
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        step=block_n,
        vector=math.gcd(K, 16),
        edge_lanes=0,
        neighbours=1,
        splits=max(splits, 1),
        num_warps=warps,
        num_stages=_STAGES if itemsize <= 2 else 1,
        registers=_registers(warps_per_sm, limits),
    )


def _registers(warps_per_sm: int, limits: Limits) -> int:
    """As many as let so many warps be resident.

    Without a limit ptxas takes fewer, for more warps than there are, and lets the loads of a tile wait for each other:
    2**30 float32 1077 us in 30 registers, at 88 % of the bandwidth at which bfloat16, in 64, is read.
    """
    return limits.registers_per_sm // (32 * warps_per_sm) // 8 * 8


def _max_partials(itemsize: int, warps: int) -> int:
    """Of all warps of the last program. What one warp may have, _MAX_SPLITS_OF_A_WARP says."""
    return max(warps, 4) * (_MAX_PARTIALS if itemsize <= 4 else _MAX_WIDE_PARTIALS)
