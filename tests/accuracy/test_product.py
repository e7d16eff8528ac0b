# SPDX-License-Identifier: Apache-2.0
"""What is true of products only."""

from __future__ import annotations

import numpy as np
import torch
from accuracy.reductions import draw_factors, each

from flag_gems_overrides.ops.prod import prod, prod_dim


def test_int64_is_exact(device):
    x = torch.full((2, 21), 3, dtype=torch.int64, device=device)
    assert prod(x[0]).item() == 3**21
    assert prod_dim(x, 1).tolist() == [3**21] * 2
    odd = torch.randint(-(2**62), 2**62, (9999,), device=device) * 2 + 1
    assert torch.equal(prod(odd), torch.prod(odd))  # modulo 2**64


@each("dtype", [torch.uint8, torch.int8, torch.int16])
@each("shape", [(1, 40000), (3, 4096), (2, 5003), (7, 21)])
def test_narrow_integers_are_exact(shape, dtype, device):
    """Neighbours are multiplied in 32 bits: whatever they are these hold the product, and no factor is 0 modulo 2."""
    limits = torch.iinfo(dtype)
    x = torch.randint(limits.min, limits.max, shape, device=device) | 1
    x[0], x[-1, ::2] = limits.max, limits.min | 1
    x = x.to(dtype)
    assert torch.equal(prod_dim(x, 1), torch.prod(x, 1))
    assert torch.equal(prod(x), torch.prod(x))


def test_float64_is_exact(device):
    assert prod(torch.tensor([1 + 1e-9, 1.0], dtype=torch.float64, device=device)).item() == 1 + 1e-9


@each("shape", [(3, 5000), (40000,), (5, 21)])
def test_float64_against_more_digits(shape, device):
    """64 bits of mantissa."""
    x = draw_factors(shape, shape[-1], torch.float64, device)
    truth = x.cpu().numpy().astype(np.longdouble).prod(axis=-1)
    error = np.abs(prod_dim(x, -1).cpu().numpy() - truth) / np.abs(truth)
    assert (error <= (3 * shape[-1]) ** 0.5 * torch.finfo(torch.float64).eps).all()


@each("dtype", [torch.float16, torch.bfloat16])
@each("size", [32, 40000])
def test_partial_products_may_exceed_a_half(size, dtype, device):
    x = torch.ones(size, dtype=dtype, device=device)
    x[:16], x[-16:] = 4.0, 0.25
    assert prod(x).item() == 1.0
    assert prod_dim(x.view(2, -1), 0).float().prod().item() == 1.0
