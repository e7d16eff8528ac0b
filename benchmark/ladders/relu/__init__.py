# SPDX-License-Identifier: Apache-2.0
"""relu: `where`, or maximum with 0?

Two ways to write the same line, which are not the same: what happens to NaN, and how many instructions it takes.
PyTorch keeps a NaN. The time is that of memory either way; the PTX is where they differ.
"""

import torch

from flag_gems_overrides.perf.ladder import Rung

RUNGS = {
    "native": Rung(passes=1.0),
    "triton_where": Rung(passes=1.0),
    "triton_maximum": Rung(passes=1.0, after="triton_where"),
}
TRAPS = {"trap_maximum": Rung(passes=1.0)}
TARGET = (4096, 16384)
SHAPES = {"shapes": [TARGET]}
SMALL_SHAPES = [(3, 200), (16, 512)]
OPERATIONS = 1


def inputs(shape: tuple[int, ...], device: str | torch.device) -> tuple[torch.Tensor]:
    x = torch.randn(shape, device=device)
    x[0, 0] = float("nan")
    return (x,)


def reference(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)
