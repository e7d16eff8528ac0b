# SPDX-License-Identifier: Apache-2.0
"""torch.compile of the two

Inductor sees that the sum is used once and computes it where it is needed: one kernel, 1 pass.
"""

import functools

import torch

from . import native


@functools.cache
def _compiled(shape: torch.Size):
    torch._dynamo.reset()
    return torch.compile(lambda x, bias: native.run(x, bias), dynamic=False)


def run(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return _compiled(x.shape)(x, bias)
