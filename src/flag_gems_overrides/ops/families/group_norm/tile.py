# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Which elements of a group a program holds where it needs sums of channels.

A tile is a block of channels x a block of the elements of each, so that weight and bias are one number for each of its
rows. Where HW is shorter than a block, the channels of a tile are next to each other in memory, and nothing is wasted
but the lanes between HW and the next power of two.
"""

import triton
import triton.language as tl


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
