# SPDX-License-Identifier: Apache-2.0
"""The derivative, operator by operator

The exact form is eleven operators and moves 8.7 times the compulsory bytes, the tanh form nineteen and 15.7 times.
Each one is a reading and a writing of whole tensors. Autograd of a composed forward would do the same, and keep the
intermediate results of the forward in memory as well.
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
