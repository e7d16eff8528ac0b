# SPDX-License-Identifier: Apache-2.0
"""Numbers of programs that both directions share."""

from __future__ import annotations

# Warps of a program with a loop. The gradient of 2043 x 9762 bf16: 59 us, by 8 warps 79.
WARPS = 4
# Stages of a pipeline.
STAGES = 3
# Programs of a multiprocessor where the work can be divided in any way.
PROGRAMS_PER_SM = 4
# Vectors of a thread of a tile of a loop.
VECTORS_OF_FEW = 2
# Maximum number of elements of small groups that a program holds.
ELEMENTS_HELD = 2048
# Maximum number of warps of a multiprocessor.
MAX_WARPS_PER_SM = 32
