# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""The kernel of the cross entropy of few long rows, whose loss is summed; see cross_entropy.py.

Programs that share a row publish their statistics once. The last program of the launch reads them and finds the losses
of all rows. No other program waits, and the launch need not be cooperative.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.workspace import clear, collect_two, decode
from ..softmax.forward import finite, merge_edges, merge_lanes, publish_statistics
from ..softmax.tile import exp, for_each_lane, row_edges, row_mask, row_share, row_tile
from .cross_entropy import store_loss
from .cross_entropy_looped import add_tile
from .targets import check_targets, weigh_targets


@entry()
@triton.jit
def cross_entropy_shared(
    x_ptr,
    target_ptr,
    weight_ptr,
    loss_ptr,
    total_ptr,
    row_max_ptr,
    row_sum_ptr,
    q_sum_ptr,
    words_ptr,
    R,
    C,
    group,
    ignore_index,
    MEAN: tl.constexpr,
    ACC: tl.constexpr,
    UNALIGNED: tl.constexpr,
    ROWS: tl.constexpr,
    MEMBERS: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
):
    """The sum or mean of the losses of classes, and what the gradient needs; ``group`` programs for each row.

    Args:
        x_ptr: [R, C].
        target_ptr: [R] of classes.
        weight_ptr: [C], None for ones.
        loss_ptr: [].
        total_ptr: [], what a mean divides by; None for a sum.
        row_max_ptr, row_sum_ptr, q_sum_ptr: [R] of ACC; None if no gradient is wanted.
        words_ptr: [R, group, 2].
        ROWS, MEMBERS: at least R and group; together at least as many as threads.
    """
    TILE: tl.constexpr = LANES * DEPTH
    row, member = tl.program_id(0) // group, tl.program_id(0) % group
    n, k, offsets = row_tile(LANES, DEPTH, VEC)
    start, length = row_share(row, member, group, C, VEC, UNALIGNED)
    tiles = tl.maximum(length - 1, 0) // TILE
    maxima = for_each_lane(float("-inf"), LANES, 1, ACC)
    sums = for_each_lane(0.0, LANES, 1, ACC)
    for _ in tl.range(0, tiles, num_stages=1):
        x = tl.load(x_ptr + start + offsets).to(ACC)
        maxima, sums, _q, _dots = add_tile(x, x, n >= 0, maxima, sums, sums, sums, False, MEMBERS)
        start += TILE * VEC
    mask = row_mask(n, k, length - tiles * TILE, False)
    x = tl.load(x_ptr + start + offsets, mask=mask, other=float("-inf")).to(ACC)
    maxima, sums, _q, _dots = add_tile(x, x, mask, maxima, sums, sums, sums, False, MEMBERS)
    row_max, row_sum = merge_lanes(maxima, sums, True)
    if UNALIGNED:
        edge_offsets, edge_mask = row_edges(tl.cast(row, tl.int64), C, VEC)
        edge_mask = edge_mask & (member == 0)
        edge = tl.load(x_ptr + edge_offsets, mask=edge_mask, other=float("-inf")).to(ACC)
        row_max, row_sum = merge_edges(row_max, row_sum, edge)
    publish_statistics(words_ptr + tl.program_id(0) * 2, row_max, row_sum, 1)
    if tl.program_id(0) == tl.num_programs(0) - 1:
        merge_rows(
            x_ptr, target_ptr, weight_ptr, loss_ptr, total_ptr, row_max_ptr, row_sum_ptr, q_sum_ptr, words_ptr, R, C,
            group, ignore_index, MEAN, ACC, ROWS, MEMBERS,
        )  # fmt: skip


@triton.jit
def merge_rows(
    x_ptr, target_ptr, weight_ptr, loss_ptr, total_ptr, row_max_ptr, row_sum_ptr, q_sum_ptr, words_ptr, R, C, group,
    ignore_index, MEAN: tl.constexpr, ACC: tl.constexpr, ROWS: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    rows = tl.arange(0, ROWS)
    exists = rows < R
    # On their way while the other programs are.
    target = tl.load(target_ptr + rows, mask=exists, other=0).to(tl.int64)
    _, counts, target_weight = weigh_targets(target, weight_ptr, exists, C, ignore_index, ACC)
    x_target = tl.load(x_ptr + rows.to(tl.int64) * C + target, mask=counts, other=0).to(ACC)
    members = tl.arange(0, MEMBERS)[None, :]
    mask = exists[:, None] & (members < group)
    words_ptr += (rows[:, None] * group + members) * 2
    maxima, sums = collect_two(words_ptr, words_ptr + 1, mask)
    clear(words_ptr, mask)
    clear(words_ptr + 1, mask)
    maxima = tl.where(mask, decode(maxima, ACC), float("-inf"))
    row_max = tl.max(maxima, 1)
    base = finite(row_max)
    row_sum = tl.sum(tl.where(mask, decode(sums, ACC) * exp(maxima - base[:, None]), 0.0), 1)
    # With logits of -200, base + log(row_sum) would lose digits of the logarithm.
    loss = tl.where(counts, target_weight * (tl.log(row_sum) - (x_target - base)), 0.0)
    if row_max_ptr is not None:
        tl.store(row_max_ptr + rows, row_max, mask=exists)
        tl.store(row_sum_ptr + rows, row_sum, mask=exists)
        tl.store(q_sum_ptr + rows, target_weight, mask=exists)
    store_loss(loss_ptr, total_ptr, tl.sum(loss), tl.sum(target_weight), R, MEAN, False)
    check_targets(target, exists, C, ignore_index)
