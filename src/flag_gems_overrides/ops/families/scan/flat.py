# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""cumsum of short rows of any length, several of which are loaded as they lie in memory.

A row of 5 elements has no vectors, but 8 rows have: so a program takes a multiple of as many. Sums begin again with
each row.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry


@triton.jit
def _add_in_row(row, total, other_row, other):
    return other_row, tl.where(row == other_row, total + other, other)


@entry()
@triton.jit
def cumsum_flat(
    x_ptr,
    out_ptr,
    M,
    N,
    inverse,
    CONVERTED: tl.constexpr,
    ACC: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
):
    """ROWS rows for each program.

    Args:
        x_ptr: [M, N].
        out_ptr: [M, N], may be x_ptr.
        inverse: 2**31 // N + 1, for a division of lanes by N.
        CONVERTED: what elements are converted to before they are added in ACC.
        ROWS: whose elements are whole vectors, whatever N is.
        LANES: at least ROWS * N.
    """
    start = tl.program_id(0).to(tl.int64) * N * ROWS
    left = tl.cast(M, tl.int64) * N - start
    lane = tl.arange(0, LANES)
    # A mask whose limit is a multiple of a vector is one for all of it.
    if left >= ROWS * N:
        x = tl.load(x_ptr + start + lane, mask=lane < ROWS * N)
    else:
        x = tl.load(x_ptr + start + lane, mask=lane < left)
    row = tl.umulhi(2 * lane, inverse)
    _, scanned = tl.associative_scan((row, x.to(CONVERTED).to(ACC)), 0, _add_in_row)
    if left >= ROWS * N:
        tl.store(out_ptr + start + lane, scanned, mask=lane < ROWS * N)
    else:
        tl.store(out_ptr + start + lane, scanned, mask=lane < left)
