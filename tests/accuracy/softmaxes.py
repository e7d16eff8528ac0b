# SPDX-License-Identifier: Apache-2.0
"""The tests of softmax and log_softmax, which differ by a logarithm."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from accuracy.judge import assert_same_answer
from accuracy.reductions import FLOATING, ON_GPU, assert_same_error, each, layouts

from flag_gems_overrides.ops.families.softmax import call
from flag_gems_overrides.ops.families.softmax.launches import launch_or_none
from flag_gems_overrides.ops.families.softmax.plan import Configuration, Problem
from flag_gems_overrides.ops.launch import devices
from flag_gems_overrides.ops.launch.shape import split_at, wrap_dim
from flag_gems_overrides.ops.launch.sizes import VECTOR_BYTES

nan, inf = float("nan"), float("inf")


class Chosen(NamedTuple):
    """A configuration for any dtype."""

    kernel: str
    loads: int  # of a thread
    warps: int
    block_k: int = 0  # of columns; 0 of rows
    group: int = 1
    stages: int = 1
    registers: int = 64


# What is planned for more elements than the interpreter computes in a second: loops, groups, blocks ahead.
CHOSEN = [
    ((9, 3000), 1, Chosen("split", 2, 2)),
    ((9, 3001), 1, Chosen("split", 2, 2)),
    ((150, 251), 1, Chosen("split", 2, 2, stages=3)),
    ((20, 3000), 1, Chosen("split", 2, 4, group=8)),
    ((20, 3001), 1, Chosen("split", 2, 4, group=8)),
    ((9, 9000), 1, Chosen("split", 2, 1, group=4)),
    ((9, 9001), 1, Chosen("split", 2, 1, group=4)),
    ((70, 100), 1, Chosen("rows", 2, 4, registers=0)),
    ((70, 13), 1, Chosen("rows", 2, 2, group=2, registers=0)),
    ((3, 2000), 1, Chosen("rows", 4, 4, registers=0)),
    ((3, 8500), 1, Chosen("rows", 4, 16, registers=0)),
    ((3, 1304), 1, Chosen("rows", 4, 2)),
    ((3, 2000), 1, Chosen("rows", 4, 2)),
    ((3, 1301), 1, Chosen("split", 2, 4)),
    ((3, 700, 24), 1, Chosen("split", 4, 1, block_k=8)),
    ((3, 700, 20), 1, Chosen("split", 4, 1, block_k=16)),
    ((3, 700, 25), 1, Chosen("split", 4, 1, block_k=8)),
    ((3, 700, 24), 1, Chosen("split", 4, 1, block_k=8, group=2)),
    ((3, 700, 25), 1, Chosen("split", 4, 1, block_k=8, group=2)),
    ((3, 700, 24), 1, Chosen("split", 4, 1, block_k=8, group=64)),
    ((50, 60, 24), 1, Chosen("split", 4, 1, block_k=8, stages=3)),
    ((5, 300, 32), 1, Chosen("blocks", 2, 1)),
    ((5, 301, 15), 1, Chosen("blocks", 2, 1)),
    ((5, 20, 16), 1, Chosen("blocks", 4, 1)),
    ((5, 21, 15), 1, Chosen("blocks", 4, 1)),
    ((2, 5, 3), 1, Chosen("short", 1, 1)),
]


def configured(chosen: Chosen, problem: Problem) -> Configuration:
    vec = VECTOR_BYTES // problem.itemsize
    if chosen.block_k:
        vec = math.gcd(problem.K, vec, chosen.block_k)
    lies = (vec, chosen.block_k or vec) if chosen.kernel == "split" else (1, 1)
    elements, (_, _, warps, _, group, stages, registers) = chosen.loads * vec, chosen
    return Configuration(chosen.kernel, elements, warps, registers, *lies, group, stages)


# On the interpreter's device of 4 multiprocessors these, LONG and CHOSEN take every way through the plan, which
# test_softmax_plan.py looks that they do: several rows to a program, one, edges, groups, loops, blocks ahead, wide and
# narrow K.
CASES = [
    ((), 0),
    ((1,), -1),
    ((7, 5), 0),
    ((7, 5), 1),
    ((300, 16), 1),
    ((70, 100), -1),
    ((17, 300), 1),
    ((3, 515), 1),
    ((3, 1025), 1),
    ((9, 1027), 1),
    ((64, 64), 0),
    ((2, 4096), 1),
    ((1, 9000), 1),
    ((5, 24568), 1),
    ((9, 20000), 1),
    ((9, 20005), 1),
    ((3, 20001), 1),
    ((3, 30000), 1),
    ((3, 32768), 1),
    ((3, 60000), 1),
    ((2, 65536), 1),
    ((1, 300000), 1),
    ((1, 150001), 1),
    ((3, 37, 5), 1),
    ((2, 21, 600), 1),
    ((2, 700, 24), 1),
    ((1, 3000, 64), -2),
    ((1, 20000, 8), 1),
    ((1, 600, 1100), 1),
    ((2, 500, 128), 1),
    ((1, 900, 256), 1),
    ((1, 3000, 384), 1),
    ((1, 3000, 300), 1),
    ((5000, 8), 0),
    ((5, 4, 3), 0),
    ((40, 6, 2), 1),
    ((50, 4), 1),
    ((50, 2), 1),
    ((9000, 1), 1),
    ((7, 1, 300), 1),
    ((90, 3, 2), 1),
    ((3, 23, 71), 1),
    ((2, 40, 37), 1),
    ((5, 300, 30), 1),
    ((5, 257, 34), 1),
    ((4, 257, 15), 1),
    ((4, 100, 38), 1),
    ((90, 29, 3), 1),
    ((70, 65, 2), 1),
    ((101, 9, 6), 1),
    ((10, 300, 3), 1),
    ((3, 131, 201), 1),
    ((3, 300, 201), 1),
    ((3, 600, 101), 1),
    ((15, 10, 150), 1),
    ((3, 4766, 8), 1),
    ((4, 2501), 1),
    ((4, 3301), 1),
    ((4, 15001), 1),
    ((9, 8500), 1),
    ((16, 45, 47), 1),
]
# And few columns as they lie: too many elements for every dtype in the interpreter.
LONG = [((1, 180001, 3), 1, torch.float16), ((2, 90000, 6), 1, torch.float32)]
# On a GPU also upstream's shapes and the sizes that plans are made for.
LARGE = [
    ((1, 256), 1),
    ((4096, 256), 0),
    ((4096, 256), 1),
    ((200, 2560, 3), 1),
    ((200, 40999, 3), 1),
    ((2**18, 16), 1),
    ((32768, 1023), 1),
    ((1024, 4096), 1),
    ((140, 32000), 1),
    ((512, 50257), 1),
    ((512, 131072), 1),
    ((4, 3000000), 1),
    ((1, 2**24), 1),
    ((64, 512, 512), 1),
    ((16, 16384, 64), 1),
    ((4096, 4096), 0),
    ((65536, 256), 0),
    ((2, 21, 512, 512), 1),
    ((1, 2, 70000), 1),
    ((1, 180001, 3), 1),
    ((2, 90000, 6), 1),
]
if ON_GPU:
    LONG += [(*case, dtype) for case in LARGE for dtype in (torch.float32, torch.float16, torch.bfloat16)]
LAID_OUT = [((17, 300), 1), ((6, 90, 24), 1), ((3, 515), 1)]
# (shape, dim) of rows long enough to be cut in parts, and short ones.
WITH_SPECIALS = [((6, 33), 1), ((6, 1025), 1), ((6, 20011), 1), ((6, 120000), 1), ((6, 90, 8), 1), ((6, 9000, 8), 1)]
WITH_SPECIALS += [((6, 30001, 3), 1)]


def _wide(*tensors: torch.Tensor) -> list[np.ndarray]:
    """In 64 bits of mantissa, so that float64 can be judged like the others."""
    return [np.atleast_1d(t.double().cpu().numpy().astype(np.longdouble)) for t in tensors]


def truth(x: torch.Tensor, dim: int, log: bool) -> torch.Tensor:
    if x.dtype is not torch.float64:
        return (torch.log_softmax if log else torch.softmax)(x.double(), dim)
    (wide,) = _wide(x)
    shifted = wide - wide.max(dim, keepdims=True)
    total = np.exp(shifted).sum(dim, keepdims=True)
    answer = shifted - np.log(total) if log else np.exp(shifted) / total
    return torch.from_numpy(answer.astype(np.float64)).view(x.shape).to(x.device)


def gradient_truth(g: torch.Tensor, y: torch.Tensor, dim: int, log: bool) -> torch.Tensor:
    if g.dtype is not torch.float64:
        g, y = g.double(), y.double()
        if log:
            return g - y.exp() * g.sum(dim, keepdim=True)
        return y * (g - (g * y).sum(dim, keepdim=True))
    wide_g, wide_y = _wide(g, y)
    if log:
        answer = wide_g - np.exp(wide_y) * wide_g.sum(dim, keepdims=True)
    else:
        answer = wide_y * (wide_g - (wide_g * wide_y).sum(dim, keepdims=True))
    return torch.from_numpy(answer.astype(np.float64)).view(g.shape).to(g.device)


class Softmaxes:
    """What holds for both; a subclass names the functions."""

    log: bool
    forward: Callable[..., torch.Tensor]
    backward: Callable[..., torch.Tensor]
    native: Callable[..., torch.Tensor]
    native_backward: Callable[..., torch.Tensor]
    public: Callable[..., torch.Tensor]
    logged: str

    def check(self, x: torch.Tensor, dim: int) -> None:
        native = self.native(x, dim, False)
        actual = self.forward(x, dim)
        assert actual.stride() == native.stride()
        if x.numel():
            assert_same_answer(actual, native, truth(x, dim, self.log))

    def check_gradient(self, g: torch.Tensor, y: torch.Tensor, dim: int) -> None:
        native = self.native_backward(g, y, dim, g.dtype)
        actual = self.backward(g, y, dim, g.dtype)
        assert actual.stride() == native.stride()
        if g.numel():
            assert_same_answer(actual, native, gradient_truth(g, y, dim, self.log))

    @each("dtype", FLOATING)
    @each("shape, dim", CASES)
    def test_forward(self, shape, dim, dtype, device):
        self.check(torch.randn(shape, device=device).to(dtype), dim)

    @each("dtype", FLOATING)
    @each("shape, dim", CASES)
    def test_gradient(self, shape, dim, dtype, device):
        y = self.native(torch.randn(shape, device=device).to(dtype), dim, False)
        self.check_gradient(torch.randn(shape, device=device).to(dtype), y, dim)

    @each("shape, dim, dtype", LONG)
    def test_long(self, shape, dim, dtype, device):
        self.test_forward(shape, dim, dtype, device)
        self.test_gradient(shape, dim, dtype, device)

    @each("dtype", FLOATING)
    @each("shape, dim, chosen", CHOSEN)
    def test_what_is_chosen_for_more_elements(self, shape, dim, chosen, dtype, device):
        x, g = (torch.randn(shape, device=device).to(dtype) for _ in range(2))
        y = self.native(x, dim, False)
        sizes = (*split_at(x.shape, wrap_dim(dim, x.ndim)), dtype.itemsize)
        forward, backward = (configured(chosen, Problem(*sizes, inputs)) for inputs in (1, 2))
        limits = devices.limits(x.get_device())
        if launch_or_none(Problem(*sizes, 1), forward, limits):
            assert_same_answer(call.forward(x, dim, False, self.log, forward), y, truth(x, dim, self.log))
        if launch_or_none(Problem(*sizes, 2), backward, limits):
            native = self.native_backward(g, y, dim, dtype)
            actual = call.backward(g, y, dim, dtype, self.log, backward)
            assert_same_answer(actual, native, gradient_truth(g, y, dim, self.log))

    @each("dtype", FLOATING)
    @each("N, K", [(3, 2), (41, 2), (64, 2), (41, 4), (23, 8)])
    def test_a_program_for_each_block_of_columns(self, N, K, dtype, device):
        """Which is planned for too many elements for every dtype in the interpreter."""
        configuration = Configuration("short", 16, 1, vec=math.gcd(K, VECTOR_BYTES // dtype.itemsize))
        x, g = (torch.randn(5, N, K, device=device).to(dtype) for _ in range(2))
        y = self.native(x, 1, False)
        assert_same_answer(call.forward(x, 1, False, self.log, configuration), y, truth(x, 1, self.log))
        native = self.native_backward(g, y, 1, dtype)
        actual = call.backward(g, y, 1, dtype, self.log, configuration)
        assert_same_answer(actual, native, gradient_truth(g, y, 1, self.log))

    @each("N", [5000, 5003])
    def test_a_long_row_in_two_launches(self, N, device):
        """Which is planned for more elements than the interpreter computes in a second."""
        configuration = Configuration("interleaved", 16, 1, group=2)
        x = torch.randn(2, N, device=device)
        assert_same_answer(
            call.forward(x, 1, False, self.log, configuration), self.native(x, 1, False), truth(x, 1, self.log)
        )

    # Rows of a tile that are merged in the program, and a tile that is a part of a row; with edges, without, and of
    # whole vectors.
    @each("dtype", FLOATING)
    @each("N, K", [(501, 9), (400, 12), (301, 131), (304, 131), (301, 136)])
    def test_long_columns_as_they_lie(self, N, K, dtype, device):
        """Which are planned for more elements than the interpreter computes in a second."""
        self.check_long_columns((2, N, K), dtype, device)

    def test_long_columns_whose_parts_are_not_merged_at_once(self, device, device_with, monkeypatch):
        """Of three parts two at a time. An element after the vectors of the last row is of the class that they begin
        with."""
        device_with()
        monkeypatch.setattr(call, "MERGED_ELEMENTS", 32)
        self.check_long_columns((3, 501, 9), torch.float16, device)

    def check_long_columns(self, shape, dtype, device):
        N, vec = shape[1], VECTOR_BYTES // dtype.itemsize
        x, g = (torch.randn(shape, device=device).to(dtype) for _ in range(2))
        y = self.native(x, 1, False)
        x[:, :, 3] = -inf
        x[:, N // 2 :, 4] = -inf
        x[0, N // 3, 5] = inf
        x[1, N - 1, 6] = nan
        x[:, 0, 0] = 200  # the exponential of what it is more than the others is infinite
        x[:, :, 7] -= 200  # of a larger maximum all exponentials are 0
        forward = Configuration("strided", 2 * vec, 1, group=4)
        with np.errstate(invalid="ignore"):
            actual = call.forward(x, 1, False, self.log, forward)
            assert_same_answer(actual, self.native(x, 1, False), truth(x, 1, self.log))
        native = self.native_backward(g, y, 1, dtype)
        actual = call.backward(g, y, 1, dtype, self.log, forward._replace(elements=vec))
        assert_same_answer(actual, native, gradient_truth(g, y, 1, self.log))

    def test_more_programs_than_are_read_from_at_a_time(self, device, device_with):
        """16 to a group, of which each reads the words of 8, then those of the others."""
        device_with(sm_count=16)
        x, g = (torch.randn(1, 1000, 64, device=device).bfloat16() for _ in range(2))
        self.check(x, 1)
        self.check_gradient(g, self.native(x, 1, False), 1)

    @layouts
    @each("shape, dim", LAID_OUT)
    def test_any_strides(self, shape, dim, layout, device):
        x, g = (layout(torch.randn(shape, device=device)) for _ in range(2))
        self.check(x, dim)
        y = layout(self.native(x, dim, False))
        self.check_gradient(g, y, dim)
        self.check_gradient(g.contiguous(), y, dim)
        self.check_gradient(g, y.contiguous(), dim)

    @each("shape, dim", [((0,), 0), ((0, 3), 1), ((3, 0), 1), ((3, 0), 0), ((1, 0, 128, 512), 1)])
    def test_empty(self, shape, dim, device):
        for dtype in FLOATING:
            x = torch.empty(shape, dtype=dtype, device=device)
            self.check(x, dim)
            self.check_gradient(x, x, dim)
        half = torch.empty(shape, dtype=torch.float16, device=device)
        assert self.forward(half, dim, True).dtype is torch.float32
        assert self.backward(half.float(), half.float(), dim, torch.float16).dtype is torch.float16

    @each("shape, dim", [((7, 33), 1), ((3, 515), 1), ((2, 20001), 1), ((7, 40, 5), 1)])
    def test_half_to_float(self, shape, dim, device):
        x = torch.randn(shape, device=device).half()
        native = self.native(x.float(), dim, False)
        assert_same_answer(self.forward(x, dim, True), native, truth(x, dim, self.log))
        g = torch.randn(shape, device=device)
        native_gradient = self.native_backward(g, native, dim, torch.float32).half()
        actual = self.backward(g, native, dim, torch.float16)
        assert_same_answer(actual, native_gradient, gradient_truth(g, native, dim, self.log))

    @each("dtype", FLOATING)
    @each("shape, dim", WITH_SPECIALS)
    def test_special_values(self, shape, dim, dtype, device):
        self.check_special_values(shape, dim, dtype, device)

    @each("dtype", [torch.float16, torch.bfloat16])
    @each("N, chosen", [(1304, Chosen("rows", 4, 2)), (1301, Chosen("split", 2, 4))])
    def test_special_values_of_pairs(self, N, chosen, dtype, device):
        configuration = configured(chosen, Problem(6, N, 1, 2, 2))
        self.check_special_values((6, N), 1, dtype, device, configuration)

    def check_special_values(self, shape, dim, dtype, device, configuration=None):
        x = torch.randn(shape, device=device).to(dtype)
        size = shape[dim]
        x[0].select(dim - 1, size - 1).fill_(nan)
        x[1].select(dim - 1, 0).fill_(nan)
        x[2].fill_(-inf)
        x[3].narrow(dim - 1, 0, size // 2).fill_(-inf)
        x[4].select(dim - 1, size // 2).fill_(inf)
        x[5].narrow(dim - 1, 1, size - 1).fill_(-inf)
        self.check_where_finite(x, dim)
        y = torch.randn(shape, device=device).to(dtype)
        g = torch.randn(shape, device=device).to(dtype)
        y[0].select(dim - 1, size - 1).fill_(nan)
        g[1].select(dim - 1, 0).fill_(nan)
        g[2].select(dim - 1, size // 3).fill_(inf)
        y[3].select(dim - 1, size // 2).fill_(-inf)
        y[4].select(dim - 1, size // 2).fill_(inf)
        how = () if configuration is None else (self.log, configuration)
        actual = (call.backward if how else self.backward)(g, y, dim, dtype, *how)
        native = self.native_backward(g, y, dim, dtype)
        # Infinities make an infinity or a NaN as the order of operations has it: PyTorch's CPU and CUDA kernels differ.
        assert torch.equal(actual.isfinite(), native.isfinite())
        assert torch.equal(actual[:2].isnan(), native[:2].isnan())

    @each("dtype, bits", [(torch.float32, 0x7FC00BAD), (torch.float64, 0x7FF8000000000BAD)])
    def test_the_nan_that_stands_for_nothing(self, dtype, bits, device):
        """Programs that share a row would wait for ever for the one that has found this one."""
        x = torch.randn(1, 20001, device=device, dtype=dtype)
        x.view(torch.int32 if dtype is torch.float32 else torch.int64)[0, 7] = bits
        assert self.forward(x, 1).isnan().all()
        native = self.native_backward(x, x, 1, dtype)
        assert torch.equal(self.backward(x, x, 1, dtype).isnan(), native.isnan())

    def check_where_finite(self, x: torch.Tensor, dim: int) -> None:
        """NaN and infinities must be where native has them; the rest is judged."""
        with np.errstate(invalid="ignore"):
            assert_same_answer(self.forward(x, dim), self.native(x, dim, False), truth(x, dim, self.log))

    @each("shape, dim", [((4, 1000), 1), ((4, 20001), 1), ((4, 500, 8), 1)])
    def test_offset_and_scale(self, shape, dim, device):
        x = torch.randn(shape, device=device)
        for source in (x * 100, x + 1e4, x - 1e4, x * 1e30, x * 1e-30):
            self.check(source, dim)
        self.check((x * 1e4).half(), dim)

    @each("shape", [(2, 800), (2, 3201), (1, 20001), (1, 20002), (1, 3000, 4), (2, 9, 33), (1, 2001, 3)])
    def test_small_results_of_float64(self, shape, device):
        """Denormal results may be 0; the others are as exact as large ones."""
        # Of few bits, so that subtracting the maximum is exact.
        x = (torch.linspace(-800, 3, shape[1], device=device, dtype=torch.float64) * 16).round() / 16
        x = x.view(1, -1, *[1] * (len(shape) - 2)).expand(shape).contiguous()
        actual, true = self.forward(x, 1), truth(x, 1, self.log)
        assert (actual - true).abs().max() <= (2e-13 if self.log else 1e-15)
        if not self.log:
            normal = true > 2.0**-1019
            assert ((actual - true)[normal] / true[normal]).abs().max() < 3e-15
            assert actual[~normal].max() < 2.0**-1018

    @each("shape, dim", [((5, 100), 1), ((2, 100000), 1), ((1, 3000, 64), 1)])
    def test_same_bits_again(self, shape, dim, device):
        x = torch.randn(shape, device=device)
        y = self.forward(x, dim)
        g = self.backward(x, y, dim, x.dtype)
        for _ in range(3):
            assert torch.equal(self.forward(x, dim), y)
            assert torch.equal(self.backward(x, y, dim, x.dtype), g)

    def test_errors(self, device):
        x, y = torch.randn(5, 7, device=device), torch.randn(5, 7, device=device)
        scalar = torch.tensor(3.0, device=device)
        for bad in (2, -3):
            assert_same_error(lambda bad=bad: self.forward(x, bad), lambda bad=bad: self.native(x, bad, False))
            assert_same_error(
                lambda bad=bad: self.backward(x, y, bad, x.dtype),
                lambda bad=bad: self.native_backward(x, y, bad, x.dtype),
            )
        assert_same_error(lambda: self.forward(scalar, 1), lambda: self.native(scalar, 1, False))
        with pytest.raises(RuntimeError, match="conversion is supported for Half type only"):
            self.forward(x, 1, True)
        # PyTorch's log_softmax reads past the end of the smaller one instead.
        with pytest.raises(RuntimeError, match="Expected tensor for argument #1 'grad' to have same size as"):
            self.backward(x, y.t(), 1, x.dtype)

    @each("shape, dim", [((6, 33), 1), ((6, 40, 8), 1), ((4, 20001), -1), ((), 0)])
    def test_dispatched_and_through_autograd(self, shape, dim, overridden, device, caplog):
        x = torch.randn(shape, device=device, requires_grad=True)
        g = torch.randn(shape, device=device)
        native = self.public(x, dim)
        (native_gradient,) = torch.autograd.grad(native, x, g)
        with overridden(), caplog.at_level(logging.DEBUG, logger="flag_gems.ops"):
            actual = self.public(x, dim)
            (gradient,) = torch.autograd.grad(actual, x, g)
        messages = [record.getMessage() for record in caplog.records]
        assert self.logged in messages
        assert f"{self.logged} VJP" in messages
        assert_same_answer(actual.detach(), native.detach(), truth(x.detach(), dim, self.log))
        assert_same_answer(gradient, native_gradient, gradient_truth(g, native.detach(), dim, self.log))
