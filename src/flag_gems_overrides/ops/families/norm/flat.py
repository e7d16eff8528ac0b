# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc"
"""Forward kernels of layer normalization for rows of a few elements: a thread has whole rows, so that nothing is
exchanged.

    x_ptr, y_ptr: [M, N]    weight_ptr, bias_ptr: [N] or None    mean_ptr, rstd_ptr: [M], or None
    residual_ptr, sum_ptr: [M, N] or None, see forward.py
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from .forward import normalize
from .statistics import from_bits, mean_to_store, store_statistics, variance_of
from .tile import add_rounded, load_parameter_at, load_sum


@entry()
@triton.jit(do_not_specialize=["M", "eps_bits"])
def layer_norm_flat(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
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
    if sum_ptr is not None:
        sum_ptr += first * N
    if mean_ptr is not None:
        mean_ptr += first
        rstd_ptr += first
    tensors = (x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, residual_ptr, sum_ptr)
    if first + BLOCK_M <= M:
        normalize_flat(*tensors, None, eps_bits, N, BLOCK_M)
    else:
        normalize_flat(*tensors, M - first, eps_bits, N, BLOCK_M)


@triton.jit
def normalize_flat(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    residual_ptr,
    sum_ptr,
    rows,
    eps_bits,
    N: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """The first ``rows`` rows of a tile, or all if that is None. x_ptr, y_ptr, residual_ptr, sum_ptr: [BLOCK_M, N];
    mean_ptr, rstd_ptr: [BLOCK_M].
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
    bias = load_parameter_at(bias_ptr, columns, columns < N)
    if residual_ptr is not None:
        x = add_rounded(x, tl.load(residual_ptr + offsets, mask=mask))
        if sum_ptr is not None:
            tl.store(sum_ptr + offsets, x, mask=mask)
    x = tl.reshape(x, [BLOCK_M, N])
    # Of elements that are all equal it is exactly their value: N is a power of two.
    mean = tl.sum(x, 1, keep_dims=True) * (1.0 / N)
    deviation = x - mean
    variance = tl.sum(deviation * deviation, 1, keep_dims=True) * (1.0 / N)
    rstd = tl.rsqrt(variance + from_bits(eps_bits, ACC))
    if mean_ptr is not None:
        tl.store(mean_ptr + row, tl.reshape(mean_to_store(mean, variance), [BLOCK_M]), mask=row_mask)
        tl.store(rstd_ptr + row, tl.reshape(rstd, [BLOCK_M]), mask=row_mask)
    tl.store(y_ptr + offsets, tl.reshape(normalize(x, mean, rstd, weight, bias), [BLOCK_M * N]), mask=mask)


@entry()
@triton.jit(do_not_specialize=["M", "eps_bits"])
def layer_norm_columns(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
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
    biases = ()
    # All loads before the first store, see above.
    for n in tl.static_range(N):
        xs = xs + (load_sum(x_ptr, residual_ptr, rows * N + n, mask, ACC),)
        # All threads load the same element.
        weights = weights + (load_parameter_at(weight_ptr, n + rows * 0, mask),)
        biases = biases + (load_parameter_at(bias_ptr, n + rows * 0, mask),)
    if sum_ptr is not None:
        for n in tl.static_range(N):
            tl.store(sum_ptr + rows * N + n, xs[n], mask=mask)
    shift = xs[0]
    row_sum = xs[1] - shift
    for n in tl.static_range(2, N):
        row_sum += xs[n] - shift
    mean = shift + row_sum / N
    squares = (shift - mean) * (shift - mean)
    for n in tl.static_range(1, N):
        squares += (xs[n] - mean) * (xs[n] - mean)
    variance = variance_of(squares, N)
    rstd = tl.rsqrt(variance + from_bits(eps_bits, ACC))
    store_statistics(mean_ptr, rstd_ptr, rows, mean, variance, rstd, mask)
    for n in tl.static_range(N):
        tl.store(y_ptr + rows * N + n, normalize(xs[n], mean, rstd, weights[n], biases[n]), mask=mask)
