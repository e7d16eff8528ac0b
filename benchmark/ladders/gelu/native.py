# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own kernel

One kernel reads each element once, computes in registers and writes once: 1 pass. Its generic elementwise template
gives each thread several elements and loads them 16 bytes at a time where the tensors are aligned. It is the bar for
the rungs below.
"""

import torch
from torch.nn import functional as F


def run(x: torch.Tensor, tanh: int) -> torch.Tensor:
    return F.gelu(x, approximate="tanh" if tanh else "none")
