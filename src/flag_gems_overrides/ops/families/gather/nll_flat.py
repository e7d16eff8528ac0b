# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""The gradient of nll_loss2d by a one-dimensional grid without loops: only the last program has idle lanes.

A thread has the same vectors of some classes of an image, so that a target is loaded once for all of them. The host
prepares the divisors: small gradients spend most of their time on instructions that wait for each other.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from .targets import averaged, load_gradient


def divisor(d: int) -> tuple[int, int]:
    """``by`` and ``shift`` of ``divided`` for 2 <= d < 2**31; 0 for 1, by which nothing is divided."""
    if d < 2:
        return 0, 0
    shift = (d - 1).bit_length() - 1
    return -(-(1 << 32 + shift) // d) - (1 << 32), shift


@triton.jit
def divided(x, by, shift):
    """x / d for 0 <= x < 2**31."""
    return (tl.umulhi(x.to(tl.uint32), by.to(tl.uint32, bitcast=True)) >> shift).to(tl.int32)


@entry()
@triton.jit(do_not_specialize=["by_w", "by_g", "shift_w", "shift_g", "grad_stride", "ignore_index"])
def nll_gradient_flat(
    grad_ptr,
    target_ptr,
    weight_ptr,
    total_ptr,
    dx_ptr,
    size,
    C,
    W,
    G,
    by_w,
    shift_w,
    by_g,
    shift_g,
    grad_stride,
    ignore_index,
    MEAN: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
    VEC: tl.constexpr,
    CLASSES: tl.constexpr,
    ALIGN: tl.constexpr,
    ONE_GROUP: tl.constexpr,
    WHOLE: tl.constexpr,
    IGNORED: tl.constexpr,
):
    """The gradient by x, of BLOCK vectors of each of CLASSES classes.

    Args:
        grad_ptr: [N, W * VEC], or one element with grad_stride 0.
        target_ptr: [N, W * VEC].
        weight_ptr: [C], None for ones.
        total_ptr: [], None unless MEAN.
        dx_ptr: [N, C, W * VEC] of less than 2**31 elements.
        size: N * G * W.
        G: groups of CLASSES classes.
        by_w, shift_w, by_g, shift_g: divisors by W and G.
        ALIGN: divides size.
        ONE_GROUP: G is 1.
        WHOLE: all classes of all groups exist.
        IGNORED: ignore_index is a class.
    """
    size = size // ALIGN * ALIGN  # size itself, but the compiler now sees that ALIGN divides it
    v = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    mask = v < size
    row = divided(v, by_w, shift_w)
    if ONE_GROUP:
        n = row
        first = tl.zeros_like(row)
    else:
        n = divided(row, by_g, shift_g)
        first = (row - n * G) * CLASSES
    lanes = tl.arange(0, VEC)[None, :]
    position = (v - (row - n) * W) * VEC + lanes
    target = tl.load(target_ptr + position, mask=mask, other=0).to(tl.int64)
    grad, total = load_gradient(grad_ptr, total_ptr, position, mask, grad_stride, MEAN)
    gradient = -averaged(grad, total, MEAN, ACC)
    # -1, which is no class, for what does not fit 32 bits.
    wanted = tl.where((target >> 32).to(tl.int32) == 0, target.to(tl.int32), -1)
    if IGNORED:
        wanted = tl.where(target == ignore_index, -1, wanted)
    if weight_ptr is not None:
        exists = (wanted >= 0) & (wanted < C)
        gradient *= tl.load(weight_ptr + wanted, mask=mask & exists, other=0).to(ACC)
    gradient = gradient.to(dx_ptr.dtype.element_ty)
    if CLASSES == 1:
        # As all lies in memory: in vectors that begin in one class and end in the next, if VEC is less.
        dx = tl.where(wanted == first, gradient, 0.0)
        tl.store(dx_ptr + (v * VEC + lanes), dx, mask=mask)
    else:
        dx_ptr += (v - row * W + (n * C + first) * W) * VEC + lanes
        wanted -= first
        for k in tl.static_range(CLASSES):
            dx = tl.where(wanted == k, gradient, 0.0)
            tl.store(dx_ptr + k * W * VEC, dx, mask=mask if WHOLE else mask & (first + k < C))
    wrong = (target.to(tl.uint64, bitcast=True) >= tl.cast(C, tl.uint64)) & (target != ignore_index)
    tl.device_assert(not wrong, "nll_loss: a target is out of bounds", mask=mask)
