# SPDX-License-Identifier: Apache-2.0
"""The comprehensive shapes of ``benchmark/core_shapes.yaml`` as benchmarks in upstream's conventions.

Upstream's own reduce dimension 1 of few shapes only, and normalize few rows.
"""

from __future__ import annotations

from pathlib import Path

from flag_gems_overrides.catalog import OVERRIDES
from flag_gems_overrides.perf.cases import CaseError, Shapes
from flag_gems_overrides.upstreaming.lines import Line
from flag_gems_overrides.upstreaming.templates import render

SHAPES = Path("benchmark", "core_shapes.yaml")

# The aten operator's arguments, of x and the case's number: a dimension, or how many dimensions are normalized.
_ALONG = "x, number"
_ARGUMENTS = {
    "layer_norm": "x, shape[-number:], *affine(x, number), 1e-5",
    "layer_norm_backward": (
        "torch.randn_like(x), x, shape[-number:], *statistics(x, number), *affine(x, number), [True, True, True]"
    ),
    "softmax": "x, number, False",
    "softmax_backward": "torch.randn_like(x), torch.softmax(x, number), number, dtype",
    "log_softmax": "x, number, False",
    "log_softmax_backward": "torch.randn_like(x), torch.log_softmax(x, number), number, dtype",
    "prod": "x,",
    "prod_dim": _ALONG,
    "max": "x,",
    "max_dim": _ALONG,
    "amax": "x, [number]",
    "min": "x,",
    "min_dim": _ALONG,
    "amin": "x, [number]",
    "argmax": _ALONG,
    "argmin": _ALONG,
}


def benchmarks(module: str, functions: tuple[str, ...], line: Line) -> dict[str, str]:
    """The benchmark file of an operator, by its path.

    Raises:
        CaseError: the file of shapes is not there or cannot be read; the message names it.
    """
    if not SHAPES.exists():
        raise CaseError(f"{SHAPES}: is not there; run this in the folder of the project, which has it")
    shapes = Shapes(SHAPES)
    made = []
    for name in functions:
        whole = name.startswith("layer_norm")  # over all dimensions but the first, where nothing else is said
        cases: dict[tuple[tuple[int, ...], int | None], None] = {}
        for case in shapes.cases(name, "comprehensive", ["float32"]):
            numbers = [value for _, value in case.arguments]
            cases[case.shape, next(iter(numbers), len(case.shape) - 1 if whole else None)] = None
        overload, _, variant = OVERRIDES[name].overload.partition(".")
        made.append(
            {
                "name": line.marks.get(name, name),
                "op": f"torch.ops.aten.{overload}.{variant or 'default'}",
                "cases": list(cases),
                "arguments": _ARGUMENTS[name],
            }
        )
    return {line.benchmark.path.format(module): line.header + render("benchmark.py.j2", line=line, functions=made)}
