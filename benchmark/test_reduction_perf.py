# SPDX-License-Identifier: Apache-2.0
"""Reductions, what is built on them, and the gradient of layer_norm."""

from __future__ import annotations

import pytest

from flag_gems_overrides.operators import OPERATORS

REDUCTIONS = [name for name, operator in OPERATORS.items() if operator.family not in ("norm", "batch_norm")]


@pytest.mark.parametrize("op", [pytest.param(op, marks=getattr(pytest.mark, op.lstrip("_"))) for op in REDUCTIONS])
def test_perf_reduction(bench, op):
    bench(op)


@pytest.mark.layer_norm_backward
def test_perf_layernorm_backward(bench):
    bench("layer_norm_backward")
