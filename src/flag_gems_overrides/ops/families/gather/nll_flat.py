# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""The gradient of nll_loss and nll_loss2d of few classes, whose zeros are hardly more than their targets: each element,
as they lie in memory, has its own target."""

import triton
import triton.language as tl

from ...launch.prepared import entry
from .targets import averaged, load_gradient


@entry()
@triton.jit
def nll_gradient_flat(
    grad_ptr,
    target_ptr,
    weight_ptr,
    total_ptr,
    dx_ptr,
    N,
    C,
    D,
    of_sample,
    of_class,
    grad_stride,
    ignore_index,
    MEAN: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
    ONE_CLASS: tl.constexpr,
    ONE_PLACE: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
):
    """The gradient by x, BLOCK elements for each program.

    Args:
        grad_ptr: [N, D], or one element with grad_stride 0.
        target_ptr: [N, D].
        weight_ptr: [C], None for ones.
        total_ptr: [], None unless MEAN.
        dx_ptr: [N, C, D].
        of_sample, of_class: 2**31 // (C * D) + 1 and 2**31 // D + 1, for divisions of what is in a program.
        ONE_CLASS: C is 1, and an element is where its target is.
        ONE_PLACE: D is 1.
    """
    OFFSET: tl.constexpr = tl.int64 if INT64_OFFSETS else tl.int32
    start = tl.program_id(0).to(OFFSET) * BLOCK
    lanes = tl.arange(0, BLOCK)
    left = tl.cast(N, OFFSET) * C * D - start
    mask = lanes < left
    if ONE_CLASS:
        position = start + lanes
        c = 0
    else:
        sample = C * D
        first = start // sample
        place = (start - first * sample).to(tl.int32) + lanes
        n = tl.umulhi(2 * place, of_sample)
        place -= n * sample
        c = place if ONE_PLACE else tl.umulhi(2 * place, of_class)
        position = first * D + n * D + (place - c * D)
    target = tl.load(target_ptr + position, mask=mask, other=0).to(tl.int64)
    grad, total = load_gradient(grad_ptr, total_ptr, position, mask, grad_stride, MEAN)
    gradient = -averaged(grad, total, MEAN, ACC)
    counts = (target == c) & (target != ignore_index)
    if weight_ptr is not None:
        gradient *= tl.load(weight_ptr + c + tl.zeros_like(lanes), mask=mask, other=0).to(ACC)
    dx = tl.where(counts, gradient, 0.0)
    # A mask would make a vector's elements stores of their own.
    if left >= BLOCK:
        tl.store(dx_ptr + start + lanes, dx)
    else:
        tl.store(dx_ptr + start + lanes, dx, mask=mask)
    wrong = (target < 0) | (target >= C)
    tl.device_assert(not wrong, "nll_loss: a target is out of bounds", mask=mask & (target != ignore_index))
