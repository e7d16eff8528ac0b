# SPDX-License-Identifier: Apache-2.0
"""How a batch norm of [M, N, K] over M and K is launched: plain numbers in, a plan out. H200."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, cdiv
from ...plans import table
from .channels_plan import holds_odd_runs, unaligned_channels, whole_channels
from .columns_plan import WAVES
from .estimate import estimate
from .flat_plan import flat_of
from .groups_plan import few_columns, groups_by_registers, groups_of
from .launches import (
    ALONE,
    MAX_WARPS,
    TWO_TILES,
    Channels,
    Configuration,
    Flat,
    Groups,
    Launch,
    Problem,
    Tiling,
    has_edges,
    held,
    launch,
    launch_or_none,
    places,
    tiles,
)

__all__ = [
    "TWO_TILES",
    "Channels",
    "Configuration",
    "Flat",
    "Groups",
    "Problem",
    "Tiling",
    "choose",
    "class_of",
    "configurations",
    "estimate",
    "launch",
    "plan",
    "plan_evaluation",
    "plan_sums",
]

# Gradients with heads and tails: a channel of fewer elements is held by a program. Tiles of a loop have more elements.
MIN_LOOPED = 2048
# A configuration of the tuning table whose estimate is more than this times the default's is not used. Some entries are
# older than kernels that start early. Gradient of 6117 x 267, 16 bits: 16.7 us by flat, its entry (groups) 23.9 (H100).
MAX_OF_DEFAULT = 1.1


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    _, N, K, itemsize, inputs = problem
    return inputs, itemsize, K == 1, math.gcd(N if K == 1 else K, VECTOR_BYTES // itemsize)


def choose(problem: Problem, limits: Limits) -> Configuration:
    if unaligned_channels(problem, limits) is not None:
        # The tables were tuned before runs that begin anywhere were read as a head, vectors and a tail.
        return _default(problem, limits)
    default = _default(problem, limits)
    if default.kernel == "channels" and (default.padded or default.loads == TWO_TILES):
        # The tables were tuned before programs held runs as columns or in two tiles.
        return default
    found = table.lookup(
        "batch_norm",
        problem,
        class_of,
        Configuration,
        lambda each: launch_or_none(problem, each, limits) is not None,
        limits,
    )
    if found is None or estimate(problem, found, limits) > MAX_OF_DEFAULT * estimate(problem, default, limits):
        return default
    return found


def _default(problem: Problem, limits: Limits) -> Configuration:
    columns = few_columns(problem, limits)
    if columns is not None:
        return columns
    channels = whole_channels(problem, limits)
    if channels is not None and (
        problem.K == 1
        or (channels.loads == TWO_TILES and channels.warps == 1)
        or holds_odd_runs(problem, channels, limits)
    ):
        return channels
    fastest = _fastest([channels, flat_of(problem, limits)], problem, limits)
    elements = problem.M * problem.K
    looped = problem.inputs == 2 and has_edges(problem)
    few = elements < MIN_LOOPED if looped else elements <= held(problem) * MAX_WARPS * WARP
    if channels is not None and few and fastest == channels:
        return channels
    # Groups may be faster than both. 8079 x 17 x 2 float16: 11.1 us by groups, 14.6 by flat (H100).
    by_groups = _fastest([fastest, groups_of(problem, limits)], problem, limits)
    assert by_groups is not None
    return by_groups


def _fastest(configurations: Iterable[Configuration | None], problem: Problem, limits: Limits) -> Configuration | None:
    return min(
        (each for each in configurations if each), key=lambda each: estimate(problem, each, limits), default=None
    )


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """The default and other legal configurations that are worth timing, one for each different launch."""
    found: dict[Launch, Configuration] = {}
    for candidate in _candidates(problem, limits):
        launched = launch_or_none(problem, candidate, limits)
        if launched is not None:
            found.setdefault(launched, candidate)
    return list(found.values())


def _candidates(problem: Problem, limits: Limits) -> Iterator[Configuration]:
    channels, groups, flat = whole_channels(problem, limits), groups_of(problem, limits), flat_of(problem, limits)
    yield _default(problem, limits)
    if channels is not None:
        yield from _neighbours_of(channels, "warps", "channels")
        yield channels._replace(loads=0 if channels.loads else 1)
    if flat is not None:
        yield flat
        yield flat._replace(channels=1)
        yield from _neighbours_of(flat, "warps")
    yield groups
    yield groups_by_registers(problem, limits)
    yield from _neighbours_of(groups, "tiles", "loads", "warps_per_sm", "channels")
    yield groups._replace(padded=not groups.padded)
    for warps in (4, 8, MAX_WARPS):
        for loads in (groups.loads, 2 * groups.loads):
            yield groups._replace(warps=warps, loads=loads, warps_per_sm=16, tiles=ALONE)
    if channels is None:
        yield Configuration("channels", groups.channels, MAX_WARPS)
        yield Configuration("channels", 1, MAX_WARPS)


def _neighbours_of(configuration: Configuration, *fields: str) -> Iterator[Configuration]:
    for field in fields:
        value = getattr(configuration, field)
        yield configuration._replace(**{field: 2 * value})
        yield configuration._replace(**{field: value // 2})


def plan(problem: Problem, limits: Limits) -> Launch:
    """The launch for these sizes, none of them 0."""
    return launch(problem, choose(problem, limits), limits)


def plan_sums(problem: Problem, limits: Limits) -> Launch:
    """The launch in evaluation where sums are wanted. Flat's kernels do not add up in evaluation."""
    return launch(problem, whole_channels(problem, limits) or groups_of(problem, limits), limits)


def plan_evaluation(problem: Problem, limits: Limits) -> Groups:
    """The launch in evaluation where no program needs the sums of another. Each group has one block of channels."""
    _, channels, warps, loads, warps_per_sm, _, padded, *_ = groups_by_registers(problem, limits)
    tiling = tiles(problem, channels, warps, loads, padded)
    count = cdiv(tiling.total, tiling.rows)
    group = max(1, min(cdiv(WAVES * places(tiling, warps_per_sm, limits), tiling.blocks), count))
    slice_size = cdiv(count, group) * tiling.rows
    group = cdiv(tiling.total, slice_size)
    return Groups(tiling, group, slice_size, 1, group * tiling.blocks, 0, 1)
