# SPDX-License-Identifier: Apache-2.0
"""The shapes of ``benchmark/core_shapes.yaml`` as benchmarks and tests in upstream's conventions.

Upstream's own reduce dimension 1 of few shapes only, and normalize few rows.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from flag_gems_overrides.benchmark_files import benchmark_file
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf.cases import Shapes
from flag_gems_overrides.upstreaming.lines import Line
from flag_gems_overrides.upstreaming.templates import render

# Elements of the largest that is tested; all are timed.
MAX_TESTED = 1 << 22


def benchmarks(module: str, functions: tuple[str, ...], line: Line) -> dict[str, str]:
    """The benchmark file of an operator, by its path.

    Raises:
        CaseError: the file of shapes is missing or cannot be read; the message names it.
    """
    made = [_described(name, line, "comprehensive") for name in functions]
    return {line.benchmark.path.format(module): line.header + render("benchmark.py.j2", line=line, functions=made)}


def size_tests(module: str, functions: tuple[str, ...], line: Line) -> dict[str, str]:
    """The test file of an operator's kernels at sizes that take different ones, by its path."""
    made = [_described(name, line, "comprehensive") for name in functions]
    for function in made:
        function["cases"] = [case for case in function["cases"] if math.prod(case[0]) <= MAX_TESTED]
    return {f"tests/test_{module}_sizes.py": line.header + render("sizes.py.j2", line=line, functions=made)}


@functools.cache
def _shapes() -> Shapes:
    return Shapes(benchmark_file("core_shapes.yaml"))


def _described(name: str, line: Line, level: str) -> dict[str, Any]:
    operator = OPERATORS[name]
    # All dimensions but the first are normalized unless a case says how many.
    normalizes = "normalized" in operator.arguments
    cases: dict[tuple[tuple[int, ...], int | None], None] = {}
    for case in _shapes().cases(name, level, ["float32"]):
        numbers = [value for _, value in case.arguments]
        cases[case.shape, next(iter(numbers), len(case.shape) - 1 if normalizes else None)] = None
    return {
        "name": line.marks.get(name, name),
        "function": line.include.get(name, name),
        "op": operator.native,
        "cases": list(cases),
        "arguments": operator.benchmark_arguments,
    }
