# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""The gradient of nll_loss by scores of few classes, as it lies in memory: vectors, of two rows each at most.

Most of the time is that of instructions, so each vector has few: rows are counted from the program's first one, in 32
bits, and a vector only needs to know which of its elements is a row's target.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from .targets import averaged, load_gradient


@triton.jit
def load_classes(target_ptr, row, mask, C, ignore_index):
    """The class of each row, whether it counts, and whether it is no class though not ignored."""
    target = tl.load(target_ptr + row, mask=mask, other=0).to(tl.int64)
    # Unsigned, negative ones are the largest, and one comparison finds both.
    wrong = target.to(tl.uint64, bitcast=True) >= tl.cast(C, tl.uint64)
    wanted = mask & (target != ignore_index)
    return target.to(tl.int32), wanted & (not wrong), wanted & wrong


@triton.jit
def weighted(gradient, weight_ptr, target, counts, ACC: tl.constexpr, DTYPE: tl.constexpr):
    """The gradient by the target's score: one number for all rows of a mean without weights."""
    if weight_ptr is not None:
        gradient *= tl.load(weight_ptr + target, mask=counts, other=0).to(ACC)
    return gradient.to(DTYPE)


@triton.jit
def in_word(place, gradient, VEC: tl.constexpr):
    """Zeros of 16 bits, two to a word, but the gradient at its place: half as many comparisons as of elements."""
    bits = gradient.to(tl.uint16, bitcast=True).to(tl.uint32) << ((place & 1) * 16)
    return tl.where(tl.arange(0, VEC // 2)[None, :] == place >> 1, bits, 0)


@triton.jit
def store_elements(
    dx_ptr, vectors, place, gradient, next_place, next_gradient, left, VEC: tl.constexpr, MASKED: tl.constexpr
):
    lanes = tl.arange(0, VEC)[None, :]
    zero = tl.zeros([], dx_ptr.dtype.element_ty)
    dx = tl.where(lanes == place, gradient, tl.where(lanes == next_place, next_gradient, zero))
    if MASKED:
        tl.store(dx_ptr + vectors + lanes, dx, mask=vectors + lanes < left)
    else:
        tl.store(dx_ptr + vectors + lanes, dx)


@entry()
@triton.jit
def nll_gradient_short(
    grad_ptr,
    target_ptr,
    weight_ptr,
    total_ptr,
    dx_ptr,
    N,
    C,
    grad_stride,
    ignore_index,
    MEAN: tl.constexpr,
    ACC: tl.constexpr,
    VECTORS: tl.constexpr,
    VEC: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
):
    """The gradient by x, of rows of VEC - 1 classes at least.

    Args:
        grad_ptr: [N], or one element with grad_stride 0.
        target_ptr: [N].
        weight_ptr: [C], None for ones.
        total_ptr: [], None unless MEAN.
        dx_ptr: [N, C].
    """
    OFFSET: tl.constexpr = tl.int64 if INT64_OFFSETS else tl.int32
    DTYPE: tl.constexpr = dx_ptr.dtype.element_ty
    start = tl.program_id(0).to(OFFSET) * (VECTORS * VEC)
    first = start // C
    rows = tl.minimum(N - first, VECTORS * VEC).to(tl.int32)
    vectors = tl.arange(0, VECTORS)[:, None] * VEC
    offset = (start - first * C).to(tl.int32) + vectors
    # Unsigned, a division is fewer instructions.
    row = (offset.to(tl.uint32) // tl.cast(C, tl.uint32)).to(tl.int32)
    begin = offset - row * C
    # All is loaded before anything waits for a target.
    target_ptr += first
    exists, ends = row < rows, (begin + VEC > C) & (row + 1 < rows)
    target, counts, wrong = load_classes(target_ptr, row, exists, C, ignore_index)
    next_target, next_counts, next_wrong = load_classes(target_ptr, row + 1, ends, C, ignore_index)
    if not MEAN:
        grad_ptr += first * grad_stride
    grad, total = load_gradient(grad_ptr, total_ptr, row, exists, grad_stride, MEAN)
    gradient = -averaged(grad, total, MEAN, ACC)
    next_gradient = gradient
    if not MEAN:
        grad, total = load_gradient(grad_ptr, total_ptr, row + 1, ends, grad_stride, MEAN)
        next_gradient = -averaged(grad, total, MEAN, ACC)
    gradient = weighted(gradient, weight_ptr, target, counts, ACC, DTYPE)
    next_gradient = weighted(next_gradient, weight_ptr, next_target, next_counts, ACC, DTYPE)
    # The index of the target in the vector; -1 is no element.
    place = tl.where(counts, target - begin, -1)
    next_place = tl.where(next_counts, next_target + (C - begin), -1)
    left = tl.cast(N, OFFSET) * C - start
    dx_ptr += start
    if left >= VECTORS * VEC:
        if DTYPE.primitive_bitwidth == 16:
            words = in_word(place, gradient, VEC) | in_word(next_place, next_gradient, VEC)
            words_ptr = dx_ptr.to(tl.pointer_type(tl.uint32)) + vectors // 2 + tl.arange(0, VEC // 2)[None, :]
            tl.store(words_ptr, words)
        else:
            store_elements(dx_ptr, vectors, place, gradient, next_place, next_gradient, left, VEC, False)
    else:
        store_elements(dx_ptr, vectors, place, gradient, next_place, next_gradient, left, VEC, True)
    tl.device_assert(not (wrong | next_wrong), "nll_loss: a target is out of bounds")
