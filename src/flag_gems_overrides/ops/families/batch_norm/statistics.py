# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Mean and variance of channels, from parts of them.

A part sums x - pivot, where the pivot is the mean of its first tile. Of T tiles these sums cancel at most T times the
rounding of the variance, whatever the data, because a first tile that is far from the others makes the variance large;
as a rule they cancel nothing. Parts are merged as Chan, Golub and LeVeque do. Their means are counted from the pivot of
the first part: means themselves would be rounded to the last digit of a large one.
"""

import triton
import triton.language as tl

from ...launch.products import product
from ...launch.workspace import collect_two, decode_pair
from ..norm.statistics import mean_to_store
from .tile import elements_before, in_shape_of, merged_channels, merged_parts, over_parts
from .waiting import words_of_block


@triton.jit
def merge_parts(
    partial_ptr,
    block,
    C,
    GROUP,
    SLICE,
    total,
    vectors,
    UNIT: tl.constexpr,
    RUN: tl.constexpr,
    EDGES: tl.constexpr,
    CHANNELS: tl.constexpr,
    PARTS: tl.constexpr,
):
    """(mean, sum of squared deviations, channels) of a block from what each part stored, PARTS of them at a time.

    partial_ptr: [3, GROUP, C], pivots, means minus pivots, sums of squared deviations
    """
    channels = merged_channels(block, CHANNELS)
    origin = tl.load(partial_ptr + channels, mask=channels < C, other=0.0)
    mean = tl.zeros_like(origin)
    squares = tl.zeros_like(origin)
    count = tl.zeros_like(origin)
    plane = GROUP * C
    for first in tl.range(0, GROUP, PARTS):
        parts = merged_parts(first, CHANNELS, PARTS)
        mask = (parts < GROUP) & (channels < C)
        places = partial_ptr + parts * C + channels
        pivot = tl.load(places, mask=mask, other=0.0)
        part_mean = (pivot - origin) + tl.load(places + plane, mask=mask, other=0.0)
        part_squares = tl.load(places + 2 * plane, mask=mask, other=0.0)
        counts = part_sizes(parts, GROUP, SLICE, total, vectors, UNIT, RUN, EDGES).to(mean.dtype)
        mean, squares, count = merged_with(mean, squares, count, part_mean, part_squares, counts, mask)
    return origin + mean, squares, channels


@triton.jit
def merge_words(
    words_ptr,
    block,
    C,
    GROUP,
    SLICE,
    total,
    vectors,
    UNIT: tl.constexpr,
    RUN: tl.constexpr,
    EDGES: tl.constexpr,
    CHANNELS: tl.constexpr,
    PARTS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """(mean, sum of squared deviations) of a block, in the shape of channels_of, from what its programs publish.

    words_ptr: [2, GROUP, C], pivots and means minus pivots; sums of squared deviations
    """
    parts = merged_parts(0, CHANNELS, PARTS)
    places, mask = words_of_block(words_ptr, block, C, GROUP, CHANNELS, PARTS)
    first, second = collect_two(places, places + GROUP * C, mask)
    pivot, shift = decode_pair(first)
    part_squares, _ = decode_pair(second)
    origin = over_parts(tl.where(parts == 0, pivot, 0.0))
    none = tl.zeros_like(origin)
    counts = part_sizes(parts, GROUP, SLICE, total, vectors, UNIT, RUN, EDGES).to(tl.float32)
    part_mean = tl.where(mask, (pivot - origin) + shift, 0.0)
    part_squares = tl.where(mask, part_squares, 0.0)
    mean, squares, _ = merged_with(none, none, none, part_mean, part_squares, counts, mask)
    return in_shape_of(origin + mean, COLUMNS), in_shape_of(squares, COLUMNS)


@triton.jit
def merged_with(mean, squares, count, part_mean, part_squares, part_count, mask):
    """(mean, sum of squared deviations, count) of channels and some parts of them."""
    block_count = over_parts(part_count)
    shift = over_parts(product(tl.where(mask, part_mean - mean, 0.0), part_count)) / block_count
    deviation = tl.where(mask, part_mean - (mean + shift), 0.0)
    block_squares = over_parts(part_squares + part_count * deviation * deviation)
    new_count = count + block_count
    squares += block_squares + shift * shift * count * (block_count / new_count)
    return mean + shift * (block_count / new_count), squares, new_count


@triton.jit
def part_sizes(parts, GROUP, SLICE, total, vectors, UNIT: tl.constexpr, RUN: tl.constexpr, EDGES: tl.constexpr):
    """How many elements of a channel each part has; the last of GROUP all that are left."""
    begin = tl.minimum(tl.cast(parts, tl.int64) * SLICE, total)
    end = tl.where(parts < GROUP - 1, tl.minimum(begin + SLICE, total), total)
    sizes = elements_before(end, vectors, UNIT, RUN, EDGES) - elements_before(begin, vectors, UNIT, RUN, EDGES)
    return tl.where(parts < GROUP, sizes, 0)


@triton.jit
def store_statistics(
    mean, squares, running_mean, running_var, channels, C, count, eps, momentum,
    mean_ptr, rstd_ptr, running_mean_ptr, running_var_ptr,
):  # fmt: skip
    """Store mean and rstd, and update the running statistics, whose values are given; returns rstd.

    mean_ptr, rstd_ptr: [C]; running_mean_ptr, running_var_ptr: [C] or None. The running variance is of a sample: of one
    element it is NaN.
    """
    mask = channels < C
    # What is divided by depends on nothing that is loaded: 1 / count is there before the sums are.
    variance = squares * (1.0 / count)
    rstd = tl.rsqrt(variance + eps)
    stored = mean_to_store(mean, variance)
    tl.store(mean_ptr + channels, stored, mask=mask)
    tl.store(rstd_ptr + channels, rstd, mask=mask)
    if running_mean_ptr is not None:
        tl.store(running_mean_ptr + channels, momentum * stored + (1 - momentum) * running_mean, mask=mask)
        # Where there is one element the product is 0 * inf, the NaN that PyTorch stores.
        unbiased = squares * (1.0 / (count - 1.0))
        tl.store(running_var_ptr + channels, momentum * unbiased + (1 - momentum) * running_var, mask=mask)
    return rstd


@triton.jit
def rstd_of(variance_or_rstd, eps, EVALUATION: tl.constexpr):
    """Evaluation is given running variances."""
    if EVALUATION:
        return tl.rsqrt(variance_or_rstd + eps)
    else:
        return variance_or_rstd
