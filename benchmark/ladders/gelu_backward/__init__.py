# SPDX-License-Identifier: Apache-2.0
"""gelu_backward: more arithmetic on the same bytes

dx = dy * (P(x) + x * P'(x)): two tensors are read and one is written, 12 bytes per element. The derivative takes an
erf (or tanh) and an exp, about twice the arithmetic of the forward, for half as many bytes again: the first operator
here in which instructions may cost as much as memory.
"""

import torch

from flag_gems_overrides.perf.ladder import Rung

RUNGS = {
    "composed": Rung(),
    "native": Rung(passes=1.0),
    "compiled": Rung(after="composed"),
    "triton_block": Rung(passes=1.0, after="composed"),
    "cuda_naive": Rung(passes=1.0),
    "cuda_vectorised": Rung(passes=1.0, after="cuda_naive", multiple=4),
}
TARGET = (4096, 16384)
SHAPES = {"elements": [(4096, 1024), (4096, 16384)]}
SMALL_SHAPES = [(3, 200), (16, 512), (1, 8)]
VARIANTS = {"tanh": (0, 1)}
OPERATIONS = 40


def inputs(shape: tuple[int, ...], device: str | torch.device, tanh: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    return torch.randn(shape, device=device), torch.randn(shape, device=device), tanh


def reference(dy: torch.Tensor, x: torch.Tensor, tanh: int) -> torch.Tensor:
    return torch.ops.aten.gelu_backward(dy, x, approximate="tanh" if tanh else "none")
