# SPDX-License-Identifier: Apache-2.0
"""Normalizations, forward. As upstream does, the gradient of layer_norm is measured with the reductions."""

from __future__ import annotations

import pytest

from flag_gems_overrides.operators import OPERATORS

FAMILIES = ("norm", "group_norm", "batch_norm")
NORMS = [name for name, each in OPERATORS.items() if each.family in FAMILIES and name != "layer_norm_backward"]


@pytest.mark.parametrize("op", [pytest.param(op, marks=getattr(pytest.mark, op.lstrip("_"))) for op in NORMS])
def test_perf_norm(bench, op):
    bench(op)
