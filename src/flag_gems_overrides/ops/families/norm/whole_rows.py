# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc"
"""How forward kernels load the whole rows that a program holds."""

import triton
import triton.language as tl

from .statistics import reciprocal
from .tile import add_residual, load_chunks, load_residual, pack_chunks, unpack_chunks


@triton.jit
def load_rows(
    x_ptr,
    residual_ptr,
    sum_ptr,
    body,
    row_mask,
    end,
    N,
    CHUNKS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ACC: tl.constexpr,
    PIPELINED: tl.constexpr,
    PACKED: tl.constexpr,
):
    """(chunks in ACC, with the residual added, if there is one; the same as pairs of 16 bits, with PACKED only; 1 / N)

    1 / N is computed while loads are on their way. Names are those of :mod:`.tile`.
    """
    packed = ()
    if PACKED:
        tl.static_assert(residual_ptr is None)
        packed = pack_chunks(
            load_chunks(x_ptr + body, row_mask, 0, end, CHUNKS, BLOCK_N, x_ptr.dtype.element_ty), CHUNKS
        )
        inverse = reciprocal(N, ACC)
        xs = unpack_chunks(packed, 0, CHUNKS, x_ptr.dtype.element_ty)
    else:
        xs = load_chunks(x_ptr + body, row_mask, 0, end, CHUNKS, BLOCK_N, ACC)
        residuals = ()
        if not PIPELINED:
            residuals = load_residual(residual_ptr, body, row_mask, 0, end, CHUNKS, BLOCK_N)
        inverse = reciprocal(N, ACC)
        xs = add_residual(xs, residuals, residual_ptr, sum_ptr, body, row_mask, 0, end, CHUNKS, BLOCK_N)
    return xs, packed, inverse
