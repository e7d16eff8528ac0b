# SPDX-License-Identifier: Apache-2.0
"""The override of this package, as it is shipped

The same ideas, chosen by shape and put together: a row (or several) in registers where they fit, loads of 16 bytes
even where a row starts anywhere, and for few long rows several programs that exchange their maximum and sum while they
wait for each other, within one launch, so that the row is still read once: 1 pass everywhere.
"""

import torch

from flag_gems_overrides.ops.softmax import softmax


def run(x: torch.Tensor) -> torch.Tensor:
    return softmax(x, -1)
