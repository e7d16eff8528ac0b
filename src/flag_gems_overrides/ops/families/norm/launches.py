# SPDX-License-Identifier: Apache-2.0
"""How the kernels of layer_norm can be launched: a problem and a configuration in, grid and sizes out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv, power_of_2, power_of_2_within
from .programs import MAX_WARPS
from .two_passes_plan import TwoPasses, plan_two_passes

# Programs that fit on a multiprocessor of every device that Triton supports.
PROGRAMS_PER_SM = 16
# Most programs of a group whose words one warp polls: polling takes longer with more.
MAX_GROUP_OF_ONE_WARP = 64
# Most programs of a group that normalizes many rows one after the other, each with a wait for all programs.
# 128 x 441693 float32: 384 us by 108 programs, read twice 223 (FlagGems); 15 x 524268 float16 with a residual, 5 rows
# to a group: 64.9 us by 128 programs, read twice 36.3 (H100).
MAX_GROUP_IN_TURN = 64
# Rows of a group from which they are many.
MIN_TURNS = 4
# Most elements of a thread that has whole rows.
MAX_SHORT_ELEMENTS = 64
# Shortest row with edges, in elements: shorter rows would be mostly edges.
MIN_UNALIGNED = 256
# Most vectors of a tile that a thread of up to 8 warps holds, by whether there are gradients, whose sums take as many.
MAX_VECTORS = {False: 8, True: 4}
# The same for an odd row with limited registers (``odd_row``).
MAX_VECTORS_OF_ODD = 12
# The same for pairs of 16 bits.
MAX_VECTORS_OF_PACKED = 16
# The same for float32 by a program of 16 warps that loads weight and bias late.
MAX_VECTORS_OF_FLOAT32 = 16
# Rows in flight that are read twice: those that this share of L2 holds.
L2_SHARE = 0.5
# Fewest groups with such rows: with fewer, nothing hides a group's wait.
MIN_GROUPS = 8
# Blocks that take as long as a program's wait for the others of its group, at each iteration (estimated).
TURN_BLOCKS = 1
# Most columns of partial sums for four programs to a multiprocessor; more columns have two. 11011 x 68 bf16: 10.6 us,
# by two 13.8; 10000 x 128: 10.7, by two 10.6 (H100).
SHORT_SUMS = 84
# Elements of a thread of a tile of columns.
COLUMN_ELEMENTS = 32
# Bytes of a cache line.
COLUMN_BYTES = 128


class Problem(NamedTuple):
    """layer_norm of [M, N] over N. K is always 1."""

    M: int
    N: int
    K: int
    itemsize: int
    backward: bool
    residual: bool = False  # is added before

    @property
    def inputs(self) -> int:
        """Tensors of [M, N] that are read."""
        return 2 if self.backward or self.residual else 1


class Configuration(NamedTuple):
    """What the tuner chooses. Kernels: flat, columns, short, rows, split, loop, few_rows; their functions below say
    which fields count."""

    kernel: str
    warps: int
    vec: int = 1  # elements of a load; where it does not divide N, a row has edges
    rows: int = 1  # of a tile
    per_sm: int = 0  # programs of a multiprocessor; with 0 there are as many as tiles
    stages: int = 1
    chunks: int = 0  # split, loop: vectors of a row that a thread holds; rows: fewest chunks of a tile
    registers: int = 0
    late: bool = False  # weight and bias are loaded after the statistics
    packed: bool = False  # elements of 16 bits are held in pairs


class Flat(NamedTuple):
    """Rows of a few elements: the kernels of flat.py."""

    programs: int
    block_m: int
    columns: bool  # read column by column
    warps: int


class ShortRows(NamedTuple):
    """Rows of a few elements (short_rows.py). A thread has ``rows`` of them, which together are vectors of ``vec``."""

    programs: int
    block_m: int
    rows: int
    vec: int
    warps: int


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
    late: bool
    registers: int = 0  # of a thread at most; with 0 as many as the compiler takes
    packed: bool = False  # elements of 16 bits are held in pairs

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


class Loop(NamedTuple):
    """``group`` programs to a row, each with a slice of ``slice_size`` columns in blocks of ``block_n``."""

    programs: int
    group: int
    slice_size: int
    block_n: int
    vec: int
    stages: int
    warps: int
    registers: int
    unaligned: bool = False

    @property
    def block(self) -> int:
        """Words of a group that a program waits for together: those of a warp, or one for each thread.

        Each wait takes as long as a load from L2, 0.7 us. rms_norm of 2 x 2097120 float32 by 264 programs to a row:
        25.7 us, with 32 words at a time 31.6 (H100).
        """
        return WARP if self.group <= WARP else WARP * self.warps


class FewRows(NamedTuple):
    """``row_programs`` of ``block_m`` x ``block_n`` for dx, ``column_programs`` of ``columns``, of all
    rows: ``column_rows``, a power of two."""

    row_programs: int
    column_programs: int
    block_m: int
    block_n: int
    column_rows: int
    columns: int
    warps: int


class PartialSums(NamedTuple):
    """Programs that add ``block_n`` columns of the partial sums each, ``block_p`` partial sums at a time."""

    programs: int
    block_p: int
    block_n: int
    warps: int


Launch = Flat | ShortRows | Rows | Split | Loop | TwoPasses | FewRows


def launch_or_none(problem: Problem, configuration: Configuration, limits: Limits) -> Launch | None:
    try:
        return launch(problem, configuration, limits)
    except ValueError:
        return None


def launch(problem: Problem, configuration: Configuration, limits: Limits) -> Launch:
    """ValueError if the problem cannot be launched with this configuration."""
    _check(configuration.warps in (1, 2, 4, 8, 16), "warps are a power of two up to 16")
    return _LAUNCHES[configuration.kernel](problem, configuration, limits)


def _check(holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(rule)


def _flat(problem: Problem, configuration: Configuration, limits: Limits) -> Flat:
    M, N, _, itemsize, backward, _ = problem
    _, warps, _, rows, *_ = configuration
    columns = configuration.kernel == "columns"
    _check(not backward, "no kernel for gradients")
    _check(1 < N <= 16 if columns else power_of_2(N) == N <= VECTOR_BYTES // itemsize, "rows of a few elements only")
    _check(rows == power_of_2(rows) and rows * N >= 16, "tiles are whole vectors")
    _check(cdiv(rows * N, warps * WARP) * itemsize <= 64, "a thread holds 64 bytes")
    _check(cdiv(M, rows) < 2**31, "a grid has fewer programs")
    return Flat(cdiv(M, rows), rows, columns, warps)


def _short_rows(problem: Problem, configuration: Configuration, limits: Limits) -> ShortRows:
    """A thread has the fewest rows that are whole vectors together."""
    M, N, _, itemsize, backward, _ = problem
    _, warps, vec, *_ = configuration
    rows = vec // math.gcd(N, vec)
    _check(not backward, "no kernel for gradients")
    _check(vec == power_of_2(vec) and vec * itemsize <= VECTOR_BYTES, "a load has 16 bytes at most")
    _check(rows * N * max(1, itemsize // 4) <= MAX_SHORT_ELEMENTS, "a thread has all elements in registers")
    block_m = rows * warps * WARP
    _check(cdiv(M, block_m) < 2**31, "a grid has fewer programs")
    return ShortRows(cdiv(M, block_m), block_m, rows, vec, warps)


def _rows(problem: Problem, configuration: Configuration, limits: Limits) -> Rows:
    M, N, _, itemsize, backward, _ = problem
    _, warps, vec, block_m, per_sm, stages, min_chunks, registers, late, packed = configuration
    unaligned = N % vec != 0
    _check(vec * itemsize <= VECTOR_BYTES, "a load has 16 bytes at most")
    _check(not late or (not backward and per_sm == 0), "what a program needs once may be loaded late")
    whole = vec * itemsize == VECTOR_BYTES and block_m == 1 and not problem.residual
    _check(not packed or (itemsize == 2 and late and whole), "pairs are of one row in whole vectors")
    _check(not unaligned or (vec * itemsize == VECTOR_BYTES and N >= MIN_UNALIGNED), "a row is too short for edges")
    _check(block_m == power_of_2(block_m) and block_m // 2 < M, "no tile for more rows than there are")
    span = N // vec * vec
    block_n = min(power_of_2(span) // max(min_chunks, 1), warps * WARP * VECTOR_BYTES // itemsize)
    _check(block_n == power_of_2(block_n) >= vec, "chunks are of whole vectors")
    # Each thread has at least one element of a tile. Of smaller tiles Triton repeats the loads in the layout of one
    # number for each row, where each thread has all elements, and changes layouts through shared memory.
    block_n = max(block_n, warps * WARP // block_m)
    chunks = cdiv(span, block_n)
    tile = block_m * chunks * block_n
    per_thread = cdiv(tile, warps * WARP)
    words = (2 if packed else 4) * per_thread * (4 if backward else 1) * max(1, itemsize // 4)
    available = min(limits.registers_per_sm // (WARP * warps), 256)
    _check(per_thread == 1 or words <= 2 * available, "a tile takes half of the registers")
    # Elements that are loaded one by one have an address and a mask each: of 4 chunks of 8 bf16 80 bytes spill.
    _check(vec > 1 or chunks == 1 or per_thread <= 16, "few elements are loaded one by one")
    max_chunks = (2 if backward else 1) * MAX_VECTORS[backward]
    if packed:
        max_chunks = MAX_VECTORS_OF_PACKED
    elif late and registers:
        max_chunks = MAX_VECTORS_OF_ODD
    elif late and warps == 16 and itemsize == 4:
        max_chunks = MAX_VECTORS_OF_FLOAT32
    _check(0 < chunks <= max_chunks, "a thread holds a few vectors")
    bytes_per_sm = problem.inputs * tile * itemsize * max(per_sm, 1)
    pipelined = stages > 1
    _check(not pipelined or per_sm > 0, "one tile to a program needs no pipeline")
    _check(not pipelined or (stages - 1) * bytes_per_sm + 8192 <= limits.shared_bytes, "stages are in shared memory")
    _check(not pipelined or warps == 1 or block_n >= warps * WARP * vec, "rows of a pipelined tile share no warps")
    if per_sm:
        max_programs = limits.sm_count * per_sm
        if backward:
            # Each program stores a row of partial sums: two to a multiprocessor, of short rows four, or one for every 8
            # tiles.
            few = (4 if N <= SHORT_SUMS else 2) * limits.sm_count
            max_programs = min(max_programs, max(few, cdiv(M, 8 * block_m)))
        programs = _programs(M, block_m, max_programs, vec, unaligned)
        return Rows(programs, block_m, chunks, block_n, vec, unaligned, stages, warps, late)
    _check(not backward or block_m >= M, "partial sums of each tile are too many")
    _check(not unaligned or block_m == 1, "neighbours start at different places of a vector")
    # A kernel counts the rows of all its programs in 32 bits.
    programs = min(cdiv(M, block_m), 2**30 // block_m)
    _check(not unaligned or programs == M, "rows of a program start equally far from a vector")
    return Rows(programs, block_m, chunks, block_n, vec, unaligned, 1, warps, late, registers, packed)


def _programs(M: int, block_m: int, max_programs: int, vec: int, unaligned: bool) -> int:
    programs = cdiv(M, block_m)
    if unaligned:
        # All rows of a program start equally far from a vector. If there are fewer rows than its tile has, most lanes
        # are masked: 4092 x 261 float16 by 4092 programs of four took 11 us (FlagGems 7.5).
        programs, max_programs = cdiv(programs, vec) * vec, max(max_programs // vec, 1) * vec
    return min(programs, max_programs, M)


def _split(problem: Problem, configuration: Configuration, limits: Limits) -> Split:
    M, N, _, itemsize, backward, _ = problem
    _, warps, vec, _, _, stages, chunks, registers, *_ = configuration
    _check(itemsize < 8, "two float32 are exchanged at a time")
    _check(chunks > 0 and registers > 0 and vec * itemsize == VECTOR_BYTES, "slices are of whole vectors")
    block_n = warps * WARP * vec
    _check(block_n <= N, "a slice is shorter than its row")
    unaligned = N % vec != 0
    if not backward and itemsize == 2 and not unaligned and problem.residual == (warps == 1):
        # A fourth stage spills 8 to 16 bytes: of 4 chunks by four warps with 128 registers, and with a residual of 8 by
        # one (Triton 3.6). 95 x 18048 bf16 with a residual: 10.4 us with three, 11.3 with four (H100).
        stages = min(stages, 3)
    shared = (stages - 1) * chunks * block_n * itemsize * problem.inputs + 2048
    # Each quarter of a multiprocessor has its own registers: with 152 a thread, 12 warps run at once, not 13.
    quarter = limits.registers_per_sm // 4 // (cdiv(registers, 8) * 8 * WARP)
    threads = warps * WARP
    per_sm = min(PROGRAMS_PER_SM, 4 * quarter // warps, limits.threads_per_sm // threads, limits.shared_bytes // shared)
    _check(per_sm > 0, "a program fits")
    programs = limits.sm_count * per_sm
    # Slices of a multiple of 16 elements are of whole vectors, and what Triton compiles for.
    slice_size = cdiv(N, 16 * cdiv(N, chunks * block_n)) * 16
    group = cdiv(N, slice_size)
    _check(1 < group <= programs, "a row takes no more programs than can run at once")
    _check(warps > 1 or group <= MAX_GROUP_OF_ONE_WARP, "one warp polls no more words")
    groups = min(programs // group, M)
    in_turn = not backward and MIN_TURNS * groups <= M
    _check(group <= MAX_GROUP_IN_TURN or not in_turn, "a wait for each row is short")
    if unaligned and groups < M:
        # All rows of a group start equally far from a vector: a multiple of vec groups.
        vec = min(vec, power_of_2_within(groups))
        groups = groups // vec * vec
        unaligned = N % vec != 0
    block = words_at_once(group, warps)
    return Split(groups * group, group, slice_size, block, chunks, block_n, vec, unaligned, stages, warps, registers)


def words_at_once(group: int, warps: int) -> int:
    """Words of a group that a program waits for together."""
    return 32 if warps > 1 or group <= 32 else MAX_GROUP_OF_ONE_WARP


def _loop(problem: Problem, configuration: Configuration, limits: Limits) -> Loop | TwoPasses:
    M, N, _, itemsize, backward, _ = problem
    if backward:
        return plan_two_passes(M, N, itemsize, limits)
    _, warps, _, _, _, stages, chunks, registers, *_ = configuration
    _check(chunks > 0 and registers > 0, "a block has a size")
    _check(chunks == power_of_2(chunks), "blocks are a power of two")
    _check(chunks <= max_chunks_of_loop(problem, limits, registers), "a thread has more elements than registers")
    _check(warps <= 8 or itemsize < 8, "24 bytes of 3 x 9000002 float64 spill with 16")
    block_n = min(chunks * (VECTOR_BYTES // itemsize) * warps * WARP, power_of_2(N))
    inputs = problem.inputs
    # x, a residual, and weight and bias, which have up to four bytes an element.
    shared = (stages - 1) * block_n * (itemsize * inputs + max(itemsize, 4) * 2) + 4096
    _check(shared <= limits.shared_bytes, "stages are in shared memory")
    threads = warps * WARP
    per_sm = min(limits.registers_per_sm // (registers * threads), limits.threads_per_sm // threads)
    resident = limits.sm_count * max(1, min(per_sm, limits.shared_bytes // shared))
    groups = min(M, resident)
    row_bytes = N * itemsize * inputs
    if M * row_bytes > limits.l2_bytes and groups * row_bytes > limits.l2_bytes:
        groups = min(groups, max(int(limits.l2_bytes * L2_SHARE) // row_bytes, MIN_GROUPS))
    blocks = cdiv(N, block_n)
    groups = _rows_at_once(M, blocks, groups, resident)
    group = min(resident // groups, blocks)
    slice_size = cdiv(blocks, group) * block_n
    group = cdiv(N, slice_size)
    if group == 1:
        groups = min(M, resident)
    vec = max(configuration.vec, math.gcd(N, VECTOR_BYTES // itemsize))
    _check(N % vec == 0 or (vec * itemsize == VECTOR_BYTES and N >= MIN_UNALIGNED), "edges are of whole vectors")
    registers = registers if group > 1 else 0
    return Loop(groups * group, group, slice_size, block_n, vec, stages, warps, registers, N % vec != 0)


def _rows_at_once(M: int, blocks: int, most: int, resident: int) -> int:
    """Groups, up to ``most``, whose iterations take the least time: for the blocks of a program, and a wait for others.

    As few groups as take no more iterations. rms_norm of 200 x 131072 bf16: 58 us in one iteration, 52 in two;
    112 x 524288 bf16: 161 us by 23 groups, 5 iterations of 12 blocks, 157 by 16, 7 of 8 (H100).
    """

    def cost(groups: int) -> int:
        return cdiv(M, groups) * (cdiv(blocks, min(resident // groups, blocks)) + TURN_BLOCKS)

    of_groups = range(1, resident // min(most, MIN_GROUPS) + 1)
    groups = min((min(resident // group, most) for group in of_groups), key=cost)
    return cdiv(M, cdiv(M, groups))


def max_chunks_of_loop(problem: Problem, limits: Limits, registers: int = 128) -> int:
    """Most vectors of a block in a thread, or as many elements that are loaded one by one.

    Of 8 float64 16 bytes spill on sm_80 and sm_100, and up to 24 on sm_90 with 128 registers (20 x 1048578, Triton
    3.6). Of 16 single elements with a residual 136 bytes spill (486 x 399817 float32 and bf16, Triton 3.7).
    """
    _, N, _, itemsize, _, residual = problem
    if itemsize == 8:
        alone = N % 2 == 0 and not residual and registers > 128
        return 4 if limits.capability[0] == 9 and alone else 2
    return itemsize // 2 if residual and N % 2 == 1 else MAX_VECTORS[False]


def _few_rows(problem: Problem, configuration: Configuration, limits: Limits) -> FewRows:
    M, N, _, itemsize, backward, _ = problem
    _, warps, _, block_m, *_ = configuration
    _check(backward, "gradients only")
    block_n = power_of_2(N)
    wide = max(1, itemsize // 4)
    # With fewer 40 bytes of 1000 float16 columns spill by 2 warps; of 16384 float32 columns 224 by 16, of 4096 8 by 4.
    _check(warps >= 4, "columns have enough threads")
    per_thread, most = (32, 512) if itemsize == 2 else (16, 256)
    _check(block_m * block_n * wide <= min(per_thread * warps, most) * WARP, "a row is one tile")
    _check(block_m == power_of_2(block_m) and block_m // 2 < M, "no tile for more rows than there are")
    # By 16 warps 32 bytes of 256 x 6000 bf16 would spill, for a thread has 128 registers.
    elements = COLUMN_ELEMENTS // (2 if warps == MAX_WARPS else 1) * warps * WARP // wide
    rows = power_of_2(M)
    # At least a cache line. Of few rows each thread has a vector.
    columns = max(COLUMN_BYTES // itemsize, warps * WARP * (VECTOR_BYTES // itemsize) // rows)
    columns = min(max(min(columns, elements // rows), VECTOR_BYTES // itemsize), block_n)
    _check(rows * columns <= elements, "a thread holds its elements of all rows")
    return FewRows(cdiv(M, block_m), cdiv(N, columns), block_m, block_n, rows, columns, warps)


_LAUNCHES: dict[str, Callable[[Problem, Configuration, Limits], Launch]] = {
    "flat": _flat,
    "columns": _flat,
    "short": _short_rows,
    "rows": _rows,
    "split": _split,
    "loop": _loop,
    "few_rows": _few_rows,
}


def widest(N: int, itemsize: int) -> int:
    """Elements of a load: a whole vector where rows are long enough for edges, else what divides N."""
    vector = VECTOR_BYTES // itemsize
    return vector if N >= MIN_UNALIGNED else math.gcd(N, vector)
