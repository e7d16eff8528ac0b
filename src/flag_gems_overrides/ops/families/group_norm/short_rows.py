# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc, no-untyped-def, unreachable, var-annotated"
"""Forward of group normalization for groups of a few elements: a thread has whole groups, as many as are whole vectors,
as layer normalization's rows (norm/short_rows.py).

    x_ptr, y_ptr: [M, D, HW], M groups of D channels    weight_ptr, bias_ptr: [G * D] or None    mean_ptr, rstd_ptr: [M]
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ..norm.forward import normalize
from ..norm.short_rows import load_rows, load_scalars, moments_of_row, scalar_of, store_rows
from ..norm.statistics import from_bits, mean_to_store, variance_of


@entry()
@triton.jit(do_not_specialize=["M", "eps_bits"])
def group_norm_short_rows(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    M,
    G,
    eps_bits,
    D: tl.constexpr,
    HW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    ROWS: tl.constexpr,
    VEC: tl.constexpr,
    ONE_GROUP: tl.constexpr,
):
    """Each program has BLOCK_M groups, ROWS to a thread, loaded as vectors of VEC elements, which divides
    ROWS * D * HW. ONE_GROUP: G is 1. Channels are fewer than 2**30.

    A mask that may end anywhere makes loads of single elements, so only the last program has one of vectors.
    """
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    x_ptr += first * (D * HW)
    y_ptr += first * (D * HW)
    mean_ptr += first
    rstd_ptr += first
    tensors = (x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr)
    group = (first % G).to(tl.int32)
    if VEC > 1 and first + BLOCK_M <= M:
        normalize_short_groups(*tensors, None, group, G, eps_bits, D, HW, BLOCK_M, ROWS, VEC, ONE_GROUP)
    else:
        left = (M - first).to(tl.int32)
        normalize_short_groups(*tensors, left, group, G, eps_bits, D, HW, BLOCK_M, ROWS, VEC, ONE_GROUP)


@triton.jit
def normalize_short_groups(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    left,
    group,
    G,
    eps_bits,
    D: tl.constexpr,
    HW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    ROWS: tl.constexpr,
    VEC: tl.constexpr,
    ONE_GROUP: tl.constexpr,
):
    """The first ``left`` groups of a tile, or all if that is None; the first one is ``group`` of its sample.
    x_ptr, y_ptr: [BLOCK_M, D, HW]; mean_ptr, rstd_ptr: [BLOCK_M].
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    N: tl.constexpr = D * HW
    THREADS: tl.constexpr = BLOCK_M // ROWS
    STATISTICS: tl.constexpr = min(ROWS, 128 // ACC.primitive_bitwidth)  # of a store
    xs = load_rows(x_ptr, None, left, N, THREADS, ROWS, VEC, ACC)
    # Before the first store, which the compiler never moves loads across: one wait for memory, not two.
    weights = load_channels(weight_ptr, group, G, D, THREADS, ROWS, ONE_GROUP)
    biases = load_channels(bias_ptr, group, G, D, THREADS, ROWS, ONE_GROUP)
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
            weight = scalar_of(weights, (0 if ONE_GROUP else row * D) + n // HW)
            bias = scalar_of(biases, (0 if ONE_GROUP else row * D) + n // HW)
            ys = ys + (normalize(xs[row * N + n], mean, rstd, weight, bias),)
    store_rows(mean_ptr, means, left, 1, THREADS, ROWS, STATISTICS)
    store_rows(rstd_ptr, rstds, left, 1, THREADS, ROWS, STATISTICS)
    store_rows(y_ptr, ys, left, N, THREADS, ROWS, VEC)


@triton.jit
def load_channels(ptr, group, G, D: tl.constexpr, THREADS: tl.constexpr, ROWS: tl.constexpr, ONE_GROUP: tl.constexpr):
    """The channels of each group of a thread, ``[THREADS, 1]`` each, or as scalars if all groups have the same; the
    empty tuple if ``ptr`` is None."""
    values = ()
    if ptr is not None:
        if ONE_GROUP:
            values = load_scalars(ptr, D)
        else:
            for row in tl.static_range(ROWS):
                channel = (group + tl.arange(0, THREADS)[:, None] * ROWS + row) % G * D
                for d in tl.static_range(D):
                    values = values + (tl.load(ptr + channel + d),)
    return values
