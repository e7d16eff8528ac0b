# SPDX-License-Identifier: Apache-2.0
"""torch.compile of the two

Inductor sees that the sum is used once and computes it where it is needed. One kernel reads x and writes y, and the
bias is small enough to stay in the cache: 1 pass instead of 2.
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
