# SPDX-License-Identifier: Apache-2.0
"""modulo: a contiguity that the compiler cannot see

y = x + bias[column] over x: [M, N] taken as one long vector, so that the column of element i is i % N. Where N is a
multiple of 4, the columns of four neighbouring elements are neighbours too. The compiler does not follow that through
a remainder by a number that it does not know.
"""

import torch

from flag_gems_overrides.perf.ladder import Rung

RUNGS = {
    "triton_plain": Rung(multiple=4),
    "triton_max_contiguous": Rung(after="triton_plain", multiple=4),
}
TARGET = (16384, 4100)
SHAPES = {"shapes": [TARGET]}
SMALL_SHAPES = [(3, 200), (16, 512)]
OPERATIONS = 1


def inputs(shape: tuple[int, ...], device: str | torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(shape, device=device), torch.randn(shape[-1], device=device)


def reference(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return x + bias
