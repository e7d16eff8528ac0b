# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Products that lanes add to each other's."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product(a, b):
    """``a * b``, rounded before anything is added to it: for what ``tl.sum`` adds over lanes.

    The compiler makes a multiplication and an addition one operation that rounds once. Of two lanes that add each
    other's products either would round the other's and not its own, so that the lanes hold sums of different last
    bits, and a store of one of them depends on which (seen in the PTX of variances of 300 x 24 float32, Triton 3.6).
    Nothing is merged into an explicit fma, and no compiler may drop its addition of 0, because of -0.0. It takes no
    more instructions than the multiplication.

    A lane that adds several products of its own may multiply them as usual: the last operation is an fma then.
    """
    return tl.fma(a, b, tl.full([], 0.0, a.dtype))
