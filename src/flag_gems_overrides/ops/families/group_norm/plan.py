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

# Vectors of a tile that one thread holds, and warps of a program.
VECTORS, WARPS = 2, 8
STAGES = 3
# Programs to a multiprocessor where work can be divided at will.
PROGRAMS_PER_SM = 4
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
        for warps in (4, WARPS, MAX_WARPS):
            block_d, block_hw = _blocks(problem, warps)
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
    vectors = VECTORS
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
    block_d, block_hw = _blocks(problem, WARPS)
    # Where the channels of a tile are whole, the loop over them waits for each.
    few = limits.sm_count * (2 if inputs == 2 and block_hw >= K else 1)
    if few > M or (inputs == 2 and not dx):
        return Configuration("split", 1, block_d, block_hw, WARPS, PROGRAMS_PER_SM, STAGES)
    # As many groups at a time as half of the L2 cache holds, which the second reading finds there.
    in_cache = limits.l2_bytes // 2 // (limits.sm_count * inputs * N * K * itemsize)
    return Configuration("loop", 1, block_d, block_hw, WARPS, min(max(in_cache, 2), PROGRAMS_PER_SM), STAGES)


def _blocks(problem: Problem, warps: int) -> tuple[int, int]:
    """Channels and elements of a tile: the fewest tiles, and of these the longest."""
    size = warps * WARP * min(VECTORS * VECTOR_BYTES // problem.itemsize, held(problem, "loop"))
    max_d, max_hw = power_of_two(problem.N), power_of_two(problem.K)
    widths = [1 << i for i in range(size.bit_length()) if min(MIN_WIDTH, max_hw) <= 1 << i <= max_hw]
    pairs = [(min(size // width, max_d), width) for width in widths]
    return min(pairs, key=lambda pair: (tiles_of_group(problem, *pair), -pair[1]))
