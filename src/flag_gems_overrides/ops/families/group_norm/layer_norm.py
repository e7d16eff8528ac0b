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

from ...launch.sizes import VECTOR_BYTES
from ..norm import launches as norm_launches
from ..norm.prepare import backward_launch, forward_launch, planned
from .launches import BackwardRows, Launch, Problem, Rows


def forward_or_none(
    problem: Problem, plan: Launch, dtype: torch.dtype, eps: float, device: int
) -> Callable[..., None] | None:
    """The launch of the layer normalization, if its programs hold rows and those of the ``plan`` do not.

    400 x 20000 bf16 20.1 us so, 29.1 in a loop, 66 x 13000 float16 5.4 and 7.7 in two launches. But 3 x 1000000 float32
    25.5 and 24.8, where neither holds rows (H100).
    """
    if isinstance(plan, Rows) or not _is_layer_norm(problem):
        return None
    rows = norm_launches.Problem(problem.M, problem.N, 1, dtype.itemsize, False)
    if not isinstance(planned(rows, device, None), norm_launches.Rows):
        return None
    return functools.partial(_forward, forward_launch(rows, dtype, eps, device, None))


def backward_or_none(
    problem: Problem, plan: Launch, dtype: torch.dtype, want: tuple[bool, bool, bool], device: int
) -> Callable[..., None] | None:
    """The same of gradients, where both hold rows, in whole vectors of float32 or float64.

    2000 x 5000 float32 56.3 us so, 60.1 in the kernel of groups, 40000 x 301 66.8 and 78.3, 20000 x 64 float64 22.5
    and 25.5. But 1496171 x 66 float16, in vectors of two, 486 and 402 (H100).
    """
    if not isinstance(plan, BackwardRows) or not _is_layer_norm(problem):
        return None
    if dtype.itemsize == 2 or plan.vectors.vec * dtype.itemsize < VECTOR_BYTES:
        return None
    rows = norm_launches.Problem(problem.M, problem.N, 1, dtype.itemsize, True)
    if not isinstance(planned(rows, device, None), norm_launches.Rows):
        return None
    return backward_launch(problem.M, problem.N, dtype, *want, device, None)


def _is_layer_norm(problem: Problem) -> bool:
    return problem.groups == 1 and problem.K == 1


def _forward(launch: Callable[..., None], *tensors: torch.Tensor | None) -> None:
    """Of input, weight, bias, output, mean and rstd: nothing is added to the input before."""
    no_residual = no_sum = None
    launch(*tensors, no_residual, no_sum)
