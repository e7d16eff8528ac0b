# SPDX-License-Identifier: Apache-2.0
"""native_group_norm and native_group_norm_backward."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from accuracy.judge import assert_same_answer
from accuracy.reductions import FLOATING, ON_GPU, assert_same_error, each

from flag_gems_overrides.ops.families.group_norm.call import compute_backward, compute_forward
from flag_gems_overrides.ops.families.group_norm.plan import Configuration
from flag_gems_overrides.ops.groupnorm import group_norm, group_norm_backward

aten = torch.ops.aten
EPS = 1e-5

# (N, C, HW, groups). On the interpreter's device of 4 multiprocessors: small groups, several to a program and one, of
# any number of channels, and several samples; a program to a group; groups that several programs share.
SHAPES = [(5, 12, 1, 3), (3, 20, 9, 2), (2, 40, 64, 4), (1, 1, 1, 1), (70, 6, 5, 3), (2, 6, 4099, 2), (1, 6, 6200, 2)]
if ON_GPU:
    SHAPES += [(16, 320, 4096, 32), (8, 640, 1024, 32), (4, 1280, 64, 32), (2, 512, 49, 32), (1, 128, 16384, 32)]
    SHAPES += [(2000, 256, 1, 8), (1, 4, 300001, 2), (3, 96, 3136, 1), (64, 7, 999, 7), (9, 6, 1, 6), (1, 300, 129, 1)]
    SHAPES += [(100003, 16, 1, 1), (9999, 24, 3, 3)]
# One of each kind on a small device.
FEW = [(3, 20, 9, 2), (5, 10, 301, 2), (1, 6, 700, 2)]
# And configurations for larger groups, forward and backward. A channel to a group, aligned and not; a channel of one
# element and of three; channels that vectors do not cut, and that they do; with channels of two tiles, of many, and
# blocks of channels; groups that follow one another, and that programs share; short channels that programs have of many
# samples and of one. At last small groups of many samples, also in two chunks, and of few, of which programs have
# groups or channels.
LOOP, SPLIT = (
    Configuration(kernel, 1, 1, 4, 1, programs_per_sm=programs_per_sm, stages=3)
    for kernel, programs_per_sm in (("loop", 1), ("split", 4))
)
HELD = Configuration("rows", 1, 1, 4)
ROWS = Configuration("rows", 1, 1, 4, 1, programs_per_sm=1, stages=2)
CHANNELS = Configuration("channels", 1, stages=2)
KERNELS = [
    ((9, 3, 1027, 3), LOOP, ROWS),
    ((9, 3, 1024, 3), SPLIT, ROWS),
    ((5, 1040, 1, 2), LOOP, ROWS),
    ((3, 700, 3, 2), SPLIT, ROWS._replace(warps=2)),
    ((5, 40, 64, 2), HELD, ROWS),
    ((5, 10, 301, 2), HELD._replace(warps=2), ROWS._replace(warps=2)),
    ((9, 10, 76, 2), LOOP, LOOP._replace(block_d=2, block_hw=64)),
    ((9, 10, 700, 2), LOOP, LOOP._replace(block_d=2, block_hw=128)),
    ((9, 10, 301, 2), SPLIT, LOOP._replace(block_d=2, block_hw=64)),
    ((1, 14, 700, 2), SPLIT, SPLIT._replace(block_d=2, block_hw=128)),
    ((9, 14, 76, 2), LOOP, SPLIT._replace(block_d=2, block_hw=64)),
    ((1, 3, 2049, 1), SPLIT, SPLIT),
    ((70, 600, 1, 2), LOOP, CHANNELS),
    ((2, 602, 1, 2), LOOP, CHANNELS),
    ((70, 190, 3, 2), LOOP, CHANNELS),
    ((70, 100, 4, 1), LOOP, CHANNELS),
    ((9, 14, 77, 2), LOOP, SPLIT),
    ((9, 14, 19, 2), LOOP, LOOP),
    ((70, 6, 4, 3), HELD, Configuration("tile", 1, 2, 1, 1, 2, 4, 1, 2)),
    ((71, 2, 4, 1), HELD, Configuration("tile", 1, 4, 1, 1, 2, 4, 1, 2)),
    ((71, 2, 7, 1), HELD._replace(vec=2), Configuration("tile", 2, 8, 1, 1, 2, 8, 1, 2)),
    ((5, 6, 9, 2), HELD, Configuration("few", 4, 4, block_d=4, block_hw=16)),
    ((9, 12, 1, 3), HELD, Configuration("few", 4, 4, block_d=8, block_hw=1)),
]
# (N, C, HW, groups), warps and elements of a load of programs that hold pairs.
PAIRS = [((5, 40, 64, 2), 1, 8), ((3, 6, 1032, 2), 2, 8), ((4, 3, 164, 3), 1, 4), ((2, 1, 66, 1), 1, 2)]


@pytest.fixture
def small_device(device_with):
    """A device on which even small groups do not fit a program."""
    device_with(registers_per_sm=2048, sm_count=4)


class Case:
    """Inputs of one dtype, and the truth about them in 64 bits of mantissa (on x86)."""

    def __init__(self, N, C, HW, G, dtype, device, mean=1.0):
        def draw(*shape: int) -> torch.Tensor:
            return torch.randn(shape, device=device).to(dtype)

        self.sizes = N, C, HW, G
        self.x = (torch.randn(N, C, HW, device=device) * 2 + mean).to(dtype)
        self.weight, self.bias, self.dy = draw(C), draw(C), draw(N, C, HW)

    def exact(self) -> list[torch.Tensor]:
        """[y, mean, rstd, dx, dweight, dbias]"""
        N, C, HW, G = self.sizes
        x, weight, bias, dy = (
            t.double().cpu().numpy().astype(np.longdouble) for t in (self.x, self.weight, self.bias, self.dy)
        )
        x = x.reshape(N, G, -1)
        mean = x.mean(2, keepdims=True)
        rstd = 1 / (((x - mean) ** 2).mean(2, keepdims=True) + EPS) ** 0.5
        xhat = (x - mean) * rstd
        g = (dy * weight[:, None]).reshape(N, G, -1)
        dx = (g - g.mean(2, keepdims=True) - xhat * (g * xhat).mean(2, keepdims=True)) * rstd
        xhat = xhat.reshape(N, C, HW)
        results = [
            xhat * weight[:, None] + bias[:, None],
            mean[..., 0],
            rstd[..., 0],
            dx.reshape(N, C, HW),
            (dy * xhat).sum((0, 2)),
            dy.sum((0, 2)),
        ]
        return [torch.from_numpy(r.astype(np.float64)).to(self.x.device) for r in results]

    def check(
        self,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        *masks: tuple[bool, bool, bool],
        forward=group_norm,
        backward=group_norm_backward,
    ) -> None:
        """Each side goes back from its own forward, for each of the masks."""
        exact = self.exact()
        ours = forward(self.x, weight, bias, *self.sizes, EPS)
        x, dy = self.x.contiguous(), self.dy.contiguous()  # PyTorch refuses others on the CPU
        native = aten.native_group_norm(x, weight, bias, *self.sizes, EPS)
        for actual, expected, truth in zip(ours, native, exact[:3], strict=True):
            assert_same_answer(actual, expected, truth)
        for mask in masks or [(True, True, True)]:
            gradients = backward(self.dy, self.x, *ours[1:], weight, *self.sizes, mask)
            native_gradients = aten.native_group_norm_backward(dy, x, *native[1:], weight, *self.sizes, mask)
            for actual, expected, truth in zip(gradients, native_gradients, exact[3:], strict=True):
                if expected is None:
                    assert actual is None
                else:
                    assert_same_answer(actual, expected, truth)


@each("dtype", FLOATING)
@each("shape", SHAPES)
def test_group_norm(shape, dtype, device):
    case = Case(*shape, dtype, device)
    case.check(case.weight, case.bias)


@pytest.mark.parametrize(("shape", "of_forward", "of_backward"), KERNELS, ids=[f"{each[0]}" for each in KERNELS])
def test_configurations(shape, of_forward, of_backward, device, device_with):
    device_with(sm_count=4)
    case = Case(*shape, torch.float32, device)
    forward = functools.partial(compute_forward, configuration=of_forward)
    backward = functools.partial(compute_backward, configuration=of_backward)
    masks = (True, True, True), (True, False, True), (True, True, False)
    case.check(case.weight, case.bias, *masks, forward=forward, backward=backward)


@each("dtype", [torch.float16, torch.bfloat16])
@each("shape, warps, vec", PAIRS)
def test_groups_held_as_pairs(shape, warps, vec, dtype, device, device_with):
    device_with(sm_count=4)
    case = Case(*shape, dtype, device)
    configuration = Configuration("rows", warps, vec=vec, programs_per_sm=4)
    forward = functools.partial(compute_forward, configuration=configuration)
    case.check(case.weight, case.bias, forward=forward)


def _check_short_forward(case: Case, weight: torch.Tensor | None, bias: torch.Tensor | None, warps: int, vec: int):
    """Groups that a thread has whole, in vectors of ``vec``."""
    ours = compute_forward(case.x, weight, bias, *case.sizes, EPS, Configuration("short", warps, vec=vec))
    native = aten.native_group_norm(case.x, weight, bias, *case.sizes, EPS)
    for actual, expected, truth in zip(ours, native, case.exact()[:3], strict=True):
        assert_same_answer(actual, expected, truth)


@each("dtype, vec", [(dtype, vec) for dtype in FLOATING for vec in (1, 2, 4, 8) if vec * dtype.itemsize <= 16])
@each("shape", [(301, 1, 3, 1), (150, 6, 1, 2), (100, 2, 3, 2), (301, 3, 1, 1), (70, 9, 2, 3)])
def test_groups_that_a_thread_has_whole(shape, dtype, vec, device):
    """Of one channel and of several, whole programs and an odd rest; with both parameters, one and none."""
    case = Case(*shape, dtype, device)
    _check_short_forward(case, case.weight, case.bias, 1, vec)
    weight, case.weight = case.weight, torch.ones_like(case.weight)
    _check_short_forward(case, None, case.bias, 1, vec)
    case.weight, case.bias = weight, torch.zeros_like(case.bias)
    _check_short_forward(case, case.weight, None, 1, vec)


@each("samples", [1, 2, 127, 128, 129, 257])
def test_numbers_of_groups_that_a_thread_has_whole(samples, device):
    """Less than a program's, as many, and more, by four warps with one or two to a thread."""
    for vec in (1, 2):
        case = Case(samples, 3, 3, 3, torch.float32, device)
        _check_short_forward(case, case.weight, case.bias, 4, vec)


@each("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_stay_in_the_group_of_a_thread(value, device):
    case = Case(70, 6, 5, 6, torch.float32, device)
    case.x[3, 2, 1] = value
    arguments = case.x, case.weight, case.bias, *case.sizes, EPS
    ours = compute_forward(*arguments, Configuration("short", 1, vec=2))
    for actual, expected in zip(ours, aten.native_group_norm(*arguments), strict=True):
        assert torch.equal(torch.isnan(actual), torch.isnan(expected))


@each("dtype", FLOATING)
@each("shape", [(35, 60, 1, 2), (35, 33, 3, 1)])
def test_short_channels(shape, dtype, device, device_with):
    """Of all dtypes, without dx, and without weight; of 16 bits the next sample is loaded beforehand."""
    device_with(sm_count=2)
    backward = functools.partial(compute_backward, configuration=CHANNELS)
    case = Case(*shape, dtype, device)
    masks = (True, True, True), (False, True, True), (False, False, True), (True, False, False)
    case.check(case.weight, case.bias, *masks, backward=backward)
    case.weight = torch.ones_like(case.weight)
    case.check(None, case.bias, (True, False, False), backward=backward)


@each("dtype", FLOATING)
@each("shape", [(17, 8, 15, 8), (131, 2, 9, 1), (55, 20, 9, 20), (23, 3, 47, 1), (801, 37, 1, 1)])
def test_many_small_groups_in_chunks(shape, dtype, device, device_with):
    """Of single elements and of pairs, with a last tile that is not full, odd ones by warps, and gradients of these."""
    device_with(sm_count=1)
    case = Case(*shape, dtype, device)
    case.check(case.weight, case.bias, (True, True, True))


@each("dtype", FLOATING)
@each("shape", [(9, 6001, 1, 1), (5, 20000, 1, 1), (70, 301, 1, 1), (70, 304, 1, 1)])
def test_layer_normalizations(shape, dtype, device, device_with):
    """Groups of all channels, of one element each, whose rows programs hold or do not."""
    device_with(sm_count=4)
    case = Case(*shape, dtype, device)
    case.check(case.weight, case.bias, (True, True, True), (False, True, True), (True, False, False))
    case.weight = torch.ones_like(case.weight)
    case.check(None, case.bias, (True, False, False))


@each("shape", FEW)
def test_any_mask_without_bias(shape, device, small_device):
    case = Case(*shape, torch.float32, device)
    case.bias = torch.zeros_like(case.bias)
    case.check(case.weight, None, *itertools.product([True, False], repeat=3))


@each("shape", FEW)
def test_without_weight(shape, device, small_device):
    case = Case(*shape, torch.float32, device)
    case.weight = torch.ones_like(case.weight)
    case.check(None, case.bias, (True, False, False))


@each("dtype", [torch.float32, torch.float64])
@each("shape", FEW)
def test_variance_of_a_small_spread_about_a_large_mean(shape, dtype, device, small_device):
    """A variance taken as the difference of two large sums has no digit left here."""
    case = Case(*shape, dtype, device, mean=3000.0)
    ours = group_norm(case.x, None, None, *shape, EPS)
    native = aten.native_group_norm(case.x, None, None, *shape, EPS)
    for actual, expected, truth in zip(ours[1:], native[1:], case.exact()[1:3], strict=True):
        assert_same_answer(actual, expected, truth)


@each("shape", FEW)
def test_equal_elements_give_the_bias(shape, device, small_device):
    N, C, HW, _ = shape
    bias = torch.randn(C, device=device)
    y, mean, _ = group_norm(torch.full((N, C, HW), 0.1, device=device), None, bias, *shape, EPS)
    assert_same_answer(mean, torch.full_like(mean, 0.1), torch.full_like(mean, 0.1).double())
    assert (y - bias[:, None]).abs().max() <= 4e-5


@each("value", [0.1, 0.7, -1000 / 3])
@each("size", [301, 1505])
def test_equal_elements_have_exactly_their_mean(value, size, device):
    """Of rows with edges, whose sum is rounded."""
    x = torch.full((3, 1, size), value, device=device)
    _, mean, rstd = compute_forward(x, None, None, *x.shape, 1, EPS, HELD._replace(warps=2))
    assert torch.equal(mean, x[:, :, 0])
    assert_same_answer(rstd, torch.full_like(rstd, EPS**-0.5), torch.full_like(rstd, EPS).double() ** -0.5)


def test_strided_statistics(device):
    case = Case(*FEW[0], torch.float32, device)
    _, mean, rstd = group_norm(case.x, case.weight, case.bias, *case.sizes, EPS)
    arguments = case.weight, *case.sizes, [True] * 3
    expected = group_norm_backward(case.dy, case.x, mean, rstd, *arguments)
    for statistics in ((mean.T.contiguous().T, rstd), (mean, rstd.T.contiguous().T)):
        for ours, theirs in zip(group_norm_backward(case.dy, case.x, *statistics, *arguments), expected, strict=True):
            assert torch.equal(ours, theirs)


@each("shape", FEW)
def test_layouts(shape, device, small_device):
    case = Case(*shape, torch.float32, device)
    case.x, case.dy = (torch.cat([t, t], 1)[:, : shape[1]].mT.contiguous().mT for t in (case.x, case.dy))
    case.weight, case.bias = (torch.stack([t, -t], 1)[:, 0] for t in (case.weight, case.bias))
    case.check(case.weight, case.bias)


def test_misaligned(device):
    case = Case(3, 20, 16, 2, torch.bfloat16, device)
    case.x = torch.cat([case.x.flatten()[:1], case.x.flatten()])[1:].view(case.x.shape)
    case.check(case.weight, case.bias)


@each("dtype", [torch.float16, torch.bfloat16])
@each("shape", FEW)
def test_half_input_with_wide_parameters(shape, dtype, device, small_device):
    """PyTorch takes this on the CPU; the statistics are then of the parameters' dtype."""
    case = Case(*shape, dtype, device)
    weight, bias = case.weight.float(), case.bias.float()
    ours = group_norm(case.x, weight, bias, *shape, EPS)
    assert ours[1].dtype is ours[2].dtype is torch.float32
    ours += group_norm_backward(case.dy, case.x, *ours[1:], weight, *shape, [True] * 3)
    wide = case.x.float()
    native = aten.native_group_norm(wide, weight, bias, *shape, EPS)
    native += aten.native_group_norm_backward(case.dy.float(), wide, *native[1:], weight, *shape, [True] * 3)
    for actual, expected, truth in zip(ours, native, case.exact(), strict=True):
        assert_same_answer(actual, expected.to(actual.dtype), truth)


@each("value", [math.nan, math.inf])
@each("shape", FEW)
def test_values_that_are_not_finite_stay_in_their_group(shape, value, device, small_device):
    case = Case(*shape, torch.float32, device)
    case.x[0, 1, -1] = value
    ours = group_norm(case.x, case.weight, case.bias, *shape, EPS)
    native = aten.native_group_norm(case.x, case.weight, case.bias, *shape, EPS)
    for actual, expected in zip(ours, native, strict=True):
        assert torch.equal(torch.isnan(actual), torch.isnan(expected))
    ours = group_norm_backward(case.dy, case.x, *ours[1:], case.weight, *shape, [True] * 3)
    native = aten.native_group_norm_backward(case.dy, case.x, *native[1:], case.weight, *shape, [True] * 3)
    for actual, expected in zip(ours, native, strict=True):
        assert torch.equal(torch.isfinite(actual), torch.isfinite(expected))


# No channels at all are too much for PyTorch on CUDA (2.11).
@each("shape", [(0, 6, 5, 2), (2, 6, 0, 2), (0, 6, 0, 3), *([] if ON_GPU else [(3, 0, 4, 1)])])
def test_empty(shape, device):
    N, C, HW, _ = shape
    x, weight = torch.randn(N, C, HW, device=device), torch.randn(C, device=device)
    arguments = x, weight, weight, *shape, EPS
    try:
        native = aten.native_group_norm(*arguments)
    except RuntimeError:  # from PyTorch 2.14 on, for groups without elements
        assert_same_error(lambda: group_norm(*arguments), lambda: aten.native_group_norm(*arguments))
    else:
        for actual, expected in zip(group_norm(*arguments), native, strict=True):
            assert_same_answer(actual, expected, expected)


@each("shape", [(0, 6, 5, 2), (2, 6, 0, 2), (0, 6, 0, 3), (3, 0, 4, 1)])
def test_empty_gradient(shape, device):
    N, C, HW, G = shape
    x, weight = torch.randn(N, C, HW, device=device), torch.randn(C, device=device)
    statistic = torch.zeros(N, G, device=device)
    gradients = group_norm_backward(x, x, statistic, statistic, weight, *shape, [True] * 3)
    # PyTorch 2.13 has NaN for the weight's where rstd is NaN, later ones 0.
    for actual, expected in zip(gradients, (x, torch.zeros_like(weight), torch.zeros_like(weight)), strict=True):
        assert_same_answer(actual, expected, expected)


@pytest.mark.parametrize(
    ("shape", "weight", "bias", "sizes"),
    [
        ((2, 6, 4), None, None, (2, 6, 4, 4)),
        ((2, 6, 4), None, None, (2, 6, 4, 0)),
        ((2, 6, 4), (5,), None, (2, 6, 4, 3)),
    ],
)
def test_errors(shape, weight, bias, sizes, device):
    x = torch.randn(shape, device=device)
    parameters = [None if p is None else torch.ones(p, device=device) for p in (weight, bias)]
    arguments = x, *parameters, *sizes, EPS
    assert_same_error(lambda: group_norm(*arguments), lambda: aten.native_group_norm(*arguments))


def test_a_bias_of_another_shape(device):
    """Up to PyTorch 2.13 the text has the weight's shape in its place."""
    x, weight = torch.randn(2, 6, 4, device=device), torch.ones(6, device=device)
    for function in group_norm, aten.native_group_norm:
        with pytest.raises(RuntimeError, match=r"Expected bias to be a vector .* got bias of shape \[(1, )?6\]"):
            function(x, weight, weight.view(1, 6), 2, 6, 4, 3, EPS)
    with pytest.raises(RuntimeError, match=r"got bias of shape \[1, 6\]"):
        group_norm(x, weight, weight.view(1, 6), 2, 6, 4, 3, EPS)


@each("sizes", [(2, 6, 5, 3), (3, 6, 4, 3)])
def test_sizes_that_would_be_read_out_of_bounds(sizes, device):
    x, statistic = torch.randn(2, 6, 4, device=device), torch.randn(2, 3, device=device)
    with pytest.raises(RuntimeError, match="elements, but got"):
        group_norm(x, None, None, *sizes, EPS)
    with pytest.raises(RuntimeError, match="elements, but got"):
        group_norm_backward(x, x, statistic[:1], statistic, None, 2, 6, 4, 3, [True, False, False])


@each("dtype", [torch.float32, torch.bfloat16])
@each("shape", FEW)
def test_through_autograd_and_dispatch(shape, dtype, overridden, device, small_device):
    case = Case(*shape, dtype, device)

    def gradients() -> tuple[torch.Tensor, ...]:
        leaves = [t.clone().requires_grad_() for t in (case.x, case.weight, case.bias)]
        y = torch.nn.functional.group_norm(leaves[0], shape[3], leaves[1], leaves[2], EPS)
        return (y.detach(), *torch.autograd.grad(y, leaves, case.dy))

    native = gradients()
    with overridden():
        actual = gradients()
    exact = case.exact()
    for ours, theirs, truth in zip(actual, native, (exact[0], *exact[3:]), strict=True):
        assert_same_answer(ours, theirs, truth)
