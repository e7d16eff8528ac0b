# SPDX-License-Identifier: Apache-2.0
"""bias_gelu: the only thing that makes an elementwise operator faster

y = gelu(x + bias) with a bias for each column, as behind every linear layer. Each of the two operators is at the limit
by itself; together they move twice the bytes that are needed, because x + bias is written and read again. Fusing them
is worth a factor of two, which no tuning of either kernel can give.
"""

import torch
from torch.nn import functional as F

from flag_gems_overrides.perf.ladder import Rung

RUNGS = {
    "native": Rung(passes=2.0),
    "compiled": Rung(after="native"),
    "triton_fused": Rung(after="native"),  # each program loads the bias anew: from the cache, not from memory
    "triton_in_order": Rung(after="triton_fused"),
    "cuda_fused": Rung(after="native", multiple=4),
}
TARGET = (4096, 16384)
SHAPES = {"elements": [(4096, 1024), (4096, 16384)]}
SMALL_SHAPES = [(64, 512), (48, 200)]
OPERATIONS = 21


def inputs(shape: tuple[int, ...], device: str | torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(shape, device=device), torch.randn(shape[-1], device=device)


def reference(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.gelu(x + bias)
