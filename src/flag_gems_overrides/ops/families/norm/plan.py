# SPDX-License-Identifier: Apache-2.0
"""Which layer_norm kernel to launch, and how: plain numbers in, a plan out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from ...launch.devices import Limits
from ...launch.sizes import VECTOR_BYTES, WARP, power_of_2
from ...plans import table
from .backward_plan import (
    LITTLE_OF_LAYER_NORM,
    MAX_ODD_OF_LAYER_NORM,
    backward_rows,
    edges_of_a_warp,
    little_gradient,
    many_warps,
    rows_of_few,
    short_rows_in_chunks,
    single_row,
    sixteen_columns,
    whole_backward_rows,
)
from .estimate import estimate as estimate
from .forward_plan import (
    early_row,
    forward_rows,
    long_sum,
    odd_rows_at_once,
    short_odd_row,
    whole_long_row,
)
from .launches import MIN_UNALIGNED, Configuration, Launch, Problem, Rows, launch, launch_or_none, widest
from .long_plan import few_odd_rows, loop, splits
from .many_rows_plan import of_short_rows
from .odd_rows_plan import odd_row, odd_sum
from .packed_plan import packed_row_of_layer_norm, packed_rows

# Shortest row, in elements, that the tuner tries by several programs.
MIN_SPLIT = 4096
# Most rows whose gradients the tuner tries in one launch: of more, columns would take too many iterations.
MAX_FEW_ROWS = 2048
# Most elements of a multiprocessor for programs of many warps (``many_warps``), by the columns of a tile: a tile to
# each program. 41229 x 9 bf16: 7.8 us, by pipelines 20.8; 40491 x 33 float16: 19.9 and 19.4 (H100).
MANY_ELEMENTS = {4: 16384, 8: 16384, 16: 16384, 32: 16384, 64: 16384}
# The same for layer_norm of 16 bits alone, in several tiles. 16519 x 123 float16: 19.0 us, by pipelines 29.9;
# 9000 x 201 bf16: 20.5 and 18.2 (H100).
MANY_WIDE_ELEMENTS = {128: 32768}


def class_of(problem: Problem) -> tuple[int | bool, ...]:
    _, N, _, itemsize, backward, residual = problem
    # Rows of a tile depend on the next power of two of N. With a tile of 4 rows of 17 float64 32768 x 7 takes 8.1 us
    # (FlagGems 4.1).
    short = N if N < 8 else power_of_2(N) if N < MIN_UNALIGNED else 0
    return backward, residual, itemsize, short, math.gcd(N, VECTOR_BYTES // itemsize)


def choose(problem: Problem, limits: Limits) -> Configuration:
    found = table.lookup("norm", problem, class_of, Configuration, launch_or_none, limits)
    return found or _without_table(problem, limits)


def _without_table(problem: Problem, limits: Limits) -> Configuration:
    return of_short_rows(problem, _of_layer_norm(problem, limits) or _default(problem, limits), limits)


def configurations(problem: Problem, limits: Limits) -> list[Configuration]:
    """The default, and others worth timing: legal, and each another launch."""
    default = _without_table(problem, limits)
    found: dict[Launch, Configuration] = {}
    for candidate in (default, *_alternatives(problem, default, limits)):
        launched = launch_or_none(problem, candidate, limits)
        if launched is not None:
            found.setdefault(launched, candidate)
    return list(found.values())


def plan(problem: Problem, limits: Limits) -> Launch:
    """The launch that is chosen for this problem, none of its sizes 0."""
    return launch(problem, choose(problem, limits), limits)


def rows(problem: Problem, limits: Limits) -> Rows | None:
    """The launch of whole rows that is chosen for rms_norm, or the first candidate; None if a row is too long for one
    program.

    Without candidates for layer_norm alone.
    """
    for found in _defaults(problem, limits):
        launched = found and launch_or_none(problem, found, limits)
        if isinstance(launched, Rows):
            return launched
    return None


def _of_layer_norm(problem: Problem, limits: Limits) -> Configuration | None:
    """Candidates for layer_norm alone, of which rms_norm was not timed or has less to do."""
    if problem.backward:
        wide = many_warps(problem, MANY_WIDE_ELEMENTS, limits) if problem.itemsize == 2 else None
        return (
            little_gradient(problem, LITTLE_OF_LAYER_NORM)
            or wide
            or short_rows_in_chunks(problem, MAX_ODD_OF_LAYER_NORM, limits)
            or edges_of_a_warp(problem, limits)
            or sixteen_columns(problem, MANY_ELEMENTS, limits)
        )
    return (
        packed_row_of_layer_norm(problem, limits)
        or few_odd_rows(problem, limits)
        or odd_row(problem, limits)
        or odd_sum(problem, limits)
        or whole_long_row(problem, limits)
    )


def _first(problem: Problem, limits: Limits) -> Configuration | None:
    """Candidates that come before all others."""
    if problem.backward:
        return single_row(problem) or many_warps(problem, MANY_ELEMENTS, limits)
    return (
        early_row(problem, limits)
        or long_sum(problem, limits)
        or odd_rows_at_once(problem, limits)
        or short_odd_row(problem, limits)
    )


def _default(problem: Problem, limits: Limits) -> Configuration:
    """The first legal candidate, otherwise a loop."""
    for found in _defaults(problem, limits):
        if found is not None and launch_or_none(problem, found, limits) is not None:
            return found
    return loop(problem, limits)


def _defaults(problem: Problem, limits: Limits) -> Iterator[Configuration | None]:
    yield _first(problem, limits)
    yield from backward_rows(problem, limits) if problem.backward else forward_rows(problem, limits)
    yield from splits(problem, limits)


def _alternatives(problem: Problem, default: Configuration, limits: Limits) -> Iterator[Configuration]:
    """Configurations worth timing next to the default; some may not be legal."""
    M, N, _, itemsize, backward, _ = problem
    common = math.gcd(N, VECTOR_BYTES // itemsize)
    for field in () if default.kernel == "split" else ("warps", "rows", "per_sm"):
        value = getattr(default, field)
        yield default._replace(**{field: value * 2})
        yield default._replace(**{field: value // 2})
    if default.kernel in ("flat", "columns"):
        for times in (2, 4):
            yield default._replace(warps=default.warps * 2, rows=default.rows * times)
        yield default._replace(warps=default.warps // 2, rows=default.rows // 2)
        return
    if N <= 16 and not backward:
        yield Configuration("columns", 4, rows=256)
        for warps, vec in itertools.product((1, 4), (1, 2, 4, VECTOR_BYTES // itemsize)):
            yield Configuration("short", warps, vec)
    if default.kernel == "short":
        yield next(each for each in _defaults(problem, limits) if each is not None and each.kernel == "rows")
        return
    if default.kernel == "rows" and not backward:
        yield default._replace(late=True, per_sm=0, stages=1)
    if default.kernel == "rows":
        if default.per_sm and not backward:
            for warps in (default.warps, 2 * default.warps, 4 * default.warps):
                yield Configuration("rows", warps, default.vec, late=True)
            yield Configuration("rows", 2 * default.warps, default.vec)
        if default.vec != common:
            yield default._replace(vec=common, per_sm=0, stages=1)
            yield default._replace(vec=common, per_sm=0, stages=1, warps=default.warps // 2)
        if not default.per_sm and not backward:
            yield default._replace(per_sm=max(1, 16 // default.warps), stages=4)
            # Programs of several warps with as much for each: fewer of them are to be started.
            yield default._replace(warps=default.warps * 4, rows=default.rows * 4)
    if N >= MIN_SPLIT:
        yield from packed_rows(problem)
    if default.kernel == "few_rows":
        yield whole_backward_rows(problem, widest(N, itemsize), limits) or loop(problem, limits)
    if backward and M <= MAX_FEW_ROWS:
        for warps in (2, 4, 8, 16):
            if power_of_2(N) <= 32 * WARP * warps:
                yield Configuration("few_rows", warps, rows=rows_of_few(N, warps))
    if default.kernel != "rows" or N >= MIN_SPLIT:
        yield from splits(problem, limits)
        yield loop(problem, limits)
