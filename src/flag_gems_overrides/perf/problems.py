# SPDX-License-Identifier: Apache-2.0
"""Random problems: users call operators with shapes that no list has."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf.cases import Case

MAX_ELEMENTS = 1 << 28
FAMILIES = tuple(dict.fromkeys(operator.family for operator in OPERATORS.values()))
_DTYPES = {"bfloat16": 40, "float32": 30, "float16": 20, "float64": 6}
# Of the reductions' problems about one in seven is of integers or bool.
_INTEGER_WEIGHT = 3


class Problem(NamedTuple):
    """One case of a hunt."""

    family: str
    case: Case
    compiled: bool
    """Whether torch.compile is among the providers."""


def problems(ops: Sequence[str], count: int, seed: int, compile_share: float) -> list[Problem]:
    """``count`` problems of each family, spread evenly over its ops.

    The same for the same arguments, and of a smaller ``count`` the first ones. Families and ops take turns, so that
    whatever part of the list is measured has all of them.

    Args:
        compile_share: the share of each op's problems that is compared with torch.compile too.
    """
    of_family = {name: [op for op in ops if OPERATORS[op].family == name] for name in FAMILIES}
    streams = {op: cases(op, seed) for op in ops}
    chosen = []
    for i in range(count):
        for name, members in of_family.items():
            if members:
                nth, which = divmod(i, len(members))
                op = members[which]
                # Not all ops at once, and some from the beginning: the list may be cut off.
                before, after = (math.floor(n * compile_share + which / len(members)) for n in (nth, nth + 1))
                chosen.append(Problem(name, next(streams[op]), after > before))
    return chosen


def cases(op: str, seed: int, max_elements: int = MAX_ELEMENTS) -> Iterator[Case]:
    """Different cases of ``op`` without end."""
    rng = random.Random(f"{seed} {op}")
    drawn = set()
    while True:
        case = _case(op, rng, max_elements)
        if case not in drawn:
            drawn.add(case)
            yield case


def _case(op: str, rng: random.Random, max_elements: int) -> Case:
    dtype = _dtype(op, rng)
    names = OPERATORS[op].arguments
    if "normalized" in names:
        M, N = _sizes(rng, 2, max_elements)
        outer, inner = _dims(rng, M), _dims(rng, N) or (1,)
        return Case(op, (*outer, *inner), dtype, (("normalized", len(inner)),))
    if OPERATORS[op].family == "batch_norm":
        N, C, rest = _sizes(rng, 3, max_elements) if rng.random() < 0.7 else (*_sizes(rng, 2, max_elements), 1)
        return Case(op, (N, C, *_dims(rng, rest)), dtype)
    if "groups" in names:
        N, D, HW = _sizes(rng, 3, max_elements)
        # Mostly of few groups, as models have them.
        groups = max(g for g in (1, 2, 4, 8, 16, 32, D) if D % g == 0 and g <= rng.choice((1, 8, 32, D)))
        return Case(op, (N, D, *_dims(rng, HW)), dtype, (("groups", groups),))
    ndim = OPERATORS[op].ndim
    if ndim is not None:
        return Case(op, tuple(_sizes(rng, ndim, max_elements)), dtype)
    if "dim" not in names:
        return Case(op, _dims(rng, *_sizes(rng, 1, max_elements)) or (1,), dtype)
    M, N, K = _sizes(rng, 3, max_elements) if rng.random() < 0.5 else (*_sizes(rng, 2, max_elements), 1)
    outer, inner = _dims(rng, M), _dims(rng, K)
    return Case(op, (*outer, N, *inner), dtype, (("dim", len(outer)),))


def _dtype(op: str, rng: random.Random) -> str:
    weights = {name: _DTYPES.get(name, _INTEGER_WEIGHT) for name in OPERATORS[op].dtypes}
    return rng.choices(list(weights), list(weights.values()))[0]


def _sizes(rng: random.Random, parts: int, max_elements: int) -> list[int]:
    """Sizes whose product is about log-uniform from 1 to ``max_elements``; now and then one of them is 1."""
    total = rng.uniform(0, math.log2(max_elements))
    cuts = [0.0, *sorted(rng.uniform(0, total) for _ in range(parts - 1)), total]
    sizes = [_size(rng, 2 ** (end - start)) for start, end in itertools.pairwise(cuts)]
    if parts > 1 and rng.random() < 0.15:
        sizes[rng.randrange(parts)] = 1
    largest = sizes.index(max(sizes))
    others = math.prod(sizes) // sizes[largest]
    sizes[largest] = min(sizes[largest], max_elements // others)
    return sizes


def _size(rng: random.Random, about: float) -> int:
    """As it comes, odd, a multiple of 8 or a power of two: each has other alignment."""
    n = max(1, round(about))
    kind = rng.choices(("any", "odd", "multiple", "power"), (35, 25, 25, 15))[0]
    if kind == "odd":
        return n | 1
    if kind == "multiple" and n >= 8:
        return n // 8 * 8
    if kind == "power":
        return 1 << round(math.log2(n))
    return n


def _dims(rng: random.Random, size: int) -> tuple[int, ...]:
    """About ``size`` elements as no, one or two dimensions."""
    if size == 1:
        return rng.choice([(), (), (1,)])
    if size >= 6 and rng.random() < 0.3:
        first = rng.randint(2, min(64, size // 2))
        return first, size // first
    return (size,)
