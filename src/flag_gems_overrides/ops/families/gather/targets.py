# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Targets of the kernels of nll_loss and cross entropy, and the gradients by the scores that they name.

target_ptr: [positions] of classes      weight_ptr: [C], None for ones
grad_ptr: [positions] with a grad_stride of 1, or one element with 0      total_ptr: [], None unless MEAN
"""

import triton
import triton.language as tl


@triton.jit
def load_targets(target_ptr, weight_ptr, positions, mask, C, ignore_index, ACC: tl.constexpr):
    """The class of each position, whether it counts, and its weight, 0 where it does not."""
    target = tl.load(target_ptr + positions, mask=mask, other=0).to(tl.int64)
    check_targets(target, mask, C, ignore_index)
    return weigh_targets(target, weight_ptr, mask, C, ignore_index, ACC)


@triton.jit
def weigh_targets(target, weight_ptr, mask, C, ignore_index, ACC: tl.constexpr):
    """As ``load_targets``, of loaded targets. A target that is no class does not count: see check_targets."""
    counts = mask & (target != ignore_index) & (target >= 0) & (target < C)
    if weight_ptr is None:
        return target, counts, counts.to(ACC)
    else:
        return target, counts, tl.load(weight_ptr + target, mask=counts, other=0).to(ACC)


@triton.jit
def check_targets(target, mask, C, ignore_index):
    """Call this last: nothing that follows an assertion is done while a target is on its way."""
    wrong = (target < 0) | (target >= C)
    tl.device_assert(not wrong, "nll_loss: a target is out of bounds", mask=mask & (target != ignore_index))


@triton.jit
def is_wrong(target, mask, C, ignore_index):
    """Whether ``check_targets`` would fail, for a loop that must not wait for an assertion."""
    return mask & (target != ignore_index) & ((target < 0) | (target >= C))


@triton.jit
def load_gradient(grad_ptr, total_ptr, positions, mask, grad_stride, MEAN: tl.constexpr):
    """The gradient of each position's loss, one number for a mean, and what a mean divides it by. Also loaded where the
    target does not count: otherwise it would wait for the target."""
    if MEAN:
        return tl.load(grad_ptr), tl.load(total_ptr)
    else:
        grad = tl.load(grad_ptr + positions * grad_stride, mask=mask, other=0)
        return grad, grad


@triton.jit
def averaged(grad, total, MEAN: tl.constexpr, ACC: tl.constexpr):
    """The gradient of a loss, from what ``load_gradient`` returned."""
    return grad.to(ACC) / total.to(ACC) if MEAN else grad.to(ACC)


@triton.jit
def gradients(
    grad_ptr, target_ptr, weight_ptr, total_ptr, positions, mask, C, grad_stride, ignore_index,
    MEAN: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The class of each position, whether it counts, and the gradient by that class's score; see check_targets."""
    target = tl.load(target_ptr + positions, mask=mask, other=0).to(tl.int64)
    grad, total = load_gradient(grad_ptr, total_ptr, positions, mask, grad_stride, MEAN)
    target, counts, weight = weigh_targets(target, weight_ptr, mask, C, ignore_index, ACC)
    return target, counts, -(averaged(grad, total, MEAN, ACC) * weight)
