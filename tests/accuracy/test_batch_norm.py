# SPDX-License-Identifier: Apache-2.0
"""native_batch_norm and native_batch_norm_backward."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytest
import torch
from accuracy.judge import assert_same_answer
from accuracy.reductions import FLOATING, ON_GPU, each

from flag_gems_overrides.ops.batch_norm import batch_norm, batch_norm_backward
from flag_gems_overrides.ops.cudnn_batch_norm_backward import cudnn_batch_norm_backward
from flag_gems_overrides.ops.families.batch_norm import launches, plan, waiting
from flag_gems_overrides.ops.families.batch_norm.layout import view
from flag_gems_overrides.ops.launch import devices

aten = torch.ops.aten
EPS, MOMENTUM = 1e-5, 0.3

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
# Rows that are read as they lie: all channels of several rows, with a rest and without, and by place (1).
SHORT = [((700, 5), 5), ((133, 3, 7), 3), ((96, 48), 48), ((90, 504), 1), ((30, 40, 15), 1)]
# Rows that are read by place: blocks that begin and end anywhere, with a rest of rows and without.
BY_PLACE = [(86, 77), (64, 33, 5), (150, 130), (70, 3, 101)]
# Runs that are no whole vectors and begin at each place of one: few and many to a program, and long ones.
UNALIGNED = [(3, 5, 257), (40, 2, 265), (1, 3, 1031), (2, 9, 13, 23), (5, 2, 1028)]
small_programs = pytest.mark.usefixtures("programs_of_one_warp")


@pytest.fixture
def programs_of_one_warp(monkeypatch, device_with):
    for name, value in (("MAX_WARPS", 1), ("ROWS", (2, 1, 4, 2)), ("COLUMNS", (2, 1, 4, 2))):
        monkeypatch.setattr(plan, name, value)
    monkeypatch.setattr(plan, "_flat", lambda problem, limits: None)
    device_with()


class Results(NamedTuple):
    y: torch.Tensor
    mean: torch.Tensor
    rstd: torch.Tensor
    running_mean: torch.Tensor
    running_var: torch.Tensor
    dx: torch.Tensor | None
    dweight: torch.Tensor | None
    dbias: torch.Tensor | None


class Case:
    """Inputs of one dtype, and the truth about them."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: str, mean: float = 1.0) -> None:
        C = shape[1]
        self.mean = mean
        self.x = (torch.randn(shape, device=device) * 2 + mean).to(dtype)
        self.dy = torch.randn(shape, device=device).to(dtype)
        self.weight, self.bias, self.running_mean = (torch.randn(C, device=device).to(dtype) for _ in range(3))
        self.running_var = (torch.rand(C, device=device) + 0.5).to(dtype)

    def exact(self, training: bool = True) -> Results:
        """In a wider format: float64, or longdouble for float64 input."""
        wide = _Longdouble if self.x.dtype is torch.float64 else _Double
        C, N = self.x.shape[1], self.x.numel() // self.x.shape[1]
        x, dy = (wide.of(t.transpose(0, 1).reshape(C, N)) for t in (self.x, self.dy))
        weight, bias = (wide.of(t).reshape(C, 1) for t in (self.weight, self.bias))
        running_mean, running_var = (wide.of(t).reshape(C, 1) for t in (self.running_mean, self.running_var))
        if training:
            mean = x.mean(1, keepdims=True)
            variance = ((x - mean) ** 2).mean(1, keepdims=True)
            running_mean = (1 - MOMENTUM) * running_mean + MOMENTUM * mean
            running_var = (1 - MOMENTUM) * running_var + MOMENTUM * (variance * N / max(N - 1, 1))
        else:
            mean, variance = running_mean, running_var
        rstd = 1 / (variance + EPS) ** 0.5
        xhat = (x - mean) * rstd
        g = dy * weight
        dx = (g - g.mean(1, keepdims=True) - xhat * (g * xhat).mean(1, keepdims=True)) * rstd if training else g * rstd
        channels = (xhat * weight + bias, dx)
        y, dx = (wide.back(t, self.x.device).reshape(C, -1, *self.x.shape[2:]).transpose(0, 1) for t in channels)
        rest = (mean, rstd, running_mean, running_var, (dy * xhat).sum(1), dy.sum(1))
        mean, rstd, running_mean, running_var, dweight, dbias = (wide.back(t, self.x.device).reshape(C) for t in rest)
        return Results(y, mean, rstd, running_mean, running_var, dx, dweight, dbias)

    def ours(self, training: bool = True, mask: tuple[bool, ...] = (True,) * 3) -> Results:
        return self._results(batch_norm, batch_norm_backward, training, mask)

    def native(self, training: bool = True, mask: tuple[bool, ...] = (True,) * 3) -> Results:
        return self._results(aten.native_batch_norm, aten.native_batch_norm_backward, training, mask)

    def _results(self, forward, backward, training: bool, mask: tuple[bool, ...]) -> Results:
        running = [None if t is None else t.clone() for t in (self.running_mean, self.running_var)]
        y, mean, rstd = forward(self.x, self.weight, self.bias, *running, training, MOMENTUM, EPS)
        arguments = self.weight, self.running_mean, self.running_var, mean, rstd, training, EPS, list(mask)
        return Results(y, mean, rstd, *running, *backward(self.dy, self.x, *arguments))


class _Double:
    @staticmethod
    def of(t: torch.Tensor) -> torch.Tensor:
        return t.double()

    @staticmethod
    def back(t: torch.Tensor, device: torch.device) -> torch.Tensor:
        return t


class _Longdouble:
    """float64 is judged by something wider than itself: 64 bits of mantissa on x86."""

    @staticmethod
    def of(t: torch.Tensor) -> np.ndarray:
        return t.cpu().numpy().astype(np.longdouble)

    @staticmethod
    def back(t: np.ndarray, device: torch.device) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(t.astype(np.float64))).to(device)


def _check(case: Case, training: bool = True) -> Results:
    """The statistics are CUDA's: PyTorch's CPU kernel keeps those of half inputs in half, and none in evaluation."""
    ours, native, exact = case.ours(training), case.native(training), case.exact(training)
    wide = torch.float64 if case.x.dtype is torch.float64 else torch.float32
    one = case.x.numel() == case.x.shape[1]  # the variance of a sample of one is NaN
    for name, actual, theirs, truth in zip(Results._fields, ours, native, exact, strict=True):
        alike = _alike(case, training, name)
        if name in ("mean", "rstd"):
            assert actual.dtype == wide
            theirs, alike = (theirs, alike) if ON_GPU else (truth.to(wide), iter(()))
        assert_same_answer(actual, theirs, theirs.double() if one and name == "running_var" else truth, alike)
    assert ours.y.stride() == case.x.stride() or view(case.x.shape, case.x.stride()) is None
    return ours


def _check_gradients(mask: Sequence[bool], ours: Results, native: Results, exact: Results) -> None:
    """Those that the mask wants, and no others."""
    for wanted, actual, theirs, truth in zip(mask, ours[5:], native[5:], exact[5:], strict=True):
        assert (actual is not None) == wanted
        if actual is not None:
            assert_same_answer(actual, theirs, truth)


def _alike(case: Case, training: bool, name: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """PyTorch's result and the truth for other inputs: the sums of few channels nearly cancel now and then."""
    for _ in range(4):
        other = Case(tuple(case.x.shape), case.x.dtype, str(case.x.device), case.mean)
        yield getattr(other.native(training), name), getattr(other.exact(training), name)


@each("shape, dtype", WITH_DTYPES + LARGE)
def test_training(shape, dtype, device):
    _check(Case(shape, dtype, device))


@pytest.mark.parametrize("training", [True, False])
@each("dtype", FLOATING)
@small_programs
@each("shape", FEW)
def test_groups(shape, dtype, training, device):
    _check(Case(shape, dtype, device), training)


@each("dtype", FLOATING)
def test_groups_of_several_shares(dtype, monkeypatch, device_with, device):
    device_with()
    chosen = launches.Configuration("groups", 1, 1, 1, 24)
    monkeypatch.setattr(plan, "choose", lambda problem, limits: chosen)
    for inputs in (1, 2):
        problem = launches.Problem(80, 1, 256, dtype.itemsize, inputs)
        assert waiting.shares_of(plan.plan(problem, devices.limits(0)).group) > 1
    _check(Case((80, 1, 256), dtype, device, mean=10.0))


@pytest.fixture
def short_rows(monkeypatch, device_with):
    """A function that lets blocks of so many channels be read as they lie, by as many programs as there can be."""
    device_with()

    def short_rows(shape: tuple[int, ...], channels: int, itemsize: int) -> None:
        warps = 1 if math.prod(shape[1:]) * itemsize < 2048 or channels < shape[1] else 8
        chosen = launches.Configuration("flat", channels, warps, 2, 4, stages=2)
        monkeypatch.setattr(plan, "choose", lambda problem, limits: chosen)

    return short_rows


@each("dtype", FLOATING)
@pytest.mark.parametrize(("shape", "channels"), SHORT, ids=str)
def test_short_rows(shape, channels, dtype, short_rows, device):
    short_rows(shape, channels, dtype.itemsize)
    _check(Case(shape, dtype, device, mean=10.0))


@pytest.mark.parametrize(("shape", "channels"), SHORT, ids=str)
def test_short_rows_without_parameters_or_some_gradients(shape, channels, short_rows, device):
    short_rows(shape, channels, 4)
    case = Case(shape, torch.float32, device)
    case.weight, case.bias = torch.ones_like(case.weight), torch.zeros_like(case.bias)
    exact, native = case.exact(), case.native()
    case.weight = case.bias = case.running_mean = case.running_var = None
    for mask in itertools.product([True, False], repeat=3):
        ours = case.ours(mask=mask)
        assert_same_answer(ours.y, native.y, exact.y)
        _check_gradients(mask, ours, native, exact)


@pytest.mark.parametrize(("shape", "channels"), SHORT, ids=str)
def test_short_rows_of_parts_that_are_unlike(shape, channels, short_rows, device):
    short_rows(shape, channels, 4)
    case = Case(shape, torch.float32, device, mean=1000.0)
    case.x += torch.linspace(-50, 50, shape[0], device=device).view(-1, *[1] * (len(shape) - 1))
    case.x[0] = 0.0
    _check(case)


@pytest.fixture
def by_place(monkeypatch, device_with):
    """Rows are read by place, by programs of one warp."""
    device_with()
    chosen = launches.Configuration("flat", 1, 1, 2, 4, stages=2)
    monkeypatch.setattr(plan, "choose", lambda problem, limits: chosen)


@pytest.mark.usefixtures("by_place")
@each("dtype", FLOATING)
@each("shape", BY_PLACE)
def test_by_place(shape, dtype, device):
    for inputs in (1, 2):
        problem = launches.Problem(shape[0], shape[1], math.prod(shape[2:]), dtype.itemsize, inputs)
        assert plan.plan(problem, devices.limits(0)).by_place
    _check(Case(shape, dtype, device, mean=10.0))


@pytest.mark.usefixtures("by_place")
@each("shape", BY_PLACE)
def test_by_place_of_parts_that_are_unlike(shape, device):
    case = Case(shape, torch.float32, device, mean=1000.0)
    case.x += torch.linspace(-50, 50, shape[0], device=device).view(-1, *[1] * (len(shape) - 1))
    case.x[0] = 0.0
    _check(case)


@pytest.mark.usefixtures("by_place")
@each("shape", BY_PLACE)
def test_some_gradients_by_place_of_misaligned_tensors(shape, device):
    case = Case(shape, torch.bfloat16, device)
    case.x, case.dy = (LAYOUTS["misaligned"](tensor) for tensor in (case.x, case.dy))
    exact, native = case.exact(), case.native()
    for mask in itertools.product([True, False], repeat=3):
        _check_gradients(mask, case.ours(mask=mask), native, exact)


@pytest.mark.usefixtures("by_place")
@each("value", [math.nan, math.inf])
def test_values_that_are_not_finite_stay_in_their_channel_by_place(value, device):
    case = Case((86, 77), torch.float32, device)
    case.x[-1, 40] = case.dy[3, 76] = value
    for name, actual in zip(Results._fields[5:], case.ours()[5:], strict=True):
        harmed = {76} if name == "dbias" else {40, 76}
        finite = actual.reshape(-1, 77).isfinite().all(0)
        assert {channel for channel in range(77) if not finite[channel]} == harmed, name


@pytest.mark.parametrize("training", [True, False])
@small_programs
@each("dtype", FLOATING)
@each("shape", UNALIGNED)
def test_runs_that_begin_anywhere(shape, dtype, training, device):
    problem = launches.Problem(shape[0], shape[1], math.prod(shape[2:]), dtype.itemsize, 2)
    whole_vectors = problem.K * dtype.itemsize % 16 == 0
    assert (plan.plan(problem, devices.limits(0)).tiling.edges == 0) == whole_vectors
    _check(Case(shape, dtype, device), training)


@small_programs
@each("shape", UNALIGNED)
def test_runs_that_begin_anywhere_of_misaligned_tensors(shape, device):
    case = Case(shape, torch.float16, device)
    case.x, case.dy = (LAYOUTS["misaligned"](tensor) for tensor in (case.x, case.dy))
    _check(case)


@small_programs
@each("shape", UNALIGNED)
def test_some_gradients_of_runs_that_begin_anywhere(shape, device):
    case = Case(shape, torch.bfloat16, device)
    for training in (True, False):
        exact, native = case.exact(training), case.native(training)
        for mask in itertools.product([True, False], repeat=3):
            ours = case.ours(training, mask)
            _check_gradients(mask, ours, native, exact)


@pytest.fixture
def held_unaligned(monkeypatch, device_with):
    """Programs hold a channel whose runs begin anywhere, however few there are."""
    device_with()
    monkeypatch.setattr(plan, "WARPS_AT_ONCE", 0)
    monkeypatch.setattr(plan, "_flat", lambda problem, limits: None)


@pytest.mark.usefixtures("held_unaligned")
@pytest.mark.parametrize("training", [True, False])
@each("dtype", FLOATING)
@each("shape", UNALIGNED)
def test_held_runs_that_begin_anywhere(shape, dtype, training, device):
    problem = launches.Problem(shape[0], shape[1], math.prod(shape[2:]), dtype.itemsize, 2)
    planned = plan.plan(problem, devices.limits(0))
    whole_vectors = problem.K * dtype.itemsize % 16 == 0
    assert whole_vectors or planned.tiling.edges > 0
    # 40 x 265 of float64 are too many.
    assert isinstance(planned, launches.Channels) or problem.M == 40
    _check(Case(shape, dtype, device), training)


@pytest.mark.usefixtures("held_unaligned")
@pytest.mark.parametrize("training", [True, False])
@each("shape", UNALIGNED)
def test_some_gradients_of_held_runs_of_misaligned_tensors_without_weight(shape, training, device):
    case = Case(shape, torch.bfloat16, device)
    case.weight = torch.ones_like(case.weight)
    case.x, case.dy = (LAYOUTS["misaligned"](tensor) for tensor in (case.x, case.dy))
    exact, native = case.exact(training), case.native(training)
    case.weight = case.bias = None
    for mask in itertools.product([True, False], repeat=3):
        _check_gradients(mask, case.ours(training, mask), native, exact)


@pytest.mark.usefixtures("held_unaligned")
@each("value", [math.nan, math.inf])
def test_values_that_are_not_finite_stay_in_their_channel_of_held_runs(value, device):
    case = Case((3, 5, 257), torch.float32, device)
    case.x[0, 1, 0] = case.dy[2, 3, 256] = value
    for name, actual in zip(Results._fields[5:], case.ours()[5:], strict=True):
        channels = actual.transpose(0, 1) if name == "dx" else actual
        finite = channels.reshape(5, -1).isfinite().all(1)
        assert {channel for channel in range(5) if not finite[channel]} == ({3} if name == "dbias" else {1, 3}), name


@each("value", [math.nan, math.inf])
def test_values_that_are_not_finite_in_short_rows(value, short_rows, device):
    short_rows((700, 5), 5, 4)
    case = Case((700, 5), torch.float32, device)
    case.x[[0, -1], [1, 3]] = value
    case.dy[5, 0] = value
    for name, actual in zip(Results._fields, case.ours(), strict=True):
        harmed = {0} if name in ("dx", "dweight", "dbias") else set()
        harmed |= {1, 3} if name != "dbias" else set()
        finite = actual.reshape(-1, 5).isfinite().all(0)
        assert {channel for channel in range(5) if not finite[channel]} == harmed, name


@each("shape", [(1, 3), (1, 3, 1), (1, 3, 7), (1, 300, 2)])
def test_batches_of_one(shape, device):
    _check(Case(shape, torch.float32, device))


@each("dtype", [torch.float32, torch.float64])
@small_programs
@each("shape", FEW)
def test_a_small_spread_about_a_large_mean(shape, dtype, device):
    """A variance taken as the difference of two large sums has no digit left here. The output is off by the rounding
    of the mean, as PyTorch's is on CUDA."""
    case = Case(shape, dtype, device, mean=1e4)
    for actual, native, truth in zip(case.ours()[1:5], case.native()[1:5], case.exact()[1:5], strict=True):
        assert_same_answer(actual, native, truth)


@small_programs
@each("shape", FEW)
def test_a_first_tile_unlike_the_others(shape, device):
    case = Case(shape, torch.float32, device, mean=100.0)
    case.x[0] = 0.0
    _check(case)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(3, 300, 4), (12, 300)], ids=str)
def test_means_of_few_halves_are_rounded_once(shape, dtype, device):
    x = (torch.randint(-255, 256, shape, device=device) / 32).to(dtype)  # whose sums float32 holds
    mean = batch_norm(x, None, None, None, None, True, MOMENTUM, EPS)[1]
    assert torch.equal(mean, x.double().mean([0, *range(2, x.dim())]).float())


@small_programs
def test_equal_elements_have_no_variance(device):
    for shape in FEW:
        case = Case(shape, torch.float32, device)
        case.x[:] = 0.1
        ours = case.ours()
        assert torch.equal(ours.mean, torch.full_like(ours.mean, 0.1))
        assert torch.equal(ours.y, case.bias.view(-1, *[1] * (len(shape) - 2)).expand(shape))


LAYOUTS = {
    "channels last": lambda x: x.transpose(1, -1).contiguous().transpose(1, -1),
    "channels first": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "every second": lambda x: torch.stack([x, -x], -1)[..., 0],
    "rows apart": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]],
    "expanded": lambda x: x[:1].expand(x.shape),
    "misaligned": lambda x: torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=[name.replace(" ", "-") for name in LAYOUTS])
@small_programs
@each("shape", FEW)
def test_layouts(shape, layout, device):
    """Each tensor in that order, and the gradient in another."""
    case = Case(shape, torch.float32, device)
    case.x = layout(case.x)
    case.weight, case.bias, case.running_mean, case.running_var = (
        torch.stack([t, t], 1)[:, 0] for t in (case.weight, case.bias, case.running_mean, case.running_var)
    )
    _check(case)
    case.dy = layout(case.dy)
    ours = _check(case)
    assert ours.dx.stride() == ours.y.stride() == torch.empty_like(case.x).stride()


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("training", [True, False])
@small_programs
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
        _check_gradients(mask, ours, alike, exact)


@small_programs
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
@small_programs
@each("shape", FEW)
@pytest.mark.parametrize("training", [True, False])
def test_half_input_with_wide_parameters_and_statistics(shape, training, dtype, device):
    case = Case(shape, dtype, device)
    case.weight, case.bias = case.weight.float(), case.bias.float()
    case.running_mean, case.running_var = case.running_mean.float(), case.running_var.float()
    ours = _check(case, training)
    assert ours.y.dtype == ours.dx.dtype == dtype
    assert ours.dweight.dtype == ours.dbias.dtype == ours.running_var.dtype == torch.float32


@each("value", [math.nan, math.inf])
@small_programs
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


@small_programs
def test_parts_that_are_merged_in_turns(device, monkeypatch):
    """More parts than the last program has at a time."""
    monkeypatch.setattr(launches, "PARTS_PER_THREAD", 0.25)
    case = Case((300, 20), torch.float32, device, mean=10.0)
    case.x += torch.linspace(-5, 5, 300, device=device)[:, None]  # or a part's mean were that of its channel
    _check(case)


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
