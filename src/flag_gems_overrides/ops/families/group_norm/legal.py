# SPDX-License-Identifier: Apache-2.0
"""The launch that a configuration of a group norm means, if it is legal: a grid that is not too large, registers for
what a thread holds, shared memory for pipelines.
"""

from __future__ import annotations

from collections.abc import Callable

from ...launch.devices import Limits
from .launches import Configuration, Launch, Problem
from .legal_forward import MAX_ROWS_WARPS, loop, rows, short_rows, split
from .legal_parts import backward_channels, backward_loop, backward_split
from .legal_whole import backward_rows, few, tile
from .loads import MAX_WARPS


def launch_or_none(problem: Problem, configuration: Configuration, limits: Limits) -> Launch | None:
    try:
        return launch(problem, configuration, limits)
    except ValueError:
        return None


def launch(problem: Problem, configuration: Configuration, limits: Limits) -> Launch:
    """ValueError if the problem cannot be launched so."""
    kernel, warps, groups, vec, vectors, *_, stages = configuration
    most = MAX_ROWS_WARPS if (kernel, problem.inputs) == ("rows", 1) else MAX_WARPS
    if min(groups, vec, vectors, stages) < 1 or not 0 < warps <= most:
        raise ValueError(f"no legal program: {configuration}")
    made = _LAUNCHES.get((kernel, problem.inputs))
    if made is None:
        raise ValueError(f"no such kernel: {configuration}")
    return made(problem, configuration, limits)


_LAUNCHES: dict[tuple[str, int], Callable[[Problem, Configuration, Limits], Launch]] = {
    ("short", 1): short_rows,
    ("rows", 1): rows,
    ("loop", 1): loop,
    ("split", 1): split,
    ("tile", 2): tile,
    ("few", 2): few,
    ("rows", 2): backward_rows,
    ("loop", 2): backward_loop,
    ("split", 2): backward_split,
    ("channels", 2): backward_channels,
}
