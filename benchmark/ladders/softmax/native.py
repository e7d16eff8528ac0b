# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own kernel

One fused kernel in CUDA C++, chosen by the length of the row: rows of up to 1024 elements stay in a warp's registers,
longer ones in shared memory where they fit, and are read again where they do not. It is the bar for everything that is
written by hand here.
"""

import torch


def run(x: torch.Tensor) -> torch.Tensor:
    return torch._softmax(x, -1, False)
