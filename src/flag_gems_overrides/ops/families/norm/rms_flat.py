# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc"
"""Forward kernels of RMS normalization for rows of a few elements, as those of layer normalization in flat.py: a thread
has whole rows, so that nothing is exchanged. For tensors see rms_forward.py.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.products import product
from .rms_forward import scale
from .statistics import from_bits, reciprocal
from .tile import add_rounded, load_parameter_at, load_sum


@entry()
@triton.jit(do_not_specialize=["M", "eps_bits"])
def rms_norm_flat(
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
):
    """Each program loads BLOCK_M rows as they lie, in whole vectors. N is a power of two, at most a vector.

    A mask that may end anywhere makes loads of single elements, so only the last program has one.
    """
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    x_ptr += first * N
    y_ptr += first * N
    if residual_ptr is not None:
        residual_ptr += first * N
        sum_ptr += first * N
    if rstd_ptr is not None:
        rstd_ptr += first
    tensors = (x_ptr, weight_ptr, y_ptr, rstd_ptr, residual_ptr, sum_ptr)
    if first + BLOCK_M <= M:
        normalize_flat(*tensors, None, eps_bits, N, BLOCK_M)
    else:
        normalize_flat(*tensors, M - first, eps_bits, N, BLOCK_M)


@triton.jit
def normalize_flat(
    x_ptr,
    weight_ptr,
    y_ptr,
    rstd_ptr,
    residual_ptr,
    sum_ptr,
    rows,
    eps_bits,
    N: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """The first ``rows`` rows of a tile, or all if that is None. x_ptr, y_ptr, residual_ptr, sum_ptr: [BLOCK_M, N];
    rstd_ptr: [BLOCK_M].
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    row = tl.arange(0, BLOCK_M)
    offsets = tl.arange(0, BLOCK_M * N)
    row_mask = None
    mask = None
    if rows is not None:
        row_mask = row < rows
        mask = offsets < rows * N
    x = tl.load(x_ptr + offsets, mask=mask).to(ACC)
    # Before the first store, which the compiler never moves loads across: one wait for memory, not two.
    columns = tl.arange(0, N)[None, :]
    weight = load_parameter_at(weight_ptr, columns, columns < N)
    if residual_ptr is not None:
        x = add_rounded(x, tl.load(residual_ptr + offsets, mask=mask))
        tl.store(sum_ptr + offsets, x, mask=mask)
    x = tl.reshape(x, [BLOCK_M, N])
    squares = tl.sum(product(x, x), 1, keep_dims=True)
    rstd = tl.rsqrt(squares * reciprocal(N, ACC) + from_bits(eps_bits, ACC))
    if rstd_ptr is not None:
        tl.store(rstd_ptr + row, tl.reshape(rstd, [BLOCK_M]), mask=row_mask)
    tl.store(y_ptr + offsets, tl.reshape(scale(x, rstd, weight), [BLOCK_M * N]), mask=mask)


@entry()
@triton.jit(do_not_specialize=["M", "eps_bits"])
def rms_norm_columns(
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
):
    """Each program loads BLOCK_M rows of two elements and more column by column; neighbouring threads have neighbouring
    rows.
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    mask = rows < M
    xs = ()
    weights = ()
    # All loads before the first store, see above.
    for n in tl.static_range(N):
        xs = xs + (load_sum(x_ptr, residual_ptr, rows * N + n, mask, ACC),)
        # All threads load the same element.
        weights = weights + (load_parameter_at(weight_ptr, n + rows * 0, mask),)
    if sum_ptr is not None:
        for n in tl.static_range(N):
            tl.store(sum_ptr + rows * N + n, xs[n], mask=mask)
    squares = product(xs[0], xs[0])
    for n in tl.static_range(1, N):
        squares += xs[n] * xs[n]
    rstd = tl.rsqrt(squares * reciprocal(N, ACC) + from_bits(eps_bits, ACC))
    if rstd_ptr is not None:
        tl.store(rstd_ptr + rows, rstd, mask=mask)
    for n in tl.static_range(N):
        tl.store(y_ptr + rows * N + n, scale(xs[n], rstd, weights[n]), mask=mask)
