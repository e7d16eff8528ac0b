# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own kernels

One launch computes the statistics in one reading, with Welford's running mean and variance; a second launch reads x
again and writes the result: 1.5 passes. Welford's update is exact for any mean, at the price of a division for each
element in a chain that cannot be broken up. How many blocks share a channel decides how much of the device is busy.
"""

import torch


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.native_batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)
