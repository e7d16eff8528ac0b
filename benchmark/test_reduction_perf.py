# SPDX-License-Identifier: Apache-2.0
"""Reductions and what is built on them."""

from __future__ import annotations

import pytest

FORWARD = (
    "softmax",
    "log_softmax",
    "prod",
    "prod_dim",
    "max",
    "max_dim",
    "amax",
    "min",
    "min_dim",
    "amin",
    "argmax",
    "argmin",
)


@pytest.mark.parametrize("op", [pytest.param(op, marks=getattr(pytest.mark, op)) for op in FORWARD])
def test_perf_reduction(bench, op):
    bench(op)


@pytest.mark.softmax_backward
def test_perf_softmax_backward(bench):
    bench("softmax_backward")


@pytest.mark.log_softmax_backward
def test_perf_log_softmax_backward(bench):
    bench("log_softmax_backward")


@pytest.mark.layer_norm_backward
def test_perf_layernorm_backward(bench):
    bench("layer_norm_backward")
