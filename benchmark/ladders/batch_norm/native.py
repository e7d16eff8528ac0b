# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own kernels

One launch for the statistics (Welford's running mean and variance: one reading) and one for the result.
"""

import torch


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.native_batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)
