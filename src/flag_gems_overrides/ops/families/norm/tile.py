# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Which elements of a row a program holds, and how it loads them. Nothing here knows what is computed.

A program holds a row, or a slice of it, as CHUNKS chunks of BLOCK_N columns. A chunk is as wide as the program's warps,
so that adding up chunks exchanges nothing between threads, and a row of any length wastes less than one chunk.

A load is one instruction for VEC elements (16 bytes) if its address is a multiple of VEC elements, else one for each
element. Where VEC does not divide N (UNALIGNED), a row is

    head (fewer than VEC elements) | body (whole vectors: the chunks) | tail (fewer than VEC elements)

Head and tail are the *edges*; they are loaded and stored separately. All rows of one program have a head of the same
size, because they are a multiple of VEC rows apart: a column is then at the same position in each of them, and weight,
bias and the sums over rows stay in registers.
"""

import triton
import triton.language as tl

from ...launch.pairs import numbers, pair


@triton.jit
def first_row(program, BLOCK_M: tl.constexpr, UNALIGNED: tl.constexpr, INT64_ROWS: tl.constexpr):
    """Of a program's first tile. A program of one tile has no loop: before a loop it would wait for its parameters."""
    row = program * (1 if UNALIGNED else BLOCK_M)
    return tl.cast(row, tl.int64) if INT64_ROWS else row


@triton.jit
def head_size(row, N, VEC: tl.constexpr, UNALIGNED: tl.constexpr):
    """Number of elements of a row before its first whole vector."""
    if UNALIGNED:
        return (VEC - row % VEC * (N % VEC) % VEC) % VEC  # row * N may exceed 2**31
    else:
        return 0


@triton.jit
def body_size(head, N, VEC: tl.constexpr):
    """Number of elements of a row in whole vectors. Written so that the compiler sees that VEC divides it."""
    return (N - head) // VEC * VEC


@triton.jit
def body_offset(row, N, VEC: tl.constexpr, UNALIGNED: tl.constexpr):
    """Offset of the first whole vector of a row. Written so that the compiler sees that VEC divides it."""
    if UNALIGNED:
        return (tl.cast(row, tl.int64) * N + (VEC - 1)) // VEC * VEC
    else:
        return tl.cast(row, tl.int64) * (N // VEC * VEC)


@triton.jit
def chunk(c: tl.constexpr, begin, end, row_mask, BLOCK_N: tl.constexpr):
    """(offsets from the start of the body, mask) of chunk c of the columns [begin, end) of the body.

    [1, BLOCK_N] each; the mask is [BLOCK_M, BLOCK_N] if there is a ``row_mask: [BLOCK_M, 1]``.
    """
    offsets = begin + c * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    if row_mask is None:
        return offsets, offsets < end
    else:
        return offsets, (offsets < end) & row_mask


@triton.jit
def load_chunks(ptr, row_mask, begin, end, CHUNKS: tl.constexpr, BLOCK_N: tl.constexpr, DTYPE: tl.constexpr):
    """The columns [begin, end) of each body that starts at ``ptr``, as a tuple of chunks of DTYPE.

    ptr: scalar or [BLOCK_M, 1]; row_mask: [BLOCK_M, 1], or None if all rows exist.
    """
    chunks = ()
    for c in tl.static_range(CHUNKS):
        offsets, mask = chunk(c, begin, end, row_mask, BLOCK_N)
        chunks = chunks + (tl.load(ptr + offsets, mask=mask, other=0.0).to(DTYPE),)
    return chunks


@triton.jit
def pack_chunks(chunks, CHUNKS: tl.constexpr):
    """Chunks of 16 bits as pairs, int32 each. The compiler would keep what it computes of 16 bits in 32 each."""
    packed = ()
    for c in tl.static_range(CHUNKS):
        x = chunks[c]
        low, high = tl.split(x.reshape([x.shape[0], x.shape[1] // 2, 2]))
        packed = packed + (pair(low, high),)
    return packed


@triton.jit
def unpack_chunks(packed, zero, CHUNKS: tl.constexpr, dtype: tl.constexpr):
    """What :func:`pack_chunks` was given, as float32; see :func:`unpack`."""
    chunks = ()
    for c in tl.static_range(CHUNKS):
        chunks = chunks + (unpack(packed[c], zero, dtype),)
    return chunks


@triton.jit
def unpack(packed, zero, dtype: tl.constexpr):
    """16 bits of dtype as float32. zero: another 0 of the launch for each time that they are unpacked, of which the
    compiler does not know that it is 0; otherwise it would keep the float32.
    """
    low, high = numbers(packed ^ zero, 0, dtype)
    return tl.join(low, high).reshape([packed.shape[0], packed.shape[1] * 2])


@triton.jit
def hidden_zero(size):
    """0 of a size of the launch, as int32: the compiler does not know that a size is not negative."""
    return (size >> 31).to(tl.int32)


@triton.jit
def add_rounded(x, residual):
    """x + residual, rounded to the residual's dtype as PyTorch's sum is, in x's."""
    return (x + residual.to(x.dtype)).to(residual.dtype).to(x.dtype)


@triton.jit
def load_residual(ptr, body, row_mask, begin, end, CHUNKS: tl.constexpr, BLOCK_N: tl.constexpr):
    """The same of ``residual_ptr: [M, N]`` in its own dtype, for :func:`add_residual`; the empty tuple if it is None.

    body: offsets of the bodies, scalar or [BLOCK_M, 1].
    """
    if ptr is None:
        return ()
    else:
        return load_chunks(ptr + body, row_mask, begin, end, CHUNKS, BLOCK_N, ptr.dtype.element_ty)


@triton.jit
def add_residual(
    chunks,
    residuals,
    residual_ptr,
    sum_ptr,
    body,
    row_mask,
    begin,
    end,
    CHUNKS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """The chunks plus the same elements of ``residual_ptr: [M, N]``; without a residual, the chunks.

    The sums go to ``sum_ptr: [M, N]`` too, unless that is None. residuals: all loaded before the first store, which the
    compiler never moves loads across, so that there is one wait for memory, not one for each chunk; or the empty tuple:
    in a pipeline there is no wait, and registers are short.
    """
    if residual_ptr is None:
        return chunks
    else:
        sums = ()
        for c in tl.static_range(CHUNKS):
            offsets, mask = chunk(c, begin, end, row_mask, BLOCK_N)
            if len(residuals) > 0:
                residual = residuals[c]
            else:
                residual = tl.load(residual_ptr + body + offsets, mask=mask, other=0.0)
            chunk_sum = add_rounded(chunks[c], residual)
            if sum_ptr is not None:
                tl.store(sum_ptr + body + offsets, chunk_sum, mask=mask)
            sums = sums + (chunk_sum,)
        return sums


@triton.jit
def load_parameters(weight_ptr, bias_ptr, head, begin, end, CHUNKS: tl.constexpr, BLOCK_N: tl.constexpr):
    """The same columns of weight and bias, [N] each, as two tuples of chunks, empty where the pointer is None.

    Chunk by chunk: weight first and then bias takes two registers more in forward kernels of unaligned float32 rows.
    """
    weights = ()
    biases = ()
    for c in tl.static_range(CHUNKS):
        offsets, mask = chunk(c, begin, end, None, BLOCK_N)
        if weight_ptr is not None:
            weights = weights + (tl.load(weight_ptr + head + offsets, mask=mask, other=0.0),)
        if bias_ptr is not None:
            biases = biases + (tl.load(bias_ptr + head + offsets, mask=mask, other=0.0),)
    return weights, biases


@triton.jit
def chunk_of_parameter(chunks, c: tl.constexpr):
    """Chunk c of weight or bias as a tuple of one, or the empty tuple: a kernel's function cannot return None."""
    if len(chunks) == 0:
        return chunks
    else:
        return (chunks[c],)


@triton.jit
def edges(head, N, BLOCK_N: tl.constexpr, VEC: tl.constexpr):
    """(columns, mask) of the edges of a row: [1, LANES] each.

    There is a lane for each thread. With fewer lanes Triton loads them several times, once for each layout in which
    they are used.
    """
    LANES: tl.constexpr = max(BLOCK_N // VEC, 2 * VEC)
    lane = tl.arange(0, LANES)[None, :]
    columns = tl.where(lane < VEC, lane, head + body_size(head, N, VEC) + lane - VEC)
    return columns, tl.where(lane < VEC, lane < head, columns < N)


@triton.jit
def edge_offsets(rows, N, columns):
    return tl.cast(rows, tl.int64) * N + columns


@triton.jit
def load_edges(ptr, rows, M, N, columns, mask):
    """Loads of single elements are not pipelined, so the kernels issue them one iteration ahead."""
    return tl.load(ptr + edge_offsets(rows, N, columns), mask=mask & (rows < M), other=0.0)


@triton.jit
def load_sum(x_ptr, residual_ptr, offsets, mask, DTYPE: tl.constexpr, POLICY: tl.constexpr = None):
    """Elements of x plus those of the residual, ``x_ptr, residual_ptr: [M, N]``, if there is one."""
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy=POLICY).to(DTYPE)
    if residual_ptr is not None:
        residual = tl.load(residual_ptr + offsets, mask=mask, other=0.0, eviction_policy=POLICY)
        x = add_rounded(x, residual)
    return x


@triton.jit
def load_parameter_at(ptr, columns, mask):
    """Any columns of weight or bias, ``ptr: [N]``, as a tuple of one; the empty tuple if ``ptr`` is None."""
    values = ()
    if ptr is not None:
        values = values + (tl.load(ptr + columns, mask=mask, other=0.0),)
    return values


@triton.jit
def block_columns(x_ptr, residual_ptr, block, BLOCK_N: tl.constexpr, VEC: tl.constexpr):
    """The columns of block ``block`` of a row of x. VEC divides the row's length.

    For float32 that is loaded one by one the compiler is told that the columns are multiples of one and no more.
    Otherwise it sees whole vectors of weight and bias, and gives each thread four neighbouring elements of x too. A
    warp that loads these one by one reads four times as many bytes as it wants.

    Elements of 16 bits are faster as neighbours: layer_norm of 88 x 85975 float16 takes 37.8 us, with elements a warp
    apart 64.6. A layout for single elements takes registers: with a residual 8 bytes spill.
    """
    columns = block * BLOCK_N + tl.arange(0, BLOCK_N)
    if VEC == 1 and x_ptr.dtype.element_ty.primitive_bitwidth == 32 and residual_ptr is None:
        return tl.multiple_of(columns, VEC)
    else:
        return columns


@triton.jit
def sum_chunks(chunks, CHUNKS: tl.constexpr):
    """The sum of each row over all chunks: [BLOCK_M, 1]."""
    chunk_sum = chunks[0]
    for c in tl.static_range(1, CHUNKS):
        chunk_sum += chunks[c]
    return tl.sum(chunk_sum, 1, keep_dims=True)
