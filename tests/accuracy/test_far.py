# SPDX-License-Identifier: Apache-2.0
"""Offsets past 2**31. The tensors are sparse: zeros that take no memory, but for a few elements at the end. Only the
last programs of each launch run, as if the others had come before, on a device with a place for each."""

from __future__ import annotations

import math
import mmap
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accuracy.judge import assert_same_answer
from accuracy.reductions import each

from flag_gems_overrides.ops.amax import amax
from flag_gems_overrides.ops.aminmax import aminmax
from flag_gems_overrides.ops.batch_norm import batch_norm, batch_norm_backward
from flag_gems_overrides.ops.cross_entropy_loss import cross_entropy_loss
from flag_gems_overrides.ops.cumsum import cumsum
from flag_gems_overrides.ops.families.batch_norm import call as families_batch_norm
from flag_gems_overrides.ops.families.gather import plan as gather
from flag_gems_overrides.ops.families.gather.call import launch_with as nll_loss_with
from flag_gems_overrides.ops.families.gather.plan import FILL, IMAGES, SCATTER, SHORT, TILE
from flag_gems_overrides.ops.families.group_norm import call as group_norm
from flag_gems_overrides.ops.families.reduction.launches import Configuration as Moments
from flag_gems_overrides.ops.families.reduction.moments import variance
from flag_gems_overrides.ops.families.reduction.moments_call import moments
from flag_gems_overrides.ops.families.scan.call import launch_with as cumsum_with
from flag_gems_overrides.ops.families.scan.plan import Configuration as Scan
from flag_gems_overrides.ops.families.softmax.call import launch_with as softmax_with
from flag_gems_overrides.ops.families.softmax.launches import Configuration as Softmax
from flag_gems_overrides.ops.launch import workspace
from flag_gems_overrides.ops.layernorm import layer_norm, layer_norm_backward
from flag_gems_overrides.ops.max import max_dim
from flag_gems_overrides.ops.nllloss import nll_loss2d_forward, nll_loss_forward
from flag_gems_overrides.ops.rms_norm import rms_norm_forward
from flag_gems_overrides.perf.launches import captured

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="programs are left out in the interpreter only")


def sparse(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros; the pages that nothing is written to are never there."""
    reserve_nothing = 0x4000  # mmap.MAP_NORESERVE, from Python 3.13 on
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | reserve_nothing
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags=flags)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


@pytest.fixture
def only_last(monkeypatch, device_with):
    """A function that says how many programs of each launch to run from now on: the last, or as many first ones too."""
    from flag_gems_overrides.interpreter import launch

    def only_last(count: int, first: int = 0) -> None:
        def counters(like: torch.Tensor, size: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            nonlocal counted
            counted = torch.zeros(size, dtype=dtype)
            return counted

        def product(*sizes: range):
            shape = tuple(map(len, sizes))
            total = math.prod(shape)
            if shape[1] > 1 and counted is not None:
                counted.fill_(shape[1] - count)
            flat = {*range(min(first, total)), *range(max(total - count, 0), total)}
            return [tuple(map(int, np.unravel_index(at, shape))) for at in sorted(flat)]

        counted = None
        monkeypatch.setattr(workspace, "counters", counters)
        monkeypatch.setattr(launch, "itertools", SimpleNamespace(product=product))

    device_with(sm_count=10**6)

    def empty(shape: tuple[int, ...], stride: tuple[int, ...], *, dtype: torch.dtype, device: str) -> torch.Tensor:
        """The last element is no zero before a kernel writes it."""
        tensor = sparse(shape, dtype)
        tensor.view(-1)[-1:] = 77
        return tensor

    monkeypatch.setattr(torch, "empty_strided", empty)
    return only_last


# A row in splits, a tile of columns, a row of more than 2**31 elements, whose last are the last split's, rows of a
# thread, and columns of which the last element is far from the first.
@each(
    "shape, dim",
    [((32771, 65536), 1), ((40003, 512, 128), 1), ((9 * 2**28,), 0), ((2**29 + 9, 5), 1), ((2**18, 2**13 + 8), 0)],
)
def test_reductions(shape, dim, only_last):
    only_last(1)
    x = sparse(shape, torch.int8)
    last = shape[dim] - 1
    x.view(-1)[-1] = 1
    values, indices = max_dim(x, dim)
    assert values.view(-1)[-1].item() == 1
    assert indices.view(-1)[-1].item() == last
    assert amax(x, dim).view(-1)[-1].item() == 1
    smallest, largest = (each.view(-1)[-1].item() for each in aminmax(x, dim=dim))
    assert (smallest, largest) == (0, 1)


@each("shape", [(70001, 10240, 3), (1, 65 * 2720 * 2**12, 3)])
def test_reductions_of_few_columns_as_they_lie(shape, only_last):
    """The last split has the last element."""
    only_last(1)
    x = sparse(shape, torch.int8)
    x.view(-1)[-1] = 1
    with captured() as launches:
        values, indices = max_dim(x, 1)
        largest = amax(x, 1)
    assert [each.row()["kernel"] for each in launches] == ["locate_classes_kernel", "reduce_classes_kernel"]
    assert (values[-1, -1].item(), largest[-1, -1].item(), indices[-1, -1].item()) == (1, 1, shape[1] - 1)


# Rows of whole vectors, with edges, and columns.
@each("shape", [(2**21 + 8, 1024), (2**21 + 5, 1025), (70001, 500, 64)])
def test_cumsum(shape, only_last):
    only_last(1)
    x = sparse(shape, torch.float16)
    x[-1] = 0.5
    actual, expected = cumsum(x, 1)[-1], torch.cumsum(x[-1], 0)
    assert torch.equal(actual.view(shape[1], -1)[:, -1], expected.view(shape[1], -1)[:, -1])


def test_cumsum_of_columns_far_apart(only_last):
    """From the first segment of a tile to the last it is 2**31 elements."""
    only_last(1)
    x = sparse((1, 128, 2**25 + 64), torch.float16)
    x[0, :, -1] = 0.5
    out = cumsum_with(Scan("segments", 4, 8, 1, 8), "cumsum", x, 1)
    assert torch.equal(out[0, :, -1], torch.cumsum(x[0, :, -1], 0))


@each(
    "shape, configuration",
    [
        ((1, 2**31 + 2**23), Scan("chunks", 8, 256, 1, 4, 64)),
        ((1, 2**15 + 2**10, 2**16), Scan("chunks", 2, 32, 1, 8, 64)),
    ],
)
def test_cumsum_in_chunks(shape, configuration, only_last, device_with):
    """The last begins behind 2**31."""
    device_with(sm_count=2000 if len(shape) == 2 else 10**6)
    only_last(1)
    x = sparse(shape, torch.float16)
    x.view(-1)[-1] = 0.5
    assert cumsum_with(configuration, "cumsum", x, 1).view(-1)[-1].item() == 0.5


# Rows in one tile, with edges, columns by groups, rows of a tile far apart, groups far apart, and few columns side by
# side. With the programs of a group, forward and backward.
SOFTMAXES = [
    ((2**21 + 5, 1024), (1, 1)),
    ((2**21 + 5, 1025), (1, 1)),
    ((70001, 500, 64), (8, 8)),
    ((1, 64, 2**25 + 2**20), (1, 1)),
    ((1, 17920, 2**17 + 64), (35, 35)),
    ((2**31 // 87 + 2**14, 29, 3), (1, 1)),
]


def ending(x: torch.Tensor) -> torch.Tensor:
    """The last rows of [M, N], the last columns of [M, N, K]."""
    return x[-1:] if x.dim() == 2 else x[-1:, :, -8:]


@each("shape, programs", SOFTMAXES)
def test_log_softmax(shape, programs, only_last):
    check_log_softmax(shape, programs, only_last)


def test_log_softmax_in_loops(only_last):
    """From one tile to the next it is 2**31 elements."""
    check_log_softmax((1, 600, 2**24), (1, 1), only_last, Softmax("split", 32, 8, 128, 8, 64))


def check_log_softmax(shape, programs, only_last, configuration=None):
    x, g = sparse(shape, torch.float16), sparse(shape, torch.float16)
    for tensor in x, g:
        ending(tensor).copy_(torch.randn(ending(tensor).shape))
    only_last(programs[0])
    y = ending(softmax_with(configuration, "log_softmax", x, 1, False))
    truth = torch.log_softmax(ending(x).double(), 1)
    assert_same_answer(y, torch.log_softmax(ending(x), 1), truth)
    only_last(programs[1])
    ending(x).copy_(y)
    dx = ending(softmax_with(configuration, "log_softmax_backward", g, x, 1, x.dtype))
    g, y = ending(g), ending(x)
    native = torch.ops.aten._log_softmax_backward_data(g, y, 1, y.dtype)
    assert_same_answer(dx, native, g.double() - y.double().exp() * g.double().sum(1, keepdim=True))


@each("N, K", [(3701, 9), (3704, 10)])
def test_log_softmax_of_long_columns_as_they_lie(N, K, only_last, device_with):
    """The last row begins behind 2**31, with edges or without."""
    device_with(sm_count=1)
    only_last(1)
    shape = 65000, N, K
    x, g = sparse(shape, torch.float16), sparse(shape, torch.float16)
    for tensor in x, g:
        tensor[-1] = torch.randn(shape[1:])
    configuration = Softmax("strided", 16, 4)
    y = softmax_with(configuration, "log_softmax", x, 1, False)[-1:]
    assert_same_answer(y, torch.log_softmax(x[-1:], 1), torch.log_softmax(x[-1:].double(), 1))
    x[-1:] = y
    dx = softmax_with(configuration, "log_softmax_backward", g, x, 1, x.dtype)[-1:]
    g, y = g[-1:], x[-1:]
    native = torch.ops.aten._log_softmax_backward_data(g, y, 1, y.dtype)
    assert_same_answer(dx, native, g.double() - y.double().exp() * g.double().sum(1, keepdim=True))


def test_log_softmax_of_many_long_columns_as_they_lie(only_last, device_with):
    """The last row's statistics are behind 2**31 too. The last programs merge its last 16 columns."""
    device_with(sm_count=1)
    only_last(1)
    shape, last = (65000, 2, 33 * 1024), (slice(-1, None), slice(None), slice(-16, None))
    x, g = sparse(shape, torch.float16), sparse(shape, torch.float16)
    for tensor in x, g:
        tensor[last] = torch.randn(1, 2, 16).half()
    configuration = Softmax("strided", 16, 4)
    y = softmax_with(configuration, "log_softmax", x, 1, False)[last]
    assert_same_answer(y, torch.log_softmax(x[last], 1), torch.log_softmax(x[last].double(), 1))
    x[last] = y
    dx = softmax_with(configuration, "log_softmax_backward", g, x, 1, x.dtype)[last]
    g, y = g[last], x[last]
    native = torch.ops.aten._log_softmax_backward_data(g, y, 1, y.dtype)
    assert_same_answer(dx, native, g.double() - y.double().exp() * g.double().sum(1, keepdim=True))


def test_log_softmax_of_long_columns_of_one_matrix_as_they_lie(only_last):
    """Of the last column the last of three programs finds the statistics of every third step of eight rows, and the
    last to write has those before. What is after the whole vectors is at far more than 2**31."""
    only_last(1)
    N, K = 193, 2**27 + 1
    found, written = ([*range(8 * first + 7, N, 24), N - 1] for first in (2, 0))
    x, g = sparse((1, N, K), torch.float16), sparse((1, N, K), torch.float16)
    for tensor in x, g:
        tensor[0, :, -1] = torch.randn(N).half()
    configuration = Softmax("strided", 8, 4, group=4)
    y = softmax_with(configuration, "log_softmax", x, 1, False)[0, written, -1]
    truth = x[0, written, -1].double() - x[0, found, -1].double().logsumexp(0)
    assert_same_answer(y, truth.half(), truth)
    dx = softmax_with(configuration, "log_softmax_backward", g, x, 1, x.dtype)[0, written, -1]
    truth = g[0, written, -1].double() - x[0, written, -1].double().exp() * g[0, found, -1].double().sum()
    assert_same_answer(dx, truth.half(), truth)


# Whole rows, with vectors cut by their ends and without; in a loop, of one program for a row, and gradients in two
# passes, of which the last programs have the last rows of the first columns.
@each(
    "shape, dtype, registers, sm_count",
    [
        ((2**21 + 8, 1024), torch.float16, 65536, 2 * 10**6),
        ((2**21 + 8, 1025), torch.float16, 65536, 2 * 10**6),
        ((2**17 + 1, 2**14), torch.float64, 64, 2200000),
    ],
)
def test_layer_norm(shape, dtype, registers, sm_count, only_last, device_with):
    device_with(registers_per_sm=registers, sm_count=sm_count, l2_bytes=2**50)
    only_last(64)  # of odd rows, one of the last few programs has the last row
    x, dy = sparse(shape, dtype), sparse(shape, dtype)
    x[-1], dy[-1] = torch.randn(2, shape[1])
    wide = torch.promote_types(dtype, torch.float32)
    out, mean, rstd = layer_norm(x, shape[1:])
    native, *statistics = torch.ops.aten.native_layer_norm(x[-1:].to(wide), shape[1:], None, None, 1e-5)
    torch.testing.assert_close(out[-1:].to(wide), native, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(mean[-1:], statistics[0])
    torch.testing.assert_close(rstd[-1:], statistics[1])
    dx, _, _ = layer_norm_backward(dy, x, shape[1:], mean, rstd, None, None, [True, False, False])
    exact = dy[-1:].to(wide), x[-1:].to(wide)
    native = torch.ops.aten.native_layer_norm_backward(*exact, shape[1:], *statistics, None, None, [True, False, False])
    N = 64 if dtype is torch.float64 else shape[1]
    torch.testing.assert_close(dx[-1:, :N].to(wide), native[0][:, :N], rtol=1e-3, atol=1e-3)


@each("blocks", [True, False])
def test_gradients_of_long_rows_by_programs_of_columns(blocks, only_last, device_with, monkeypatch):
    """By blocks, the last program, and words of the others that are next to nothing; in two passes, of which the last
    program of one has the last elements, of the other the first."""
    only_last(1, first=0 if blocks else 1)
    device_with(sm_count=2000, l2_bytes=2**50 if blocks else 2**20)

    def counters(like: torch.Tensor, count: int, dtype: torch.dtype) -> torch.Tensor:
        words = torch.ones(count, dtype=dtype)
        words[-1] = (count - 1) // 16 - 1
        return words

    if blocks:
        monkeypatch.setattr(workspace, "counters", counters)
    x, dy = sparse((16, 2**27 + 8), torch.float16), sparse((16, 2**27 + 8), torch.float16)
    x[-1, -1], dy[-1, -1] = 2.0, 3.0
    statistics = torch.zeros(16, 1), torch.ones(16, 1)
    weight = sparse((2**27 + 8,), torch.float16)
    weight[-1] = 0.5
    dx, dweight, _ = layer_norm_backward(dy, x, x.shape[1:], *statistics, weight, None, [True, True, False])
    assert dx[-1, -1].item() == 1.5
    assert dweight[-1].item() == 6.0


# As they lie in memory, column by column, and whole rows of a thread.
@each("N", [4, 3, 5, 7])
def test_norms_of_a_few_elements(N, only_last):
    only_last(2)
    x = sparse((2**31 // N + 200, N), torch.float16)
    x[-20:] = torch.randn(20, N)
    last = x[-20:].float()
    out, mean, rstd = layer_norm(x, [N])
    native, *statistics = torch.ops.aten.native_layer_norm(last, [N], None, None, 1e-5)
    torch.testing.assert_close(out[-20:].float(), native, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(mean[-20:], statistics[0])
    torch.testing.assert_close(rstd[-20:], statistics[1])
    out, rstd = rms_norm_forward(x, [N], None, 1e-5)
    torch.testing.assert_close(out[-20:].float(), torch.rms_norm(last, [N], None, 1e-5), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(rstd[-20:], (last.square().mean(1, keepdim=True) + 1e-5).rsqrt())


# Rows far into the tensor; one whose last block of columns ends behind 2**31.
@each("M, N", [(20, 2**27 + 128), (2, 2**31 - 8)])
def test_layer_norm_weight_and_bias(M, N, only_last, device_with):
    only_last(1, first=1)
    device_with(registers_per_sm=64, sm_count=1000)
    x, dy = sparse((M, N), torch.float16), sparse((M, N), torch.float16)
    x[:, -8:], dy[:, -8:] = torch.randn(2, M, 8)
    mean, rstd = torch.randn(2, M, 1)
    weight = sparse((N,), torch.float16)
    _, dweight, dbias = layer_norm_backward(dy, x, [N], mean, rstd, weight, weight, [False, True, True])
    wide = dy[:, -8:].double()
    xhat = (x[:, -8:].double() - mean) * rstd
    torch.testing.assert_close(dweight[-8:].double(), (wide * xhat).sum(0), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(dbias[-8:].double(), wide.sum(0), rtol=1e-2, atol=1e-2)


# Whole groups to a thread. Whole groups, of vectors and not, by a program that has the last, also as its second; tiles
# of one sample, of two, and of two elements. Groups in a loop, and of many channels. Groups that programs share: one of
# all elements, of one channel and of many; and more than 2**30 of them. Whole channels of two samples, of which the
# last is a program's first. With the programs that are run.
HOLDS = group_norm.Configuration("rows", 1, 1, 8, programs_per_sm=1)
WITHOUT_PAIRS = HOLDS._replace(programs_per_sm=0)
PAIRS = group_norm.Configuration("rows", 1, 64, 2)
WHOLE_GROUPS = group_norm.Configuration("short", 4, vec=2)
SHARES = group_norm.Configuration("split", 4, 1, 8, 1, block_d=1, block_hw=1024, programs_per_sm=1)
FOURS = SHARES._replace(warps=1, vec=4, block_hw=4)
SINGLES = group_norm.Configuration("split", 16, 1, 1, 16, programs_per_sm=1)
LOOPS = group_norm.Configuration("loop", 4, 1, 8, 1, block_d=1, block_hw=1024, programs_per_sm=1)
TILES = group_norm.Configuration("tile", 4, 1, 1, 1, 1, 1024, 1)
WHOLE_CHANNELS = group_norm.Configuration("channels", 4, stages=2)


@each(
    "shape, groups, of_forward, of_backward, sm_count, programs",
    [
        ((2**21 + 8, 1, 1024), 1, HOLDS, HOLDS, 2**22, 1),
        ((2**21 + 9, 1, 1025), 1, WITHOUT_PAIRS, HOLDS._replace(warps=2), 2**22, 1),
        ((2**22 + 25, 1, 1025), 1, WITHOUT_PAIRS, HOLDS._replace(warps=2), 2**21 + 16, 8),
        ((2**21 + 2**13, 1, 1023), 1, WITHOUT_PAIRS, TILES, 2**22, 1),
        ((2, 2**21 + 8, 1024), 2**21 + 8, HOLDS, TILES._replace(groups=2), 2**22, 1),
        ((2**29, 1, 5), 1, WHOLE_GROUPS, TILES._replace(groups=8, block_hw=8), 2**22, 1),
        ((2**29, 1, 5), 1, WHOLE_GROUPS._replace(vec=1), TILES._replace(groups=8, block_hw=8), 2**22, 1),
        ((2**31 + 2**28, 1, 2), 1, PAIRS, TILES._replace(groups=64, block_hw=2), 2**22, 1),
        ((2**21 + 9, 1, 1025), 1, LOOPS._replace(warps=1), LOOPS._replace(block_hw=512), 2**22, 1),
        ((3, 2**30 + 1024, 1), 2**20 + 1, LOOPS, LOOPS._replace(block_d=1024, block_hw=1), 2**22, 1),
        ((2**21 + 9, 1, 1025), 1, SHARES, SHARES._replace(block_hw=512), 2**19, 1),
        ((1, 1, 2**31 + 2**23), 1, SHARES, SHARES, 2000, 1),
        ((1, 1, 2**31 + 2**23), 1, SINGLES, SHARES._replace(warps=16, vec=1, vectors=16), 20000, 1),
        ((1, 2**21 + 8, 1024), 1, SHARES, SHARES, 20000, 1),
        ((1, 2**21 + 8, 1025), 1, SHARES, SHARES, 20000, 1),
        ((2**30 + 8, 1, 4), 1, FOURS, FOURS, 1, 1),
        ((2**23 + 16, 129, 2), 1, WITHOUT_PAIRS, WHOLE_CHANNELS, 2**21, 1),
        ((2**30 + 8, 1, 2), 1, PAIRS, WHOLE_CHANNELS, 2**28, 1),
    ],
)
def test_group_norm(shape, groups, of_forward, of_backward, sm_count, programs, only_last, device_with):
    device_with(sm_count=sm_count)
    only_last(programs, first=programs)  # second passes go backwards
    x, dy = sparse(shape, torch.float16), sparse(shape, torch.float16)
    elements = math.prod(shape[1:]) // groups
    few = slice(-min(elements, 3), None)
    last = [tensor.view(-1)[-min(elements, 1000) :] for tensor in (x, dy)]
    for each_last in last:
        each_last.copy_(torch.randn(len(each_last)))
    sizes = *shape, groups
    y, mean, rstd = group_norm.compute_forward(x, None, None, *sizes, 1e-5, of_forward)
    true_mean = last[0].double().sum() / elements
    variance = (last[0].double() ** 2).sum() / elements - true_mean**2
    if of_forward.kernel != "split":  # of programs that share a group the first stores them
        torch.testing.assert_close(mean[-1, -1].double(), true_mean, rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(rstd[-1, -1].double(), (variance + 1e-5).rsqrt(), rtol=1e-3, atol=1e-6)
    truth = (last[0].double() - true_mean) * (variance + 1e-5).rsqrt()
    torch.testing.assert_close(y.view(-1)[few].double(), truth[few], rtol=1e-2, atol=1e-2)
    mean[-1, -1], rstd[-1, -1] = 0, 1
    want = [True, shape[2] == 1, False]
    dx, dweight, _ = group_norm.compute_backward(dy, x, mean, rstd, None, *sizes, want, of_backward)
    wide = [each_last.double() for each_last in last]
    truth = wide[1] - (wide[1].sum() + wide[0] * (wide[0] * wide[1]).sum()) / elements
    torch.testing.assert_close(dx.view(-1)[few].double(), truth[few], rtol=1e-2, atol=1e-2)
    if dweight is not None:
        torch.testing.assert_close(dweight[few].double(), (wide[0] * wide[1])[few], rtol=1e-2, atol=1e-2)


# Many rows, classes and columns; and one that programs share, with the last tile for the last program.
@each(
    "shape, configuration",
    [
        ((2**21 + 9, 1025, 1), Moments("rows", 32, 2, 24, 8)),
        ((2**21 + 9, 343, 3), Moments("classes", 16, 4, 16, 8)),
        ((40003, 512, 128), Moments("columns", 8, 2, 24, 1, 32, False)),
        ((2**29 + 9, 5, 1), Moments("short", 20, 4, 16, 4)),
        ((1, 2**31 + 2**27 - 8, 1), Moments("rows", 32, 16, 16, 8)),
        ((1, 129 * 2048 * 8184 // 3, 3), Moments("classes", 16, 16, 16, 8)),
        ((1, 2**18, 2**13 + 8), Moments("columns", 8, 8, 24, 1, 32)),
    ],
)
def test_moments(shape, configuration, only_last, device_with):
    device_with(sm_count=2**15)
    only_last(1)
    x = sparse(shape, torch.float16)
    last = 2.0**15 if shape[0] == 1 else 2.0
    x[-1, -1, -1] = last
    squares, mean = moments(variance, x, 1, 0.0, False, means=True, configuration=configuration)
    if shape[0] == 1:  # the sums of the last program's share alone
        assert 0.5 < squares[-1, -1].item() * shape[1] / last**2 <= 1.001
    else:
        torch.testing.assert_close(mean[-1, -1].item(), last / shape[1], rtol=1e-2, atol=0.0)
        true_mean = last / shape[1]
        torch.testing.assert_close(squares[-1, -1].item(), last * true_mean - true_mean**2, rtol=1e-2, atol=0.0)


# Rows of whole vectors and not, and columns.
@each("shape", [(17, 1, 2**27 + 8), (17, 1, 2**27 + 3), (2**25 + 3, 72)])
def test_batch_norm(shape, only_last):
    x, dy = sparse(shape, torch.float16), sparse(shape, torch.float16)
    last = [tensor.view(-1)[-3:] for tensor in (x, dy)]
    for each_last in last:
        each_last.copy_(torch.randn(3))
    only_last(1)
    mean, variance = torch.randn(shape[1]), torch.rand(shape[1]) + 0.5
    y, _, _ = batch_norm(x, None, None, mean, variance, False, 0.1, 1e-5)
    dx, _, _ = batch_norm_backward(dy, x, None, mean, variance, None, None, False, 1e-5, [True, False, False])
    channels = slice(-3, None) if len(shape) == 2 else slice(None)
    rstd = (variance[channels] + 1e-5).rsqrt()
    torch.testing.assert_close(y.view(-1)[-3:].float(), (last[0] - mean[channels]) * rstd, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(dx.view(-1)[-3:].float(), last[1] * rstd, rtol=1e-3, atol=1e-3)


# Short rows, read as they lie, with a rest of them and without.
@each("rows", [2**27 + 5, 2**27 + 8])
def test_batch_norm_of_short_rows(rows, only_last, device_with):
    device_with(sm_count=1000)
    shape, flat = (rows, 17), families_batch_norm.Configuration("flat", 17, 4, 2, 4, stages=2)
    only_last(1, 1)  # the statistics of the last rows are the last program's, their results the first one's
    x, dy = sparse(shape, torch.float16), sparse(shape, torch.float16)
    x[-1], dy[-1] = torch.randn(2, 17)
    y, mean, rstd = families_batch_norm.launch_with(flat, "batch_norm", x, None, None, None, None, True, 0.1, 1e-5)
    last = x[-1, -1].double()
    variance = last * last / rows
    truth = last * (variance + 1e-5).rsqrt()
    torch.testing.assert_close(y[-1, -1].double(), truth, rtol=1e-2, atol=1e-2)
    mean, rstd = torch.zeros_like(mean), torch.ones_like(rstd)
    arguments = dy, x, None, None, None, mean, rstd, True, 1e-5, [True, True, True]
    dx, dweight, dbias = families_batch_norm.launch_with(flat, "batch_norm_backward", *arguments)
    torch.testing.assert_close(dx[-1, -1], dy[-1, -1], rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(dbias[-1].double(), dy[-1, -1].double(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(dweight[-1].double(), (dy[-1, -1] * x[-1, -1]).double(), rtol=1e-2, atol=1e-2)


def test_cumsum_of_short_rows(only_last):
    """The last program's begin behind 2**31."""
    only_last(1)
    x = sparse((2**31 // 101 + 5000, 101), torch.float16)
    x[-1] = 0.5
    assert torch.equal(cumsum_with(Scan("flat", 8, 1024, 1, 4), "cumsum", x, 1)[-1], torch.cumsum(x[-1], 0))


def test_cumsum_of_several_matrices(only_last):
    """The last program's begin behind 2**31."""
    only_last(1)
    x = sparse((2**31 // 54 + 5000, 18, 3), torch.float16)
    x[-1] = 0.5
    assert torch.equal(cumsum_with(Scan("stacked", 12, 1, 1, 4), "cumsum", x, 1)[-1], torch.cumsum(x[-1], 0))


def test_cumsum_of_rows_that_programs_share(only_last):
    """The last row behind 2**31, and what is after its interior."""
    only_last(4)
    x = sparse((2**31 // 3001 + 100, 3001), torch.float64)
    x[-1] = 0.5
    assert torch.equal(cumsum_with(Scan("shared", 2, 64, 1, 4, 128), "cumsum", x, 1)[-1], torch.cumsum(x[-1], 0))


# Rows, and the positions of an image whose classes are beside one another. Programs have several blocks of targets.
@each("image", [False, True])
def test_scores_far_apart(image, only_last):
    only_last(1)
    positions, C = 9 * 256 * gather.MAX_FORWARD_PROGRAMS, 1000
    x, target = sparse((positions, C), torch.float16), sparse((positions,), torch.int64)
    x[-1, -1], target[-1] = 0.5, C - 1
    if image:
        losses, _ = nll_loss2d_forward(x.view(1, positions, 1, C).permute(0, 3, 1, 2), target.view(1, -1, 1), None, 0)
    else:
        losses, _ = nll_loss_forward(x, target, None, 0)
    assert losses.view(-1)[-1].item() == -0.5


def test_scores_of_many_rows(only_last, monkeypatch):
    """The last program has five blocks of them, the last one behind 2**31."""
    only_last(1)
    monkeypatch.setattr(gather, "MAX_FORWARD_PROGRAMS", 2**20)
    x, target = sparse((2**31 + 2**29, 1), torch.float16), sparse((2**31 + 2**29,), torch.uint8)
    x[-1] = 0.5
    assert nll_loss_forward(x, target, None, 0)[0][-1].item() == -0.5


def test_a_gradient_in_two_launches(only_last):
    """The last image begins at 2**31 and more."""
    only_last(1)
    x, target = sparse((3, 2**30 + 7, 1, 1), torch.float16), torch.full((3, 1, 1), 2**30 + 5)
    given = torch.ones((), dtype=torch.float16), x, target, None, 2, -100, torch.ones((), dtype=torch.float16)
    assert nll_loss_with(SCATTER, "nll_loss2d_backward", *given)[-1, -2:].view(-1).tolist() == [-1, 0]


# Of many images, of classes that are far apart, and of more than 2**31 positions.
@pytest.mark.parametrize(
    ("configuration", "shape"),
    [
        (TILE, (4100, 8, 2**16)),
        (TILE, (1, 2**16, 2**15 + 8)),
        (TILE, (1, 1, 2**31 + 1024)),
        (IMAGES, (2**21, 16, 1036)),
        (IMAGES, (1, 2**22, 1036)),
        (IMAGES, (1, 16, 2**31 + 12)),
    ],
    ids=str,
)
def test_gradients_of_images(configuration, shape, only_last):
    only_last(1)
    N, C, D = shape
    x, target, one = sparse((N, C, D, 1), torch.float16), sparse((N, D, 1), torch.int64), torch.ones(()).half()
    target[-1, -1] = C - 1
    dx = nll_loss_with(configuration, "nll_loss2d_backward", one, x, target, None, 2, -100, one)
    assert dx[-1, -1, -1].item() == -1


@pytest.mark.parametrize("configuration", [SHORT, FILL], ids=["short", "fill"])
@each("reduction", [0, 1])
def test_gradients_of_short_rows(reduction, configuration, only_last):
    """The last row begins behind 2**31."""
    only_last(1)
    N = 2**31 // 21 + 5000
    x, target = sparse((N, 21), torch.float16), sparse((N,), torch.int64)
    target[-1] = 20
    given = sparse((N,), torch.float16), x, target, None, reduction, -100, torch.ones((), dtype=torch.float16)
    given[0][-1] = 0.5
    given = given if reduction == 0 else (given[0][-1], *given[1:])
    dx = nll_loss_with(configuration, "nll_loss_backward", *given)
    assert dx[-1].tolist() == [0.0] * 20 + [-0.5]


# A program of one tile and of two.
@each("sm_count", [10**6, 2**17])
def test_cross_entropy(sm_count, only_last, device_with):
    """The last row begins behind 2**31."""
    device_with(sm_count=sm_count)
    only_last(1)
    R, C = 2**21 + 8, 1024
    x, target, grad = sparse((R, C), torch.float16), sparse((R,), torch.int64), sparse((R,), torch.float16)
    x[-1], target[-1], grad[-1] = torch.randn(C), C - 1, 0.5
    with captured() as launches:
        losses = cross_entropy_loss(x.requires_grad_(), target, reduction="none")
    assert launches[0].row()["options"]["LOOPS"] is (sm_count == 2**17)
    (dx,) = torch.autograd.grad(losses, x, grad)
    last = x.detach()[-1].double().requires_grad_()
    truth = torch.nn.functional.cross_entropy(last, target[-1])
    torch.testing.assert_close(losses[-1].double(), truth, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(dx[-1].double(), torch.autograd.grad(truth, last)[0] / 2, rtol=1e-2, atol=1e-6)


# A row of more than 2**31 classes, with edges and without; the second of two rows, which ends behind 2**31.
@each("R, C", [(1, 2**31 + 2**23), (1, 2**31 + 2**23 + 5), (2, 2**30 + 2**23 + 3)])
def test_cross_entropy_of_rows_that_programs_share(R, C, only_last, device_with, monkeypatch):
    """The last program, as if the others had found nothing."""
    device_with(sm_count=2000)
    only_last(1)

    def counters(like: torch.Tensor, count: int, dtype: torch.dtype) -> torch.Tensor:
        nothing = torch.tensor([-math.inf, 0.0]).view(dtype) ^ 0x7FC00BAD  # as ``encode`` makes words of it
        return nothing.repeat(count // 2)

    monkeypatch.setattr(workspace, "counters", counters)
    x, target = sparse((R, C), torch.float16), torch.tensor([-100] * (R - 1) + [C - 1])
    x[-1, -20:] = 10 + torch.randn(20)
    with captured() as launches:
        loss = cross_entropy_loss(x, target)
    (launched,) = (launch.row() for launch in launches)
    assert launched["kernel"] == "cross_entropy_shared"
    group = launched["grid"][0] // R
    first, end = -(-(R - 1) * C // 8), R * C // 8  # vectors of the row
    first += (group - 1) * -(-(end - first) // group)
    truth = x.view(-1)[8 * first : 8 * end].double().logsumexp(0) - x[-1, -1]
    torch.testing.assert_close(loss.double(), truth.double(), rtol=1e-3, atol=0.0)
