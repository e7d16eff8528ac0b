# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, no-untyped-def"
"""The elements of vectors by name: what a thread has loaded together it need not exchange with others."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def apart(x, N: tl.constexpr):
    """[GROUPS, N] as a tuple of its columns, each [GROUPS, 1]."""
    if N == 1:
        return (x,)
    else:
        even, odd = tl.split(tl.reshape(x, [x.shape[0], N // 2, 2]))
        even, odd = apart(even, N // 2), apart(odd, N // 2)
        columns = ()
        for i in tl.static_range(N // 2):
            columns = columns + (even[i], odd[i])
        return columns


@triton.jit
def together(columns, FIRST: tl.constexpr, N: tl.constexpr, STRIDE: tl.constexpr = 1):
    """[GROUPS, N] of every STRIDE-th column from FIRST on."""
    if N == 1:
        return columns[FIRST]
    else:
        even = together(columns, FIRST, N // 2, STRIDE * 2)
        odd = together(columns, FIRST + STRIDE, N // 2, STRIDE * 2)
        return tl.reshape(tl.join(even, odd), [even.shape[0], N])
