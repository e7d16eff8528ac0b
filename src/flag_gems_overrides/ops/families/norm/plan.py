# SPDX-License-Identifier: Apache-2.0
"""Which layer_norm kernel to launch, and how. Constants were measured on an H200 (132 SMs, 64 K registers each)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within
from ...plans import table
from .estimate import estimate as estimate
from .launches import (
    MIN_UNALIGNED,
    Configuration,
    FewRows,
    Launch,
    PartialSums,
    Problem,
    Rows,
    Split,
    launch,
    launch_or_none,
    max_chunks_of_loop,
    widest,
)
from .slices import slices

# Bytes that the programs of one SM load at a time, at each stage of their pipelines. DRAM is busy from here on: with 8
# warps of 16 KB or 16 warps of 2 KB alike, fewer bytes lose bandwidth and more programs cost partial sums.
BYTES_IN_FLIGHT = 32768
# Up to this N, by bytes of an element, each program has one tile: with as many programs as tiles, all loads are in
# flight without a pipeline. bf16, before -> after: 1048576 x 256 289 -> 258 us, 65536 x 768 59 -> 54, 32768 x 1000 42
# -> 38, 64 x 64 3.3 -> 3.1, and 16384 x 2048 38 -> 39; float32: 262144 x 128 74 -> 68, 65536 x 768 105 -> 99, 8192 x
# 4096 74 -> 68. All rows of float64 that a program holds, 50000 x 864 199 -> 181, and of float32 that are no vectors.
MAX_N_OF_ONE_TILE = {2: 1024, 4: 4096}
# So many rows of up to so many elements are for programs of four warps, for each takes some time to start: 6692064 x 11
# float32 347 us by programs of 16 rows, upstream 256.
MAX_N_OF_MANY_ROWS, MIN_ROWS_PER_SM = 16, 512
# A row to a program (``late_row``): elements of a thread, and threads of a multiprocessor. rms_norm of bf16
# 16384 x 8192 takes 134.9 us so, 143.4 with pipelines; 8192 x 4096 37.6 and 38.3, with a residual 71.5 and 73.5;
# layer_norm of float32 16384 x 8192 263.7 and 284.3, of bf16 3500 x 7792 33.1 and 35.2, 4096 x 16384 96.9 and 100.2
# (H100).
LATE_ELEMENTS, LATE_THREADS = 32, 1024
# Least waves of such programs: layer_norm of 3059 x 2400, 1.7 waves, takes 12.4 us with pipelines and at least 13.3
# so; of 3500 x 7792, 6.3 waves, 34.8 and 33.1.
MIN_WAVES = 4
MAX_WARPS = 16
# So many rows of up to 1024 elements of 2 bytes for each multiprocessor are loaded in parts of vectors: 245 x 341
# float16 and a residual take 4.0 us with edges, 3.5 without, as FlagGems.
MAX_UNALIGNED_ROWS_PER_SM = 8
# Shorter rows are not tried by several programs each.
MIN_SPLIT = 4096
# Programs of a group that hold a row: 12 x 1376837 float32 232 us by 337, read twice 122.
MAX_GROUP = 128
# (partial sums to add at a time, columns, warps), the first and the last at most: where columns fill the device, and
# where they do not. Gradients of bf16: 1024 x 65536 163 -> 148 us, 20 x 393216 138 -> 46, 16384 x 8192 209 -> 204,
# 262144 x 64 38.4 -> 37.3, all against 128 sums of 16 columns by 8 warps; the next sizes on either side are 0 to 3 %
# slower.
WIDE_SUMS = (64, 32, 4)
NARROW_SUMS = (256, 8, 8)
# Gradients of more rows than this are not tried in one launch: columns would take too many iterations.
MAX_FEW_ROWS = 2048


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    _, N, _, itemsize, backward, residual = problem
    # How many short rows a tile has depends on the next power of two: a tile of 4 rows of 17 float64 had 32768 x 7 take
    # 8.1 us, FlagGems 4.1.
    short = N if N < 4 else power_of_2(N) if N < MIN_UNALIGNED else 0
    return backward, residual, itemsize, short, math.gcd(N, VECTOR_BYTES // itemsize)


def choose(problem: Problem, limits: Limits) -> Configuration:
    found = table.lookup(
        "norm", problem, class_of, Configuration, lambda each: launch_or_none(problem, each, limits) is not None, limits
    )
    return found or _default(problem, limits)


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """The default, and what is worth timing next to it: legal, and each another launch."""
    default = _default(problem, limits)
    found: dict[Launch, Configuration] = {}
    for candidate in (default, *_alternatives(problem, default, limits)):
        launched = launch_or_none(problem, candidate, limits)
        if launched is not None:
            found.setdefault(launched, candidate)
    return list(found.values())


def plan(problem: Problem, limits: Limits) -> Launch:
    """The launch that is chosen for this problem, none of its sizes 0."""
    return launch(problem, choose(problem, limits), limits)


def rows(problem: Problem, limits: Limits) -> Rows | None:
    """The launch of whole rows that is chosen, or comes first; None if a row is too long for one program."""
    defaults = (each for each in _defaults(problem, limits) if each is not None)
    for found in (choose(problem, limits), *defaults):
        launched = launch_or_none(problem, found, limits)
        if isinstance(launched, Rows):
            return launched
    return None


def _default(problem: Problem, limits: Limits) -> Configuration:
    """The first that is legal of what suits ever longer rows."""
    for found in _defaults(problem, limits):
        if found is not None and launch_or_none(problem, found, limits) is not None:
            return found
    return _loop(problem, limits)


def _defaults(problem: Problem, limits: Limits) -> Iterator[Configuration | None]:
    M, N, _, itemsize, backward, _ = problem
    vector = VECTOR_BYTES // itemsize
    if backward:
        yield _little_gradient(problem)
        yield _few_rows(problem, limits)
        yield _backward_rows(problem, widest(N, itemsize), limits)
    else:
        # A warp that loads elements of 4 bytes one by one loads whole cache lines: no edges, which take a pipeline.
        # fused_add_rms_norm of 26000 x 1249 float32 181.8 us, 198.7 with them (H100).
        vec = widest(N, itemsize) if itemsize == 2 else math.gcd(N, vector)
        if N == 3 or (power_of_2(N) == N and vector >= N):
            yield _flat(problem)
        fits = 2 * N * itemsize <= limits.registers_per_sm
        short = MAX_N_OF_ONE_TILE.get(itemsize, 0) >= N or (fits and (itemsize == 8 or vec < vector))
        if short and N % vec == 0 and (WARP * vector >= N or limits.sm_count < M):
            yield _one_tile(problem, vec, limits)
        if N % widest(N, itemsize) and fits and limits.sm_count * (MAX_UNALIGNED_ROWS_PER_SM if N <= 1024 else 1) >= M:
            yield _few_unaligned_rows(problem)
        whole = _rows(problem, vec, limits)
        if whole is None:
            # Of float64 the other way is a loop: rms_norm of 228 x 8192 13.2 us, 14.5 so, but layer_norm of 133 x 7271
            # 18.3 and 16.6. Of 2 bytes several programs are slower: 2048 x 24576 bf16 70.5 us, 74.9 so, 98 x 30200 11.9
            # and 12.4, 1000 x 21248 42.7 and 43.2, but 300 x 12288 float32 20.1 and 18.8 (the last three: H100).
            late = itemsize != 4
        else:
            # Of a residual of 9000 x 3000 float16, where it is misaligned, 48 bytes would spill.
            late = whole.stages > 1 and not problem.residual and many_rows(problem, limits)
        if late:
            yield late_row(problem)
        yield whole
    yield from _splits(problem, limits)


def _flat(problem: Problem) -> Configuration:
    _, N, _, itemsize, *_ = problem
    if N == 3:
        # 5779150 x 3 float16: 48.5 us with a row to a thread, 62.4 with four of fewer warps.
        return Configuration("columns", 8, rows=8 * WARP)
    # One load of 4 elements at least: statistics of 8197496 x 1 are four times as many bytes. Twice of many elements.
    elements = max(N, 4) if N == 1 else VECTOR_BYTES // itemsize
    return Configuration("flat", 4, rows=elements * 4 * WARP // N)


def _one_tile(problem: Problem, vec: int, limits: Limits) -> Configuration:
    """As many programs as tiles, of up to 8 vectors to a thread, 4 of them of each row."""
    M, N, _, itemsize, *_ = problem
    lanes = WARP * VECTOR_BYTES // itemsize
    # 64 x 64 float32 2.7 us by programs of 4 warps, 3.0 by one; 512 x 64 3.1 and 3.3. But what one warp loads at once
    # is for one: rms_norm of 1 x 32 takes 2.85 us by 4 warps, 1 x 101 bf16 2.5 by one.
    # And a tile has an element for each thread: 2 x 23 float32 has less than 4 warps.
    enough = WARP * vec < M * N and power_of_2(M) * power_of_2(N) >= 4 * WARP
    little = itemsize == 4 and lanes >= 2 * N and 4 * limits.sm_count >= M and enough
    warps = 4 if little else _warps(N, 4 * lanes)
    block_n = min(power_of_2(N), warps * lanes)
    # Rows that share a load: 262144 x 64 bf16 22.2 us with 4 vectors, 24.7 with 2, more with 8. Elements that are
    # loaded one by one take an address and a mask each.
    # With 8 and a residual 8 bytes of fused_add_rms_norm spill (8192 x 4096 float32, 32768 x 1000 bf16: Triton 3.7).
    whole = vec * itemsize == VECTOR_BYTES
    wide = block_n == warps * lanes and whole and itemsize < 8 and not problem.residual
    # Of single float64 two: 58263 x 17 21.8 us, 25.7 with four, 2063007 x 15 304 and 380.
    vectors = 2 if itemsize == 8 and not whole else 8 if wide else 4
    at_once = max(warps * WARP * vec // block_n, 1)
    block_m = min(power_of_2_within(vectors * warps * lanes // (cdiv(N, block_n) * block_n)), 8 * at_once)
    # Few rows: rather more programs, as long as each thread has some. 256 x 128: 3.4 us with 1 row, 3.7 with 8.
    # With one vector to a thread 8 bytes of 64 x 64 float32 spill (Triton 3.7); 5 x 35 float32 3.0 us, 3.2 with two.
    # 4240 x 64 bf16: 3.6 us with 8 rows, 4.0 with 16.
    two = little and whole
    block_m = min(block_m, max(power_of_2_within(M // (4 * limits.sm_count)), at_once * (2 if two else 1)))
    if block_n <= MAX_N_OF_MANY_ROWS and limits.sm_count * MIN_ROWS_PER_SM <= M:
        warps, block_m = 4 * warps, 4 * block_m
    # 1026283 x 503 float64 2066 us with a late weight and bias, 2361 without.
    late = N >= MIN_UNALIGNED and (itemsize == 8 or not whole) and many_rows(problem, limits)
    if late and itemsize == 4 and vec > 1 and warps == MAX_WARPS:
        # 16384 x 4098 float32 145 us by 8 warps, 170 by 16, a third of whose lanes have no element.
        warps = _warps(N, LATE_ELEMENTS * WARP)
    return Configuration("rows", warps, vec, min(block_m, power_of_2(M)), late=late)


def _few_unaligned_rows(problem: Problem) -> Configuration:
    """Loads of what divides a row: 1 x 7989 float32 5.2 us, 10.5 with edges; 38 x 2028 bf16 3.9, not 4.5.

    With a residual half of a row to a warp: 15 x 289 bf16 3.6 us by one warp, FlagGems 3.2.
    """
    _, N, _, itemsize, *_ = problem
    vector = VECTOR_BYTES // itemsize
    return Configuration("rows", _warps(N, 2 * WARP * vector // problem.inputs), math.gcd(N, vector))


def many_rows(problem: Problem, limits: Limits) -> bool:
    """Whether programs with one row each, or a few short ones, come in some waves."""
    return MIN_WAVES * limits.sm_count * LATE_ELEMENTS * LATE_THREADS <= problem.M * problem.N


def late_row(problem: Problem) -> Configuration | None:
    """A row to a program, which loads weight and bias after the statistics; None if it is too long."""
    N, itemsize = problem.N, problem.itemsize
    vec, elements = math.gcd(N, VECTOR_BYTES // itemsize), 16 if itemsize == 8 else LATE_ELEMENTS
    # A residual has registers too: 56 bytes of 32768 float16 and a misaligned one spill, 8 of 24576.
    longest = MAX_WARPS * WARP * (elements if itemsize == 8 or problem.residual else 64)
    if longest < N or (itemsize < 8 and vec * itemsize < VECTOR_BYTES):
        return None
    return Configuration("rows", _warps(N, elements * WARP), vec, late=True)


def late_row_of_edges(problem: Problem, limits: Limits) -> Configuration | None:
    """The same for rows of float32 that are no whole vectors, more than multiprocessors; None for others.

    rms_norm of 10850 x 8505 takes 251.6 us so, 345.8 in a loop, 282.8 by FlagGems; of 8192 x 6457 146.8, and 154.5
    where elements are loaded one by one (H100). At most 64 registers a thread: two programs of 16 warps fit.
    """
    N, itemsize = problem.N, problem.itemsize
    longest, vec = MAX_WARPS * WARP * LATE_ELEMENTS, VECTOR_BYTES // itemsize
    if itemsize != 4 or problem.residual or N % vec == 0 or longest < N or limits.sm_count >= problem.M:
        return None
    return Configuration("rows", _warps(N, LATE_ELEMENTS * WARP), vec, late=True)


def _rows(problem: Problem, vec: int, limits: Limits) -> Configuration | None:
    """None if a row is too long for one program with others beside it."""
    M, N, _, itemsize, *_ = problem
    span = N // vec * vec
    if 2 * span * itemsize > limits.registers_per_sm:
        return None
    lanes = WARP * VECTOR_BYTES // itemsize
    # 8192 x 4096 bf16: 82 % of the copy bandwidth with 8 chunks and 2 warps, 78 % with 4 and 4, 71 % with 2 and 8.
    # With few rows, more warps to each are faster.
    warps = _warps(span, (2 if limits.sm_count >= M else 8) * lanes)
    block_n = min(power_of_2(span), warps * lanes)
    # 32768 x 1024 bf16: 81 % with 4 chunks, be they of one row or of several.
    block_m = power_of_2_within(4 * lanes // (cdiv(span, block_n) * block_n))
    # Few rows: 64 x 128 float64 3.0 us with one, 3.3 with two, 126 x 352 float16 and a residual 3.1 and 3.3.
    block_m = min(block_m, power_of_2_within(M // limits.sm_count), power_of_2(M))
    tile_bytes = problem.inputs * block_m * cdiv(span, block_n) * block_n * itemsize
    # More than the registers hold, so that the last to start end with the others: bf16 12288 x 3072 47.8 us with 10
    # programs to an SM, 52.7 with 5; 13051 x 1600 30.7 with 18, 34.3 with 9; 8192 x 4096 41.1 with 8, 41.8 with 4.
    per_sm = max(1, BYTES_IN_FLIGHT * (2 if itemsize == 2 else 1) // tile_bytes)
    few = limits.capability[0] == 9 and 2 * per_sm * limits.sm_count > M
    if few and itemsize == 2 and N % vec and span > 4 * lanes:
        # Hardly more rows than programs: 1091 x 1995 bf16 and a residual 11.7 us by a program for each, 14.3 with
        # pipelines of one warp, of which a few have two rows. On sm_80 and sm_100 8 bytes of 900 x 4001 spill.
        # One program of 16 warps fits on a multiprocessor: 256 x 11781 bf16 comes in two waves, 14.6 us. By programs of
        # 8 warps, of which two fit, it takes 11.5 to 12.0 (H100; FlagGems 12.9). With 8 vectors to a thread only one
        # program of 8 warps fits too (139 registers).
        two = limits.sm_count < M and 32 * lanes < span <= 56 * lanes
        warps = _warps(span, (8 if two else 4) * lanes)
        return Configuration("rows", warps, vec, late=True)
    stages = _stages(4, per_sm * tile_bytes, limits)
    if itemsize > 2 and min(2, per_sm) * limits.sm_count * block_m >= M:
        # One tile to a program: 16 x 6144 float32 4.0 us, through shared memory 4.6; bf16 4.2, not 4.0.
        stages = 1
    return Configuration("rows", warps, vec, block_m, per_sm, stages)


def _little_gradient(problem: Problem) -> Configuration | None:
    """One program, and so no second kernel to launch.

    On the device bf16 128 x 32 takes 4.1 us, not 4.4, 17 x 1 3.0, not 4.1, 64 x 64 4.4, not 4.3.
    """
    M, N, _, itemsize, *_ = problem
    vec = math.gcd(N, VECTOR_BYTES // itemsize)
    elements = power_of_2(M) * power_of_2(N)
    if itemsize == 8 or N > 128 or elements > min(4096 if N <= 64 else 2048, 256 * vec * itemsize):
        return None
    warps = 4 if elements > 2048 else 2 if elements > 256 else 1
    return Configuration("rows", warps, vec, power_of_2(M))


def _few_rows(problem: Problem, limits: Limits) -> Configuration | None:
    """One launch, where all of its programs run at once and columns take one iteration; None elsewhere."""
    M, N, *_ = problem
    # 248 x 111 float16: 4.8 us with 4 warps, 6.3 with 8; by rows and partial sums 9.2.
    warps = 8 if N > 1024 else 4
    found = Configuration("few_rows", warps, rows=min(_rows_of_few(N, warps), power_of_2(M)))
    launched = launch_or_none(problem, found, limits)
    if not isinstance(launched, FewRows) or launched.column_rows < M:
        return None
    # With up to 255 registers a thread 8 warps fit on an SM.
    fits = launched.row_programs + launched.column_programs <= limits.sm_count * 8 // warps
    return found if fits else None


def _rows_of_few(N: int, warps: int) -> int:
    """Rows of a tile of 8 elements to a thread."""
    return max(1, 8 * WARP * warps // power_of_2(N))


def _backward_rows(problem: Problem, vec: int, limits: Limits) -> Configuration | None:
    """None if a row is too long for one program."""
    M, N, _, itemsize, *_ = problem
    span, lanes, unaligned = N // vec * vec, WARP * VECTOR_BYTES // itemsize, N % vec != 0
    # sm_100 takes more registers for the same code: 8 to 24 bytes spill with what sm_80 and sm_90 get.
    tight = limits.capability >= (10, 0)
    # dweight, dbias, xhat and g are in registers, two for a float64 each.
    # Edges take some too: 48 bytes of 8190 float32 spill.
    if 8 * (span + 1024 * unaligned * (1 + tight)) * max(1, itemsize // 4) > limits.registers_per_sm:
        return None
    per_thread = 8 if itemsize == 8 else 16 if unaligned and tight else 32  # 16 float64 spill
    # A row goes over all warps: Triton's pipeline mixes up the layout of a tile whose rows share them.
    row_bytes = span * itemsize
    max_warps = 4 if row_bytes <= 8192 else 8 if row_bytes <= 12288 or itemsize == 8 else 16
    if unaligned or (itemsize == 4 and row_bytes <= 16384) or (tight and row_bytes > 16384):
        # 8192 x 4096 float32: 89 % with 8 warps, 85 % with 16; of edges 72 bytes spill with 16.
        max_warps = 8 if unaligned and tight else min(max_warps, 8)
    warps = _tight_warps(span, lanes, max_warps, per_thread * itemsize // VECTOR_BYTES)
    block_n = min(power_of_2(span), warps * lanes)
    chunks = cdiv(span, block_n)
    if itemsize < 8 and (warps == 16 or (itemsize == 4 and chunks == 1 and warps > 1)):
        per_thread = 16  # a thread of 16 warps has 128 registers; 8 rows of 512 float32 spill
    if warps == 1 and (itemsize == 4 or block_n <= 64):
        # 262144 x 64: 8 rows 36 and 58 us, bf16 and float32; 16 rows 43 and 70, and they spill on sm_80.
        per_thread = min(per_thread, 16)
    block_m = min(power_of_2_within(warps * WARP * per_thread // (chunks * block_n)), power_of_2(M))
    tile_bytes = 2 * block_m * chunks * block_n * itemsize
    per_sm = max(1, BYTES_IN_FLIGHT // tile_bytes)
    if vec == 1 < N:
        # Elements that are loaded one by one have an address and a mask each: 1686941 x 3 float16 47.9 us with half of
        # the rows, 53.3 with all, 25253273 x 9 bf16 1744 and 2951, 13001163 x 29 float64 4261 and 6185.
        block_m = max(block_m // 2, 1)
        if itemsize == 2 and per_sm <= 8 and 8 * block_m * 2 * per_sm * limits.sm_count <= M:
            # Nothing copies 2 bytes to shared memory: their pipeline is in registers. Without it twice as many programs
            # of a warp fit, with 128 registers a thread: layer_norm of 70811 x 65 bf16 47.7 us so, 57.3 with it, but
            # 65534 x 85 float32 49.2 and 42.4 (H100).
            return Configuration("rows", warps, vec, block_m, 2 * per_sm)
    else:
        # 1048576 x 6 bf16 32.6 us by 8 programs to a multiprocessor, 37.0 by 16; 1156672 x 8 28.2 and 30.5.
        per_sm = min(per_sm, 8)
    stages = 4 if per_sm == 1 and block_m == 1 else 3
    if tight and tile_bytes >= BYTES_IN_FLIGHT:
        stages = 3
    return Configuration("rows", warps, vec, block_m, per_sm, _stages(stages, per_sm * tile_bytes, limits))


def _splits(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """The best first."""
    M, N, _, itemsize, backward, _ = problem
    if itemsize == 8:
        return
    vec = VECTOR_BYTES // itemsize
    found: list[tuple[Split, Configuration]] = []
    for max_group, warps, chunks, registers in slices(itemsize, N % vec != 0, backward, limits):
        if problem.residual and itemsize == 4:
            # The residual has registers too: with those of x alone 30 x 262144 spills 16 bytes, 20 x 393217 72, and
            # 486 x 399817, of which x has all, 136.
            if registers == 255:
                continue
            registers = min(registers + 64, 255)
        configuration = Configuration("split", warps, vec, stages=4, chunks=chunks, registers=registers)
        launched = launch_or_none(problem, configuration, limits)
        if isinstance(launched, Split) and launched.group <= min(max_group, MAX_GROUP):
            if itemsize == 4 and not backward and M * launched.group <= launched.programs:
                # Nothing comes after the first row: 4 x 362985 float32 12.6 us without the pipeline, 15.1 with it.
                configuration = configuration._replace(stages=1)
            found.append((launched, configuration))
    # Unaligned rows of few groups are loaded in parts of vectors: 200 x 150001 bf16 180 us by groups of 74 programs, 89
    # by groups of 37. By several warps rows that come in turns have as few programs as hold them, for each turn is a
    # wait: 88 x 85975 float16 11 turns of 42 programs to a row 38.8 us, 6 of 21 24.7 (H100; in a loop 36.6, FlagGems
    # 33.9). By one warp 264 x 50257 bf16 32.0 us, in a loop 53.3. Float32 and gradients were not timed so.

    def first(each: tuple[Split, Configuration]) -> tuple[int, int]:
        split = each[0]
        in_turn = itemsize == 2 and not backward and split.warps > 1 and split.programs // split.group < M
        return -split.vec, split.group if in_turn else 0

    yield from (configuration for _, configuration in sorted(found, key=first))


def _loop(problem: Problem, limits: Limits) -> Configuration:
    """Two programs to a multiprocessor, 16 elements to a thread or as many float64 as have registers.

    Of many rows four, which share no more rows than L2 holds: 486 x 399816 float32 685 us, by two 860, 424 x 180760
    bf16 130 and 158. Of fewer rows than multiprocessors two of float32 (128 x 441693 267 by four), four of 16 bits
    (112 x 524288 bf16 137 us, by two 157, 33 x 1000000 77 and 100; H100).
    """
    many = problem.itemsize == 2 or limits.sm_count < problem.M
    if not problem.backward and not problem.residual and problem.itemsize < 8 and many:
        return Configuration("loop", 8, chunks=1 if problem.itemsize == 2 and problem.N % 2 else 2, registers=64)
    chunks = min(2 if problem.itemsize == 2 else 4, max_chunks_of_loop(problem, limits))
    return Configuration("loop", 8, chunks=chunks, registers=128)


def _alternatives(problem: Problem, default: Configuration, limits: Limits) -> Iterator[Configuration]:
    """What is worth timing next to the default; some may not be legal."""
    M, N, _, itemsize, backward, _ = problem
    common = math.gcd(N, VECTOR_BYTES // itemsize)
    for field in () if default.kernel == "split" else ("warps", "rows", "per_sm"):
        value = getattr(default, field)
        yield default._replace(**{field: value * 2})
        yield default._replace(**{field: value // 2})
    if default.kernel in ("flat", "columns"):
        for times in (2, 4):
            yield default._replace(warps=default.warps * 2, rows=default.rows * times)
        yield default._replace(warps=default.warps // 2, rows=default.rows // 2)
        return
    if default.kernel == "rows" and not backward:
        yield default._replace(late=True, per_sm=0, stages=1)
    if default.kernel == "rows":
        if default.per_sm and not backward:
            for warps in (default.warps, 2 * default.warps, 4 * default.warps):
                yield Configuration("rows", warps, default.vec, late=True)
            yield Configuration("rows", 2 * default.warps, default.vec)
        if default.vec != common:
            yield default._replace(vec=common, per_sm=0, stages=1)
            yield default._replace(vec=common, per_sm=0, stages=1, warps=default.warps // 2)
        if not default.per_sm and not backward:
            yield default._replace(per_sm=max(1, 16 // default.warps), stages=4)
            # Programs of several warps with as much for each: fewer of them are to be started.
            yield default._replace(warps=default.warps * 4, rows=default.rows * 4)
        if N <= 16 and not backward:
            yield Configuration("columns", 4, rows=256)
    if default.kernel == "few_rows":
        yield _backward_rows(problem, widest(N, itemsize), limits) or _loop(problem, limits)
    if backward and M <= MAX_FEW_ROWS:
        for warps in (2, 4, 8, 16):
            if power_of_2(N) <= 32 * WARP * warps:
                yield Configuration("few_rows", warps, rows=_rows_of_few(N, warps))
    if default.kernel != "rows" or N >= MIN_SPLIT:
        yield from _splits(problem, limits)
        yield _loop(problem, limits)


def _stages(stages: int, bytes_per_sm: int, limits: Limits) -> int:
    """As many as shared memory holds; with two, a load is waited for at once, which is slower than with one."""
    fit = 1 + (limits.shared_bytes - 8192) // bytes_per_sm
    return min(stages, fit) if fit >= 3 else 1


def _warps(span: int, elements: int) -> int:
    """Warps of ``elements`` each that hold ``span``: a power of two up to MAX_WARPS."""
    return min(power_of_2(cdiv(span, elements)), MAX_WARPS)


def _tight_warps(span: int, lanes: int, max_warps: int, chunks: int) -> int:
    """Warps, up to ``max_warps``, that hold ``span`` in at most ``chunks`` chunks with the least left over.

    65536 x 768 bf16 backward: 82 to 84 us by one warp with 3 chunks, 89 by 4 with one.
    """
    max_warps = min(_warps(span, lanes), max_warps)
    max_chunks = max(chunks, cdiv(span, max_warps * lanes))
    fit = [w for w in (16, 8, 4, 2, 1) if w <= max_warps and cdiv(span, w * lanes) <= max_chunks]
    return min(fit, key=lambda w: cdiv(span, w * lanes) * w)


def plan_partial_sums(P: int, N: int, outputs: int, limits: Limits) -> PartialSums:
    """How to add P partial sums of N columns for each of ``outputs`` gradients."""
    max_p, block_n, max_warps = WIDE_SUMS if N * outputs >= WIDE_SUMS[1] * limits.sm_count else NARROW_SUMS
    block_p = min(power_of_2(P), max_p)
    block_n = max(block_n, 16 * block_n // block_p)
    return PartialSums(cdiv(N, block_n), block_p, block_n, min(max(block_p * block_n // 256, 2), max_warps))
