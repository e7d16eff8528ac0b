# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""The gradient of nll_loss2d in two launches, for images of many classes, where hardly an element is not zero.

kernel                a program writes
nll_gradient_zeros    BLOCK zeros, as they lie in memory
nll_gradient_scatter  the targets' elements over them, for BLOCK positions
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from .nll import clear_block
from .targets import check_targets, gradients


@entry()
@triton.jit
def nll_gradient_zeros(dx_ptr, N, C, D, BLOCK: tl.constexpr):
    """dx_ptr: [N, C, D]"""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    clear_block(dx_ptr, start, tl.cast(N, tl.int64) * C * D, BLOCK)


@entry()
@triton.jit
def nll_gradient_scatter(
    grad_ptr,
    target_ptr,
    weight_ptr,
    total_ptr,
    dx_ptr,
    N,
    C,
    D,
    grad_stride,
    ignore_index,
    MEAN: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient by x where it is not zero: the targets' elements of BLOCK positions.

    Args:
        grad_ptr: [N, D], or one element with grad_stride 0.
        target_ptr: [N, D].
        weight_ptr: [C], None for ones.
        total_ptr: [], None unless MEAN.
        dx_ptr: [N, C, D], of zeros.
    """
    position = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    n = position // D
    target, counts, gradient = gradients(
        grad_ptr, target_ptr, weight_ptr, total_ptr, position, n < N, C, grad_stride, ignore_index, MEAN, ACC
    )
    tl.store(dx_ptr + (n * C + target) * D + (position - n * D), gradient, mask=counts)
    check_targets(target, n < N, C, ignore_index)
