# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Kernels of nll_loss, for scores of [N, C, D] and targets of [N, D]; D is 1 unless the loss is a spatial one.

    kernel              a program
    nll_forward         reads the score of the target of BLOCK positions at a time
    nll_gradient_fill   writes BLOCK zeros as they lie in memory, and then the targets' elements among them
    nll_gradient_images writes VECTORS vectors of each of its classes, whose targets stay in registers
    nll_gradient_tile   writes tiles of [BLOCK_N, BLOCK_C, BLOCK_D], one class after the other

:mod:`.nll_short` has gradients of short rows, :mod:`.nll_flat` those of images as they lie in memory.

Rows and classes begin anywhere in a vector. A store is of whole vectors only where it has no mask, or one mask for all
of a vector. So a vector that begins in one row or class is stored with its elements of the next.

A target that is no class ends the kernel, as in PyTorch: launches ask for device assertions with ``debug``.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.workspace import clear, collect, collect_two, decode, decode_pair, encode, encode_pair, publish
from .targets import averaged, check_targets, gradients, is_wrong, load_gradient, weigh_targets


@triton.jit
def losses_at(
    x_ptr, target, weight_ptr, position, mask, C, D, stride_n, stride_c, stride_d, ignore_index,
    ACC: tl.constexpr, ONE_CLASS: tl.constexpr,
):  # fmt: skip
    """The loss of each position, and its weight; 0 where it does not count."""
    x_ptr += (position // D).to(tl.int64) * stride_n + (position % D).to(tl.int64) * stride_d
    if ONE_CLASS:  # nothing to wait for
        x = tl.load(x_ptr, mask=mask, other=0)
    target, counts, weight = weigh_targets(target, weight_ptr, mask, C, ignore_index, ACC)
    if not ONE_CLASS:
        x = tl.load(x_ptr + target * stride_c, mask=counts, other=0)
    return tl.where(counts, -(x.to(ACC) * weight), 0.0), weight


@entry()
@triton.jit
def nll_forward(
    x_ptr,
    target_ptr,
    weight_ptr,
    out_ptr,
    total_ptr,
    words_ptr,
    positions,
    C,
    D,
    stride_n,
    stride_c,
    stride_d,
    ignore_index,
    REDUCED: tl.constexpr,
    MEAN: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
    WORDS: tl.constexpr,
    ONE_CLASS: tl.constexpr,
    INT64_POSITIONS: tl.constexpr,
    PREFETCH: tl.constexpr,
):
    """-weight[target] * x[target], of each position or summed.

    Args:
        x_ptr: [N, C, D] with the strides given.
        target_ptr: [N, D], contiguous.
        weight_ptr: [C], None for ones.
        out_ptr: [N, D]; [] if REDUCED.
        total_ptr: [], the sum of the weights that count; 0 unless REDUCED.
        words_ptr: what programs publish, None for one: [programs] pairs of float32, or [2, programs] of float64.
        positions: N * D.
        WORDS: 1 for one program, else a power of two that is at least the number of programs and of threads.
        ONE_CLASS: C is 1.
        INT64_POSITIONS: N * D + BLOCK does not fit 32 bits, in which a division takes a fifth of the instructions.
        PREFETCH: targets are loaded while the scores of those before them are on their way.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    if WORDS == 1:
        position = tl.arange(0, BLOCK)
        mask = position < positions
        target = tl.load(target_ptr + position, mask=mask, other=0).to(tl.int64)
        losses, weights = losses_at(
            x_ptr, target, weight_ptr, position, mask, C, D, stride_n, stride_c, stride_d, ignore_index, ACC, ONE_CLASS
        )
        check_targets(target, mask, C, ignore_index)
        if not REDUCED:
            tl.store(out_ptr + position, losses, mask=mask)
    else:
        losses = tl.zeros([BLOCK], ACC)
        weights = tl.zeros([BLOCK], ACC)
        wrong = tl.zeros([BLOCK], tl.int1)
        INDEX: tl.constexpr = tl.int64 if INT64_POSITIONS else tl.int32
        first, step = program.to(tl.int64) * BLOCK, programs.to(tl.int64) * BLOCK
        if PREFETCH:
            lanes = first + tl.arange(0, BLOCK)
            target = tl.load(target_ptr + lanes, mask=lanes < positions, other=0)
        for start in tl.range(first, positions, step, num_stages=1):
            position = (start + tl.arange(0, BLOCK)).to(INDEX)
            mask = position < positions
            if PREFETCH:
                after = start + step + tl.arange(0, BLOCK)
                next_target = tl.load(target_ptr + after, mask=after < positions, other=0)
            else:
                target = tl.load(target_ptr + position, mask=mask, other=0)
            target = target.to(tl.int64)
            loss, weight = losses_at(
                x_ptr, target, weight_ptr, position, mask, C, D, stride_n, stride_c, stride_d, ignore_index, ACC,
                ONE_CLASS,
            )  # fmt: skip
            if PREFETCH:
                wrong = wrong | is_wrong(target, mask, C, ignore_index)
            else:
                check_targets(target, mask, C, ignore_index)
            if REDUCED:
                losses += loss
                weights += weight
            else:
                tl.store(out_ptr + position, loss, mask=mask)
            if PREFETCH:
                target = next_target
        if PREFETCH:
            tl.device_assert(not wrong, "nll_loss: a target is out of bounds")
    if REDUCED:
        loss, total = tl.sum(losses), tl.sum(weights)
        if WORDS > 1:
            publish_sums(words_ptr, program, programs, loss, total)
        # The last program waits for the others, which wait for none: the launch need not be cooperative.
        if program == programs - 1:
            if WORDS > 1:
                loss, total = collect_sums(words_ptr, programs, ACC, WORDS)
            store_sums(out_ptr, total_ptr, loss, total, MEAN)
    elif program == 0:
        tl.store(total_ptr, 0.0)


@triton.jit
def publish_sums(words_ptr, program, programs, loss, total):
    if loss.dtype == tl.float32:
        publish(words_ptr + program, encode_pair(loss, total))
    else:
        publish(words_ptr + program, encode(loss))
        publish(words_ptr + programs + program, encode(total))


@triton.jit
def collect_sums(words_ptr, programs, ACC: tl.constexpr, WORDS: tl.constexpr):
    """The sums of all that programs publish. Words need no fence, which partial sums and a counter would."""
    own_ptr = words_ptr + tl.arange(0, WORDS)
    mask = tl.arange(0, WORDS) < programs
    if tl.float32 == ACC:
        losses, totals = decode_pair(collect(own_ptr, mask))
    else:
        losses, totals = collect_two(own_ptr, own_ptr + programs, mask)
        losses, totals = decode(losses, ACC), decode(totals, ACC)
        clear(own_ptr + programs, mask)
    clear(own_ptr, mask)
    # A weight of 0 is published as -0.
    return tl.sum(tl.where(mask, losses, 0.0)), tl.sum(tl.where(mask, totals, 0.0)) + 0.0


@triton.jit
def store_sums(out_ptr, total_ptr, loss, total, MEAN: tl.constexpr):
    if MEAN:
        loss = loss / total
    tl.store(out_ptr, loss)
    tl.store(total_ptr, total)


@triton.jit
def clear_block(dx_ptr, start, size, BLOCK: tl.constexpr):
    """BLOCK zeros from ``start`` on, or as many as dx_ptr: [size] has."""
    # A vector is stored by one instruction where all of it has one mask.
    VEC: tl.constexpr = 16 // (dx_ptr.dtype.element_ty.primitive_bitwidth // 8)
    lanes = tl.arange(0, BLOCK)
    zeros = tl.zeros([BLOCK], dx_ptr.dtype.element_ty)
    dx_ptr += start
    if size - start >= BLOCK:
        tl.store(dx_ptr + lanes, zeros)
    else:
        vectors = (size - start).to(tl.int32) // VEC
        tl.store(dx_ptr + lanes, zeros, mask=lanes // VEC < vectors)
        rest = vectors * VEC + tl.arange(0, VEC)
        tl.store(dx_ptr + rest, tl.zeros([VEC], dx_ptr.dtype.element_ty), mask=rest < size - start)


@entry()
@triton.jit
def nll_gradient_fill(
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
    POSITIONS: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
):
    """The gradient by x: zeros, which wait for nothing, and then the targets' elements over them.

    Args:
        grad_ptr: [N, D], or one element with grad_stride 0.
        target_ptr: [N, D].
        weight_ptr: [C], None for ones.
        total_ptr: [], None unless MEAN.
        dx_ptr: [N, C, D].
        POSITIONS: at least those of all samples that BLOCK elements may touch.
    """
    OFFSET: tl.constexpr = tl.int64 if INT64_OFFSETS else tl.int32
    sample = tl.cast(C, OFFSET) * D
    start = tl.program_id(0).to(OFFSET) * BLOCK
    # The first sample that has one, and where it begins from here.
    first = start // sample
    begin = first * sample - start
    n = tl.arange(0, POSITIONS) // D
    d = tl.arange(0, POSITIONS) % D
    position = first * D + tl.arange(0, POSITIONS)
    mask = (first + n < N) & (begin + n * sample < BLOCK)
    target = tl.load(target_ptr + position, mask=mask, other=0).to(tl.int64)
    grad, total = load_gradient(grad_ptr, total_ptr, position, mask, grad_stride, MEAN)
    clear_block(dx_ptr, start, N * sample, BLOCK)
    # After the zeros are stored: before, they would wait for these loads.
    grad = averaged(grad, total, MEAN, ACC)
    target, counts, weight = weigh_targets(target, weight_ptr, mask, C, ignore_index, ACC)
    offset = begin + n * sample + target * D + d
    # Another thread may have written the zero.
    tl.debug_barrier()
    tl.store(dx_ptr + start + offset, -(grad * weight), mask=counts & (offset >= 0) & (offset < BLOCK))
    check_targets(target, mask, C, ignore_index)


@entry()
@triton.jit
def nll_gradient_images(
    grad_ptr,
    target_ptr,
    weight_ptr,
    total_ptr,
    dx_ptr,
    N,
    C,
    D,
    blocks,
    step,
    advance,
    grad_stride,
    ignore_index,
    MEAN: tl.constexpr,
    ACC: tl.constexpr,
    VECTORS: tl.constexpr,
    VEC: tl.constexpr,
    ALIGN: tl.constexpr,
):
    """The gradient by x, of classes of ALIGN elements or more. Every ``step``-th begins at the same lane.

    Args:
        grad_ptr: [N, D], or one element with grad_stride 0.
        target_ptr: [N, D].
        weight_ptr: [C], None for ones.
        total_ptr: [], None unless MEAN.
        dx_ptr: [N, C, D].
        blocks: of VECTORS vectors that a class has.
        step: programs that share the classes of an image.
        advance: vectors from one class of a program to its next one.
        ALIGN: a multiple of VEC, of which the first element that is written of a class is a multiple.
    """
    program = tl.program_id(0)
    first = program % step
    block = program // step % blocks
    n = (program // step // blocks).to(tl.int64)
    start = (n * C + first) * D
    aligned = tl.cdiv(start, ALIGN) * ALIGN
    vectors = (block.to(tl.int64) * VECTORS + tl.arange(0, VECTORS)[:, None]) * VEC
    begins = aligned + vectors < tl.cdiv(start + D, ALIGN) * ALIGN
    d = aligned - start + vectors + tl.arange(0, VEC)[None, :]
    after = d >= D  # in the next class
    position = n * D + tl.where(after, d - D, d)
    target, counts, gradient = gradients(
        grad_ptr, target_ptr, weight_ptr, total_ptr, position, begins, C, grad_stride, ignore_index, MEAN, ACC
    )
    check_targets(target, begins, C, ignore_index)
    wanted = tl.where(counts, target - after.to(tl.int64), -2).to(tl.int32)
    value = gradient.to(dx_ptr.dtype.element_ty)
    dx_ptr += aligned + vectors + tl.arange(0, VEC)[None, :]
    count = tl.cdiv(C - 1 - first, step)
    for i in range(count):
        dx = tl.where(wanted == first + i * step, value, 0.0)
        tl.store(dx_ptr + tl.cast(i, tl.int64) * advance * VEC, dx, mask=begins)
    if first + count * step == C - 1:
        # After the last class comes the first one of the next image, or nothing.
        exists = begins & (n * D + d < tl.cast(N, tl.int64) * D)
        target, counts, gradient = gradients(
            grad_ptr, target_ptr, weight_ptr, total_ptr, n * D + d, exists, C, grad_stride, ignore_index, MEAN, ACC
        )
        dx = tl.where(counts & (target == tl.where(after, 0, C - 1)), gradient, 0.0)
        tl.store(dx_ptr + tl.cast(count, tl.int64) * advance * VEC, dx, mask=exists)


@entry()
@triton.jit
def nll_gradient_tile(
    grad_ptr,
    target_ptr,
    weight_ptr,
    total_ptr,
    dx_ptr,
    N,
    C,
    D,
    blocks,
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
    """The gradient by x, of all classes or of every ``splits``-th tile of them, of one of ``blocks`` parts of an image.

    Args:
        grad_ptr: [N, D], or one element with grad_stride 0.
        target_ptr: [N, D].
        weight_ptr: [C], None for ones.
        total_ptr: [], None unless MEAN.
        dx_ptr: [N, C, D].
        splits: programs that share the classes of their positions.
        VEC: divides D.
        ONE_TILE: all classes are in one tile, of one program.
        WHOLE: all of the tile exists: C is BLOCK_C.
    """
    D = D // VEC * VEC  # D itself, but the compiler now sees that VEC divides it
    if WHOLE:
        C = tl.full([], BLOCK_C, tl.int32)
    program = tl.program_id(0)
    block, split = program // splits, program % splits
    n = (block // blocks).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None, None]
    d = (block % blocks).to(tl.int64) * BLOCK_D + tl.arange(0, BLOCK_D)[None, None, :]
    mask = (n < N) & (d < D)
    target = tl.load(target_ptr + n * D + d, mask=mask, other=0).to(tl.int64)
    grad, total = load_gradient(grad_ptr, total_ptr, n * D + d, mask, grad_stride, MEAN)
    # The target in half the registers: -1 where it does not count, -2 where it is no class. With masks instead there
    # would not be enough predicates, and four targets of a thread were loaded one after the other.
    wrong = (target < 0) | (target >= C)
    target = tl.where(target != ignore_index, tl.where(wrong, -2, target), -1).to(tl.int32)
    gradient = -averaged(grad, total, MEAN, ACC)
    if weight_ptr is not None:
        gradient *= tl.load(weight_ptr + target, mask=target >= 0, other=0).to(ACC)
    gradient = gradient.to(dx_ptr.dtype.element_ty)
    lanes = tl.arange(0, BLOCK_C)[None, :, None]
    dx_ptr += (n * C + lanes) * D + d
    # The loop is not empty: if it might be, what only it uses would be loaded after the wait for targets.
    tl.assume(split * BLOCK_C < C)
    for start in range(split * BLOCK_C, BLOCK_C if ONE_TILE else C, splits * BLOCK_C):
        c = start + lanes
        dx = tl.where(c == target, gradient, 0.0)
        tl.store(dx_ptr + tl.cast(start, tl.int64) * D, dx, mask=mask if WHOLE else mask & (c < C))
    tl.device_assert(target != -2, "nll_loss: a target is out of bounds", mask=mask)
