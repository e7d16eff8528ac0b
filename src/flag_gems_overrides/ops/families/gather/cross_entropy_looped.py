# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Kernels of the cross entropy of long rows; see cross_entropy.py.

A row is read as whole vectors of VEC elements and, where C is no multiple of VEC (UNALIGNED), its edges. Its tiles are
those of softmax/tile.py. Programs of a group publish what they publish in softmax/forward.py.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ..softmax.forward import collect_statistics, finite, merge_edges, merge_lanes, publish_statistics
from ..softmax.group import clear_last, clear_own, group_position, group_workspace
from ..softmax.tile import (
    exp,
    for_each_lane,
    lane_max,
    lane_sum,
    row_edges,
    row_interior,
    row_mask,
    row_share,
    row_tile,
)
from .cross_entropy import distribution, load_row_targets, reduce_losses, row_gradient, rows_to_do, wanted
from .targets import check_targets, weigh_targets


@triton.jit
def power(x, MEMBERS: tl.constexpr):
    if x.dtype == tl.float64 and MEMBERS > 1:
        return tl.exp(x)  # with ``exp``, 16 x 10000 spills 16 bytes
    else:
        return exp(x, True)


@triton.jit
def add_tile(x, q, mask, maxima, sums, q_sums, dots, DISTRIBUTION: tl.constexpr, MEMBERS: tl.constexpr):
    """The statistics of each lane with one tile more: maximum, sum of exp(x - maximum), and, for DISTRIBUTION only,
    sum(q) and sum(q * (x - maximum)).

    Each lane keeps its own, so that threads exchange nothing before the end of a row. Masked elements of x are -inf.
    """
    new_maxima = tl.maximum(maxima, lane_max(x, True))
    base = finite(new_maxima)
    sums = sums * power(maxima - base, MEMBERS) + lane_sum(power(x - base, MEMBERS), True)
    if DISTRIBUTION:
        # Relative to the maximum, as exponentials are: with logits of -200, digits would be lost.
        dots += q_sums * (finite(maxima) - base) + lane_sum(tl.where(mask, q * (x - base), 0.0), True)
        q_sums += lane_sum(q, True)
    return new_maxima, sums, q_sums, dots


@triton.jit
def scale_of_row(row_max, row_sum, grad, counts):
    """What to subtract from x, and what to multiply the exponential by. They make dx 0 for a row that does not count,
    whose x are read as 0: to select each element would cost a quarter of the time of writing it."""
    return tl.where(counts, row_max, 0.0), tl.where(counts, grad / row_sum, 0.0)


@triton.jit
def has(offset, row, member, group, C, VEC: tl.constexpr, UNALIGNED: tl.constexpr):
    """Whether an element of a row is in a program's share, or in its edges."""
    start, length = row_share(row, member, group, C, VEC, UNALIGNED)
    inside = (offset >= start) & (offset < start + length * VEC)
    if UNALIGNED:
        start, length = row_interior(row, C, VEC, True)
        inside = inside | ((member == 0) & ((offset < start) | (offset >= start + length)))
    return inside


@entry()
@triton.jit
def cross_entropy_looped(
    x_ptr,
    target_ptr,
    weight_ptr,
    loss_ptr,
    total_ptr,
    row_max_ptr,
    row_sum_ptr,
    q_sum_ptr,
    workspace_ptr,
    dx_ptr,
    R,
    C,
    group,
    ignore_index,
    REDUCED: tl.constexpr,
    MEAN: tl.constexpr,
    PROBABILITIES: tl.constexpr,
    SMOOTHING: tl.constexpr,
    ACC: tl.constexpr,
    UNALIGNED: tl.constexpr,
    MEMBERS: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    WORDS: tl.constexpr,
):
    """The loss of each row, or their sum or mean, and what the gradient needs; ``group`` programs for each row.

    A program reads its share of a row in tiles of LANES * DEPTH vectors, the last of which stays in registers. If there
    is a dx_ptr, it reads the others again, from L1 or L2.

    Args:
        x_ptr: [R, C].
        target_ptr: [R] of classes, or [R, C] of PROBABILITIES.
        weight_ptr: [C], None for ones.
        loss_ptr: [R]; [] if REDUCED.
        total_ptr: [], what a mean of classes divides by; read if there is a dx_ptr, else written; may be None.
        row_max_ptr, row_sum_ptr, q_sum_ptr: [R] of ACC; None if no gradient is wanted.
        workspace_ptr: if MEMBERS > 1, [R, group, 2] words and [groups] counters; after them, if REDUCED, [2, groups].
        dx_ptr: [R, C], None if the gradient is not to be written.
        WORDS: that are read at once: 1 for one group, else at least as many as threads.
    """
    DISTRIBUTION: tl.constexpr = PROBABILITIES or SMOOTHING > 0
    tl.static_assert(not DISTRIBUTION or (MEMBERS == 1 and dx_ptr is None), "classes only")
    TILE: tl.constexpr = LANES * DEPTH
    group, member, groups = group_position(group, MEMBERS)
    n, k, offsets = row_tile(LANES, DEPTH, VEC)
    first = tl.program_id(0) // group
    if MEMBERS > 1:
        words_ptr, step, counter_ptr, words, other, counted, own = group_workspace(
            workspace_ptr, first, R, member, group, groups, MEMBERS, 2, 1, LANES
        )
    EVICT: tl.constexpr = "" if dx_ptr is None else "evict_last"
    losses = tl.zeros([1], ACC)
    totals = tl.zeros([1], ACC)
    for index in tl.range(first, R, groups, num_stages=1):
        row = tl.cast(index, tl.int64)
        # No thread waits for the target before the row is read.
        target = tl.full([], -1, tl.int64)
        if not PROBABILITIES:
            target = tl.load(target_ptr + row).to(tl.int64)
        start, length = row_share(row, member, group, C, VEC, UNALIGNED)
        tiles = tl.maximum(length - 1, 0) // TILE
        maxima = for_each_lane(float("-inf"), LANES, 1, ACC)
        sums = for_each_lane(0.0, LANES, 1, ACC)
        q_sums = for_each_lane(0.0, LANES, 1, ACC)
        dots = for_each_lane(0.0, LANES, 1, ACC)
        for _ in tl.range(0, tiles, num_stages=1):
            x = tl.load(x_ptr + start + offsets, eviction_policy=EVICT).to(ACC)
            q = x
            if DISTRIBUTION:
                c = (start - row * C + offsets).to(tl.int32)
                q = distribution(
                    target_ptr + start + offsets, weight_ptr, c, c < C, C, PROBABILITIES, SMOOTHING, ACC
                )  # fmt: skip
            maxima, sums, q_sums, dots = add_tile(x, q, n >= 0, maxima, sums, q_sums, dots, DISTRIBUTION, MEMBERS)
            start += TILE * VEC
        mask = row_mask(n, k, length - tiles * TILE, False)
        x = tl.load(x_ptr + start + offsets, mask=mask, other=float("-inf")).to(ACC)
        q = x
        if DISTRIBUTION:
            c = (start - row * C + offsets).to(tl.int32)
            q = distribution(target_ptr + start + offsets, weight_ptr, c, mask, C, PROBABILITIES, SMOOTHING, ACC)
        maxima, sums, q_sums, dots = add_tile(x, q, mask, maxima, sums, q_sums, dots, DISTRIBUTION, MEMBERS)
        row_max, row_sum = merge_lanes(maxima, sums, True)
        q_sum = tl.full([], 0.0, ACC)
        dot = tl.full([], 0.0, ACC)
        if DISTRIBUTION:
            q_sum = tl.sum(q_sums)
            dot = tl.sum(dots + q_sums * (finite(maxima) - finite(row_max)))
        if UNALIGNED:
            edge_offsets, edge_mask = row_edges(row, C, VEC)
            edge_mask = edge_mask & (member == 0)
            edge = tl.load(x_ptr + edge_offsets, mask=edge_mask, other=float("-inf")).to(ACC)
            old_max = row_max
            row_max, row_sum = merge_edges(row_max, row_sum, edge)
            if DISTRIBUTION:
                c = (edge_offsets - row * C).to(tl.int32)
                q = distribution(
                    target_ptr + edge_offsets, weight_ptr, c, edge_mask, C, PROBABILITIES, SMOOTHING, ACC
                )  # fmt: skip
                dot += q_sum * (finite(old_max) - finite(row_max))
                dot += tl.sum(tl.where(edge_mask, q * (edge - finite(row_max)), 0.0))
                q_sum += tl.sum(q)
        if MEMBERS > 1:
            publish_statistics(words_ptr + own, row_max, row_sum, 1)
            row_max, row_sum = collect_statistics(words_ptr, words, other, counted, group, MEMBERS, 1, True, ACC)
            clear_own(words_ptr - step + own, 2, 1, mask=index >= groups)
            words_ptr += step
        base = finite(row_max)
        log_sum = tl.log(row_sum)
        if PROBABILITIES:
            counts = row < R
            target_weight = counts.to(ACC)
        else:
            _, counts, target_weight = weigh_targets(target, weight_ptr, row < R, C, ignore_index, ACC)
            x_target = tl.load(x_ptr + row * C + target, mask=counts, other=0).to(ACC)
            class_weight = (1 - SMOOTHING) * target_weight
            q_sum += class_weight
            dot += class_weight * (x_target - base)
            check_targets(target, row < R, C, ignore_index)
        if member == 0:
            loss = tl.where(counts, q_sum * log_sum - dot, 0.0)
            if row_max_ptr is not None:
                tl.store(row_max_ptr + row, row_max)
                tl.store(row_sum_ptr + row, row_sum)
                tl.store(q_sum_ptr + row, q_sum)
            if REDUCED:
                losses += loss
                if dx_ptr is None:  # else the total is there already
                    totals += target_weight
            else:
                tl.store(loss_ptr + row, loss)
        if dx_ptr is not None:
            grad = row_gradient(None, row, 0, total_ptr, R, counts, MEAN, ACC) * q_sum
            row_max, scale = scale_of_row(row_max, row_sum, grad, counts)
            if UNALIGNED:
                dx = exp(tl.where(counts, edge, 0.0) - row_max) * scale
                tl.store(dx_ptr + edge_offsets, dx, mask=edge_mask)
            dx = exp(tl.where(counts, x, 0.0) - row_max) * scale
            tl.store(dx_ptr + start + offsets, dx, mask=mask, eviction_policy="evict_first")
            # Backwards: the tiles that were read last are the most likely to be in cache.
            for _ in tl.range(0, tiles, num_stages=1):
                start -= TILE * VEC
                again = tl.load(x_ptr + start + offsets, mask=counts, other=0, eviction_policy="evict_first").to(ACC)
                tl.store(dx_ptr + start + offsets, exp(again - row_max) * scale, eviction_policy="evict_first")
            # The target's element, after the barrier: another thread of the program may have written it.
            tl.debug_barrier()
            offset = row * C + target
            if MEMBERS > 1:
                counts = counts & has(offset, row, member, group, C, VEC, UNALIGNED)
            tl.store(dx_ptr + offset, exp(x_target - row_max) * scale - grad, mask=counts)
    if MEMBERS > 1:
        clear_last(words_ptr, step, counter_ptr, words, other, group, MEMBERS, 2, 1)
        workspace_ptr += tl.cast(R, tl.int64) * group * 2 + groups
    if REDUCED and member == 0:
        reduce_losses(
            loss_ptr, total_ptr, workspace_ptr, first, groups, tl.sum(losses), tl.sum(totals), R,
            MEAN, dx_ptr is not None, WORDS,
        )  # fmt: skip


@triton.jit
def gradient_of_tile(
    x, p_ptr, weight_ptr, c, mask, target, target_weight, C, grad, grad_sum, row_max, scale,
    PROBABILITIES: tl.constexpr, SMOOTHING: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """dx of a tile of classes c. For class targets, the same bits as cross_entropy_looped writes."""
    if PROBABILITIES or SMOOTHING > 0:
        wanted_grad = grad * wanted(p_ptr, weight_ptr, c, mask, target, target_weight, C, PROBABILITIES, SMOOTHING, ACC)
    else:
        wanted_grad = tl.where(c == target, grad_sum, 0.0)
    return exp(x - row_max) * scale - wanted_grad


@entry()
@triton.jit
def cross_entropy_looped_gradient(
    grad_ptr,
    x_ptr,
    target_ptr,
    weight_ptr,
    total_ptr,
    row_max_ptr,
    row_sum_ptr,
    q_sum_ptr,
    dx_ptr,
    R,
    C,
    members,
    grad_stride,
    ignore_index,
    WRITTEN: tl.constexpr,
    MEAN: tl.constexpr,
    PROBABILITIES: tl.constexpr,
    SMOOTHING: tl.constexpr,
    ACC: tl.constexpr,
    UNALIGNED: tl.constexpr,
    VECTORS: tl.constexpr,
    VEC: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The gradient by x.

    Args:
        grad_ptr: [R], or one element with grad_stride 0.
        x_ptr, dx_ptr: [R, C].
        target_ptr: [R] of classes, or [R, C] of PROBABILITIES.
        weight_ptr: [C], None for ones.
        total_ptr: [], None unless MEAN of classes.
        row_max_ptr, row_sum_ptr, q_sum_ptr: [R] of ACC.
        members: programs that share a row.
        WRITTEN: dx is right already if the one gradient is 1.
    """
    shares = tl.cast(rows_to_do(grad_ptr, R, WRITTEN), tl.int64) * members
    for share in range(tl.program_id(0).to(tl.int64), shares, tl.num_programs(0)):
        row = share // members
        member = (share % members).to(tl.int32)
        target, counts, target_weight = load_row_targets(
            target_ptr, weight_ptr, row, row < R, C, ignore_index, PROBABILITIES, ACC
        )
        grad = row_gradient(grad_ptr, row, grad_stride, total_ptr, R, counts, MEAN, ACC)
        grad_sum = grad * tl.load(q_sum_ptr + row)
        row_max, scale = scale_of_row(tl.load(row_max_ptr + row), tl.load(row_sum_ptr + row), grad_sum, counts)
        start, length = row_interior(row, C, VEC, UNALIGNED)
        first_class = (start - row * C).to(tl.int32)
        lanes = tl.arange(0, VECTORS)[:, None] * VEC + tl.arange(0, VEC)[None, :]
        vectors = (length // VEC).to(tl.int32)
        tiles = tl.cdiv(vectors, VECTORS)
        # Backwards: the tiles that the forward read last are the most likely to be in cache.
        for i in tl.range(member, tiles, members, num_stages=STAGES):
            begin = (tiles - 1 - i) * VECTORS
            mask = begin + tl.arange(0, VECTORS)[:, None] < vectors
            offset = start + begin * VEC + lanes
            x = tl.load(x_ptr + offset, mask=mask & counts, other=0, eviction_policy="evict_first").to(ACC)
            dx = gradient_of_tile(
                x, target_ptr + offset, weight_ptr, first_class + begin * VEC + lanes, mask, target, target_weight, C,
                grad, grad_sum, row_max, scale, PROBABILITIES, SMOOTHING, ACC,
            )  # fmt: skip
            tl.store(dx_ptr + offset, dx, mask=mask, eviction_policy="evict_first")
        if UNALIGNED:
            offset, mask = row_edges(row, C, VEC)
            mask &= member == 0
            x = tl.load(x_ptr + offset, mask=mask & counts, other=0).to(ACC)
            dx = gradient_of_tile(
                x, target_ptr + offset, weight_ptr, (offset - row * C).to(tl.int32), mask, target, target_weight, C,
                grad, grad_sum, row_max, scale, PROBABILITIES, SMOOTHING, ACC,
            )  # fmt: skip
            tl.store(dx_ptr + offset, dx, mask=mask)
