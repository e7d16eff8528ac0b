# SPDX-License-Identifier: Apache-2.0
"""What goes to PyTorch's own kernel instead."""

from __future__ import annotations

import flag_gems
import pytest
import torch
import torch.nn.functional as F

import flag_gems_overrides
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


def layer_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    return flag_gems.skip_layer_norm(x * 2, residual, [8], weight, None, 1e-5)


def rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    y, total = flag_gems.fused_add_rms_norm(x * 2, residual * 2, [8], weight, 1e-5)
    return y + total


def cross_entropy(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    return flag_gems.cross_entropy_loss(x * 2, residual.argmax(-1), weight)


class TestFunctionsOutsideAten:
    """Nothing stands between a caller's tensors and them."""

    @pytest.fixture(autouse=True)
    def overrides(self):
        with flag_gems_overrides.use_overrides():
            yield

    @pytest.fixture
    def arguments(self, device: str) -> tuple[torch.Tensor, ...]:
        return torch.randn(3, 8, device=device), torch.randn(3, 8, device=device), torch.rand(8, device=device)

    @pytest.mark.parametrize("function", [layer_norm, rms_norm, cross_entropy])
    def test_torch_compile_makes_one_graph(self, function, arguments):
        compiled = torch.compile(function, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(*arguments), function(*arguments))

    @pytest.mark.parametrize("function", [layer_norm, rms_norm, cross_entropy])
    def test_vmap_and_a_gradient_of_torch_func(self, function, arguments):
        x, residual, weight = arguments
        mapped = torch.func.vmap(function, in_dims=(0, 0, None))(
            torch.stack([x] * 2), torch.stack([residual] * 2), weight
        )
        torch.testing.assert_close(mapped, torch.stack([function(*arguments)] * 2))
        gradient = torch.func.grad(lambda x: function(x, residual, weight).square().sum())(x)
        leaf = x.clone().requires_grad_()
        function(leaf, residual, weight).square().sum().backward()
        torch.testing.assert_close(gradient, leaf.grad)

    @pytest.mark.parametrize("expanded", [0, 1])
    def test_one_element_in_two_places_is_not_written_to(self, expanded, arguments):
        x, residual, weight = arguments
        given = [t[:1].expand(3, 8) if at == expanded else t for at, t in enumerate((x, residual))]
        with pytest.raises(RuntimeError, match="single memory location"):
            flag_gems.fused_add_rms_norm(*given, [8], weight, 1e-5)

    def test_x_may_be_its_own_residual(self, arguments):
        x, _, weight = arguments
        total = x + x
        flag_gems.fused_add_rms_norm(x, x, [8], weight, 1e-5)
        torch.testing.assert_close(x, total)  # what is written last

    def test_a_residual_of_another_dtype_keeps_it(self, arguments):
        x, residual, _ = arguments
        wide = residual.double()
        total = x + wide
        normalized = F.rms_norm(total, [8], None, 1e-5)
        flag_gems.fused_add_rms_norm(x, wide, [8], None, 1e-5)
        torch.testing.assert_close(wide, total)
        torch.testing.assert_close(x, normalized.float())
