# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own kernel

One fused kernel, chosen by the length of the row. Short rows stay in a warp's registers, longer ones in shared memory
where they fit; the rest is read again for the result. It is the bar for the rungs below.
"""

import torch


def run(x: torch.Tensor) -> torch.Tensor:
    return torch._log_softmax(x, -1, False)
