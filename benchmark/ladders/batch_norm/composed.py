# SPDX-License-Identifier: Apache-2.0
"""Mean, variance and result as operators

The mean reads x, the difference reads it again and writes a tensor of the same size, the square another, and the last
line makes three more. Nine launches move six times the compulsory bytes. What the formula calls one number for each
channel costs a tensor for each operator.
"""

import torch


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    mean = x.mean((0, 2), keepdim=True)
    centered = x - mean
    rstd = (centered.square().mean((0, 2), keepdim=True) + 1e-5).rsqrt()
    y = centered * rstd * weight[:, None] + bias[:, None]
    return y, mean.flatten(), rstd.flatten()
