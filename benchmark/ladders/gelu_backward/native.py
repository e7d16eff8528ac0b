# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own kernel

One kernel reads both inputs once and writes once: 1 pass. Loads are of 16 bytes where the tensors are aligned. The
arithmetic of the derivative is in registers, between the loads and the store.
"""

import torch


def run(dy: torch.Tensor, x: torch.Tensor, tanh: int) -> torch.Tensor:
    return torch.ops.aten.gelu_backward(dy, x, approximate="tanh" if tanh else "none")
