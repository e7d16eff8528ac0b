# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own kernel

One fused kernel, chosen by the length of the row.
"""

import torch


def run(x: torch.Tensor) -> torch.Tensor:
    return torch._log_softmax(x, -1, False)
