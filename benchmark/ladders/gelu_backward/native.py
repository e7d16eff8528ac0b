# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own kernel

One fused elementwise kernel with loads of 16 bytes.
"""

import torch


def run(dy: torch.Tensor, x: torch.Tensor, tanh: int) -> torch.Tensor:
    return torch.ops.aten.gelu_backward(dy, x, approximate="tanh" if tanh else "none")
