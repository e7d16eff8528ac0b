# SPDX-License-Identifier: Apache-2.0
"""Mean, variance and result as operators

Three readings at the least, and an intermediate tensor for every step of the last line.
"""

import torch


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    mean = x.mean((0, 2), keepdim=True)
    centered = x - mean
    rstd = (centered.square().mean((0, 2), keepdim=True) + 1e-5).rsqrt()
    y = centered * rstd * weight[:, None] + bias[:, None]
    return y, mean.flatten(), rstd.flatten()
