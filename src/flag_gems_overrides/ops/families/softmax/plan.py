# SPDX-License-Identifier: Apache-2.0
"""How a softmax of [M, N, K] over N is launched: plain numbers in, a plan out."""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES
from ...plans import table
from .defaults import default, others
from .launches import (
    Blocks,
    Configuration,
    Interleaved,
    Launched,
    Problem,
    Rows,
    Short,
    Single,
    Split,
    Strided,
    estimate,
    launch,
    launch_or_none,
)

__all__ = [
    "Blocks",
    "Configuration",
    "Interleaved",
    "Launched",
    "Problem",
    "Rows",
    "Short",
    "Single",
    "Split",
    "Strided",
    "choose",
    "class_of",
    "configurations",
    "estimate",
    "launch",
    "plan",
]


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    _, N, K, size, inputs = problem
    return inputs, size, K == 1, N == 1, math.gcd(N if K == 1 else K, VECTOR_BYTES // size)


def choose(problem: Problem, limits: Limits) -> Configuration:
    found = table.lookup(
        "softmax",
        problem,
        class_of,
        Configuration,
        lambda each: launch_or_none(problem, each, limits) is not None,
        limits,
    )
    return default(problem, limits) if found is None else found


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """The default, and what is worth timing next to it: the neighbours of it that are legal and another launch."""
    first = default(problem, limits)
    candidates = [first]
    for field in ("elements", "warps", "group", "block_k"):
        value = getattr(first, field)
        candidates += [first._replace(**{field: value * 2}), first._replace(**{field: value // 2})]
    candidates += others(problem, limits)
    found: dict[Launched, Configuration] = {}
    for candidate in candidates:
        launched = launch_or_none(problem, candidate, limits)
        if launched is not None:
            found.setdefault(launched, candidate)
    return list(found.values())


def plan(M: int, N: int, K: int, size: int, inputs: int, limits: Limits) -> Launched:
    """The launch that is chosen for these sizes, none of them 0."""
    problem = Problem(M, N, K, size, inputs)
    return launch(problem, choose(problem, limits), limits)
