# SPDX-License-Identifier: Apache-2.0
"""What goes to PyTorch's own kernel instead."""

from __future__ import annotations

import torch

from flag_gems_overrides.registration import supports


def test_classes_have_the_shape_of_the_input_without_its_second_dimension(device: str) -> None:
    for shape in ((6,), (2, 6), (2, 6, 4), (2, 6, 4, 5)):
        x = torch.zeros(shape, device=device)
        right = (*shape[:1], *shape[2:]) if len(shape) > 1 else ()
        assert supports.cross_entropy(x, torch.zeros(right, dtype=torch.long, device=device), None, -100, 0.0)
        wrong = torch.zeros((*right, 1), dtype=torch.long, device=device)
        assert not supports.cross_entropy(x, wrong, None, -100, 0.0)


def test_a_sum_into_a_tensor_is_of_a_dtype_that_the_kernel_has(device: str) -> None:
    x = torch.zeros(6, device=device)
    assert supports.reduction_out(x, torch.float64, x)
    assert not supports.reduction_out(x, torch.complex64, x)
