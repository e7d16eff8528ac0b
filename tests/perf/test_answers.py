# SPDX-License-Identifier: Apache-2.0
"""Which answers are PyTorch's."""

from __future__ import annotations

import math

import pytest
import torch

from flag_gems_overrides.perf import answers, op_inputs
from flag_gems_overrides.perf.answers import Reference
from flag_gems_overrides.perf.cases import make


def test_a_wrong_answer_is_not_right():
    x = torch.randn(8, 64)
    right = torch.softmax(x, 1)
    wrong = right.clone()
    wrong[3, 5] += 0.5
    missing = right.clone()
    missing[0, 0] = math.nan
    softmax = Reference("softmax", (x, 1, False))
    assert softmax.is_right(right)
    assert not softmax.is_right(wrong)
    assert not softmax.is_right(missing)
    assert not softmax.is_right(right[:4])
    index = x.argmax(1)
    argmax = Reference("argmax", (x, 1, False))
    assert argmax.is_right(index)
    assert not argmax.is_right((index + 1) % 64), "an index is never nearly right"


def test_what_no_number_of_the_dtype_can_hold_is_infinite():
    """On a GPU nll_loss2d adds float16 weights by atomics (NLLLoss2d.cu), and the sum stops growing below 65504."""
    inputs = op_inputs.arguments(make("nll_loss_forward", "70000x2", "float16"), "cpu")
    loss, total = op_inputs.native("nll_loss_forward")(*[x.float() if i == 0 else x for i, x in enumerate(inputs)])

    def native(x, *others):
        return (loss.to(x.dtype), (total if x.dtype == torch.float64 else total.new_tensor(32768.0)).to(x.dtype))

    reference = Reference("nll_loss_forward", inputs, native)
    assert reference.is_right((loss.half(), total.new_tensor(math.inf).half()))
    assert not reference.is_right((loss.half(), total.new_tensor(-math.inf).half()))
    assert not reference.is_right((loss.half() + 1, total.new_tensor(math.inf).half()))


@pytest.mark.parametrize(("size", "counts"), [("40x3", True), ("40x300", False)])
def test_an_answer_of_fewer_bytes_is_not_right_where_they_count(size, counts):
    """Upstream's statistics of a bfloat16 layer norm are bfloat16: in rows of one element, two thirds of the bytes."""
    inputs = op_inputs.arguments(make("layer_norm", f"{size} normalized=1", "float32"), "cpu")
    y, mean, rstd = op_inputs.native("layer_norm")(*inputs)
    reference = Reference("layer_norm", inputs)
    assert reference.is_right((y, mean, rstd))
    assert reference.is_right((y, mean.double(), rstd))
    assert reference.is_right((y, mean.bfloat16(), rstd)) is not counts


def test_where_pytorch_fails_on_the_gpu_the_cpu_answers():
    def fails(*arguments):
        raise RuntimeError("CUDA error: invalid argument")

    x = torch.randn(8, 64)
    reference = Reference("max_dim", (x, 1, False), fails)
    assert reference.failure == "RuntimeError: CUDA error: invalid argument"
    values, indices = x.max(1)
    assert reference.is_right((values, indices))
    assert not reference.is_right((values, (indices + 1) % 64))
    assert Reference("max_dim", (x, 1, False)).failure is None


def test_in_float64_pytorchs_rounding_noise_is_not_the_truth():
    """Of groups of one element the gradient is 0; PyTorch's is 5.7e-14."""
    inputs = op_inputs.arguments(make("group_norm_backward", "143x2 groups=2", "float64"), "cpu")
    dx, *others = op_inputs.native("group_norm_backward")(*inputs)
    assert 0 < dx.abs().max() < 1e-12
    reference = Reference("group_norm_backward", inputs)
    assert reference.is_right((torch.zeros_like(dx), *others))
    assert not reference.is_right((torch.full_like(dx, 1e-11), *others))


def test_in_float64_the_cpu_judges_pytorchs_answer():
    """On a GPU PyTorch's statistics of more than 2**24 elements err by 3e-8."""
    inputs = op_inputs.arguments(make("sum_dim", "8x64 dim=1", "float64"), "cpu")
    native = op_inputs.native("sum_dim")
    right = native(*inputs)
    reference = Reference("sum_dim", inputs, lambda *arguments: native(*arguments) * (1 + 3e-8))
    assert reference.is_right(right)
    assert reference.is_right(right * (1 - 2e-8))
    assert not reference.is_right(right * (1 + 1e-7))


@pytest.mark.parametrize(
    ("rows", "normalized_shape", "unsafe"),
    [(65537, [2, 1], True), (65536, [2, 1], False), (65537, [2], False)],
)
@pytest.mark.parametrize("op", ["layer_norm_backward", "_fused_rms_norm_backward"])
def test_pytorch_is_not_called_where_it_writes_beyond_its_tensors(op, rows, normalized_shape, unsafe):
    called = []
    native = op_inputs.native(op)
    size = "x".join(map(str, [rows, *normalized_shape]))
    inputs = op_inputs.arguments(make(op, f"{size} normalized={len(normalized_shape)}", "float32"), "cpu")
    reference = Reference(op, inputs, lambda *arguments: called.append(op) or native(*arguments))
    assert (reference.failure is not None, not called) == (unsafe, unsafe)
    assert reference.is_right(native(*inputs))


def test_half_inputs_whose_statistics_the_cpu_refuses():
    inputs = op_inputs.arguments(make("_fused_rms_norm_backward", "65537x2x1 normalized=2", "float16"), "cpu")
    native = op_inputs.native("_fused_rms_norm_backward")
    right = [x.half() for x in native(*(x.float() if isinstance(x, torch.Tensor) else x for x in inputs))]

    reference = Reference("_fused_rms_norm_backward", inputs)
    assert reference.failure
    assert reference.is_right(right)
    assert not reference.is_right([right[0] + 100, *right[1:]])


def test_an_error_is_the_largest_difference_and_one_unit_in_the_last_place():
    infinite = torch.tensor([-math.inf, math.inf, math.nan, 0.0], dtype=torch.float64)
    assert answers._error(infinite.float(), infinite) == 0
    ulp = torch.finfo(torch.float32).eps * 4
    exact = torch.tensor([1.0, -4.0, math.inf], dtype=torch.float64)
    assert answers._error(torch.tensor([1.5, -4.0, math.inf]), exact) == pytest.approx(0.5 + ulp)
    for wrong in (math.inf, -math.inf, math.nan):
        assert answers._error(torch.tensor([wrong, -4.0, math.inf]), exact) == math.inf


@pytest.mark.parametrize(
    ("key", "dtype"),
    [("layer_norm_backward 4x1 normalized=1", "float64"), ("layer_norm_backward 4x1 normalized=1", "float32")],
)
def test_each_output_is_judged_by_itself(key, dtype):
    """Of rows of one element dx and the gradient of the weight are rounding noise; that of the bias is not."""
    op, shape = key.split(" ", 1)
    inputs = op_inputs.arguments(make(op, shape, dtype), "cpu")
    dx, weight, bias = op_inputs.native(op)(*inputs)
    reference = Reference(op, inputs)
    assert reference.is_right((torch.zeros_like(dx), torch.zeros_like(weight), bias))
    assert not reference.is_right((torch.zeros_like(dx), torch.zeros_like(weight), bias + 0.1))
    assert not reference.is_right((torch.zeros_like(dx), torch.full_like(weight, 0.1), bias))


def test_noise_of_pytorch_that_is_small_by_luck():
    """Of a group of two elements the gradient is a few millionths; PyTorch's errs by 8 %, ours by as much elsewhere."""
    inputs = op_inputs.arguments(make("group_norm_backward", "1x1x2 groups=1", "float32"), "cpu")
    dx, *others = op_inputs.native("group_norm_backward")(*inputs)
    assert 0 < dx.abs().max() < 1e-5
    reference = Reference("group_norm_backward", inputs)
    assert reference.is_right((dx.flip(-1).neg(), *others))
    assert not reference.is_right((torch.full_like(dx, 1e-4), *others))


BY_TURNS, UP = (math.inf, -math.inf), (math.inf, math.inf)


def test_a_mean_may_err_by_what_its_terms_are_rounded_by():
    """Terms add up to 0: PyTorch's mean is that, and stays it where half of the terms go up and half of them down."""
    x = torch.tensor([1.0, -1.0] * 10 + [0.0])
    reference = Reference("mean_dim", (x, [0]))
    assert reference.is_right(torch.tensor(4e-8))
    assert not reference.is_right(torch.tensor(4e-7))


@pytest.mark.parametrize(("dtype", "wide"), [("float16", "float32"), ("float32", "float32"), ("float64", "float64")])
def test_inputs_are_moved_by_a_unit_in_the_last_place(dtype, wide):
    dtype, wide = getattr(torch, dtype), getattr(torch, wide)
    value = torch.tensor([[1.5, -2.5, 0.0], [math.inf, math.nan, -math.inf]], dtype=dtype)
    for position, move, towards in ((0, BY_TURNS, (1, -1, 1)), (1, BY_TURNS, (-1, 1, -1)), (1, UP, (1, 1, 1))):
        moved = answers._moved(value, move, position)
        assert moved.dtype == wide
        torch.testing.assert_close(moved[1], value[1].to(wide), equal_nan=True)
        towards = torch.tensor(towards, dtype=wide) * math.inf
        assert torch.equal(moved[0], torch.nextafter(value[0].to(wide), towards))
    assert answers._moved(dtype, UP, 0) == wide
    integers = torch.arange(3)
    assert answers._moved(integers, UP, 0) is integers
    assert answers._moved(1e-5, UP, 0) == 1e-5
    assert answers._moved(torch.int32, UP, 0) is torch.int32


def test_saved_bytes_are_a_share_of_all():
    inputs = (torch.zeros(10), 1, None)
    reference = (torch.zeros(6), torch.zeros(4))
    assert answers._saved_share(inputs, (torch.zeros(6).half(), torch.zeros(4).double()), reference) == 12 / 80
    assert answers._saved_share(inputs, (torch.zeros(5), torch.zeros(4)), reference) == 0, (
        "another size is another fault"
    )
    assert answers._saved_share((), (), ()) == 0
