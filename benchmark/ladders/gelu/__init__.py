# SPDX-License-Identifier: Apache-2.0
"""gelu: a purely memory-bound operator

y = x * P(x), with P the normal distribution's cumulative function (exact, by erf) or its approximation by tanh.
Nothing is reduced and every element stands alone, so there is nothing to keep and nothing to exchange: 8 bytes per
element, read once and written once, in any kernel. What is left to win is fusion, and enough bytes under
way.
"""

import torch
from torch.nn import functional as F

from flag_gems_overrides.perf.ladder import Rung

RUNGS = {
    "composed": Rung(),  # 5.5 passes, by tanh 11
    "native": Rung(passes=1.0),
    "compiled": Rung(after="composed"),
    "triton_block": Rung(passes=1.0, after="composed"),
    "cuda_naive": Rung(passes=1.0),
    "cuda_vectorised": Rung(passes=1.0, after="cuda_naive", multiple=4),
}
TARGET = (4096, 16384)
SHAPES = {"elements": [(4096, n) for n in (64, 256, 1024, 4096, 16384)]}
HOT = [(4096, 1024), (4096, 16384)]  # 32 MiB, which L2 holds, and 512 MiB
SMALL_SHAPES = [(3, 200), (16, 512), (1, 8)]
VARIANTS = {"tanh": (0, 1)}
OPERATIONS = 20  # erf or exp as about 16


def inputs(shape: tuple[int, ...], device: str | torch.device, tanh: int) -> tuple[torch.Tensor, int]:
    return torch.randn(shape, device=device), tanh


def reference(x: torch.Tensor, tanh: int) -> torch.Tensor:
    return F.gelu(x, approximate="tanh" if tanh else "none")
