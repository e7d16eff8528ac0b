# SPDX-License-Identifier: Apache-2.0
"""Group norms that are layer normalizations: channels of one element each, in one group.

Their weights and biases lie beside each other as the elements do. The kernels of layer normalization (families/norm)
load vectors of them, where those of group norm look up each by itself. The plans decide which of the two are launched.
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
from .legal_forward import MAX_ROWS_WARPS

# Minimum number of warps of a multiprocessor, of gradients: fewer wait for their loads (see backward_or_none).
MIN_WARPS_PER_SM = 4
# Minimum number of warps of a program of 16 bits, of gradients: those of long rows.
LONG_WARPS = 8


def forward_or_none(
    problem: Problem, plan: Launch, dtype: torch.dtype, eps: float, device: int
) -> Callable[..., None] | None:
    """The launch of the layer normalization where it is faster than ``plan``; None elsewhere.

    - It reads rows once, and the plan twice. 400 x 20000 bf16: 20.1 us, otherwise 29.1 (H100).
    - A program of the plan holds one row, whose weights and biases it loads late. 20 x 12000: 4.7 us, otherwise 6.2.
      Those of 32 warps load them early; of them no times are known, and the layer normalization is launched.
    - With edges only if the layer normalization shares a row out. 4000 x 4097 float16: 36.6, otherwise 34.4 (H100).
    """
    if not _is_layer_norm(problem) or isinstance(plan, ShortRows):
        return None
    if isinstance(plan, Rows) and plan.early and plan.warps < MAX_ROWS_WARPS:
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
    """The same of gradients, where both hold rows, in whole vectors.

    - float32, float64: 40000 x 301 float32: 66.8 us, otherwise 78.3 (H100).
    - MIN_WARPS_PER_SM: 1500 x 600 float32, by two warps of a multiprocessor: 12.7 us, otherwise 12.3 (H100).
    - 16 bits only in long rows without edges: 3000 x 5000 bf16: 62.8 us, otherwise 67.4 (H100).
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
    """``tensors``: input, weight, bias, output, mean and rstd. Nothing is added to the input."""
    no_residual = no_sum = None
    launch(*tensors, no_residual, no_sum)
