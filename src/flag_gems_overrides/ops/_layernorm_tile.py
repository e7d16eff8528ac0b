# SPDX-License-Identifier: Apache-2.0
"""What the layer_norm kernels share: where the elements of a row lie, and programs that hold slices of one row.

A program holds a row, or a slice of it, in CHUNKS pieces of WIDTH positions, each as wide as the program's warps: what
is summed over the pieces costs no exchange between threads, and a row of any length wastes less than one piece.

A load is one instruction for VEC elements (16 bytes) if it starts at a multiple of VEC, else one for each element.
Where N is no multiple of VEC (CUT), rows start anywhere. Their tile then starts at the vector in which the row starts,
``lead`` elements before it, and what belongs to the neighbouring rows is masked. All rows of one program have the same
lead (they are a multiple of VEC rows apart), so that a column is in the same position in each of them: weight and the
sums over rows stay in registers.
"""

import triton
import triton.language as tl


@triton.jit
def row_lead(row, N, VEC: tl.constexpr, CUT: tl.constexpr):
    """Elements between the start of the vector in which a row starts, and the row."""
    if CUT:
        return row % VEC * (N % VEC) % VEC  # row * N may pass 2**31
    else:
        return 0


@triton.jit
def row_base(row, N, VEC: tl.constexpr, CUT: tl.constexpr):
    """Offset of the vector in which a row starts. The compiler sees that VEC divides it."""
    if CUT:
        return tl.cast(row, tl.int64) * N // VEC * VEC
    else:
        return tl.cast(row, tl.int64) * (N // VEC * VEC)


@triton.jit
def piece(c: tl.constexpr, begin, end, lead, N, WIDTH: tl.constexpr, VEC: tl.constexpr, CUT: tl.constexpr):
    """(positions behind the base, mask of those in the row) of one piece of the slice [begin, end)."""
    position = begin + c * WIDTH + tl.arange(0, WIDTH)[None, :]
    if CUT:
        return position, (position >= lead) & (position < tl.minimum(end, lead + N))
    else:
        return position, position < tl.minimum(end, N // VEC * VEC)


@triton.jit
def load_piece(ptr, base, position, mask, in_rows, end, lead, N, VEC: tl.constexpr, CUT: tl.constexpr):
    """The elements at these positions behind the base, 0 where masked."""
    if CUT:
        # Whole vectors: what a row shares one with belongs to the tensor, whose size is a multiple of VEC.
        vector = position // VEC * VEC
        x = tl.load(ptr + base + position, mask=(vector < tl.minimum(end, lead + N)) & in_rows, other=0.0)
        return tl.where(mask, x, 0.0)
    else:
        return tl.load(ptr + base + position, mask=mask & in_rows, other=0.0)


@triton.jit
def store_piece(ptr, base, position, value, mask, in_rows, end, lead, N, VEC: tl.constexpr, CUT: tl.constexpr):
    """Store what is not masked: whole vectors, then the elements of those that belong to two rows."""
    if CUT:
        vector = position // VEC * VEC
        whole = (vector >= lead) & (vector + VEC <= tl.minimum(end, lead + N))
        tl.store(ptr + base + position, value, mask=whole & in_rows)
        tl.store(ptr + base + position, value, mask=mask & (whole == 0) & in_rows)
    else:
        tl.store(ptr + base + position, value, mask=mask & in_rows)


@triton.jit
def add_pairs(a, b, c, d):
    return a + c, b + d


@triton.jit
def publish(slot_ptr, a, b):
    """Give two float32 to the other programs of the group, as one 64-bit word that is never 0: no flag, no fence."""
    low = a.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    high = b.to(tl.int32, bitcast=True)
    high = tl.where(high == 0, -2147483648, high)  # 0.0 goes as -0.0
    tl.atomic_xchg(slot_ptr, low | (high.to(tl.int64) << 32), sem="relaxed")


@triton.jit
def collect(slots_ptr, first, GROUP, BLOCK: tl.constexpr):
    """What the programs [first, first + BLOCK) of the group have published, as two [BLOCK]; waits until they have.

    Lanes behind the group are 0. Each warp of a program waits for itself; that takes a BLOCK of at most 32 lanes, or a
    program of one warp. To be called from functions that are not inlined: Triton does not pipeline a loop that has
    another one inside.
    """
    member = first + tl.arange(0, BLOCK)
    words = tl.load(slots_ptr + member, mask=member < GROUP, other=1, volatile=True)
    while tl.min((words != 0).to(tl.int32), 0) == 0:
        words = tl.load(slots_ptr + member, mask=member < GROUP, other=1, volatile=True)
    a = words.to(tl.int32).to(tl.float32, bitcast=True)
    b = (words >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return tl.where(member < GROUP, a, 0.0), tl.where(member < GROUP, b, 0.0)
