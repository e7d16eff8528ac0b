# SPDX-License-Identifier: Apache-2.0
"""Group norms that are layer normalizations: channels of one element each, in one group.

Their weights and biases lie beside each other as the elements do. The kernels of group norm, which know of no such
case, look each up by itself; those of layer normalization (families/norm) load vectors of them. Which of the two are
launched is decided by their plans.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from ...launch import devices
from ...launch.sizes import VECTOR_BYTES
from ..norm import launches as norm_launches
from ..norm.prepare import backward_launch, forward_launch, planned
from .launches import BackwardRows, Launch, Problem, Rows, ShortRows

# Of a multiprocessor: with fewer, the loads of gradients are waited for (backward_or_none has what was measured).
MIN_WARPS_PER_SM = 4
# Of a program, where rows of 16 bits are long.
LONG_WARPS = 8


def forward_or_none(
    problem: Problem, plan: Launch, dtype: torch.dtype, eps: float, device: int
) -> Callable[..., None] | None:
    """The launch of the layer normalization, if it reads rows once and the ``plan`` does not.

    400 x 20000 bf16 20.1 us so, 29.1 in a loop, 66 x 13000 float16 5.4 and 7.7 in two launches, 1000 x 40000 74.6 and
    100.9, 5000 x 25001 218 and 295, 264 x 24000 float32 26.1 and 33.4. But 3 x 1000000 float32 25.5 and 24.8, where
    neither holds rows. And if a program of the plan holds one row whose weights and biases it loads late: 20000 x 1000
    bf16 33.8 and 37.1, 20 x 12000 4.7 and 6.2, with edges only if the other shares a row out: 5 x 10001 float32 6.0 and
    6.9, but 4000 x 4097 float16 36.6 and 34.4, 1000 x 3001 float32 15.7 and 15.1 (H100).
    """
    if not _is_layer_norm(problem) or isinstance(plan, ShortRows) or (isinstance(plan, Rows) and plan.early):
        return None
    rows = norm_launches.Problem(problem.M, problem.N, 1, dtype.itemsize, False)
    found = planned(rows, device, None)
    held = isinstance(found, norm_launches.Rows)
    if held and isinstance(plan, Rows):
        held = plan.groups == 1 and _whole_vectors(plan, dtype)
    if held or isinstance(found, norm_launches.Split):
        return functools.partial(_forward, forward_launch(rows, dtype, eps, device, None))
    return None


def backward_or_none(
    problem: Problem, plan: Launch, dtype: torch.dtype, want: tuple[bool, bool, bool], device: int
) -> Callable[..., None] | None:
    """The same of gradients, where both hold rows, in vectors of float32 or float64.

    2000 x 5000 float32 56.3 us so, 60.1 in the kernel of groups, 40000 x 301 66.8 and 78.3, 20000 x 64 float64 22.5
    and 25.5. But 1500 x 600 float32, by two warps of a multiprocessor, 12.7 and 12.3. Of 16 bits only long rows without
    edges: 3000 x 5000 bf16 62.8 and 67.4, but 800 x 2049 16.6 and 13.9, 40000 x 300 float16 61.5 and 48.5, 1496171 x
    66, in vectors of two, 486 and 402 (H100).
    """
    if not isinstance(plan, BackwardRows) or not _is_layer_norm(problem):
        return None
    if plan.vectors.vec * dtype.itemsize < VECTOR_BYTES:
        return None
    if dtype.itemsize == 2 and not (plan.warps >= LONG_WARPS and _whole_vectors(plan, dtype)):
        return None
    rows = norm_launches.Problem(problem.M, problem.N, 1, dtype.itemsize, True)
    found = planned(rows, device, None)
    if not isinstance(found, norm_launches.Rows):
        return None
    if found.programs * found.warps < MIN_WARPS_PER_SM * devices.limits(device).sm_count:
        return None
    return backward_launch(problem.M, problem.N, dtype, *want, device, None)


def _whole_vectors(plan: Rows | BackwardRows, dtype: torch.dtype) -> bool:
    return plan.vectors.vec * dtype.itemsize >= VECTOR_BYTES and not plan.vectors.unaligned


def _is_layer_norm(problem: Problem) -> bool:
    return problem.groups == 1 and problem.K == 1


def _forward(launch: Callable[..., None], *tensors: torch.Tensor | None) -> None:
    """Of input, weight, bias, output, mean and rstd: nothing is added to the input before."""
    no_residual = no_sum = None
    launch(*tensors, no_residual, no_sum)
