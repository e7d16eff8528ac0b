# SPDX-License-Identifier: Apache-2.0
"""Small cases that together launch every kernel, short enough for compute-sanitizer (see sanitize.py).

Inputs are drawn and answers judged on the CPU, so that hardly any kernels of PyTorch's are sanitized beside ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from kernels import KERNELS, forget_launches
from torch.utils._pytree import tree_map_only

from flag_gems_overrides.operators import OPERATORS, Operator
from flag_gems_overrides.ops.families import batch_norm, gather, group_norm, norm, reduction, scan, softmax
from flag_gems_overrides.ops.families.reduction.moments import variance
from flag_gems_overrides.ops.families.reduction.moments_call import moments
from flag_gems_overrides.ops.launch import devices
from flag_gems_overrides.ops.rms_norm import rms_norm_backward, rms_norm_forward
from flag_gems_overrides.perf import op_inputs
from flag_gems_overrides.perf.answers import Reference
from flag_gems_overrides.perf.cases import Case, parse
from flag_gems_overrides.perf.launches import captured

# Sizes that together reach every kernel of a family: whole rows, unaligned rows, groups of programs, loops, columns.
# An operator takes those that have its arguments and one of its dtypes.
SIZES = {
    "norm": [
        "65x100 normalized=1 float32",
        "16x301 normalized=1 bfloat16",
        "4x16x64 normalized=2 float16",
        "2x20000 normalized=1 float32",
        "2x9000 normalized=1 bfloat16",
        "5x20000 normalized=1 float32",
        "3x20001 normalized=1 bfloat16",
        "3x9000 normalized=1 float64",
        "300x2 normalized=1 bfloat16",
        "70x3 normalized=1 float32",
        "301x7 normalized=1 bfloat16",
        "1x700 normalized=1 float32",
        "5x16400 normalized=1 bfloat16",
        "1x20000 normalized=1 float16",
        "1x20000 normalized=1 float64",
        "1x1048585 normalized=1 float16",
        "1x40000 normalized=1 float16",
    ],
    "group_norm": [
        "3x20x9 groups=2 float32",
        "2x6x4099 groups=2 bfloat16",
        "1x3x21003 groups=1 float16",
        "8x3x10001 groups=1 float32",
        "5x60x65 groups=2 float32",
        "2x4x3 groups=2 float32",
    ],
    "batch_norm": [
        "40x12 float32",
        "3x5x7 bfloat16",
        "5x2x61x113 float16",
        "40x2x265 bfloat16",
        "2x2x16x1024 float32",
        "2500x40 bfloat16",
        "20001x17 bfloat16",
        "3x2x8000 float64",
        "4x3x70 training=0 bfloat16",
    ],
    "softmax": [
        "300x16 dim=1 float32",
        "9x1027 dim=1 bfloat16",
        "1x120001 dim=1 bfloat16",
        "2x9000 dim=1 float64",
        "1x300000 dim=1 float16",
        "1x20000x8 dim=1 float32",
        "2x37x5 dim=1 float32",
        "2x40x40 dim=1 float32",
        "9000x1 dim=1 bfloat16",
        "90x3x2 dim=1 bfloat16",
        "9x20000 dim=1 bfloat16",
        "9x8500 dim=1 bfloat16",
        "1x1200x6 dim=1 float32",
        "1x600x300 dim=1 float32",
        "1x600x300 dim=1 bfloat16",
        "4x100x300 dim=1 float32",
    ],
    "reduction": [
        "40001 bfloat16",
        "7x5 int8",
        "301 bool",
        "300x24 dim=1 float32",
        "3x5001 dim=1 bfloat16",
        "2x700x64 dim=1 int64",
        "5000x3 dim=0 float16",
        "3x3001x5 dim=1 float64",
        "9001x3 dim=1 float64",
    ],
    "scan": [
        "300x24 dim=1 float32",
        "3x20001 dim=1 bfloat16",
        "1x20000 dim=1 int64",
        "2x700x64 dim=1 int8",
        "9x3x5 dim=0 float64",
    ],
    "gather": [
        "300x7 float32",
        "3x9001 bfloat16",
        "2x5x3x70 float64",
        "3x9001x1x1 float16",
        "3x300x1x143 bfloat16",
        "9x301 bfloat16",
        "2x5x3x7 float32",
        "300x7 gradient=1 float32",
        "3x9001 gradient=1 bfloat16",
        "20x9001 gradient=1 float32",
        "59x9001 bfloat16",
        "3000x61 bfloat16",
        "3000x61 gradient=1 float32",
    ],
}


def _cases(operator: Operator) -> Iterator[Case]:
    for size in SIZES[operator.family]:
        case = f"{operator.name} {size}"
        given = {word.partition("=")[0] for word in size.split()[1:-1]}
        ndim = 1 + size.split()[0].count("x")
        has_arguments = set(operator.required) <= given <= set(operator.arguments)
        if has_arguments and operator.ndim in (None, ndim) and size.split()[-1] in operator.dtypes:
            yield parse(case)


# Of few long rows, as no operator's cases are.
LONG_ROWS = [parse("cross_entropy_loss 2x9001 float32")]
CASES = [*(case for operator in OPERATORS.values() for case in _cases(operator)), *LONG_ROWS]
each = pytest.mark.parametrize("case", CASES, ids=[case.key.replace(" ", "-") for case in CASES])
# In elements, of every tensor's start from that of its allocation. The interpreter does not see the difference.
OFFSETS = [0, 1] if torch.cuda.is_available() else [0]
# Where the interpreter and a GPU take the same ways: those of small shapes on a device with few multiprocessors.
MULTIPROCESSORS, L2_BYTES = 4, 2**20


@pytest.fixture(autouse=True)
def few_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    few = devices.limits(0)._replace(sm_count=MULTIPROCESSORS, l2_bytes=L2_BYTES)
    monkeypatch.setattr(devices, "limits", lambda index: few)
    forget_launches()
    yield
    forget_launches()


def _run(case: Case, device: str, offset: int = 0) -> tuple[tuple, object]:
    """Inputs, and what the override answers to them, both on the CPU."""
    inputs = op_inputs.arguments(case, "cpu")

    def moved(x: torch.Tensor) -> torch.Tensor:
        padded = torch.empty(offset + x.numel(), dtype=x.dtype)
        padded[offset:] = x.flatten()
        return padded.to(device)[offset:].view(x.shape)

    result = op_inputs.override(case.op)(*tree_map_only(torch.Tensor, moved, inputs))
    return inputs, tree_map_only(torch.Tensor, torch.Tensor.cpu, result)


@each
@pytest.mark.parametrize("offset", OFFSETS)
def test_answer(case, offset, device):
    inputs, result = _run(case, device, offset)
    assert Reference(case.op, inputs, op_inputs.native(case.op, "cpu")).is_right(result)


# What no case reaches: the gradient that rms_norm takes by itself, and configurations for large inputs, which variances
# have a function of their own for.
GRADIENTS = [(65, 100), (1100, 9), (2, 20000), (3, 20001), (5, 20000)]
CLASSES = reduction.plan.Configuration("classes", 1, 1, 16, 1, 1, False, 1, False)
SHORT = reduction.plan.Configuration("short", 12, 1, 16, 4)
BY_LANES = reduction.plan.Configuration("columns", 8, 1, 16, block_k=8, split=False)
SHORT_CLASSES = reduction.plan.Configuration("short_classes", 2, 1, 16, 2)
ROWS_SHARED = scan.plan.Configuration("shared", 4, 128, 1, 4, registers=128)
ROWS_FLAT = scan.plan.Configuration("flat", 8, 256, 1, 1)
ROWS_CHUNKS = scan.plan.Configuration("chunks", 2, 64, 2, 4, registers=64)
COLUMNS_CHUNKS = scan.plan.Configuration("chunks", 1, 16, 5, 4, registers=64)
COLUMNS_SHARED = scan.plan.Configuration("shared", 1, 8, 2, 4, registers=128)
STACKED = scan.plan.Configuration("stacked", 12, 1, 1, 4)
INTERLEAVED = scan.plan.Configuration("interleaved", 24, 1, 1, 1)
SHORT_GROUPS = group_norm.plan.Configuration("short", 1, vec=2)
LOOP = group_norm.plan.Configuration("loop", 4, vec=8, vectors=2, programs_per_sm=4, stages=3)
TWICE = norm.plan.Configuration("loop", 4)
BY_PLACE = batch_norm.plan.Configuration("flat", 1, 1, 2, 4, stages=2)
HELD_UNALIGNED = batch_norm.plan.Configuration("channels", 1, 1, 1)
IN_TILES = batch_norm.plan.Configuration("channels", 1, 1, 0, 8)
TWO_TILES = batch_norm.plan.Configuration("channels", 32, 2, 1)
RUNS_IN_TWO_TILES = batch_norm.plan.Configuration("channels", 4, 1, batch_norm.plan.TWO_TILES)
RUNS_AS_COLUMNS = batch_norm.plan.Configuration("channels", 4, 2, padded=True)
READ_AGAIN = batch_norm.plan.Configuration("channels", 1, 16)
SEVERAL_SHARES = batch_norm.plan.Configuration("groups", 1, 1, 1, 24)
GRADIENT_LOOP = LOOP._replace(vectors=1, block_d=1, block_hw=1024)
FEW = group_norm.plan.Configuration("few", 1, 2, block_d=4, block_hw=4)
CHANNELS = group_norm.plan.Configuration("channels", 1, stages=3)
HELD_GROUPS = group_norm.plan.Configuration("rows", 2, vec=4, programs_per_sm=1)
WHOLE = softmax.launches.Configuration("short", 20, 2, vec=2)
FEW_COLUMNS = softmax.launches.Configuration("interleaved", 8, 4, group=32)
STRIDED = softmax.launches.Configuration("strided", 8, 1, group=32)
BLOCKS = softmax.launches.Configuration("blocks", 16, 1, 64)
SINGLY = softmax.launches.Configuration("split", 4, 1, 64, block_k=8)
COLUMNS = softmax.launches.Configuration("split", 16, 4, 128, 4, block_k=16)
ROWS_TWICE = softmax.launches.Configuration("split", 16, 1, 64, 4, block_k=4)
LARGE = [
    ("layer_norm_backward 5x9001 normalized=1 bfloat16", norm, TWICE),
    ("layer_norm_backward 33x100 normalized=1 float32", norm, TWICE),
    ("batch_norm 86x77 float32", batch_norm, BY_PLACE),
    ("batch_norm_backward 86x77 float32", batch_norm, BY_PLACE),
    ("batch_norm_backward 150x130 bfloat16", batch_norm, BY_PLACE),
    ("batch_norm 87x17x8 float32", batch_norm, BY_PLACE),
    ("batch_norm_backward 87x17x16 bfloat16", batch_norm, BY_PLACE),
    ("batch_norm_backward 3x2x261 float16", batch_norm, HELD_UNALIGNED._replace(warps=2)),
    ("batch_norm_backward 3x5x131 float32", batch_norm, HELD_UNALIGNED),
    ("batch_norm_backward 2x5x4104 bfloat16", batch_norm, READ_AGAIN),
    ("batch_norm 3x5x136 bfloat16", batch_norm, IN_TILES),
    ("batch_norm 3x5x301 float32", batch_norm, IN_TILES._replace(loads=1)),
    ("batch_norm_backward 3x5x136 float32", batch_norm, IN_TILES),
    ("batch_norm_backward 3x5x301 float16", batch_norm, IN_TILES._replace(warps=2, loads=1)),
    ("batch_norm 37x77 float16", batch_norm, TWO_TILES),
    ("batch_norm_backward 37x77 float16", batch_norm, TWO_TILES),
    ("batch_norm 6x7x22 float16", batch_norm, RUNS_IN_TWO_TILES),
    ("batch_norm_backward 6x7x22 float16", batch_norm, RUNS_IN_TWO_TILES),
    ("batch_norm 37x19x4 float32", batch_norm, RUNS_AS_COLUMNS),
    ("batch_norm_backward 37x19x4 bfloat16", batch_norm, RUNS_AS_COLUMNS._replace(loads=1)),
    ("batch_norm 80x1x256 float64", batch_norm, SEVERAL_SHARES),
    ("batch_norm_backward 80x1x256 float64", batch_norm, SEVERAL_SHARES),
    ("softmax 3x301x2 dim=1 float32", softmax, WHOLE),
    ("log_softmax_backward 3x301x4 dim=1 bfloat16", softmax, WHOLE._replace(vec=4)),
    ("softmax 2x5001x3 dim=1 float32", softmax, FEW_COLUMNS),
    ("log_softmax 2x5000x6 dim=1 bfloat16", softmax, FEW_COLUMNS),
    ("softmax_backward 2x5000x6 dim=1 float32", softmax, FEW_COLUMNS),
    ("log_softmax_backward 2x5001x3 dim=1 bfloat16", softmax, FEW_COLUMNS),
    ("softmax 2x501x9 dim=1 float32", softmax, STRIDED),
    ("log_softmax 2x96x1111 dim=1 bfloat16", softmax, STRIDED),
    ("softmax_backward 2x97x1111 dim=1 float32", softmax, STRIDED),
    ("log_softmax_backward 2x500x10 dim=1 bfloat16", softmax, STRIDED),
    ("softmax 3x301x5 dim=1 bfloat16", softmax, BLOCKS),
    ("log_softmax 3x300x12 dim=1 float32", softmax, BLOCKS),
    ("softmax_backward 3x300x12 dim=1 bfloat16", softmax, BLOCKS),
    ("log_softmax_backward 3x301x5 dim=1 float32", softmax, BLOCKS._replace(elements=4)),
    ("softmax 2x301x9 dim=1 float32", softmax, SINGLY),
    ("log_softmax 2x301x9 dim=1 bfloat16", softmax, SINGLY._replace(group=3)),
    ("softmax_backward 2x301x9 dim=1 bfloat16", softmax, SINGLY._replace(group=3)),
    ("log_softmax_backward 2x301x9 dim=1 float32", softmax, SINGLY),
    ("softmax_backward 3x2001 dim=1 float32", softmax, ROWS_TWICE),
    ("softmax 2x96x64 dim=1 float32", softmax, COLUMNS),
    ("softmax 2x192x64 dim=1 float32", softmax, COLUMNS._replace(group=2)),
    ("softmax_backward 2x192x64 dim=1 float32", softmax, COLUMNS._replace(group=2)),
    ("softmax_backward 2x301x64 dim=1 float32", softmax, COLUMNS),
    ("softmax 2x301x64 dim=1 float32", softmax, COLUMNS),
    ("group_norm_backward 3x8x77 groups=2 float32", group_norm, HELD_GROUPS),
    ("amax 300x4x7 dim=1 float32", reduction, CLASSES),
    ("max_dim 300x4x7 dim=1 bfloat16", reduction, CLASSES),
    ("amax 3001x3 dim=1 float32", reduction, SHORT),
    ("amax 301x17 dim=1 float16", reduction, BY_LANES),
    ("max_dim 301x17 dim=1 int8", reduction, BY_LANES),
    ("max_dim 3001x5 dim=1 float16", reduction, SHORT._replace(elements=40, vector=8)),
    ("amax 301x17x2 dim=1 bfloat16", reduction, SHORT_CLASSES),
    ("amax 71x17x8 dim=1 float16", reduction, SHORT_CLASSES._replace(elements=8, vector=8)),
    ("amax 71x40x2 dim=1 float32", reduction, SHORT_CLASSES._replace(elements=4, vector=4)),
    ("amax 71x24x3 dim=1 float16", reduction, SHORT_CLASSES._replace(elements=8, vector=8)),
    ("nll_loss_backward 3x9001 bfloat16", gather, gather.plan.FILL),
    ("nll_loss_backward 59x301 bfloat16", gather, gather.plan.FILL._replace(vectors=1, warps=1)),
    ("nll_loss_backward 300x8 bfloat16", gather, gather.plan.SHORT),
    ("nll_loss_backward 301x21 bfloat16", gather, gather.plan.SHORT._replace(vectors=1, warps=1)),
    ("nll_loss_backward 301x5 float16", gather, gather.plan.SHORT._replace(vectors=1, warps=1)),
    ("nll_loss2d_backward 2x64x3x3 float32", gather, gather.plan.FILL._replace(vectors=1, warps=1)),
    ("nll_loss2d_backward 3x300x1x143 bfloat16", gather, gather.plan.IMAGES._replace(warps=1)),
    ("nll_loss2d_backward 3x5x13x11 bfloat16", gather, gather.plan.TILE._replace(positions=64)),
    ("nll_loss2d_backward 3x41x13x11 float32", gather, gather.plan.FLAT._replace(warps=1, classes=2)),
    ("nll_loss2d_backward 3x41x13x10 bfloat16", gather, gather.plan.PAIRS._replace(per_sm=1, warps=1)),
    ("nll_loss2d_backward 3x41x13x11 float64", gather, gather.plan.IN_ORDER._replace(warps=1)),
    ("group_norm 301x2x7 groups=2 bfloat16", group_norm, SHORT_GROUPS),
    ("group_norm 301x3x2 groups=1 float32", group_norm, SHORT_GROUPS),
    ("group_norm 2x6x4099 groups=2 bfloat16", group_norm, LOOP),
    ("group_norm_backward 2x6x4099 groups=2 bfloat16", group_norm, GRADIENT_LOOP),
    ("group_norm_backward 70x140x3 groups=2 bfloat16", group_norm, CHANNELS),
    ("group_norm_backward 3x20x37 groups=2 bfloat16", group_norm, GRADIENT_LOOP._replace(kernel="split")),
    ("group_norm_backward 11x10x3 groups=2 bfloat16", group_norm, FEW),
    ("group_norm_backward 11x36 groups=1 float32", group_norm, FEW._replace(groups=4, block_hw=1)),
    ("nll_loss2d_backward 3x301x7x13 bfloat16", gather, gather.plan.SCATTER._replace(vectors=1, warps=1)),
    ("cumsum 2x3001 dim=1 float32", scan, ROWS_SHARED),
    ("cumsum 2x3001 dim=1 float64", scan, ROWS_SHARED._replace(elements=2, lanes=64, depth=4)),
    ("cumsum 3x3000 dim=1 int32", scan, ROWS_CHUNKS),
    ("cumsum 2x300x24 dim=1 float32", scan, COLUMNS_CHUNKS),
    ("cumsum 107x5 dim=1 bfloat16", scan, ROWS_FLAT),
    ("cumsum 3x600x5 dim=1 int64", scan, COLUMNS_SHARED),
    ("cumsum 301x18x3 dim=1 float32", scan, STACKED),
    ("cumsum 77x9x5 dim=1 float16", scan, STACKED._replace(elements=20)),
    ("cumsum 301x17x8 dim=1 float16", scan, STACKED._replace(elements=16, warps=2)),
    ("cumsum 5x907x3 dim=1 bfloat16", scan, INTERLEAVED),
]


def _rms_norm_gradients(shape: tuple[int, int], device: str) -> tuple[tuple, tuple]:
    """PyTorch's gradients of x and weight, and ours, on the CPU."""
    x, dy, weight = torch.randn(shape), torch.randn(shape), torch.randn(shape[1])
    leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
    expected = torch.autograd.grad(torch.rms_norm(leaves[0], shape[1:], leaves[1], 1e-5), leaves, dy)
    there = [t.to(device) for t in (dy, x, weight)]
    inv_rms = rms_norm_forward(there[1], shape[1:], there[2], 1e-5)[1]
    return expected, tuple(t.cpu() for t in rms_norm_backward(*there[:2], inv_rms, shape[1:], there[2]))


def _moments(device: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """PyTorch's variances, and ours: of interleaved columns by programs that share a row, that do not, and that have
    several short ones; of short rows.
    """
    for shape, dtype, configuration in (
        ((3, 701, 3), torch.float32, CLASSES._replace(elements=8, vector=4, split=True)),
        ((3, 701, 3), torch.float32, CLASSES._replace(elements=8, vector=4)),
        ((301, 17, 2), torch.bfloat16, SHORT_CLASSES),
        ((71, 17, 8), torch.float16, SHORT_CLASSES._replace(elements=8, vector=8)),
        ((3001, 3), torch.float32, SHORT),
    ):
        x = torch.randn(shape).to(dtype)
        result = moments(variance, x.to(device), 1, 1.0, False, configuration=configuration)[0]
        yield torch.var(x.float(), 1).to(dtype), result.cpu()


def _configured(key: str, family: ModuleType, configuration: Any, device: str) -> tuple[Case, tuple, object]:
    case = parse(key)
    inputs = op_inputs.arguments(case, "cpu")
    there = tree_map_only(torch.Tensor, lambda x: x.to(device), inputs)
    result = family.call.launch_with(configuration, case.op, *there)
    return case, inputs, tree_map_only(torch.Tensor, torch.Tensor.cpu, result)


@pytest.mark.parametrize("shape", GRADIENTS, ids=str)
def test_gradients_of_rms_norm(shape, device):
    for theirs, ours in zip(*_rms_norm_gradients(shape, device), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_variances_of_classes(device):
    for theirs, ours in _moments(device):
        torch.testing.assert_close(ours, theirs, rtol=max(1e-5, torch.finfo(ours.dtype).eps), atol=0.0)


@pytest.mark.parametrize(("key", "family", "configuration"), LARGE)
def test_configurations_of_large_inputs(key, family, configuration, device):
    case, inputs, result = _configured(key, family, configuration, device)
    assert Reference(case.op, inputs, op_inputs.native(case.op, "cpu")).is_right(result)


def test_every_override_is_called():
    assert {case.op for case in CASES} == set(OPERATORS)


def test_every_kernel_is_launched_and_with_and_without_groups_where_it_has_both(device, monkeypatch):
    if device == "cpu":
        from flag_gems_overrides.interpreter.launch import InterpretedKernel

        # What is launched depends on no result, and the tests above have looked at those.
        monkeypatch.setattr(InterpretedKernel, "_execute", lambda self, grid, bound, options: None)
    with captured() as launches:
        for case in CASES:
            _run(case, device)
        for shape in GRADIENTS:
            _rms_norm_gradients(shape, device)
        list(_moments(device))
        for each in LARGE:
            _configured(*each, device)
    assert {launch.kernel for launch in launches} == set(KERNELS)
    for kernel in KERNELS:
        if not re.fullmatch("softmax(_backward)?_(looped_rows|columns|looped_columns|looped_single_columns)", kernel):
            continue
        ways = {launch.options.get("launch_cooperative_grid", False) for launch in launches if launch.kernel == kernel}
        assert ways == {False, True}, kernel
