# SPDX-License-Identifier: Apache-2.0
"""The comprehensive shapes of ``benchmark/core_shapes.yaml`` as benchmarks in upstream's conventions.

Upstream's own reduce dimension 1 of few shapes only, and normalize few rows.
"""

from __future__ import annotations

from flag_gems_overrides.benchmark_files import benchmark_file
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf.cases import Shapes
from flag_gems_overrides.upstreaming.lines import Line
from flag_gems_overrides.upstreaming.templates import render


def benchmarks(module: str, functions: tuple[str, ...], line: Line) -> dict[str, str]:
    """The benchmark file of an operator, by its path.

    Raises:
        CaseError: the file of shapes is missing or cannot be read; the message names it.
    """
    shapes = Shapes(benchmark_file("core_shapes.yaml"))
    made = []
    for name in functions:
        operator = OPERATORS[name]
        # All dimensions but the first are normalized unless a case says how many.
        normalizes = "normalized" in operator.arguments
        cases: dict[tuple[tuple[int, ...], int | None], None] = {}
        for case in shapes.cases(name, "comprehensive", ["float32"]):
            numbers = [value for _, value in case.arguments]
            cases[case.shape, next(iter(numbers), len(case.shape) - 1 if normalizes else None)] = None
        overload, _, variant = operator.overload.partition(".")
        made.append(
            {
                "name": line.marks.get(name, name),
                "op": f"torch.ops.aten.{overload}.{variant or 'default'}",
                "cases": list(cases),
                "arguments": operator.benchmark_arguments,
            }
        )
    return {line.benchmark.path.format(module): line.header + render("benchmark.py.j2", line=line, functions=made)}
