# SPDX-License-Identifier: Apache-2.0
"""A kernel with a mistake: sanitize.py must see that compute-sanitizer notices."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 128


@triton.jit
def _increment(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i) + 1.0)


def _launch(x: torch.Tensor) -> None:
    _increment[(1,)](x, torch.empty(BLOCK, device="cuda"), BLOCK=BLOCK)
    torch.cuda.synchronize()


def test_memcheck():
    """Reads one element that is not there."""
    _launch(torch.zeros(BLOCK - 1).cuda())


def test_initcheck():
    """Reads one element that was never written."""
    x = torch.empty(BLOCK, device="cuda")
    x[:-1] = torch.zeros(BLOCK - 1)
    _launch(x)
