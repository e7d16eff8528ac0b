# SPDX-License-Identifier: Apache-2.0
"""How a softmax of [M, N, K] over N is launched: plain numbers in, a plan out."""

from __future__ import annotations

import math

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES
from ...plans import table
from .candidates import candidates
from .estimate import estimate, microseconds
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

# Configurations that the tuner times, at most.
MAX_CONFIGURATIONS = 12
# Rows for each multiprocessor from which a choice does not depend on how many there are, and those it is made for.
# The gradient of 11541 x 8 float16 takes 3.3 us as 2^16 rows are launched, as 2^18 3.7 (H100).
FULL, MANY_ROWS = 32, (1 << 16, 1 << 22)
# Rows of up to so many elements have another choice if there are more than this.
MAX_OF_SHORTEST, MANY_SHORTEST = 4, 1 << 19


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    _, N, K, size, inputs, *_ = problem
    return inputs, size, K == 1, N == 1, math.gcd(N if K == 1 else K, VECTOR_BYTES // size)


def choose(problem: Problem, limits: Limits) -> Configuration:
    found = table.lookup("softmax", problem, class_of, Configuration, launch_or_none, limits)
    return default(problem, limits) if found is None else found


def default(problem: Problem, limits: Limits) -> Configuration:
    """The candidate that takes least by the estimate."""
    return configurations(problem, limits)[0]


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """The default, and the next by the estimate: what is worth timing."""
    typical = _typical(problem, limits)

    def took(candidate: tuple[Configuration, Launched]) -> float:
        launched = launch_or_none(typical, candidate[0], limits)
        return math.inf if launched is None else microseconds(typical, launched, limits)

    return [configuration for configuration, _ in sorted(candidates(problem, limits), key=took)[:MAX_CONFIGURATIONS]]


def _typical(problem: Problem, limits: Limits) -> Problem:
    """A problem of so many rows that the choice is the same for all larger ones: others would each compile anew."""
    M, N, K, *_ = problem
    if K > 1 or N == 1 or FULL * limits.sm_count >= M:
        return problem
    return problem._replace(M=MANY_ROWS[N <= MAX_OF_SHORTEST and M > MANY_SHORTEST])


def plan(M: int, N: int, K: int, size: int, inputs: int, limits: Limits) -> Launched:
    """The launch that is chosen for these sizes, none of them 0."""
    problem = Problem(M, N, K, size, inputs)
    return launch(problem, choose(problem, limits), limits)
