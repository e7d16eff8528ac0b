# SPDX-License-Identifier: Apache-2.0
"""An estimate of a launch of a group norm, in microseconds. A launch is one kernel or several, in turn."""

from __future__ import annotations

from collections.abc import Callable

from ...launch.devices import Limits
from .estimate_backward import (
    of_backward_channels,
    of_backward_loop,
    of_backward_rows,
    of_backward_split,
    of_few,
    of_tile,
)
from .estimate_forward import of_loop, of_rows, of_short_rows, of_split
from .kernel_time import Kernel, us_of
from .launches import (
    BackwardChannels,
    BackwardFew,
    BackwardLoop,
    BackwardRows,
    BackwardSplit,
    Configuration,
    Launch,
    Loop,
    Problem,
    Rows,
    ShortRows,
    Split,
    Tile,
)
from .legal import launch

# Microseconds of the first launch.
LAUNCH_US = 2.5
# Microseconds of each other launch.
SECOND_US = 1.3


def estimate(problem: Problem, configuration: Configuration, limits: Limits) -> float:
    kernels = _kernels(problem, launch(problem, configuration, limits), limits)
    return LAUNCH_US + SECOND_US * (len(kernels) - 1) + sum(us_of(problem, each, limits) for each in kernels)


def _kernels(problem: Problem, chosen: Launch, limits: Limits) -> list[Kernel]:
    makers: dict[type[Launch], Callable[..., list[Kernel]]] = {
        ShortRows: of_short_rows,
        Rows: of_rows,
        Loop: of_loop,
        Split: of_split,
        Tile: of_tile,
        BackwardFew: of_few,
        BackwardRows: of_backward_rows,
        BackwardLoop: of_backward_loop,
        BackwardSplit: of_backward_split,
        BackwardChannels: of_backward_channels,
    }
    return makers[type(chosen)](problem, chosen, limits)
