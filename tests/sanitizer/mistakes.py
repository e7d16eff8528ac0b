# SPDX-License-Identifier: Apache-2.0
"""Kernels with a mistake, under the names of ours: sanitize.py must see that compute-sanitizer notices."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl
from kernels import KERNELS
from triton.runtime import JITFunction

BLOCK = 128


# Triton's cache does not tell kernels apart by name, but by the values of constexprs.
def _increment(x_ptr, y_ptr, BLOCK: tl.constexpr, NUMBER: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i) + 1.0)


def _launch(name: str, x: torch.Tensor) -> None:
    kernel = JITFunction(_increment, repr=lambda _: name)
    kernel[(1,)](x, torch.empty(BLOCK, device="cuda"), BLOCK=BLOCK, NUMBER=sorted(KERNELS).index(name))
    torch.cuda.synchronize()


def test_memcheck():
    """Reads one element that is not there."""
    _launch(min(KERNELS), torch.zeros(BLOCK - 1).cuda())


@pytest.mark.parametrize("name", KERNELS)
def test_initcheck(name):
    """Reads one element that nobody wrote."""
    x = torch.empty(BLOCK, device="cuda")
    x[:-1] = torch.zeros(BLOCK - 1)
    _launch(name, x)
