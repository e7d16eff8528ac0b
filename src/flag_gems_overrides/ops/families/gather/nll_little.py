# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""The gradient of nll_loss2d by few scores, where all of the time is that of instructions one after the other.

A grid of three dimensions and offsets of 32 bits take few of them before a target can be loaded; programs are so many
that most have one tile, and threads one position.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from .targets import averaged, load_gradient


@entry()
@triton.jit
def nll_gradient_little(
    grad_ptr,
    target_ptr,
    weight_ptr,
    total_ptr,
    dx_ptr,
    N,
    C,
    D,
    splits,
    grad_stride,
    ignore_index,
    MEAN: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_D: tl.constexpr,
    VEC: tl.constexpr,
    ONE_TILE: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """The gradient by x, of every ``splits``-th tile of classes of one part of images.

    Args:
        grad_ptr: [N, D], or one element with grad_stride 0.
        target_ptr: [N, D].
        weight_ptr: [C], None for ones.
        total_ptr: [], None unless MEAN.
        dx_ptr: [N, C, D] of less than 2**31 elements.
        splits: programs that share the classes of their positions.
        VEC: divides D.
        ONE_TILE: a program has one tile of classes.
        WHOLE: and all of its classes exist.
    """
    D = D // VEC * VEC  # D itself, but the compiler now sees that VEC divides it
    n = tl.program_id(2) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None, None]
    d = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D)[None, None, :]
    mask = (n < N) & (d < D)
    target = tl.load(target_ptr + (n * D + d), mask=mask, other=0).to(tl.int64)
    grad, total = load_gradient(grad_ptr, total_ptr, n * D + d, mask, grad_stride, MEAN)
    # -1 where it does not count, -2 where it is no class.
    wrong = (target < 0) | (target >= C)
    target = tl.where(target != ignore_index, tl.where(wrong, -2, target), -1).to(tl.int32)
    gradient = -averaged(grad, total, MEAN, ACC)
    if weight_ptr is not None:
        gradient *= tl.load(weight_ptr + target, mask=target >= 0, other=0).to(ACC)
    gradient = gradient.to(dx_ptr.dtype.element_ty)
    lanes = tl.arange(0, BLOCK_C)[None, :, None]
    first = tl.program_id(1) * BLOCK_C
    if ONE_TILE:
        c = first + lanes
        dx = tl.where(c == target, gradient, 0.0)
        tl.store(dx_ptr + ((n * C + c) * D + d), dx, mask=mask if WHOLE else mask & (c < C))
    else:
        # There is a first tile: as in nll_gradient_tile.
        tl.assume(first < C)
        for start in range(first, C, splits * BLOCK_C):
            c = start + lanes
            dx = tl.where(c == target, gradient, 0.0)
            tl.store(dx_ptr + ((n * C + c) * D + d), dx, mask=mask & (c < C))
    tl.device_assert(target != -2, "nll_loss: a target is out of bounds", mask=mask)
