# SPDX-License-Identifier: Apache-2.0
"""The formula, operator by operator

Every operation reads its operands from memory and writes its result there. The exact form is five of them (scale, erf,
add, scale, multiply) and moves 5.5 times the compulsory bytes; the tanh form is nine, and moves 11 times. Nearly all
of the time is spent on carrying intermediate results to and fro.
"""

import math

import torch


def run(x: torch.Tensor, tanh: int) -> torch.Tensor:
    if tanh:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return x * (0.5 * (1 + torch.erf(x / math.sqrt(2))))
