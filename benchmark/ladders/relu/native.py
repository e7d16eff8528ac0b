# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own kernel

One elementwise kernel with loads of 16 bytes, which keeps NaN.
"""

import torch


def run(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)
