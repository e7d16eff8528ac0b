# SPDX-License-Identifier: Apache-2.0
"""Shapes of programs, by bytes of an element and number of inputs (1 forward, 2 backward).

The figures are those of :mod:`.defaults`.
"""

from __future__ import annotations

from .launches import Shape

# Groups that keep a row in registers. 1024 x 131072 bf16: 85 %, without the prefetch 81 %, with half the elements and
# twice the warps 69 %; backward 88 %. 512 x 131072 fp32: 86 %; with half the warps 81 %, backward the reverse.
SPLIT_ROWS = {
    (2, 1): Shape(64, 4, 128, prefetch=True),
    (2, 2): Shape(32, 4, 128, prefetch=True),
    (4, 1): Shape(32, 8, 64),
    (4, 2): Shape(16, 4, 64),
    (8, 1): Shape(16, 4, 128),
    (8, 2): Shape(16, 4, 128),
}
# The same for unaligned rows, whose edges need registers of their own. The gradient of 99 x 233837 float64 184 us, with
# half the elements 266, of 65 x 27925 18.7 and 22.5 (H200).
SPLIT_UNALIGNED_ROWS = {
    (2, 1): Shape(64, 4, 128),
    (2, 2): Shape(32, 4, 128, prefetch=True),
    (4, 1): Shape(32, 4, 72),
    (4, 2): Shape(16, 4, 72),
    (8, 1): Shape(16, 4, 128),
    (8, 2): Shape(16, 4, 128),
}
# One program for a row that it reads twice, the second time from L1: (shape, how much of L1 the rows of one
# multiprocessor may take, whether also for unaligned rows, as far as these were timed). bf16 4096 x 18432: 87 us, 99
# by groups; 8192 x 32768: 266, not 295; 8192 x 50257: 469, not 561; backward 4096 x 18432: 116, not 132; float32 4096 x
# 32768: 279, not 290.
IN_L1 = {
    (2, 1): ((Shape(32, 8, 64), 1.0, True), (Shape(64, 8, 80), 1.3, False), (Shape(32, 16, 64), 1.15, True)),
    (2, 2): ((Shape(32, 8, 80), 1.0, False), (Shape(32, 8, 128), 1.15, False), (Shape(16, 8, 64), 1.0, True)),
    (4, 1): ((Shape(16, 16, 64), 1.15, False),),
    (8, 1): ((Shape(8, 8, 64), 1.0, True), (Shape(8, 16, 64), 1.0, True)),
    (8, 2): ((Shape(8, 16, 128), 1.0, True),),
}
# Longer rows of float64 of which L2 holds most of what is read at once: log_softmax 213 x 24979 46 us so, by groups
# that hold them 70 (PyTorch 62), 180 x 24979 39 and 59, softmax 300 x 30001, 1.2 times as much as L2 has, 87 and 102,
# 195 x 91811, 2.7 times as much, 167 and 164 (H100).
IN_L2, MAX_OF_L2_AT_ONCE = {(8, 1): Shape(8, 16, 64)}, 1.5
# Rows too long for registers and L1. 1 x 2**24 bf16: 51 %, 55 % backward; with half the elements and twice the programs
# 46 %.
LOOPED_ROWS = {
    (2, 1): Shape(64, 8, 128),
    (2, 2): Shape(32, 8, 128),
    (4, 1): Shape(64, 8, 128),
    (4, 2): Shape(32, 8, 128),
    (8, 1): Shape(16, 8, 128),
    (8, 2): Shape(8, 8, 128),
}
# Columns read in a loop. 64 x 512 x 512 bf16: 61 %; with 16-byte loads 54 %, without the asynchronous copies 57 %.
# Gradients of 16 bits in whole vectors of 3 x 9130 x 944 87.5 us, with half the elements 96.5, of 23 x 255 x 712 16.9
# and 19.1, of 1747 x 2368 15.9 and 16.6 (H100).
COLUMNS = {
    (2, 1): Shape(32, 4, 128, stages=3, vec_bytes=8),
    (2, 2): Shape(32, 8, 128),
    (4, 1): Shape(32, 8, 128),
    (4, 2): Shape(16, 8, 128),
    (8, 1): Shape(8, 8, 128),
    (8, 2): Shape(8, 8, 128),
}
# Columns loaded one by one in a loop. The gradient of 4 x 1637 x 15831 bf16 339 us, with addresses of their own and
# half as many programs of 128 registers 511 (FlagGems 491), log_softmax 272 and 364 (H200).
SINGLE_COLUMNS = Shape(8, 8, 64)
# The same by larger groups, where fewer programs have less to tell each other. 65536 x 256 bf16 along 0: 42 %, not 35.
LONG_COLUMNS, MAX_SMALL_GROUP = {(2, 1): Shape(32, 8, 128)}, 16
# Where L2 does not hold all columns, a program has no more of them than L1 does: (shape, bytes of a block's row). 64 x
# 16384 x 64 bf16: 114 us, 126 through L2; log_softmax backward 147, not 163. 8 x 4096 x 1024, which fits: 65, not 60.
# Larger groups than of 28 programs were not timed.
# By 160 registers 16 bytes of softmax 1 x 2048 x 102832, held, spill (Triton 3.7); by 168 as many are resident.
COLUMNS_IN_L1, MAX_GROUP_IN_L1 = {(2, 1): (Shape(64, 4, 168), 128), (2, 2): (Shape(32, 8, 128), 64)}, 32
# Columns short enough for one tile, by up to 8 warps. 8 x 21 x 262144: bf16 73 and 81 %, fp32 92 and 97 %.
SHORT_COLUMNS = {
    (2, 1): Shape(64, 1, 128),
    (2, 2): Shape(32, 1, 128),
    (4, 1): Shape(64, 1, 128),
    (4, 2): Shape(32, 1, 128),
    (8, 1): Shape(16, 1, 128),
    (8, 2): Shape(16, 1, 128),
}
