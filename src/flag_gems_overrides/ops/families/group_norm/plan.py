# SPDX-License-Identifier: Apache-2.0
"""How a group norm of [N, C, HW] is launched: plain numbers in, a plan out."""

from __future__ import annotations

from collections.abc import Iterator

from ...launch.devices import Limits
from ...plans import table
from ..norm.launches import VECTOR_BYTES, WARP, cdiv, power_of_two, power_of_two_within
from .launches import (
    MAX_WARPS,
    Configuration,
    Loop,
    Problem,
    Split,
    Tile,
    estimate,
    held,
    launch,
    launch_or_none,
    tiles_of_group,
    vector,
)

__all__ = [
    "Configuration",
    "Loop",
    "Problem",
    "Split",
    "Tile",
    "choose",
    "class_of",
    "configurations",
    "estimate",
    "launch",
    "plan",
]

# Vectors of a tile that one thread holds: of whole groups forward and in loops, and of all others.
TILE_VECTORS, VECTORS = 4, 2
# Warps of a program in a loop: 192 x 509267 bf16 took 340 us with 4, 351 with 8, 2043 x 9762 backward 59 and 79. Where
# a multiprocessor has one program, as many as there are: 128 groups of 16 x 4096 bf16 17.2 us, with half 21.
WARPS = 4
STAGES = 3
# Programs to a multiprocessor where work can be divided at will.
PROGRAMS_PER_SM = 4
# Several programs share a group of more bytes, of all inputs, if there are fewer than so many to a multiprocessor: 320
# groups of 35 x 3046 float32 114 us, by one program each 131; 512 groups of 10 x 4096 bf16 40, not 34.
BYTES_TO_SHARE, GROUPS_TO_SHARE = 1 << 18, 3
# Programs that share one of so few have twice the warps: 1 x 8636224 bf16 takes 22.1 us so, 24.0 with 4.
MAX_GROUPS_OF_LARGE_TILES = 4
# Groups are held whole if they take no more than this share of a multiprocessor's registers, by the number of inputs;
# or twice it, forward, if most lanes have an element: 1200 groups of 12416 float32 took 34.5 us, 53.4 in a loop, but
# 512 of 40 x 256 23.3 and 19.5.
SHARES, MIN_USED = {1: 8, 2: 16}, 0.75
# Of small groups, elements that a program holds if there are as many, and bytes that a multiprocessor's programs load
# at a time: layer_norm's, measured on an H200.
ELEMENTS_HELD = 2048
BYTES_IN_FLIGHT, MAX_PROGRAMS_PER_SM = 32768, 16
# Elements of each input that a program holds of all samples, so that no second launch adds what programs have: a launch
# is what takes time here, 7 x 6 x 1 bf16 5.1 us by two. Groups of a sample make up a sector of the cache.
ELEMENTS_OF_ALL, SECTOR_BYTES = 4096, 32
# Loads of a row are of whole sectors of the cache: not less than so many elements, if there are as many.
MIN_WIDTH = 512


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    return problem.inputs, problem.dx, problem.itemsize, vector(problem)


def choose(problem: Problem, limits: Limits) -> Configuration:
    found = table.lookup(
        "group_norm",
        problem,
        class_of,
        Configuration,
        lambda each: launch_or_none(problem, each, limits) is not None,
        limits,
    )
    return found or _default(problem, limits)


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """The default, and what is worth timing next to it: legal, and each another launch."""
    found: dict[Tile | Loop | Split, Configuration] = {}
    for candidate in _candidates(problem, limits):
        launched = launch_or_none(problem, candidate, limits)
        if launched is not None:
            found.setdefault(launched, candidate)
    return list(found.values())


def plan(problem: Problem, limits: Limits) -> Tile | Loop | Split:
    """The launch that is chosen, for a problem of at least one element."""
    return launch(problem, choose(problem, limits), limits)


def _candidates(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    default = _default(problem, limits)
    yield default
    yield from _neighbours_of(default)
    if default.kernel == "tile":
        yield default._replace(stages=STAGES)
        return
    for kernel in ("loop", "split"):
        for warps in (WARPS, 2 * WARPS, MAX_WARPS):
            block_d, block_hw = _blocks(problem, warps, TILE_VECTORS if kernel == "loop" else VECTORS)
            other = Configuration(kernel, 1, block_d, block_hw, warps, PROGRAMS_PER_SM, STAGES)
            yield other
            yield other._replace(programs_per_sm=2 * PROGRAMS_PER_SM)
    # A group that is larger than a share of the registers, held by many threads.
    yield Configuration("tile", 1, power_of_two(problem.N), power_of_two(problem.K), MAX_WARPS, 1)


def _neighbours_of(configuration: Configuration) -> Iterator[Configuration]:
    for field in ("warps", "programs_per_sm", "groups", "block_hw"):
        value = getattr(configuration, field)
        yield configuration._replace(**{field: 2 * value})
        yield configuration._replace(**{field: value // 2})


def _default(problem: Problem, limits: Limits) -> Configuration:
    return _tile(problem, limits) or _tiles(problem, limits)


def _tile(problem: Problem, limits: Limits) -> Configuration | None:
    """None if a program does not hold a group."""
    M, N, K, groups, itemsize, inputs, _ = problem
    block_d, block_hw = power_of_two(N), power_of_two(K)
    group = block_d * block_hw
    share = SHARES[inputs] // (2 if inputs == 1 and MIN_USED * group <= N * K else 1)
    if group * max(1, itemsize // 4) * share > limits.registers_per_sm:
        return None
    if group > held(problem, "tile") * MAX_WARPS * WARP:
        return None
    # Several groups to a program where they are small, as long as there are enough programs.
    together = power_of_two_within(min(ELEMENTS_HELD // group, M // (2 * limits.sm_count)))
    of_all = power_of_two(M // groups) * power_of_two(min(cdiv(SECTOR_BYTES, N * K * itemsize), groups))
    vectors = TILE_VECTORS if inputs == 1 and together == 1 and limits.sm_count * PROGRAMS_PER_SM <= M else VECTORS
    if inputs == 2 and of_all * group <= min(ELEMENTS_OF_ALL, held(problem, "tile") * MAX_WARPS * WARP):
        # With two vectors to a thread 256 groups of 128 bf16 took 4.3 us, with one 3.6.
        together, vectors = max(together, of_all), 1
    elements = together * group
    per_thread = min(vectors * VECTOR_BYTES // itemsize, held(problem, "tile"))
    warps = min(power_of_two_within(elements // (per_thread * WARP)), MAX_WARPS)
    if inputs == 1:
        return Configuration("tile", together, block_d, block_hw, warps)
    in_flight = BYTES_IN_FLIGHT // (inputs * elements * itemsize)
    programs_per_sm = min(max(in_flight, PROGRAMS_PER_SM), MAX_PROGRAMS_PER_SM)
    return Configuration("tile", together, block_d, block_hw, warps, programs_per_sm, STAGES)


def _tiles(problem: Problem, limits: Limits) -> Configuration:
    M, N, K, _, itemsize, inputs, dx = problem
    group_bytes = inputs * N * K * itemsize
    if inputs == 2 and _blocks(problem, WARPS, TILE_VECTORS)[1] >= K:
        # Where the channels of a tile are whole, the loop over them waits for each.
        few = 2 * limits.sm_count
    elif group_bytes > BYTES_TO_SHARE:
        few = GROUPS_TO_SHARE * limits.sm_count
    else:
        few = limits.sm_count * 3 // 4
    if few > M or (inputs == 2 and not dx):
        warps = WARPS * (2 if M <= MAX_GROUPS_OF_LARGE_TILES else 1)
        block_d, block_hw = _blocks(problem, warps, VECTORS)
        return Configuration("split", 1, block_d, block_hw, warps, PROGRAMS_PER_SM, STAGES)
    warps = MAX_WARPS if limits.sm_count >= M else WARPS
    block_d, block_hw = _blocks(problem, warps, TILE_VECTORS)
    return Configuration("loop", 1, block_d, block_hw, warps, PROGRAMS_PER_SM, STAGES)


def _blocks(problem: Problem, warps: int, vectors: int) -> tuple[int, int]:
    """Channels and elements of a tile: the fewest tiles, and of these the longest."""
    size = warps * WARP * min(vectors * VECTOR_BYTES // problem.itemsize, held(problem, "loop"))
    max_d, max_hw = power_of_two(problem.N), power_of_two(problem.K)
    widths = [1 << i for i in range(size.bit_length()) if min(MIN_WIDTH, max_hw) <= 1 << i <= max_hw]
    pairs = [(min(size // width, max_d), width) for width in widths]
    return min(pairs, key=lambda pair: (tiles_of_group(problem, *pair), -pair[1]))
