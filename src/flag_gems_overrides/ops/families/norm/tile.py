# SPDX-License-Identifier: Apache-2.0
"""What the layer_norm kernels share: where the elements of a row lie, and programs that hold slices of one row.

A program holds a row, or a slice of it, in CHUNKS pieces of WIDTH positions, each as wide as the program's warps: what
is summed over the pieces costs no exchange between threads, and a row of any length wastes less than one piece.

A load is one instruction for VEC elements (16 bytes) if it starts at a multiple of VEC, else one for each element.
Where N is no multiple of VEC (CUT), rows start anywhere. The pieces then hold the whole vectors of a row, which start
``head`` elements behind the row; its *edges*, fewer than VEC elements before these and behind them, are loaded and
stored by themselves. All rows of one program have the same head (they are a multiple of VEC rows apart), so that a
column is in the same position in each of them: weight and the sums over rows stay in registers.
"""

import triton
import triton.language as tl

from ...launch.workspace import is_last


@triton.jit
def row_head(row, N, VEC: tl.constexpr, CUT: tl.constexpr):
    """Elements between the start of a row and its first whole vector."""
    if CUT:
        return (VEC - row % VEC * (N % VEC) % VEC) % VEC  # row * N may pass 2**31
    else:
        return 0


@triton.jit
def row_base(row, N, VEC: tl.constexpr, CUT: tl.constexpr):
    """Offset of the first whole vector of a row. The compiler sees that VEC divides it."""
    if CUT:
        return (tl.cast(row, tl.int64) * N + (VEC - 1)) // VEC * VEC
    else:
        return tl.cast(row, tl.int64) * (N // VEC * VEC)


@triton.jit
def whole_vectors(head, N, VEC: tl.constexpr):
    """How many elements of a row are in whole vectors. The compiler sees that VEC divides it."""
    return (N - head) // VEC * VEC


@triton.jit
def piece(c: tl.constexpr, begin, end, head, N, WIDTH: tl.constexpr, VEC: tl.constexpr):
    """(positions behind the base, mask) of one piece of the slice [begin, end)."""
    position = begin + c * WIDTH + tl.arange(0, WIDTH)[None, :]
    return position, position < tl.minimum(end, whole_vectors(head, N, VEC))


@triton.jit
def row_edges(head, N, WIDTH: tl.constexpr, VEC: tl.constexpr):
    """(columns, mask) of the elements of a row that are in no piece.

    A lane for each thread: what has fewer, Triton loads several times, once in each layout that it is used in.
    """
    LANES: tl.constexpr = max(WIDTH // VEC, 2 * VEC)
    lane = tl.arange(0, LANES)[None, :]
    column = tl.where(lane < VEC, lane, head + whole_vectors(head, N, VEC) + lane - VEC)
    return column, tl.where(lane < VEC, lane < head, column < N)


@triton.jit
def edges_at(rows, N, column):
    """Where the edges of these rows are."""
    return tl.cast(rows, tl.int64) * N + column


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


@triton.jit
def clear_own(slots_ptr, row, GROUP):
    """Leave zero what this program published for the group's row before: who published for this row has read it.

    ``slots_ptr`` is this row's.
    """
    groups = tl.num_programs(0) // GROUP
    # In 32 bits 8 bytes of the gradient of 8192 x 32768 float32 spill on sm_100 (Triton 3.7).
    before_ptr = slots_ptr - tl.cast(groups, tl.int64) * GROUP
    tl.store(before_ptr + tl.program_id(0) % GROUP, 0, mask=row >= groups)


@triton.jit(noinline=True)
def clear_last(slots_ptr, M, GROUP, BLOCK: tl.constexpr):
    """Leave zero what was published for the group's last row, and the counters behind all rows.

    32 bits do: a program has 512 columns and more of a row, so 2**31 words are of 2**40 elements.
    """
    group = tl.program_id(0) // GROUP
    groups = tl.num_programs(0) // GROUP
    if is_last(slots_ptr + M * GROUP + group, GROUP, "relaxed"):
        last = M - 1 - (M - 1 - group) % groups
        for first in tl.range(0, GROUP, BLOCK):
            member = first + tl.arange(0, BLOCK)
            tl.store(slots_ptr + last * GROUP + member, 0, mask=member < GROUP)
