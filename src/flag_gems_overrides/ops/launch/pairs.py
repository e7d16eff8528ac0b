# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc"
"""Elements of 16 bits that a program holds as pairs, two to a register.

What is computed of them is float32. The compiler knows that it is the same each time, and holds it instead. So each
pass but the last makes it with an ``unknown`` of its own: a number that is always 0, which the compiler does not know.
"""

import triton
import triton.language as tl


@triton.jit
def pair(low, high):
    """int32 of two tensors of 16 bits."""
    low = low.to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    return low | (high.to(tl.int16, bitcast=True).to(tl.int32) << 16)


@triton.jit
def numbers(pairs, unknown, dtype: tl.constexpr):
    """The float32 of both."""
    if dtype == tl.bfloat16:
        low = (pairs << (16 + unknown)).to(tl.float32, bitcast=True)
        high = (pairs & (unknown - 0x10000)).to(tl.float32, bitcast=True)
        return low, high
    else:
        pairs = pairs ^ unknown
        low = pairs.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
        high = (pairs >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
        return low, high
