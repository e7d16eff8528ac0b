# SPDX-License-Identifier: Apache-2.0
"""The derivative, operator by operator

A dozen operators and more, each a reading and a writing of whole tensors.
"""

import math

import torch

_INNER = math.sqrt(2 / math.pi)


def run(dy: torch.Tensor, x: torch.Tensor, tanh: int) -> torch.Tensor:
    if tanh:
        t = torch.tanh(_INNER * (x + 0.044715 * x * x * x))
        slope = _INNER * (1 + 3 * 0.044715 * x * x)
        return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope)
    cdf = 0.5 * (1 + torch.erf(x / math.sqrt(2)))
    pdf = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return dy * (cdf + x * pdf)
