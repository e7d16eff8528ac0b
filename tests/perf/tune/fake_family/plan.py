# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    M: int
    N: int
    K: int
    itemsize: int


class Configuration(NamedTuple):
    kernel: str
    warps: int


def configurations(problem, limits):
    """The default is the first; 3 warps answer wrongly, 5 fail."""
    return [Configuration("rows", warps) for warps in (4, 1, 2, 3, 5, 8, 16, 32)]


def choose(problem, limits):
    """A table has 2 warps."""
    return Configuration("rows", 2)


def launch_or_none(problem, configuration, limits):
    return configuration if configuration.warps in (1, 2, 3, 4, 5, 8, 16, 32) else None


def estimate(problem, configuration, limits):
    return float(configuration.warps)
