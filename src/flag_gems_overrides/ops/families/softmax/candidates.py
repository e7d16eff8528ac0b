# SPDX-License-Identifier: Apache-2.0
"""Configurations that a softmax of [M, N, K] over N may be launched with: the few of each kernel that make sense."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import SECTOR_BYTES, VECTOR_BYTES, WARP, cdiv, power_of_2
from .estimate import registers_of
from .launches import (
    MAX_DEPTH,
    MAX_INTERLEAVED,
    MAX_WORDS,
    Configuration,
    Launched,
    Problem,
    Shape,
    Short,
    Split,
    lanes_side_by_side,
    launch_or_none,
    resident,
)

# Elements of each input that a thread holds of a row, at most, by inputs; of float64 half as many.
MAX_OF_ROW = {1: 32, 2: 16}
# The same of short odd rows, of which neighbours in memory should be neighbours in a warp.
# softmax 8388608 x 15 bf16: 202 us with 4, with 16 334 (H100).
MAX_OF_SHORT_ROW = 4
# The same forward, of a tile of which rows leave 3 of 8 loads empty: more elements have fewer shuffles for each row.
# softmax 9000000 x 9 float16: 119 us with 8, with 4 154 (H200).
MAX_OF_SPARSE_ROW = 8
# Short odd rows of which a thread of a gradient of 16 bits has parts, if L2 does not hold them all. Stores of
# neighbouring lanes then fill sectors. 12150023 x 15 float16: 341 us with 2, with 1 401 (H200).
ROWS_OF_THREAD = 2
# Columns of a row of which a program holds pairs of 16 bits, at least and at most, in powers of two; twice as many at
# least of few rows. The gradient of log_softmax 4096 x 4096 float16: 29.0 us, by numbers 29.9; 20000 x 6184: 175.9 and
# 190 (H200).
MIN_OF_PAIRS, MAX_OF_PAIRS = 4096, 16384
# Elements of each input that a thread holds of a row that such a program could hold, if it reads the row twice.
# log_softmax 4096 x 9002 float16: 64.9 us with 8; held in pairs 59.5 (H200).
LOOPED_ELEMENTS = 16
# The same of programs that share a row, or read it twice, by (bytes of an element, inputs).
MAX_OF_SHARE = {(2, 1): 64, (2, 2): 32, (4, 1): 32, (4, 2): 32, (8, 1): 16, (8, 2): 16}
# Registers that a thread may be limited to. More than 80 leave a program of 32 warps none.
REGISTERS = (64, 72, 80, 128)
# Programs of a group that hold a row, at most: more wait for longer than reading again takes.
MAX_GROUP = 256
# Bytes of a row of a block of columns.
ROW_BYTES = (32, 64, 128, 256, 512)
# Elements of a thread and registers of programs that read columns in a loop, by (bytes of an element, inputs).
# softmax 64 x 16384 x 64 bf16: 114 us with 64 elements, with 32 126 (H200).
LOOPED = {
    (2, 1): (Shape(32, 4, 128, stages=3, vec_bytes=8), Shape(32, 8, 128), Shape(64, 4, 168)),
    (2, 2): (Shape(32, 8, 128), Shape(32, 4, 128), Shape(32, 16, 128)),
    (4, 1): (Shape(32, 8, 128), Shape(16, 8, 128)),
    (4, 2): (Shape(16, 8, 128), Shape(16, 16, 128), Shape(32, 8, 128)),
    (8, 1): (Shape(8, 8, 128), Shape(8, 4, 128)),
    (8, 2): (Shape(8, 8, 128),),
}
# Bytes of a row of a block that is loaded ahead, at least.
# softmax 63 x 9347 x 8 bf16: 25 us ahead by rows of 16 bytes, not ahead 14.5 (H100).
MIN_AHEAD_BYTES = 64
# Loads of all inputs of columns in a loop, at most: more spill 100 to 440 bytes, for each has an address that advances.
MAX_LOOPED_LOADS = 8
# Columns of a block from which gradients of float64 have so many, where all columns exist; of fewer they have half.
# By blocks of 16 columns 7 x 21072 x 64 spills 8 bytes, of 8 16.
MIN_OF_FLOAT64 = 32
# The same of columns loaded one by one: more registers are no faster, more elements spill.
LOOPED_SINGLY = Shape(8, 8, 64)
# Columns of such a block, at least: 16 bytes of the gradient of 3 x 10160 x 3 bf16 spill in groups of 32.
MIN_SINGLY = 8
# Tiles of a program of a group, all of them whole, of columns loaded one by one. The gradient of log_softmax
# 21 x 2976 x 361 float32: 107 us by 24 programs that have 3.9 tiles, by 33 that have 2.8 113 (H200).
MAX_WHOLE_TILES = 4
# (warps, elements of a thread, registers) of programs that have an [N, K] as it lies.
BLOCKS = ((4, 16, 96), (8, 16, 80), (16, 16, 64), (32, 16, 64))
# The same of gradients of 16 bits of more columns than this: by 64 registers 104 bytes of 400 x 700 x 501 spill.
MAX_TIGHT_COLUMNS = 128
# Elements of [N, K] side by side that a thread has, at most, if it loads one at a time.
# softmax 167200 x 19 x 2 bf16: 15.3 us with 16, with 32 21.0 (H100).
MAX_SIDE_BY_SIDE = 16
# [N, K] of which a thread has elements then, at most, unless these are few.
# softmax 5339064 x 3 x 3 bf16: 92 us with 4 elements, with 16 127 (H100).
MAX_BLOCKS_OF_THREAD, FEW_SIDE_BY_SIDE = 2, 4


def candidates(problem: Problem, limits: Limits) -> Iterator[tuple[Configuration, Launched]]:
    """Legal ones whose programs do not spill, each with its launch; no launch twice."""
    if problem.N == 1:
        each = _single(problem)
    elif problem.K == 1:
        each = itertools.chain(_rows(problem, limits), _shares_of_rows(problem, limits), _long(problem))
    else:
        each = itertools.chain(
            _short(problem), _tiles(problem, limits), _loops(problem, limits), _blocks(problem, limits), _long(problem)
        )
    seen = set()
    for configuration in each:
        launched = launch_or_none(problem, configuration, limits)
        if launched is None or launched in seen or spills(problem, configuration, launched, limits):
            continue
        seen.add(launched)
        yield configuration, launched


def spills(problem: Problem, configuration: Configuration, launched: Launched, limits: Limits) -> bool:
    """Whether a thread may need more registers than it has. What just fits on sm_90 does not on sm_80 and sm_100."""
    available = getattr(launched, "registers", 0) or min(limits.registers_per_sm // (launched.warps * WARP), 255)
    if isinstance(launched, Split) and launched.looped and not launched.contiguous and launched.vec > 1:
        half = _has_half(problem, launched.block_k)
        if launched.depth * problem.inputs > MAX_LOOPED_LOADS // (2 if half else 1):
            return True
    if isinstance(launched, (Short, Split)) or configuration.kernel == "rows":
        return registers_of(problem, launched, limits) > available
    return False


def _has_half(problem: Problem, block_k: int) -> bool:
    """Whether a thread that reads columns twice has half as many loads."""
    _, _, K, size, inputs, *_ = problem
    return (size, inputs) == (8, 2) and block_k < MIN_OF_FLOAT64 and K % block_k == 0


def _powers(first: int, last: int) -> Iterator[int]:
    while first <= last:
        yield first
        first *= 2


def _single(problem: Problem) -> Iterator[Configuration]:
    total, vec = problem.M * problem.K, VECTOR_BYTES // problem.itemsize
    for elements in (2 * vec, vec, vec // 2, 1):
        yield Configuration("single", elements, max(1, min(4, power_of_2(cdiv(total, elements * WARP)))))


def _rows(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Rows in one tile, of one or several programs' warps."""
    M, N, _, size, inputs, *_ = problem
    vec = math.gcd(N, VECTOR_BYTES // size)
    block_n = max(power_of_2(N), vec)
    most = MAX_OF_ROW[inputs] // (size // 8 + 1)
    short = vec == 1 and block_n <= WARP
    if short:
        sparse = inputs == 1 and MAX_OF_SPARSE_ROW < N <= block_n * 5 // 8
        most = min(most, MAX_OF_SPARSE_ROW if sparse else MAX_OF_SHORT_ROW)
    beyond_l2 = M * N * size * (inputs + 1) > limits.l2_bytes
    in_parts = short and size == inputs == 2 and N > MAX_OF_SHORT_ROW and beyond_l2
    for elements in _powers(vec, max(most, vec)):
        threads = block_n // (max(min(elements, block_n) // vec, 1) * vec)
        least, all_rows = max(threads // WARP, 1), power_of_2(cdiv(M * threads, WARP))
        for warps in sorted({least, *(min(max(least, each), all_rows) for each in (2, 4, 8))}):
            if warps <= 32:
                yield Configuration("rows", elements, warps)
                if in_parts and elements == MAX_OF_SHORT_ROW:
                    yield Configuration("rows", elements, warps, group=ROWS_OF_THREAD)
    if size == inputs == 2 and MIN_OF_PAIRS * (1 if limits.sm_count < M else 2) <= block_n <= MAX_OF_PAIRS:
        yield Configuration("rows", MAX_WORDS // inputs, block_n * inputs // (MAX_WORDS * WARP), REGISTERS[0])


def _shares_of_rows(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Rows of one program that holds them or reads them twice, and of groups that do so."""
    M, N, _, size, inputs, *_ = problem
    vec = VECTOR_BYTES // size
    if 16 * vec > N:
        return
    for elements, warps in itertools.product(_halves(MAX_OF_SHARE[size, inputs], vec), (4, 8, 16, 32)):
        held = cdiv(N // vec, elements // vec * warps * WARP)
        if size == inputs == 2 and elements * warps * WARP > MAX_OF_PAIRS:
            continue
        found = Configuration("split", elements, warps, 0, vec, vec)
        twice = elements == LOOPED_ELEMENTS or not (size == inputs == 2 and N <= MAX_OF_PAIRS)
        for each in _by_least_registers(problem, found, limits):
            # One program alone on a multiprocessor reads, computes and writes in turns. log_softmax 1024 x 65536 bf16:
            # 84.8 us by programs of 16 warps and 128 registers, 64 registers 76.0; softmax 227 x 91912: 40.8, by groups
            # of 12 programs 36.1 (H200).
            alone = resident(Shape(elements, warps, each.registers), limits) == limits.sm_count
            if held == 1 or (twice and (not alone or limits.sm_count >= M)):
                yield each
        if warps <= 8 and 1 < held <= MAX_GROUP:
            for prefetch in (False, True) if size == 2 else (False,):
                yield from _by_least_registers(problem, found._replace(group=held, prefetch=prefetch), limits)
        if warps in (4, 8):
            for looped in _by_least_registers(problem, found._replace(group=2), limits):
                at_once = resident(Shape(elements, warps, looped.registers), limits)
                for rows in sorted({*_powers(1, min(M, 16)), min(M, 16)}):
                    if 1 < at_once // rows < held:
                        yield looped._replace(group=at_once // rows)


def _halves(most: int, least: int) -> tuple[int, ...]:
    return tuple(each for each in (most, most // 2, most // 4) if each >= least)


def _by_least_registers(problem: Problem, found: Configuration, limits: Limits) -> Iterator[Configuration]:
    for registers in REGISTERS:
        tried = found._replace(registers=registers)
        launched = launch_or_none(problem, tried, limits)
        if launched is not None and not spills(problem, tried, launched, limits):
            yield tried
            return


def _short(problem: Problem) -> Iterator[Configuration]:
    """Columns side by side, several [N, K] side by side, and an [N, K] of one program."""
    M, N, K, size, inputs, *_ = problem
    vec = VECTOR_BYTES // size
    most = MAX_WORDS // (size // 8 + 1) // inputs
    for elements, warps in itertools.product(_powers(2, most), (1, 2, 4, 8, 16, 32)):
        if max(M * K * power_of_2(N), 4 * WARP) > elements * warps * WARP // 2:
            yield Configuration("short", elements, warps)
    if K * size <= SECTOR_BYTES:
        loaded = math.gcd(K, vec)
        own = cdiv(N, lanes_side_by_side(problem)) * loaded
        for elements, warps in itertools.product((4, 8, 16, 24), (4, 8)):
            few = elements <= max(FEW_SIDE_BY_SIDE, MAX_BLOCKS_OF_THREAD * own)
            if few and (elements <= MAX_SIDE_BY_SIDE or loaded > 1):
                yield Configuration("short", elements, warps, block_k=power_of_2(K))
        for part, warps in itertools.product((vec, vec // 2), (4, 8, 16, 32)):
            loaded = math.gcd(K, part)
            if loaded > 1:
                elements = cdiv(N * K, warps * WARP * loaded) * loaded
                yield Configuration("short", elements, warps, vec=loaded)


def _tiles(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Blocks of columns in one tile."""
    _, N, K, size, inputs, *_ = problem
    for block_k in _widths(K, size):
        vec = math.gcd(K, VECTOR_BYTES // size, block_k)
        most = min(MAX_WORDS // inputs // (2 if size == 8 else 1), MAX_DEPTH * vec if vec > 1 else 8 // inputs)
        for elements in _halves(most, vec):
            warps = max(power_of_2(N) * block_k // (elements * WARP), 1)
            if warps <= 16:
                yield Configuration("split", elements, warps, 128, vec, block_k)


def _widths(K: int, size: int) -> list[int]:
    return sorted({max(min(power_of_2(K), each // size), 2) for each in ROW_BYTES})


def _loops(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """Blocks of columns of one program that reads them twice, and of groups that hold them or read them twice."""
    _, _, K, size, inputs, *_ = problem
    for shape, block_k in itertools.product(LOOPED[size, inputs], _widths(K, size)[:4]):
        if shape.stages > 1 and block_k * size < MIN_AHEAD_BYTES:
            continue
        vec = math.gcd(K, shape.vec_bytes // size, block_k)
        # 16 bytes of 80 x 12000 x 24 bf16 spill by 16 warps and 16 columns, of which some are none.
        if size == 2 and shape.warps == 16 and K % block_k:
            continue
        all_elements = {min(shape.elements, MAX_LOOPED_LOADS // inputs * vec), shape.elements}
        if _has_half(problem, block_k):
            all_elements.add(shape.elements // 2)
        if vec == 1 and size < 8:
            tight = limits.capability[0] == 9 and block_k >= MIN_SINGLY
            shape = LOOPED_SINGLY if tight else LOOPED_SINGLY._replace(registers=80)
            all_elements = {shape.elements}
        elif limits.capability[0] != 9:
            all_elements = {max(min(all_elements) // 2, vec)}
        for elements in sorted(all_elements):
            yield from _in_groups(problem, shape._replace(elements=elements), vec, block_k, limits)


def _in_groups(problem: Problem, shape: Shape, vec: int, block_k: int, limits: Limits) -> Iterator[Configuration]:
    M, N, K, size, *_ = problem
    at_once, blocks = resident(shape, limits), M * cdiv(K, block_k)
    held = cdiv(N * block_k, shape.elements * shape.warps * WARP)
    found = Configuration("split", shape.elements, shape.warps, shape.registers, vec, block_k, 1, shape.stages)
    yield found
    # The gradient of log_softmax 1 x 4096 x 4096 bf16: 39.1 us by four whole tiles to a program, by two 45.2 (H200).
    whole = (1, 2, MAX_WHOLE_TILES) if vec == 1 and size < 8 else (1, 2, 4, 8)
    groups = {cdiv(held, tiles) for tiles in whole} | {at_once // min(each, blocks) for each in (1, 4, 8, 16, blocks)}
    for group in sorted(groups):
        if 1 < group <= min(held, at_once):
            yield found._replace(group=group)


def _blocks(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    """An [N, K] of one program, as it lies."""
    _, _, K, size, inputs, *_ = problem
    if size == 8:
        return
    tight = MAX_TIGHT_COLUMNS if limits.capability[0] == 9 else MAX_TIGHT_COLUMNS // 2
    for warps, elements, registers in BLOCKS:
        if size == inputs == 2 and warps < 32 and tight < K:
            elements, registers = 3 * VECTOR_BYTES // size, limits.registers_per_sm // (max(warps, 16) * WARP)
        whole = problem.N * K % (VECTOR_BYTES // size) == 0
        # By 32 warps 32 bytes of softmax 963 x 42019 x 3 bf16 would spill with 16 elements.
        if (size, inputs, warps) == (2, 1, 32) and not (whole and elements * warps * WARP >= problem.N * K):
            elements //= 2
        # By 16 warps 16 bytes of softmax 3990 x 861 x 28 bf16 would spill, whose parts start anywhere.
        if (size, inputs, warps) != (2, 1, 16) or whole:
            yield Configuration("blocks", elements, warps, registers)


def _long(problem: Problem) -> Iterator[Configuration]:
    """Long columns as they lie, or a row as one of them, by several launches."""
    _, _, K, size, inputs, *_ = problem
    elements = VECTOR_BYTES // size * 4 // inputs
    if K > MAX_INTERLEAVED:
        yield Configuration("strided", elements, 4, group=8)
        return
    for group in (32, 16, 8):
        yield Configuration("interleaved", elements, 4, group=group)
