# SPDX-License-Identifier: Apache-2.0
"""native_batch_norm and native_batch_norm_backward."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from accuracy.batch_norms import EPS, LAYOUTS, MOMENTUM, Case, Results, check, check_gradients, programs_of_one_warp
from accuracy.judge import assert_same_answer
from accuracy.reductions import FLOATING, ON_GPU, each

from flag_gems_overrides.ops.batch_norm import batch_norm, batch_norm_backward
from flag_gems_overrides.ops.cudnn_batch_norm_backward import cudnn_batch_norm_backward
from flag_gems_overrides.ops.families.batch_norm import launches, plan, types, waiting
from flag_gems_overrides.ops.launch import devices

# Whole channels, several or one to a program, as rows and as columns. The first is upstream's.
SHAPES = [(16, 3), (5, 4, 7), (2, 3, 4, 5), (2, 3, 2, 3, 4), (3, 70, 2), (7, 1, 9), (6, 3, 1, 1), (2, 5, 512)]
if ON_GPU:
    SHAPES += [(32, 32, 32), (8, 32, 224, 224), (2050, 16, 32, 32), (8, 16, 3, 224, 224), (32, 2048, 7, 7)]
    SHAPES += [
        (32, 256, 56, 56),
        (65536, 512),
        (100000, 3),
        (2, 4096, 3),
        (1, 1, 2**22 + 1),
        (64, 1030),
        (32, 320, 14, 14),
    ]
# The host needs half a minute in longdouble for the truth about more elements in float64.
WITH_DTYPES = [
    (shape, dtype) for shape in SHAPES for dtype in FLOATING if dtype != torch.float64 or math.prod(shape) <= 2**21
]
LARGE = [((2, 2, 80, 128), torch.bfloat16), ((3, 2, 61, 113), torch.float32), ((2500, 40), torch.float16)]
# Where programs are of one warp: whole channels, and groups with rows, aligned or not, and with columns.
FEW = [(4, 3, 5, 6), (3, 2, 9, 40), (3, 2, 7, 53), (150, 20)]


@pytest.fixture
def small_programs(monkeypatch, device_with):
    programs_of_one_warp(monkeypatch)
    device_with()


@each("shape, dtype", WITH_DTYPES + LARGE)
def test_training(shape, dtype, device):
    check(Case(shape, dtype, device))


@pytest.mark.parametrize("training", [True, False])
@each("dtype", FLOATING)
@pytest.mark.usefixtures("small_programs")
@each("shape", FEW)
def test_groups(shape, dtype, training, device):
    check(Case(shape, dtype, device), training)


@each("dtype", FLOATING)
def test_groups_of_several_shares(dtype, monkeypatch, device_with, device):
    device_with()
    chosen = types.Configuration("groups", 1, 1, 1, 24)
    monkeypatch.setattr(plan, "choose", lambda problem, limits: chosen)
    for inputs in (1, 2):
        problem = types.Problem(80, 1, 256, dtype.itemsize, inputs)
        assert waiting.shares_of(plan.plan(problem, devices.limits(0)).group) > 1
    check(Case((80, 1, 256), dtype, device, mean=10.0))


@pytest.mark.parametrize("training", [True, False])
@each("dtype", [torch.float16, torch.bfloat16])
def test_gradients_that_read_their_input_again(dtype, training, monkeypatch, device_with, device):
    shape = (2, 5, 4104)
    device_with(sm_count=4)
    chosen = types.Configuration("channels", 1, 16)
    monkeypatch.setattr(plan, "choose", lambda problem, limits: chosen)
    monkeypatch.setattr(plan, "channels_of", lambda problem, limits: (chosen,))
    monkeypatch.setattr(plan, "groups_of", lambda problem, limits: ())
    assert plan.plan(types.Problem(*shape, dtype.itemsize, 2), devices.limits(0)).again
    case = Case(shape, dtype, device)
    case.x[0, 1, 0] += 100.0
    check(case, training)
    exact, native = case.exact(training), case.native(training)
    for mask in itertools.product([True, False], repeat=3):
        check_gradients(mask, case.ours(training, mask), native, exact)


@each("dtype", FLOATING)
@each("rows", [18, 37, 45])
@pytest.mark.parametrize("C", [44, 48, 77])
def test_columns_in_two_tiles(C, rows, dtype, monkeypatch, device_with, device):
    device_with()
    # Each thread of a gradient holds 8 elements of the first tile and one of the second, or more.
    columns = 16 if rows < 32 else 8
    chosen = {1: types.Configuration("channels", 32, 2, 1), 2: types.Configuration("channels", columns, 1, 1)}
    monkeypatch.setattr(plan, "choose", lambda problem, limits: chosen[problem.inputs])
    monkeypatch.setattr(plan, "channels_of", lambda problem, limits: (chosen[problem.inputs],))
    monkeypatch.setattr(plan, "groups_of", lambda problem, limits: ())
    for inputs in chosen:
        assert plan.plan(types.Problem(rows, C, 1, dtype.itemsize, inputs), devices.limits(0)).tiling.rest > 0
    case = Case((rows, C), dtype, device, mean=10.0)
    case.x[-1] += 5.0
    check(case)
    exact, native = case.exact(training=False), case.native(training=False)
    for mask in itertools.product([True, False], repeat=3):
        check_gradients(mask, case.ours(training=False, mask=mask), native, exact)


@each("shape", [(1, 3), (1, 3, 1), (1, 3, 7), (1, 300, 2)])
def test_batches_of_one(shape, device):
    check(Case(shape, torch.float32, device))


@each("dtype", [torch.float32, torch.float64])
@pytest.mark.usefixtures("small_programs")
@each("shape", FEW)
def test_a_small_spread_about_a_large_mean(shape, dtype, device):
    """A variance taken as the difference of two large sums has no digit left here. The output is off by the rounding
    of the mean, as PyTorch's is on CUDA."""
    case = Case(shape, dtype, device, mean=1e4)
    for actual, native, truth in zip(case.ours()[1:5], case.native()[1:5], case.exact()[1:5], strict=True):
        assert_same_answer(actual, native, truth)


@pytest.mark.usefixtures("small_programs")
@each("shape", FEW)
def test_a_first_tile_unlike_the_others(shape, device):
    case = Case(shape, torch.float32, device, mean=100.0)
    case.x[0] = 0.0
    check(case)


@pytest.mark.parametrize("warps", [1, 2])
@pytest.mark.parametrize("seed", range(8))
def test_a_first_tile_unlike_the_others_of_one_program(seed, warps, monkeypatch, device_with, device):
    """No part of the channel is merged with others: what its sums are rounded by is in the variance."""
    device_with()
    chosen = types.Configuration("groups", 1, warps, 4, 2, 8, True)
    monkeypatch.setattr(plan, "choose", lambda problem, limits: chosen)
    planned = plan.plan(types.Problem(3, 2, 371, 4, 1), devices.limits(0))
    assert planned.group == 1
    assert planned.slice_size > planned.tiling.rows
    torch.manual_seed(seed)
    case = Case((3, 2, 7, 53), torch.float32, device, mean=100.0)
    case.x[0] = 0.0
    check(case)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(3, 300, 4), (12, 300)], ids=str)
def test_means_of_few_halves_are_rounded_once(shape, dtype, device):
    x = (torch.randint(-255, 256, shape, device=device) / 32).to(dtype)  # whose sums float32 holds
    mean = batch_norm(x, None, None, None, None, True, MOMENTUM, EPS)[1]
    assert torch.equal(mean, x.double().mean([0, *range(2, x.dim())]).float())


@pytest.mark.usefixtures("small_programs")
def test_equal_elements_have_no_variance(device):
    for shape in FEW:
        case = Case(shape, torch.float32, device)
        case.x[:] = 0.1
        ours = case.ours()
        assert torch.equal(ours.mean, torch.full_like(ours.mean, 0.1))
        assert torch.equal(ours.y, case.bias.view(-1, *[1] * (len(shape) - 2)).expand(shape))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=[name.replace(" ", "-") for name in LAYOUTS])
@pytest.mark.usefixtures("small_programs")
@each("shape", FEW)
def test_layouts(shape, layout, device):
    """Each tensor in that order, and the gradient in another."""
    case = Case(shape, torch.float32, device)
    case.x = layout(case.x)
    case.weight, case.bias, case.running_mean, case.running_var = (
        torch.stack([t, t], 1)[:, 0] for t in (case.weight, case.bias, case.running_mean, case.running_var)
    )
    check(case)
    case.dy = layout(case.dy)
    ours = check(case)
    assert ours.dx.stride() == ours.y.stride() == torch.empty_like(case.x).stride()


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.usefixtures("small_programs")
@each("shape", FEW)
def test_any_mask_with_or_without_parameters(shape, training, affine, device):
    case = Case(shape, torch.float32, device)
    if not affine:
        case.weight, case.bias = torch.ones_like(case.weight), torch.zeros_like(case.bias)
    exact, alike = case.exact(training), case.native(training)
    if not affine:
        case.weight = case.bias = None
    for mask in itertools.product([True, False], repeat=3):
        ours = case.ours(training, mask)
        # PyTorch's CUDA kernel refuses the gradients of absent parameters: those of ones and zeros are the same.
        native = case.native(training, mask if affine or not ON_GPU else (mask[0], False, False))
        assert_same_answer(ours.y, native.y, exact.y)
        check_gradients(mask, ours, alike, exact)


@pytest.mark.usefixtures("small_programs")
@each("shape", FEW)
def test_without_running_statistics_the_input_is_left_alone(shape, device):
    case = Case(shape, torch.float32, device)
    exact, before = case.exact(), case.x.clone()
    case.running_mean = case.running_var = None
    ours, native = case.ours(), case.native()
    assert torch.equal(case.x, before)
    for name in ("y", "mean", "rstd", "dx", "dweight", "dbias"):
        assert_same_answer(*(getattr(results, name) for results in (ours, native, exact)))


@each("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.usefixtures("small_programs")
@each("shape", FEW)
@pytest.mark.parametrize("training", [True, False])
def test_half_input_with_wide_parameters_and_statistics(shape, training, dtype, device):
    case = Case(shape, dtype, device)
    case.weight, case.bias = case.weight.float(), case.bias.float()
    case.running_mean, case.running_var = case.running_mean.float(), case.running_var.float()
    ours = check(case, training)
    assert ours.y.dtype == ours.dx.dtype == dtype
    assert ours.dweight.dtype == ours.dbias.dtype == ours.running_var.dtype == torch.float32


@each("value", [math.nan, math.inf])
@pytest.mark.usefixtures("small_programs")
@each("shape", FEW)
def test_values_that_are_not_finite_stay_in_their_channel(shape, value, device):
    case = Case(shape, torch.float32, device)
    clean = case.ours()
    case.x[-1, 1].view(-1)[-1] = value
    case.dy[-1, 0].view(-1)[-1] = value
    for name, before, actual in zip(Results._fields, clean, case.ours(), strict=True):
        channels = [0] if name in ("dx", "dweight", "dbias") else []
        harmed = torch.zeros(shape[1], dtype=torch.bool, device=device)
        harmed[[1, *channels] if name != "dbias" else channels] = True
        of_channels = actual.transpose(0, 1).reshape(shape[1], -1) if actual.dim() > 1 else actual[:, None]
        assert torch.equal(~of_channels.isfinite().all(1), harmed), name
        before = before.transpose(0, 1).reshape(shape[1], -1) if before.dim() > 1 else before[:, None]
        assert torch.equal(of_channels[~harmed], before[~harmed])


@each("shape", [(0, 3), (0, 3, 5), (4, 3, 0), (4, 0, 5)])
def test_nothing(shape, device):
    """No element has a mean; the sums of none are 0."""
    case = Case(shape, torch.float32, device)
    y, mean, rstd = batch_norm(case.x, case.weight, case.bias, None, None, True, MOMENTUM, EPS)
    assert y.shape == shape
    assert torch.equal(mean, torch.zeros_like(mean))
    assert rstd.isnan().all()
    running = case.running_mean, case.running_var
    y, mean, rstd = batch_norm(case.x, case.weight, case.bias, *running, False, MOMENTUM, EPS)
    assert y.shape == shape
    assert torch.equal(mean, running[0])
    torch.testing.assert_close(rstd, (running[1] + EPS).rsqrt())
    for training in (True, False):
        rest = *running, mean, rstd, training, EPS, [True] * 3
        dx, *sums = batch_norm_backward(case.dy, case.x, case.weight, *rest)
        assert dx.shape == shape
        for each_sum in sums:
            assert torch.equal(each_sum, torch.zeros(shape[1], device=device))


def test_errors(device):
    x, three, four = (torch.ones(size, device=device) for size in ((2, 3, 4), 3, 4))
    rest = MOMENTUM, EPS
    for arguments, error, text in [
        ((x, None, None, three, None, True), ValueError, "must either both be None or neither"),
        ((x, None, None, None, three, True), ValueError, "must either both be None or neither"),
        ((x, None, None, None, None, False), RuntimeError, "running_mean"),
        ((x, four, None, None, None, True), RuntimeError, "weight should contain 3 elements not 4"),
        ((x, None, four, None, None, True), RuntimeError, "bias should contain 3 elements not 4"),
        ((x, None, None, four, three, True), RuntimeError, "running_mean should contain 3 elements not 4"),
        ((x, None, None, three, four, True), RuntimeError, "running_var should contain 3 elements not 4"),
        ((three, None, None, None, None, True), IndexError, r"expected to be in range of \[-1, 0\], but got 1"),
    ]:
        with pytest.raises(error, match=text):
            batch_norm(*arguments, *rest)
    with pytest.raises(RuntimeError, match="save_mean and save_invstd must be defined"):
        batch_norm_backward(x, x, None, three, three, None, None, True, EPS, [True] * 3)
    with pytest.raises(RuntimeError, match="Expected grad_out to have 24 elements"):
        batch_norm_backward(x[:1], x, None, None, None, three, three, True, EPS, [True] * 3)


@pytest.mark.usefixtures("small_programs")
def test_parts_that_are_merged_in_turns(device, monkeypatch):
    """More parts than the last program has at a time."""
    monkeypatch.setattr(launches, "PARTS_PER_THREAD", 0.25)
    case = Case((300, 20), torch.float32, device, mean=10.0)
    case.x += torch.linspace(-5, 5, 300, device=device)[:, None]  # or a part's mean were that of its channel
    check(case)


@each("dtype", FLOATING)
@pytest.mark.parametrize("training", [True, False])
def test_through_autograd_and_dispatch(training, dtype, overridden, device):
    case = Case((4, 3, 5, 6), dtype, device)

    def gradients() -> tuple[torch.Tensor, ...]:
        leaves = [t.clone().requires_grad_() for t in (case.x, case.weight, case.bias)]
        running = case.running_mean.clone(), case.running_var.clone()
        with torch.backends.cudnn.flags(enabled=False):
            y = torch.nn.functional.batch_norm(leaves[0], *running, *leaves[1:], training, MOMENTUM, EPS)
            return (y.detach(), *running, *torch.autograd.grad(y, leaves, case.dy))

    native = gradients()
    with overridden():
        actual = gradients()
    exact = case.exact(training)
    truths = exact.y, exact.running_mean, exact.running_var, exact.dx, exact.dweight, exact.dbias
    for ours, theirs, truth in zip(actual, native, truths, strict=True):
        assert_same_answer(ours, theirs, truth)


@each("dtype", [torch.float32, torch.float16])
def test_gradient_of_cudnns_forward(dtype, device):
    """What F.batch_norm calls on CUDA; flag_gems has it from 5.3.2 on. Parameters are float32 there."""
    case = Case((4, 3, 5, 6), dtype, device)
    _, mean, rstd = torch.native_batch_norm(case.x.float(), None, None, None, None, True, MOMENTUM, EPS)
    weight, reserve = case.weight.float(), torch.empty(0, dtype=torch.uint8, device=device)
    if device == "cuda":
        _, mean, rstd, reserve = torch.cudnn_batch_norm(case.x, weight, weight, None, None, True, MOMENTUM, EPS)
    exact = case.exact()
    actual = cudnn_batch_norm_backward(case.x, case.dy, weight, None, None, mean, rstd, EPS, reserve)
    native = torch.ops.aten.native_batch_norm_backward(
        case.dy.float(), case.x.float(), weight, None, None, mean, rstd, True, EPS, [True] * 3
    )
    assert [t.dtype for t in actual] == [dtype, torch.float32, torch.float32]
    for ours, theirs, truth in zip(actual, native, (exact.dx, exact.dweight, exact.dbias), strict=True):
        assert_same_answer(ours, theirs.to(ours.dtype), truth)
    with pytest.raises(RuntimeError, match="save_mean and save_var must be defined"):
        cudnn_batch_norm_backward(case.x, case.dy, weight, epsilon=EPS, reserveSpace=reserve)
