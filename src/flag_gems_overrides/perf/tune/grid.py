# SPDX-License-Identifier: Apache-2.0
"""The problems of which configurations are measured.

The coarse grid comes first, so that a tuner that is stopped early has looked everywhere once. Problems of its finest
level take turns with random ones, as a hunt draws them.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Sequence

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf import problems
from flag_gems_overrides.perf.cases import Case, Shapes
from flag_gems_overrides.perf.tune.families import Family, Point

MAX_ELEMENTS = 1 << 28
# Exponents of 2 of the grid: each level lies between the points of those before.
LEVELS = (8, 4, 2)
INNER_STEP = 4
# Groups of a sample, as most models have them.
MAX_GROUPS = 32
# Sizes of eight bytes and of one are rare: they are tuned on the coarser levels only.
_DTYPES = {"bfloat16": len(LEVELS), "float32": len(LEVELS), "float64": 2}
_REDUCTION_DTYPES = _DTYPES | {"uint8": 2, "int64": 2}


def random_cases(family: Family, count: int, seed: int) -> Iterator[Case]:
    """The cases that a hunt of this seed would have of the family's ops, which take turns."""
    streams = [problems.cases(op, seed) for op in family.ops]
    for _, stream in zip(range(count), itertools.cycle(streams)):
        yield next(stream)


def cases(family: Family, shapes: Shapes, seed: int) -> Iterator[Case]:
    """Cases of the family's ops: those of the shape file, then a grid of (M, N, K) with ever smaller steps.

    Args:
        seed: where in its cell of the grid a problem lies, and which are the random ones.
    """
    for op in family.ops:
        if op in shapes.ops:
            yield from shapes.cases(op, "comprehensive", ["bfloat16", "float32"])
    rng = random.Random(seed)
    drawn = set()
    # Of other seeds than a hunt has, which would be judged by problems that were tuned. The finest level has one for
    # each of its own: the grid has no K of 3.
    streams = {op: problems.cases(op, -1 - seed) for op in family.ops}
    for level, step in enumerate(LEVELS):
        inner = "normalized" not in OPERATORS[family.ops[0]].arguments
        places = [place for place in _places(step, inner) if place not in drawn]
        drawn.update(places)
        rng.shuffle(places)
        dtypes = _REDUCTION_DTYPES if "uint8" in OPERATORS[family.ops[0]].dtypes else _DTYPES
        wanted = [dtype for dtype, levels in dtypes.items() if level < levels]
        for (m, n, k), dtype, odd in itertools.product(places, wanted, (False, True)):
            for op in family.ops:
                yield case(op, tuple(_size(rng, e, step, odd) for e in (m, n, k)), dtype)
                if step == LEVELS[-1]:
                    yield next(streams[op])


def _places(step: int, inner: bool) -> list[tuple[int, int, int]]:
    """Exponents of M, N and K; K = 1 is a class of its own and has all steps, larger ones no finer than INNER_STEP."""
    most = math.frexp(MAX_ELEMENTS)[1] - 1
    flat = [(m, n, 0) for m, n in itertools.product(range(0, most + 1, step), repeat=2) if 0 < m + n <= most]
    if not inner:
        return flat
    coarse = range(0, most + 1, max(step, INNER_STEP))
    deep = [(m, n, k) for m, n, k in itertools.product(coarse, coarse, coarse) if k and m + n + k <= most]
    return flat + deep


def _size(rng: random.Random, exponent: int, step: int, odd: bool) -> int:
    """About 2 to the ``exponent``: odd, or of whole vectors."""
    if not exponent:
        return 1
    n = round(2 ** (exponent + rng.uniform(-step / 4, step / 4)))
    if odd:
        return n | 1
    return max(n // 16 * 16, 1) if n >= 16 else 1 << (n.bit_length() - 1)


def case(op: str, sizes: Sequence[int], dtype: str, groups: int | None = None) -> Case:
    """A case of the problem [M, N, K]; of groups of a sample, if an op has them, as many as models mostly have."""
    M, N, K = sizes
    if "normalized" in OPERATORS[op].arguments:
        return Case(op, (M, N), dtype, (("normalized", 1),))
    if "groups" in OPERATORS[op].arguments:
        groups = groups or math.gcd(M, MAX_GROUPS)
        return Case(op, (M // groups, groups * N, K), dtype, (("groups", groups),))
    dim = (("dim", 1),) if "dim" in OPERATORS[op].arguments else ()
    # With K left out where an op has none: points are of problems, each once.
    return Case(op, (M, N, K, 1)[: OPERATORS[op].ndim or (3 if K > 1 else 2)], dtype, dim)


def points(family: Family, cases: Iterable[Case]) -> Iterator[Point]:
    """The family's problems, each once, with a case."""
    from flag_gems_overrides.perf import op_inputs

    known = set()
    for case in cases:
        if not 0 < math.prod(case.shape) <= 4 * MAX_ELEMENTS:
            continue
        problem = family.call.problem(case.op, *op_inputs.arguments(case, "meta"))
        if problem not in known:
            known.add(problem)
            yield Point(family, case, problem)


def in_turn(lists: Sequence[Sequence[Point]]) -> list[Point]:
    """The first of each list, then the second of each, and so on."""
    rounds = itertools.zip_longest(*lists)
    return [point for each in rounds for point in each if point is not None]
