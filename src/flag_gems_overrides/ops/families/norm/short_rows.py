# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc, no-untyped-def, unreachable, var-annotated"
"""Forward of layer normalization for rows of a few elements: a thread has whole rows, as many as are whole vectors, so
that nothing is exchanged and no lane is beyond the end of a row.

    x_ptr, y_ptr: [M, N]    weight_ptr, bias_ptr: [N] or None    mean_ptr, rstd_ptr: [M], or None
    residual_ptr, sum_ptr: [M, N] or None, see forward.py
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.vectors import apart, together
from .forward import normalize
from .statistics import from_bits, mean_to_store, variance_of
from .tile import add_rounded


@entry()
@triton.jit(do_not_specialize=["M", "eps_bits"])
def layer_norm_short_rows(
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
    ROWS: tl.constexpr,
    VEC: tl.constexpr,
):
    """Each program has BLOCK_M rows, ROWS to a thread, loaded as vectors of VEC elements, which divides ROWS * N.

    A mask that may end anywhere makes loads of single elements, so only the last program has one of vectors.
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
    if VEC > 1 and first + BLOCK_M <= M:
        normalize_short_rows(*tensors, None, eps_bits, N, BLOCK_M, ROWS, VEC)
    else:
        normalize_short_rows(*tensors, (M - first).to(tl.int32), eps_bits, N, BLOCK_M, ROWS, VEC)


@triton.jit
def normalize_short_rows(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
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
    mean_ptr, rstd_ptr: [BLOCK_M].
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    GROUPS: tl.constexpr = BLOCK_M // ROWS
    STATISTICS: tl.constexpr = min(ROWS, 128 // ACC.primitive_bitwidth)  # of a store
    xs = load_rows(x_ptr, residual_ptr, left, N, GROUPS, ROWS, VEC, ACC)
    # Before the first store, which the compiler never moves loads across: one wait for memory, not two.
    weights = load_scalars(weight_ptr, N)
    biases = load_scalars(bias_ptr, N)
    if sum_ptr is not None:
        store_rows(sum_ptr, xs, left, N, GROUPS, ROWS, VEC)
    eps = from_bits(eps_bits, ACC)
    inverse = tl.full([], 1.0, ACC) / N
    means = ()
    rstds = ()
    ys = ()
    for row in tl.static_range(ROWS):
        mean, squares = moments_of_row(xs, row, N, inverse)
        variance = variance_of(squares, N)
        rstd = tl.rsqrt(variance + eps)
        means = means + (mean_to_store(mean, variance),)
        rstds = rstds + (rstd,)
        for n in tl.static_range(N):
            weight = scalar_of(weights, n)
            bias = scalar_of(biases, n)
            ys = ys + (normalize(xs[row * N + n], mean, rstd, weight, bias),)
    if mean_ptr is not None:
        store_rows(mean_ptr, means, left, 1, GROUPS, ROWS, STATISTICS)
        store_rows(rstd_ptr, rstds, left, 1, GROUPS, ROWS, STATISTICS)
    store_rows(y_ptr, ys, left, N, GROUPS, ROWS, VEC)


@triton.jit
def moments_of_row(xs, row: tl.constexpr, N: tl.constexpr, inverse):
    """The mean of row ``row`` of a thread, and its sum of squared deviations; ``inverse`` is 1 / N.

    Of elements that are all equal the mean is exactly their value.
    """
    shift = xs[row * N]
    row_sum = shift - shift
    for n in tl.static_range(1, N):
        row_sum += xs[row * N + n] - shift
    mean = shift + row_sum * inverse
    squares = (shift - mean) * (shift - mean)
    for n in tl.static_range(1, N):
        squares += (xs[row * N + n] - mean) * (xs[row * N + n] - mean)
    return mean, squares


@triton.jit
def vector_of_rows(i: tl.constexpr, N: tl.constexpr, GROUPS: tl.constexpr, ROWS: tl.constexpr, VEC: tl.constexpr):
    """Offsets of vector i of each thread's rows: [GROUPS, VEC]."""
    return tl.arange(0, GROUPS)[:, None] * (ROWS * N) + i * VEC + tl.arange(0, VEC)[None, :]


@triton.jit
def load_rows(
    ptr,
    residual_ptr,
    left,
    N: tl.constexpr,
    GROUPS: tl.constexpr,
    ROWS: tl.constexpr,
    VEC: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """The elements of ``ptr: [GROUPS, ROWS, N]`` as a tuple of ROWS * N columns, [GROUPS, 1] each; plus those of the
    residual, if there is one.
    """
    vectors = ()
    residuals = ()
    for i in tl.static_range(ROWS * N // VEC):
        offsets = vector_of_rows(i, N, GROUPS, ROWS, VEC)
        mask = None if left is None else offsets < left * N
        vectors = vectors + (tl.load(ptr + offsets, mask=mask),)
        if residual_ptr is not None:
            residuals = residuals + (tl.load(residual_ptr + offsets, mask=mask),)
    elements = ()
    for i in tl.static_range(ROWS * N // VEC):
        vector = vectors[i].to(DTYPE)
        if residual_ptr is not None:
            vector = add_rounded(vector, residuals[i])
        elements = elements + apart(vector, VEC)
    return elements


@triton.jit
def store_rows(ptr, elements, left, N: tl.constexpr, GROUPS: tl.constexpr, ROWS: tl.constexpr, VEC: tl.constexpr):
    """What :func:`load_rows` gives back."""
    for i in tl.static_range(ROWS * N // VEC):
        offsets = vector_of_rows(i, N, GROUPS, ROWS, VEC)
        mask = None if left is None else offsets < left * N
        tl.store(ptr + offsets, together(elements, i * VEC, VEC), mask=mask)


@triton.jit
def load_scalars(ptr, N: tl.constexpr):
    """``ptr: [N]`` as a tuple of N; the empty tuple if it is None."""
    values = ()
    if ptr is not None:
        for n in tl.static_range(N):
            values = values + (tl.load(ptr + n),)
    return values


@triton.jit
def scalar_of(values, n: tl.constexpr):
    """Value n as a tuple of one, or the empty tuple."""
    if len(values) == 0:
        return values
    else:
        return (values[n],)
