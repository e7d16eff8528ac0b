# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own kernel

One fused kernel in CUDA C++, chosen by the length of the row. Rows of up to 1024 elements stay in a warp's registers,
longer ones in the registers of a block of 1024 threads or in shared memory, and what fits neither is read again. It is
the bar for everything that is written by hand here.
"""

import torch


def run(x: torch.Tensor) -> torch.Tensor:
    return torch._softmax(x, -1, False)
