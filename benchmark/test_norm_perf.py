# SPDX-License-Identifier: Apache-2.0
"""Normalizations, forward; the backward of layer_norm is a reduction and measured with these."""

from __future__ import annotations

import pytest


@pytest.mark.layer_norm
def test_perf_layernorm(bench):
    bench("layer_norm")
