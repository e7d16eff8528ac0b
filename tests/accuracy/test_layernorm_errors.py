# SPDX-License-Identifier: Apache-2.0
"""What layer_norm refuses, in PyTorch's words."""

from __future__ import annotations

import pytest
import torch
from accuracy.reductions import ON_GPU, assert_same_error

from flag_gems_overrides.ops.layernorm import layer_norm, layer_norm_backward

aten = torch.ops.aten
EPS = 1e-5


@pytest.mark.parametrize(
    ("shape", "normalized", "weight", "bias"),
    [
        ((3, 8), [7], None, None),
        ((3, 4, 8), [3, 8], None, None),
        ((8,), [3, 8], None, None),
        ((3, 8), [], None, None),
        ((), [], None, None),
        ((3, 8), [8], (7,), None),
        ((3, 8), [8], None, (1, 8)),
        ((3, 4, 8), [4, 8], (8,), (4, 8)),
    ],
)
def test_errors(shape, normalized, weight, bias, device):
    x = torch.randn(shape, device=device)
    weight = None if weight is None else torch.ones(weight, device=device)
    bias = None if bias is None else torch.ones(bias, device=device)
    arguments = x, normalized, weight, bias, EPS
    assert_same_error(lambda: layer_norm(*arguments), lambda: aten.native_layer_norm(*arguments))
    arguments = x, x, normalized, x, x, weight, bias, [True, False, False]
    assert_same_error(lambda: layer_norm_backward(*arguments), lambda: aten.native_layer_norm_backward(*arguments))


@pytest.mark.parametrize(
    ("dy", "mean", "rstd", "text"),
    [
        ((3, 7), (3, 1), (3, 1), "Expected dY.numel() == M * N to be true, but got false."),
        ((3, 8), (2, 1), (3, 1), "Expected mean.numel() == M to be true, but got false."),
        ((3, 8), (3, 1), (3, 8), "Expected rstd.numel() == M to be true, but got false."),
    ],
)
def test_sizes_that_would_be_read_out_of_bounds(dy, mean, rstd, text, device):
    """PyTorch's CPU kernel checks these in debug builds only, so its words are CUDA's."""
    dy, mean, rstd = (torch.randn(shape, device=device) for shape in (dy, mean, rstd))
    x = torch.randn(3, 8, device=device)
    arguments = dy, x, [8], mean, rstd, None, None, [True, False, False]
    with pytest.raises(RuntimeError) as raised:
        layer_norm_backward(*arguments)
    assert str(raised.value).startswith(text)
    if ON_GPU:
        assert_same_error(lambda: layer_norm_backward(*arguments), lambda: aten.native_layer_norm_backward(*arguments))
