# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc"
"""Forward of RMS normalization for rows of a few elements, as that of layer normalization in short_rows.py. For tensors
see rms_forward.py.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.products import product
from .rms_forward import scale
from .short_rows import load_rows, load_scalars, scalar_of, store_rows
from .statistics import from_bits


@entry()
@triton.jit(do_not_specialize=["M", "eps_bits"])
def rms_norm_short_rows(
    x_ptr,
    weight_ptr,
    y_ptr,
    rstd_ptr,
    residual_ptr,
    sum_ptr,
    M,
    eps_bits,
    N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    ROWS: tl.constexpr,
    VEC: tl.constexpr,
):
    """Each program has BLOCK_M rows, ROWS to a thread, loaded as vectors of VEC elements, which divides ROWS * N."""
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    x_ptr += first * N
    y_ptr += first * N
    if residual_ptr is not None:
        residual_ptr += first * N
        sum_ptr += first * N
    if rstd_ptr is not None:
        rstd_ptr += first
    tensors = (x_ptr, weight_ptr, y_ptr, rstd_ptr, residual_ptr, sum_ptr)
    if VEC > 1 and first + BLOCK_M <= M:
        normalize_short_rows(*tensors, None, eps_bits, N, BLOCK_M, ROWS, VEC)
    else:
        normalize_short_rows(*tensors, (M - first).to(tl.int32), eps_bits, N, BLOCK_M, ROWS, VEC)


@triton.jit
def normalize_short_rows(
    x_ptr,
    weight_ptr,
    y_ptr,
    rstd_ptr,
    residual_ptr,
    sum_ptr,
    left,
    eps_bits,
    N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    ROWS: tl.constexpr,
    VEC: tl.constexpr,
):
    """The first ``left`` rows of a tile, or all if that is None. x_ptr, y_ptr, residual_ptr, sum_ptr: [BLOCK_M, N];
    rstd_ptr: [BLOCK_M].
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    GROUPS: tl.constexpr = BLOCK_M // ROWS
    STATISTICS: tl.constexpr = min(ROWS, 128 // ACC.primitive_bitwidth)  # of a store
    xs = load_rows(x_ptr, residual_ptr, left, N, GROUPS, ROWS, VEC, ACC)
    # Before the first store, which the compiler never moves loads across: one wait for memory, not two.
    weights = load_scalars(weight_ptr, N)
    if sum_ptr is not None:
        store_rows(sum_ptr, xs, left, N, GROUPS, ROWS, VEC)
    eps = from_bits(eps_bits, ACC)
    inverse = tl.full([], 1.0, ACC) / N
    rstds = ()
    ys = ()
    for row in tl.static_range(ROWS):
        squares = product(xs[row * N], xs[row * N])
        for n in tl.static_range(1, N):
            squares += xs[row * N + n] * xs[row * N + n]
        rstd = tl.rsqrt(squares * inverse + eps)
        rstds = rstds + (rstd,)
        for n in tl.static_range(N):
            ys = ys + (scale(xs[row * N + n], rstd, scalar_of(weights, n)),)
    if rstd_ptr is not None:
        store_rows(rstd_ptr, rstds, left, 1, GROUPS, ROWS, STATISTICS)
    store_rows(y_ptr, ys, left, N, GROUPS, ROWS, VEC)
