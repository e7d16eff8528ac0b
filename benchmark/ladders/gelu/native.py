# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own kernel

One fused elementwise kernel with loads of 16 bytes.
"""

import torch
from torch.nn import functional as F


def run(x: torch.Tensor, tanh: int) -> torch.Tensor:
    return F.gelu(x, approximate="tanh" if tanh else "none")
