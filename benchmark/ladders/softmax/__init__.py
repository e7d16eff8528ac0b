# SPDX-License-Identifier: Apache-2.0
"""softmax: rows that are reduced and rewritten

y = exp(x - max(x)) / sum(exp(x - max(x))) over each row of x: [M, N], float32. A row must be known whole (its maximum,
then its sum) before the first element of the result can be written. So the question of the whole climb is: where does
the row stay in the meantime? In memory, it is read again; in registers, it is not. 8 bytes per element are compulsory,
4 read and 4 written. Every extra reading adds half a pass.
"""

import torch

from flag_gems_overrides.perf.ladder import Rung

SHORT, WIDE, FEW = (131072, 256), (1024, 131072), (4, 2097152)

RUNGS = {
    "composed": Rung(passes=4.0),
    "native": Rung(passes=1.0),
    "compiled": Rung(after="composed"),
    "triton_row": Rung(passes=1.0, after="composed", max_n=131072),
    "triton_persistent": Rung(passes=1.0, after="triton_row", target=SHORT, max_n=16384),
    "triton_online": Rung(passes=1.5, after="triton_row", target=WIDE),
    "triton_split": Rung(passes=1.5, after="triton_online", target=FEW),
    "override": Rung(passes=1.0, after="triton_row"),
    "cuda_naive": Rung(passes=2.0, max_n=65536),
    "cuda_block": Rung(passes=2.0, after="cuda_naive"),
    "cuda_coalesced": Rung(passes=2.0, after="cuda_block"),
    "cuda_online": Rung(passes=1.5, after="cuda_coalesced"),
    "cuda_vectorised": Rung(passes=1.5, after="cuda_online", multiple=4),
    "cuda_registers": Rung(passes=1.0, after="cuda_vectorised", max_n=32768, multiple=4),
}
TRAPS = {
    "trap_block_too_small": Rung(passes=1.0),
    "trap_other_zero": Rung(passes=1.0),
    "trap_second_load": Rung(passes=1.0),
}
TARGET = (4096, 8192)
SHAPES = {
    "N at M = 4096": [(4096, n) for n in (256, 1024, 4096, 8192, 16384, 32768)],
    "M at N = 4096": [(m, 4096) for m in (1, 32, 1024, 4096, 32768)],
}
HOT = [(1024, 4096), (4096, 8192)]  # 32 MiB, which L2 holds, and 256 MiB
SMALL_SHAPES = [(3, 200), (16, 512), (2, 3000), (1, 8)]
OPERATIONS = 5  # compare, subtract, exp, add, divide


def inputs(shape: tuple[int, ...], device: str | torch.device) -> tuple[torch.Tensor]:
    # All negative: a masked lane that takes part as 0 would be the largest of its row.
    return (torch.randn(shape, device=device) - 10,)


def reference(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)
