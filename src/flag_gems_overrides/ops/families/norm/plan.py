# SPDX-License-Identifier: Apache-2.0
"""Which layer_norm kernel to launch, and how. Constants were measured on an H200 (132 SMs, 64 K registers each)."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits

# Bytes that the programs of one SM load at a time, at each stage of their pipelines. DRAM is busy from here on: with 8
# warps of 16 KB or 16 warps of 2 KB alike, fewer bytes lose bandwidth and more programs cost partial sums.
BYTES_IN_FLIGHT = 32768
# Up to this N, by bytes of an element, each program has one tile: with as many programs as tiles, all loads are in
# flight without a pipeline. bf16, before -> after: 1048576 x 256 289 -> 258 us, 65536 x 768 59 -> 54, 32768 x 1000 42
# -> 38, 64 x 64 3.3 -> 3.1, and 16384 x 2048 38 -> 39; float32: 262144 x 128 74 -> 68, 65536 x 768 105 -> 99, 8192 x
# 4096 74 -> 68.
MAX_N_OF_ONE_TILE = {2: 1024, 4: 4096}
# Programs that fit one SM on every device that Triton supports.
PROGRAMS_PER_SM = 16
# Programs of a group whose words one warp polls: the more of them, the longer it takes.
MAX_GROUP_OF_ONE_WARP = 64

# (partial sums to add at a time, columns, warps), the first and the last at most: where columns fill the device, and
# where they do not. Gradients of bf16: 1024 x 65536 163 -> 148 us, 20 x 393216 138 -> 46, 16384 x 8192 209 -> 204,
# 262144 x 64 38.4 -> 37.3, all against 128 sums of 16 columns by 8 warps; the next sizes on either side are 0 to 3 %
# slower.
WIDE_SUMS = (64, 32, 4)
NARROW_SUMS = (256, 8, 8)


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


class Split(NamedTuple):
    """``group`` programs to a row, each with a slice of ``slice_size`` columns in ``chunks`` x ``block_n``."""

    programs: int
    group: int
    slice_size: int
    block: int
    chunks: int
    block_n: int
    vec: int
    unaligned: bool
    stages: int
    warps: int
    registers: int


class Slice(NamedTuple):
    """What a program of a group of up to ``max_group`` programs holds, and its registers."""

    max_group: float
    warps: int
    chunks: int
    registers: int


class PartialSums(NamedTuple):
    """Programs that add ``block_n`` columns of the partial sums each, ``block_p`` partial sums at a time."""

    programs: int
    block_p: int
    block_n: int
    warps: int


class Loop(NamedTuple):
    """Programs that go over a row in blocks of ``block_n`` columns."""

    programs: int
    block_n: int
    warps: int


# By bytes of an element and whether rows are unaligned. 1024 x 65536 bf16 91 us by 32 programs of 8 chunks, 97 by 64 of
# 4; 2048 x 50257 161 us with 8 chunks, 185 with 3 and 128 registers; float32 270 us by 50 programs of 8 chunks, 332 by
# 17 of four warps with 6. A misaligned weight and bias take a register for each element, half ones too: 144 bytes spill
# with 4 chunks and 128.
FORWARD = {
    (2, False): (Slice(32, 1, 8, 255), Slice(math.inf, 4, 4, 128)),
    (2, True): (Slice(32, 1, 8, 255), Slice(math.inf, 4, 2, 128)),
    (4, False): (Slice(MAX_GROUP_OF_ONE_WARP, 1, 8, 152), Slice(math.inf, 4, 8, 152)),
    (4, True): (Slice(MAX_GROUP_OF_ONE_WARP, 1, 8, 152), Slice(math.inf, 4, 6, 152)),
}
# 2048 x 50257 bf16 275 us by 50 programs of one warp, 292 by 25 of two; 4096 x 32768 263 us with 4 chunks, 269 with 2;
# float32 2048 x 50257 382 us with 8 chunks, 579 by 25 programs of four warps with 4; 1024 x 65536 227, not 239.
# 8 chunks by two warps spill 16 bytes on sm_100, which takes the plans of unaligned rows.
BACKWARD = {
    (2, False): (
        Slice(MAX_GROUP_OF_ONE_WARP * 3 // 4, 1, 2, 128),
        Slice(MAX_GROUP_OF_ONE_WARP, 1, 4, 255),
        Slice(MAX_GROUP_OF_ONE_WARP, 2, 4, 255),
        Slice(math.inf, 4, 4, 255),
    ),
    (2, True): (
        Slice(MAX_GROUP_OF_ONE_WARP * 3 // 4, 1, 2, 128),
        Slice(MAX_GROUP_OF_ONE_WARP, 1, 4, 255),
        Slice(MAX_GROUP_OF_ONE_WARP, 2, 4, 255),
        Slice(math.inf, 4, 2, 255),
    ),
    (4, False): (
        Slice(MAX_GROUP_OF_ONE_WARP // 2, 1, 4, 128),
        Slice(MAX_GROUP_OF_ONE_WARP, 1, 8, 255),
        Slice(MAX_GROUP_OF_ONE_WARP, 2, 8, 255),
        Slice(math.inf, 4, 8, 255),
    ),
    (4, True): (
        Slice(MAX_GROUP_OF_ONE_WARP // 2, 1, 4, 128),
        Slice(MAX_GROUP_OF_ONE_WARP, 1, 8, 255),
        Slice(MAX_GROUP_OF_ONE_WARP, 2, 7, 255),
        Slice(math.inf, 4, 4, 255),
    ),
}


def plan_forward(M: int, N: int, element_size: int, limits: Limits) -> Rows | Split | Loop:
    """How to normalize M rows of N elements of ``element_size`` bytes."""
    vec, unaligned = _vectors(N, element_size)
    span = N // vec * vec
    lanes = 32 * 16 // element_size
    if not unaligned and span <= MAX_N_OF_ONE_TILE.get(element_size, 0) and (span <= lanes or limits.sm_count < M):
        return _one_tile(M, span, vec, lanes, element_size, limits)
    if 2 * span * element_size <= limits.registers_per_sm:
        # 8192 x 4096 bf16: 82 % of the copy bandwidth with 8 chunks and 2 warps, 78 % with 4 and 4, 71 % with 2 and 8.
        # With few rows, more warps to each are faster.
        warps = _warps(span, (2 if limits.sm_count >= M else 8) * lanes)
        block_n = min(power_of_two(span), warps * lanes)
        chunks = -(-span // block_n)
        # 32768 x 1024 bf16: 81 % with 4 chunks, be they of one row or of several.
        block_m = _power_of_two_within(4 * lanes // (chunks * block_n))
        if element_size > 2:
            # Few rows: 64 x 128 float64 3.0 us with one, 3.3 with two.
            block_m = min(block_m, _power_of_two_within(M // limits.sm_count))
        tile_bytes = block_m * chunks * block_n * element_size
        per_sm = max(1, BYTES_IN_FLIGHT // tile_bytes)
        programs = _programs(M, block_m, limits.sm_count * per_sm, vec, unaligned)
        stages = _stages(4, per_sm * tile_bytes, limits)
        if element_size > 2 and min(2 * limits.sm_count, programs * block_m) >= M:
            # One tile to a program: 16 x 6144 float32 4.0 us, through shared memory 4.6; bf16 4.2, not 4.0.
            stages = 1
        return Rows(programs, block_m, chunks, block_n, vec, unaligned, stages, warps)
    if element_size < 8:
        for share in FORWARD[element_size, unaligned]:
            if limits.capability[0] != 9:
                # The same code takes more registers on sm_80, and with Triton 3.7 on sm_100.
                fewer = 2 if share.chunks > 4 and (unaligned or share.registers == 255) else 0
                more = 48 if unaligned else 24
                share = share._replace(chunks=share.chunks - fewer, registers=min(share.registers + more, 255))
            split = _split(M, N, element_size, 1, share, limits)
            if split is not None:
                return split
    programs = min(M, limits.sm_count * 2)
    if element_size == 8:
        # 8 elements to a thread, 16 spill. 20 x 393216: 168 us with 16 warps, 248 with 8; 4096 x 8192 170 with 8, 198
        # with 16.
        warps = 8 if limits.sm_count < M and N <= 16384 else 16
        return Loop(programs, 256 * warps, warps)
    # 16384 halves spill, and 8192 that are loaded one by one.
    return Loop(programs, 8192 // element_size if unaligned else 8192, 8)


def _one_tile(M: int, span: int, vec: int, lanes: int, element_size: int, limits: Limits) -> Rows:
    """As many programs as tiles, of up to 8 vectors to a thread, 4 of them of each row."""
    # 64 x 64 float32 2.7 us by programs of 4 warps, 3.0 by one; 512 x 64 3.1 and 3.3.
    little = element_size == 4 and 2 * span <= lanes and 4 * limits.sm_count >= M
    warps = 4 if little else _warps(span, 4 * lanes)
    block_n = min(power_of_two(span), warps * lanes)
    chunks = -(-span // block_n)
    # Rows that share a load: 262144 x 64 bf16 22.2 us with 4 vectors, 24.7 with 2, more with 8. Elements that are
    # loaded one by one take an address and a mask each.
    vectors = 8 if block_n == warps * lanes and vec * element_size == 16 else 4
    at_once = max(warps * 32 * vec // block_n, 1)
    block_m = min(_power_of_two_within(vectors * warps * lanes // (chunks * block_n)), 8 * at_once)
    # Few rows: rather more programs, as long as each thread has some. 256 x 128: 3.4 us with 1 row, 3.7 with 8.
    # With one vector to a thread 8 bytes of 64 x 64 float32 spill (Triton 3.7).
    block_m = min(block_m, max(_power_of_two_within(M // (2 * limits.sm_count)), at_once * (2 if little else 1)))
    # A kernel counts the rows of all its programs in 32 bits.
    return Rows(min(-(-M // block_m), 2**30 // block_m), block_m, chunks, block_n, vec, False, 1, warps)


def plan_backward(M: int, N: int, element_size: int, limits: Limits) -> Rows | Split | Loop:
    """How to compute the gradients of M rows of N elements of ``element_size`` bytes."""
    vec, unaligned = _vectors(N, element_size)
    span = N // vec * vec
    lanes = 32 * 16 // element_size
    # sm_100 takes more registers for the same code: 8 to 24 bytes spill with what sm_80 and sm_90 get.
    tight = limits.capability >= (10, 0)
    # One program, and so no second kernel to launch. On the device bf16 128 x 32 takes 4.1 us, not 4.4, 17 x 1 3.0, not
    # 4.1, 64 x 64 4.4, not 4.3.
    elements = power_of_two(M) * power_of_two(N)
    if element_size < 8 and N <= 128 and elements <= min(4096 if N <= 64 else 2048, 256 * vec * element_size):
        warps = 4 if elements > 2048 else 2 if elements > 256 else 1
        return Rows(1, power_of_two(M), 1, power_of_two(N), vec, False, 1, warps)
    # dweight, dbias, xhat and g are in registers, two for a float64 each.
    # Edges take some too: 48 bytes of 8190 float32 spill.
    if 8 * (span + 1024 * unaligned * (1 + tight)) * max(1, element_size // 4) <= limits.registers_per_sm:
        per_thread = 8 if element_size == 8 else 16 if unaligned and tight else 32  # 16 float64 spill
        # A row goes over all warps: Triton's pipeline mixes up the layout of a tile whose rows share them.
        row_bytes = span * element_size
        max_warps = 4 if row_bytes <= 8192 else 8 if row_bytes <= 12288 or element_size == 8 else 16
        if unaligned or (element_size == 4 and row_bytes <= 16384) or (tight and row_bytes > 16384):
            # 8192 x 4096 float32: 89 % with 8 warps, 85 % with 16; of edges 72 bytes spill with 16.
            max_warps = 8 if unaligned and tight else min(max_warps, 8)
        warps = _tight_warps(span, lanes, max_warps, per_thread * element_size // 16)
        block_n = min(power_of_two(span), warps * lanes)
        chunks = -(-span // block_n)
        if element_size < 8 and (warps == 16 or (element_size == 4 and chunks == 1 and warps > 1)):
            per_thread = 16  # a thread of 16 warps has 128 registers; 8 rows of 512 float32 spill
        if warps == 1 and (element_size == 4 or block_n <= 64):
            # 262144 x 64: 8 rows 36 and 58 us, bf16 and float32; 16 rows 43 and 70, and they spill on sm_80.
            per_thread = min(per_thread, 16)
        block_m = _power_of_two_within(warps * 32 * per_thread // (chunks * block_n))
        tile_bytes = 2 * block_m * chunks * block_n * element_size
        per_sm = max(1, BYTES_IN_FLIGHT // tile_bytes)
        stages = 4 if per_sm == 1 and block_m == 1 else 3
        if tight and tile_bytes >= BYTES_IN_FLIGHT:
            stages = 3
        stages = _stages(stages, per_sm * tile_bytes, limits)
        # Each program stores a row of partial sums: two to an SM, or one for every 8 tiles, whichever is more.
        max_programs = min(limits.sm_count * per_sm, max(2 * limits.sm_count, -(-M // (8 * block_m))))
        programs = _programs(M, block_m, max_programs, vec, unaligned)
        return Rows(programs, block_m, chunks, block_n, vec, unaligned, stages, warps)
    if element_size < 8:
        for share in BACKWARD[element_size, unaligned or tight]:
            split = _split(M, N, element_size, 2, share, limits)
            if split is not None:
                return split
    return Loop(min(M, limits.sm_count * 2), (8192 if unaligned else 16384) // element_size, 8)


def plan_partial_sums(P: int, N: int, outputs: int, limits: Limits) -> PartialSums:
    """How to add P partial sums of N columns for each of ``outputs`` gradients."""
    max_p, block_n, max_warps = WIDE_SUMS if N * outputs >= WIDE_SUMS[1] * limits.sm_count else NARROW_SUMS
    block_p = min(power_of_two(P), max_p)
    block_n = max(block_n, 16 * block_n // block_p)
    return PartialSums(-(-N // block_n), block_p, block_n, min(max(block_p * block_n // 256, 2), max_warps))


def _vectors(N: int, element_size: int) -> tuple[int, bool]:
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


def _split(M: int, N: int, element_size: int, tensors: int, share: Slice, limits: Limits) -> Split | None:
    """None if a row takes more programs than this slice is meant for, or than can run at once."""
    max_group, warps, chunks, registers = share
    vec, unaligned = _vectors(N, element_size)
    block_n = warps * 32 * 16 // element_size
    stages = 4
    shared = (stages - 1) * chunks * block_n * element_size * tensors + 2048
    # Each quarter of a multiprocessor has its own registers: at 152 a thread, 12 warps run at once and not 13.
    quarter = limits.registers_per_sm // 4 // (-(-registers // 8) * 8 * 32)
    per_sm = min(PROGRAMS_PER_SM, 4 * quarter // warps)
    programs = limits.sm_count * max(1, min(per_sm, limits.shared_bytes // shared))
    # Slices of a multiple of 16 elements are of whole vectors, and what Triton compiles for.
    slice_size = -(-N // (16 * -(-N // (chunks * block_n)))) * 16
    group = -(-N // slice_size)
    if group > min(programs, max_group):
        return None
    groups = min(programs // group, M)
    if unaligned and groups < M:
        # All rows of a group start equally far from a vector: a multiple of vec groups.
        vec = min(vec, _power_of_two_within(groups))
        groups = groups // vec * vec
        unaligned = N % vec != 0
    block = 32 if warps > 1 or group <= 32 else MAX_GROUP_OF_ONE_WARP
    return Split(groups * group, group, slice_size, block, chunks, block_n, vec, unaligned, stages, warps, registers)


def _stages(stages: int, bytes_per_sm: int, limits: Limits) -> int:
    """As many as shared memory holds; with two, a load is waited for at once, which is slower than with one."""
    fit = 1 + (limits.shared_bytes - 8192) // bytes_per_sm
    return min(stages, fit) if fit >= 3 else 1


def _warps(span: int, elements: int) -> int:
    """Warps of ``elements`` each that hold ``span``: a power of two up to 16."""
    return min(power_of_two(-(-span // elements)), 16)


def _tight_warps(span: int, lanes: int, max_warps: int, chunks: int) -> int:
    """Warps, up to ``max_warps``, that hold ``span`` in at most ``chunks`` chunks with the least left over.

    65536 x 768 bf16 backward: 82 to 84 us by one warp with 3 chunks, 89 by 4 with one.
    """
    max_warps = min(_warps(span, lanes), max_warps)
    max_chunks = max(chunks, -(-span // (max_warps * lanes)))
    fit = [w for w in (16, 8, 4, 2, 1) if w <= max_warps and -(-span // (w * lanes)) <= max_chunks]
    return min(fit, key=lambda w: -(-span // (w * lanes)) * w)


def power_of_two(n: int) -> int:
    """The next."""
    return 1 << (n - 1).bit_length()


def _power_of_two_within(n: int) -> int:
    """The last, at least 1."""
    return 1 << max(n.bit_length() - 1, 0)
