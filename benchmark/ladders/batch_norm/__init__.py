# SPDX-License-Identifier: Apache-2.0
"""batch_norm: three readings, two, and all of the device

Training's forward over x: [B, C, L], float32: mean and variance of each channel over B and L, then y = (x - mean) *
rstd * weight + bias. A channel is B pieces of L elements that lie C * L apart, 200704 elements at the target shape: no
program can hold that many, so the second reading cannot be avoided the way softmax avoids it.
"""

import torch

from flag_gems_overrides.perf.ladder import Rung

FEW = (64, 32, 3136)

RUNGS = {
    "composed": Rung(),
    "native": Rung(),
    "compiled": Rung(after="composed"),
    "triton_three": Rung(passes=2.0, after="composed"),
    "triton_two": Rung(passes=1.5, after="triton_three"),
    "triton_split": Rung(passes=1.5, after="triton_two", target=FEW),
    "override": Rung(passes=1.5, after="triton_two"),
}
TRAPS = {"trap_masked_lanes": Rung(passes=2.0)}
TARGET = (64, 256, 3136)
SHAPES = {"shapes": [FEW, (64, 256, 784), (64, 256, 3136)]}
# More than a program of the override holds.
SMALL_SHAPES = [(9, 3, 2001), (9, 2, 4096)]
OPERATIONS = 6


def inputs(shape: tuple[int, ...], device: str | torch.device) -> tuple[torch.Tensor, ...]:
    channels = shape[1]
    # A mean far from 0: a masked lane that takes part as 0 is far from it too.
    return (
        torch.randn(shape, device=device) + 5,
        torch.randn(channels, device=device),
        torch.randn(channels, device=device),
    )


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.native_batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)
