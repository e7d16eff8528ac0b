# SPDX-License-Identifier: Apache-2.0
"""Shapes of programs, by bytes of an element and number of inputs (1 forward, 2 backward).

The figures are those of :mod:`.defaults`.
"""

from __future__ import annotations

from .launches import Shape

# Groups that keep a row in registers.
# 1024 x 131072 bf16: 85 % of the bandwidth, without the prefetch 81 %, with half the elements and twice the warps 69 %.
SPLIT_ROWS = {
    (2, 1): Shape(64, 4, 128, prefetch=True),
    (2, 2): Shape(32, 4, 128, prefetch=True),
    (4, 1): Shape(32, 8, 64),
    (4, 2): Shape(16, 4, 64),
    (8, 1): Shape(16, 4, 128),
    (8, 2): Shape(16, 4, 128),
}
# The same for unaligned rows, whose edges need registers of their own.
# The gradient of 99 x 233837 float64: 184 us, with half the elements 266 (H200).
SPLIT_UNALIGNED_ROWS = {
    (2, 1): Shape(64, 4, 128),
    (2, 2): Shape(32, 4, 128, prefetch=True),
    (4, 1): Shape(32, 4, 72),
    (4, 2): Shape(16, 4, 72),
    (8, 1): Shape(16, 4, 128),
    (8, 2): Shape(16, 4, 128),
}
# One program for a row that it reads twice, the second time from L1: (shape, multiple of L1 that the rows of one
# multiprocessor may take, whether also for unaligned rows, as far as these were timed).
# bf16 8192 x 50257: 469 us, by groups 561; float32 4096 x 32768: 279 and 290.
IN_L1 = {
    (2, 1): ((Shape(32, 8, 64), 1.0, True), (Shape(64, 8, 80), 1.3, False), (Shape(32, 16, 64), 1.15, True)),
    (2, 2): ((Shape(32, 8, 80), 1.0, False), (Shape(32, 8, 128), 1.15, False), (Shape(16, 8, 64), 1.0, True)),
    (4, 1): ((Shape(16, 16, 64), 1.15, False),),
    (8, 1): ((Shape(8, 8, 64), 1.0, True), (Shape(8, 16, 64), 1.0, True)),
    (8, 2): ((Shape(8, 16, 128), 1.0, True),),
}
# Longer rows of float64, which L2 holds for the second reading.
# log_softmax 213 x 24979: 46 us, by groups that hold them 70 (H100).
IN_L2 = {(8, 1): Shape(8, 16, 64)}
# Multiple of L2 that the rows read at once may take, at most.
# softmax 300 x 30001 (1.2 times): 87 us, by groups 102; 195 x 91811 (2.7 times): 167 and 164 (H100).
MAX_OF_L2_AT_ONCE = 1.5
# Rows too long for registers and L1.
# 1 x 2**24 bf16: 51 % of the bandwidth, with half the elements and twice the programs 46 %.
LOOPED_ROWS = {
    (2, 1): Shape(64, 8, 128),
    (2, 2): Shape(32, 8, 128),
    (4, 1): Shape(64, 8, 128),
    (4, 2): Shape(32, 8, 128),
    (8, 1): Shape(16, 8, 128),
    (8, 2): Shape(8, 8, 128),
}
# Columns read in a loop.
# 64 x 512 x 512 bf16: 61 % of the bandwidth, with 16-byte loads 54 %, without the asynchronous copies 57 %.
COLUMNS = {
    (2, 1): Shape(32, 4, 128, stages=3, vec_bytes=8),
    (2, 2): Shape(32, 8, 128),
    (4, 1): Shape(32, 8, 128),
    (4, 2): Shape(16, 8, 128),
    (8, 1): Shape(8, 8, 128),
    (8, 2): Shape(8, 8, 128),
}
# Columns loaded one by one in a loop.
# The gradient of 4 x 1637 x 15831 bf16: 339 us, with an address for each element and 128 registers 511 (H200).
SINGLE_COLUMNS = Shape(8, 8, 64)
# Columns read in a loop by larger groups: fewer programs have less to tell each other.
# 65536 x 256 bf16 along 0: 42 % of the bandwidth, otherwise 35 %.
LONG_COLUMNS = {(2, 1): Shape(32, 8, 128)}
# Programs of a group above which LONG_COLUMNS are used.
MAX_SMALL_GROUP = 16
# Columns that L2 does not hold: a program has no more of them than L1 holds: (shape, bytes of a block's row).
# 64 x 16384 x 64 bf16: 114 us, through L2 126; 8 x 4096 x 1024, which fits L2: 65 and 60. By 160 registers 16 bytes of
# softmax 1 x 2048 x 102832, held, spill (Triton 3.7); by 168 as many programs are resident.
COLUMNS_IN_L1 = {(2, 1): (Shape(64, 4, 168), 128), (2, 2): (Shape(32, 8, 128), 64)}
# Programs of a group for such columns, at most. More than 28 were not timed.
MAX_GROUP_IN_L1 = 32
# Columns short enough for one tile, by up to 8 warps.
SHORT_COLUMNS = {
    (2, 1): Shape(64, 1, 128),
    (2, 2): Shape(32, 1, 128),
    (4, 1): Shape(64, 1, 128),
    (4, 2): Shape(32, 1, 128),
    (8, 1): Shape(16, 1, 128),
    (8, 2): Shape(16, 1, 128),
}
