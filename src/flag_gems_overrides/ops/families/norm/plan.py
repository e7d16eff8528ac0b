# SPDX-License-Identifier: Apache-2.0
"""Which layer_norm kernel to launch, and how. Constants were measured on an H200 (132 SMs, 64 K registers each)."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...launch.devices import Limits

# Bytes that the programs of one SM load at a time, at each stage of their pipelines. DRAM is busy from here on: with 8
# warps of 16 KB or 16 warps of 2 KB alike, fewer bytes lose bandwidth and more programs cost partial sums.
BYTES_IN_FLIGHT = 32768
# Rows up to so many elements go a tile to a program: with as many programs as tiles, all loads are on their way without
# a pipeline. bf16, before -> after: 1048576 x 256 289 -> 258 us, 65536 x 768 59 -> 54, 32768 x 1000 42 -> 38, 64 x 64
# 3.3 -> 3.1, and 16384 x 2048 38 -> 39; float32: 262144 x 128 74 -> 68, 65536 x 768 105 -> 99, 8192 x 4096 74 -> 68.
LONGEST_IN_ONE_TILE = {2: 1024, 4: 4096}
# Programs that fit one SM on every device that Triton supports.
PROGRAMS_PER_SM = 16
# Programs that one warp can watch: the more of them, the longer it takes.
NARROW_GROUP = 64

# Most partial sums to add at a time, columns and warps where columns fill the device, and where they do not. Gradients
# of bf16: 1024 x 65536 163 -> 148 us, 20 x 393216 138 -> 46, 16384 x 8192 209 -> 204, 262144 x 64 38.4 -> 37.3, all
# against 128 sums of 16 columns by 8 warps; the next sizes on either side are 0 to 3 % slower.
WIDE_SUMS = (64, 32, 4)
NARROW_SUMS = (256, 8, 8)


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

    def far(self, M: int) -> bool:
        """Whether the rows that a program comes to, one turn behind the last of M included, are more than int32."""
        return M + self.programs * self.rows > 2**31


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


class Slice(NamedTuple):
    """What a program of a group of up to ``most`` holds, and its registers."""

    most: float
    warps: int
    chunks: int
    registers: int


class Combine(NamedTuple):
    """Programs that add ``columns`` of the partial sums each, ``rows`` at a time."""

    programs: int
    rows: int
    columns: int
    warps: int


class Loop(NamedTuple):
    """Programs that go over a row in blocks."""

    programs: int
    block: int
    warps: int


# By bytes of an element and whether rows are cut. 1024 x 65536 bf16 91 us by 32 programs of 8 pieces, 97 by 64 of 4;
# 2048 x 50257 161 us with 8 pieces, 185 with 3 and 128 registers; float32 270 us by 50 programs of 8 pieces, 332 by 17
# of four warps with 6. A misaligned weight and bias take a register for each element, half ones too: 144 bytes spill
# with 4 pieces and 128.
FORWARD = {
    (2, False): (Slice(32, 1, 8, 255), Slice(math.inf, 4, 4, 128)),
    (2, True): (Slice(32, 1, 8, 255), Slice(math.inf, 4, 2, 128)),
    (4, False): (Slice(NARROW_GROUP, 1, 8, 152), Slice(math.inf, 4, 8, 152)),
    (4, True): (Slice(NARROW_GROUP, 1, 8, 152), Slice(math.inf, 4, 6, 152)),
}
# 2048 x 50257 bf16 275 us by 50 programs of one warp, 292 by 25 of two; 4096 x 32768 263 us with 4 pieces, 269 with 2;
# float32 2048 x 50257 382 us with 8 pieces, 579 by 25 programs of four warps with 4; 1024 x 65536 227, not 239.
# 8 pieces by two warps spill 16 bytes on sm_100, which takes the plans of cut rows.
BACKWARD = {
    (2, False): (
        Slice(NARROW_GROUP * 3 // 4, 1, 2, 128),
        Slice(NARROW_GROUP, 1, 4, 255),
        Slice(NARROW_GROUP, 2, 4, 255),
        Slice(math.inf, 4, 4, 255),
    ),
    (2, True): (
        Slice(NARROW_GROUP * 3 // 4, 1, 2, 128),
        Slice(NARROW_GROUP, 1, 4, 255),
        Slice(NARROW_GROUP, 2, 4, 255),
        Slice(math.inf, 4, 2, 255),
    ),
    (4, False): (
        Slice(NARROW_GROUP // 2, 1, 4, 128),
        Slice(NARROW_GROUP, 1, 8, 255),
        Slice(NARROW_GROUP, 2, 8, 255),
        Slice(math.inf, 4, 8, 255),
    ),
    (4, True): (
        Slice(NARROW_GROUP // 2, 1, 4, 128),
        Slice(NARROW_GROUP, 1, 8, 255),
        Slice(NARROW_GROUP, 2, 7, 255),
        Slice(math.inf, 4, 4, 255),
    ),
}


def plan_forward(M: int, N: int, element_size: int, limits: Limits) -> Rows | Split | Loop:
    """How to normalize M rows of N elements of ``element_size`` bytes."""
    vec, cut = _vectors(N, element_size)
    span = N // vec * vec
    lanes = 32 * 16 // element_size
    if not cut and span <= LONGEST_IN_ONE_TILE.get(element_size, 0) and (span <= lanes or limits.sm_count < M):
        return _one_tile(M, span, vec, lanes, element_size, limits)
    if 2 * span * element_size <= limits.registers_per_sm:
        # 8192 x 4096 bf16: 82 % of the copy bandwidth with 8 pieces and 2 warps, 78 % with 4 and 4, 71 % with 2 and 8.
        # Few rows are over the sooner, the more warps each has.
        warps = _warps(span, (2 if limits.sm_count >= M else 8) * lanes)
        width = min(power_of_two(span), warps * lanes)
        chunks = -(-span // width)
        # 32768 x 1024 bf16: 81 % with 4 pieces, be they of one row or of several.
        rows = _power_of_two_within(4 * lanes // (chunks * width))
        if element_size > 2:
            # Few rows: 64 x 128 float64 3.0 us with one, 3.3 with two.
            rows = min(rows, _power_of_two_within(M // limits.sm_count))
        tile_bytes = rows * chunks * width * element_size
        per_sm = max(1, BYTES_IN_FLIGHT // tile_bytes)
        programs = _programs(M, rows, limits.sm_count * per_sm, vec, cut)
        stages = _stages(4, per_sm * tile_bytes, limits)
        if element_size > 2 and min(2 * limits.sm_count, programs * rows) >= M:
            # One tile to a program: 16 x 6144 float32 4.0 us, through shared memory 4.6; bf16 4.2, not 4.0.
            stages = 1
        return Rows(programs, rows, chunks, width, vec, cut, stages, warps)
    if element_size < 8:
        for share in FORWARD[element_size, cut]:
            if limits.capability[0] != 9:
                # The same code takes more registers on sm_80, and with Triton 3.7 on sm_100.
                fewer = 2 if share.chunks > 4 and (cut or share.registers == 255) else 0
                more = 48 if cut else 24
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
    return Loop(programs, 8192 // element_size if cut else 8192, 8)


def _one_tile(M: int, span: int, vec: int, lanes: int, element_size: int, limits: Limits) -> Rows:
    """As many programs as tiles, of up to 8 vectors to a thread, 4 of them of each row."""
    # 64 x 64 float32 2.7 us by programs of 4 warps, 3.0 by one; 512 x 64 3.1 and 3.3.
    little = element_size == 4 and 2 * span <= lanes and 4 * limits.sm_count >= M
    warps = 4 if little else _warps(span, 4 * lanes)
    width = min(power_of_two(span), warps * lanes)
    chunks = -(-span // width)
    # Rows that share a load: 262144 x 64 bf16 22.2 us with 4 vectors, 24.7 with 2, more with 8. Elements that are
    # loaded one by one take an address and a mask each.
    vectors = 8 if width == warps * lanes and vec * element_size == 16 else 4
    at_once = max(warps * 32 * vec // width, 1)
    rows = min(_power_of_two_within(vectors * warps * lanes // (chunks * width)), 8 * at_once)
    # Few rows: rather more programs, as long as each thread has some. 256 x 128: 3.4 us with 1 row, 3.7 with 8.
    # With one vector to a thread 8 bytes of 64 x 64 float32 spill (Triton 3.7).
    rows = min(rows, max(_power_of_two_within(M // (2 * limits.sm_count)), at_once * (2 if little else 1)))
    # A kernel counts the rows of all its programs in 32 bits.
    return Rows(min(-(-M // rows), 2**30 // rows), rows, chunks, width, vec, False, 1, warps)


def plan_backward(M: int, N: int, element_size: int, limits: Limits) -> Rows | Split | Loop:
    """How to compute the gradients of M rows of N elements of ``element_size`` bytes."""
    vec, cut = _vectors(N, element_size)
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
    if 8 * (span + 1024 * cut * (1 + tight)) * max(1, element_size // 4) <= limits.registers_per_sm:
        per_thread = 8 if element_size == 8 else 16 if cut and tight else 32  # 16 float64 spill
        # A row goes over all warps: Triton's pipeline mixes up the layout of a tile whose rows share them.
        row_bytes = span * element_size
        most = 4 if row_bytes <= 8192 else 8 if row_bytes <= 12288 or element_size == 8 else 16
        if cut or (element_size == 4 and row_bytes <= 16384) or (tight and row_bytes > 16384):
            # 8192 x 4096 float32: 89 % with 8 warps, 85 % with 16; of edges 72 bytes spill with 16.
            most = 8 if cut and tight else min(most, 8)
        warps = _tight_warps(span, lanes, most, per_thread * element_size // 16)
        width = min(power_of_two(span), warps * lanes)
        chunks = -(-span // width)
        if element_size < 8 and (warps == 16 or (element_size == 4 and chunks == 1 and warps > 1)):
            per_thread = 16  # a thread of 16 warps has 128 registers; 8 rows of 512 float32 spill
        if warps == 1 and (element_size == 4 or width <= 64):
            # 262144 x 64: 8 rows 36 and 58 us, bf16 and float32; 16 rows 43 and 70, and they spill on sm_80.
            per_thread = min(per_thread, 16)
        rows = _power_of_two_within(warps * 32 * per_thread // (chunks * width))
        tile_bytes = 2 * rows * chunks * width * element_size
        per_sm = max(1, BYTES_IN_FLIGHT // tile_bytes)
        stages = 4 if per_sm == 1 and rows == 1 else 3
        if tight and tile_bytes >= BYTES_IN_FLIGHT:
            stages = 3
        stages = _stages(stages, per_sm * tile_bytes, limits)
        # Each program stores a row of partial sums: two to an SM, or one for every 8 tiles, whichever is more.
        most = min(limits.sm_count * per_sm, max(2 * limits.sm_count, -(-M // (8 * rows))))
        return Rows(_programs(M, rows, most, vec, cut), rows, chunks, width, vec, cut, stages, warps)
    if element_size < 8:
        for share in BACKWARD[element_size, cut or tight]:
            split = _split(M, N, element_size, 2, share, limits)
            if split is not None:
                return split
    return Loop(min(M, limits.sm_count * 2), (8192 if cut else 16384) // element_size, 8)


def plan_combine(P: int, N: int, outputs: int, limits: Limits) -> Combine:
    """How to add P partial sums of N columns for each of ``outputs`` gradients."""
    most, columns, warps = WIDE_SUMS if N * outputs >= WIDE_SUMS[1] * limits.sm_count else NARROW_SUMS
    rows = min(power_of_two(P), most)
    columns = max(columns, 16 * columns // rows)
    return Combine(-(-N // columns), rows, columns, min(max(rows * columns // 256, 2), warps))


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


def _split(M: int, N: int, element_size: int, tensors: int, share: Slice, limits: Limits) -> Split | None:
    """None where a row takes more programs than this slice is for, or than can run at once."""
    most, warps, chunks, registers = share
    vec, cut = _vectors(N, element_size)
    width = warps * 32 * 16 // element_size
    stages = 4
    shared = (stages - 1) * chunks * width * element_size * tensors + 2048
    # Each quarter of a multiprocessor has its own registers: at 152 a thread, 12 warps run at once and not 13.
    quarter = limits.registers_per_sm // 4 // (-(-registers // 8) * 8 * 32)
    per_sm = min(PROGRAMS_PER_SM, 4 * quarter // warps)
    programs = limits.sm_count * max(1, min(per_sm, limits.shared_bytes // shared))
    # Slices of a multiple of 16 elements are of whole vectors, and what Triton compiles for.
    slice_size = -(-N // (16 * -(-N // (chunks * width)))) * 16
    group = -(-N // slice_size)
    if group > min(programs, most):
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


def _tight_warps(span: int, lanes: int, most: int, chunks: int) -> int:
    """Warps, up to ``most``, whose ``chunks`` pieces or fewer hold ``span`` with the least left over.

    65536 x 768 bf16 backward: 82 to 84 us by one warp with 3 pieces, 89 by 4 with one.
    """
    most = min(_warps(span, lanes), most)
    fit = [
        w for w in (16, 8, 4, 2, 1) if w <= most and -(-span // (w * lanes)) <= max(chunks, -(-span // (most * lanes)))
    ]
    return min(fit, key=lambda w: -(-span // (w * lanes)) * w)


def power_of_two(n: int) -> int:
    """The next."""
    return 1 << (n - 1).bit_length()


def _power_of_two_within(n: int) -> int:
    """The last, at least 1."""
    return 1 << max(n.bit_length() - 1, 0)
