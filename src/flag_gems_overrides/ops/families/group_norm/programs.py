# SPDX-License-Identifier: Apache-2.0
"""What the programs of both directions have."""

from __future__ import annotations

# Warps of a program with a loop: 192 x 509267 bf16 takes 340 us with 4 and 351 with 8; the gradient of 2043 x 9762 59
# and 79. A multiprocessor with one program gets all warps it can: 128 groups of 16 x 4096 bf16 take 17.2 us, 21 with
# half of them.
WARPS = 4
STAGES = 3
# Programs of a multiprocessor where the work can be divided in any way.
PROGRAMS_PER_SM = 4
# Vectors that a thread has of several groups forward, and of a tile of a loop.
VECTORS, VECTORS_OF_FEW = 4, 2
# Elements that a program holds of small groups, if there are as many.
ELEMENTS_HELD = 2048
# Bytes that the programs of a multiprocessor load at a time (from layer_norm, measured on an H200), and limits of its
# programs and warps.
BYTES_IN_FLIGHT, MAX_PROGRAMS_PER_SM, MAX_WARPS_PER_SM = 32768, 16, 32
