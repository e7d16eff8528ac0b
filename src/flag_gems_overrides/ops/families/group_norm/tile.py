# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Which elements of a group a program holds, and its statistics.

Of a contiguous [N, C, HW] input a group is D = C / G neighbouring channels: a row of D x HW elements. A tile is a block
of channels x a block of the elements of each, so that weight and bias are one number for each of its rows. Where HW is
shorter than a block, the channels of a tile are next to each other in memory, and nothing is wasted but the lanes
between HW and the next power of two.
"""

import triton
import triton.language as tl


@triton.jit
def tile_of_group(i, D, HW, BLOCK_D: tl.constexpr, BLOCK_HW: tl.constexpr):
    """(channels [BLOCK_D, 1], start, offsets, mask) of tile i of a group; start is from the group's first element, and
    the offsets, which are from there, need 32 bits: several channels are in a tile only if they are short.
    """
    across = (HW - 1) // BLOCK_HW + 1
    first = i // across * BLOCK_D
    channels = first + tl.arange(0, BLOCK_D)[:, None]
    elements = i % across * BLOCK_HW + tl.arange(0, BLOCK_HW)[None, :]
    start = tl.cast(first, tl.int64) * HW
    offsets = tl.arange(0, BLOCK_D)[:, None] * HW + elements
    return channels, start, offsets, (channels < D) & (elements < HW)


@triton.jit
def tiles_of_group(D, HW, BLOCK_D: tl.constexpr, BLOCK_HW: tl.constexpr):
    """How many there are."""
    return ((HW - 1) // BLOCK_HW + 1) * ((D - 1) // BLOCK_D + 1)


@triton.jit
def load_parameter(ptr, channels, mask, ACC: tl.constexpr):
    """weight or bias of these channels, ``ptr: [C]``, as a tuple of one; the empty tuple if ``ptr`` is None."""
    values = ()
    if ptr is not None:
        values = values + (tl.load(ptr + channels, mask=mask, other=0.0).to(ACC),)
    return values


@triton.jit
def scaled(x, weight):
    """x * weight. weight is a tuple of one, or empty where there is none."""
    if len(weight) == 0:
        return x
    else:
        return x * weight[0]


@triton.jit
def affine(x, mean, rstd, weight, bias):
    """weight and bias are tuples of one, or empty where there is none. It is one subtraction and one fma."""
    y = (x - mean) * scaled(rstd, weight)
    if len(bias) > 0:
        y = y + bias[0]
    return y


@triton.jit
def running_statistics(x_ptr, count, ACC: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """(mean, sum of squared deviations) of ``count`` elements, ``x_ptr: [count]``, in one pass.

    Each lane updates the mean and the sum of its own elements (Welford); the lanes are merged at the end (Chan, Golub
    and LeVeque).
    """
    lanes = tl.arange(0, BLOCK)
    last = (count - 1) // BLOCK
    lane_mean = tl.zeros([BLOCK], ACC)
    lane_squares = tl.zeros([BLOCK], ACC)
    for block in tl.range(0, last + 1, num_stages=STAGES):
        offsets = block * BLOCK + lanes
        mask = offsets < count
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
        delta = tl.where(mask, x - lane_mean, 0.0)
        lane_mean += delta * (1.0 / tl.cast(block + 1, ACC))
        lane_squares += delta * tl.where(mask, x - lane_mean, 0.0)
    lane_count = tl.where(last * BLOCK + lanes < count, last + 1, last).to(ACC)
    mean = tl.sum(lane_mean * lane_count, 0) / count
    deviation = tl.where(lane_count > 0, lane_mean - mean, 0.0)
    return mean, tl.sum(lane_squares + lane_count * deviation * deviation, 0)
