# SPDX-License-Identifier: Apache-2.0
"""Small cases that together launch every kernel, short enough for compute-sanitizer (see sanitize.py).

Inputs are drawn and answers judged on the CPU, so that hardly any kernels of PyTorch's are sanitized beside ours.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from kernels import KERNELS, PREPARED
from torch.utils._pytree import tree_map_only

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.ops.launch import devices
from flag_gems_overrides.perf import op_inputs
from flag_gems_overrides.perf.cases import Case, parse
from flag_gems_overrides.perf.launches import captured

# Whole rows, rows with edges, groups of programs with and without edges, loops, columns; aligned and not.
KEYS = [
    "layer_norm 65x100 float32",
    "layer_norm 16x301 bfloat16",
    "layer_norm 4x16x64 normalized=2 float16",
    "layer_norm 2x20000 float32",
    "layer_norm 2x40499 bfloat16",
    "layer_norm 3x5000 float64",
    "layer_norm_backward 65x100 float32",
    "layer_norm_backward 16x301 bfloat16",
    "layer_norm_backward 2x20000 float32",
    "layer_norm_backward 3x20001 bfloat16",
    "layer_norm_backward 3x5000 float64",
    "softmax 300x16 dim=1 float32",
    "softmax 9x1027 dim=1 bfloat16",
    "softmax 1x120001 dim=1 bfloat16",
    "softmax 2x9000 dim=1 float64",
    "softmax 1x300000 dim=1 float16",
    "softmax 1x20000x8 dim=1 float32",
    "softmax 2x37x5 dim=1 float32",
    "softmax_backward 300x16 dim=1 float32",
    "softmax_backward 9x1027 dim=1 bfloat16",
    "softmax_backward 1x120001 dim=1 bfloat16",
    "softmax_backward 2x9000 dim=1 float64",
    "softmax_backward 1x600x300 dim=1 float32",
    "log_softmax 70x100 dim=1 bfloat16",
    "log_softmax 3x20001 dim=1 float32",
    "log_softmax_backward 70x100 dim=1 bfloat16",
    "log_softmax_backward 3x20001 dim=1 float32",
    "prod 40000 float32",
    "prod_dim 2x3001x5 dim=1 bfloat16",
    "max 40001 bfloat16",
    "max_dim 300x24 dim=1 float32",
    "max_dim 3x5001 dim=1 bfloat16",
    "max_dim 2x700x64 dim=1 int64",
    "amax 5000x3 dim=0 float16",
    "min 7x5 int8",
    "min_dim 5000x64 dim=0 float32",
    "amin 3x3001x5 dim=1 float64",
    "argmax 40001 float32",
    "argmin 2x700x64 dim=1 int32",
]
CASES = [parse(key) for key in KEYS]
each = pytest.mark.parametrize("case", CASES, ids=[key.replace(" ", "-") for key in KEYS])
# In elements, of every tensor's start from that of its allocation. The interpreter does not see the difference.
OFFSETS = [0, 1] if torch.cuda.is_available() else [0]
# Where the interpreter and a GPU take the same ways: those of small shapes on a device with few multiprocessors.
MULTIPROCESSORS, L2_BYTES = 4, 2**20


@pytest.fixture(autouse=True)
def few_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    few = devices.limits(0)._replace(sm_count=MULTIPROCESSORS, l2_bytes=L2_BYTES)
    monkeypatch.setattr(devices, "limits", lambda index: few)
    for cache in PREPARED:
        cache.cache_clear()
    yield
    for cache in PREPARED:
        cache.cache_clear()


def _run(case: Case, device: str, offset: int = 0) -> tuple[tuple, object]:
    """Inputs, and what the override answers to them, both on the CPU."""
    inputs = op_inputs.arguments(case, "cpu")

    def moved(x: torch.Tensor) -> torch.Tensor:
        room = torch.empty(offset + x.numel(), dtype=x.dtype)
        room[offset:] = x.flatten()
        return room.to(device)[offset:].view(x.shape)

    result = OPERATORS[case.op].load()[0](*tree_map_only(torch.Tensor, moved, inputs))
    return inputs, tree_map_only(torch.Tensor, torch.Tensor.cpu, result)


@each
@pytest.mark.parametrize("offset", OFFSETS)
def test_answer(case, offset, device):
    inputs, result = _run(case, device, offset)
    assert op_inputs.agree(case.op, inputs, result, op_inputs.native(case.op)(*inputs))


def test_every_override_is_called():
    assert {case.op for case in CASES} == set(OPERATORS)


def test_every_kernel_is_launched_and_split_ones_alone_and_in_groups(device):
    with captured() as launches:
        for case in CASES:
            _run(case, device)
    assert {launch.kernel for launch in launches} == set(KERNELS)
    for kernel in ("softmax_split", "softmax_backward_split"):
        ways = {launch.options.get("launch_cooperative_grid", False) for launch in launches if launch.kernel == kernel}
        assert ways == {False, True}, kernel
