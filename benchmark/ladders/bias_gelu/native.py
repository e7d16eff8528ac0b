# SPDX-License-Identifier: Apache-2.0
"""PyTorch's two operators

An add that writes a whole tensor, and a gelu that reads it again: 2 passes. Each of the two kernels is as good as
memory allows. It is their boundary that costs as much as all the work.
"""

import torch
from torch.nn import functional as F


def run(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.gelu(x + bias)
