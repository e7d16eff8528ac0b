# SPDX-License-Identifier: Apache-2.0
"""The override of this package, as it is shipped

One launch. As many programs for each channel as all channels at once leave room for; the last of them merges their
sums, the others wait for it, and each reads its part of the channel again, from L2 where all of x fits into it. 1.5
passes, and 1 where a program holds a channel.
"""

import torch

from flag_gems_overrides.ops.batch_norm import batch_norm


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)
