# SPDX-License-Identifier: Apache-2.0
"""What the tests of prod, max, amax and their relatives reduce."""

from __future__ import annotations

import math

import pytest
import torch

ON_GPU = torch.cuda.is_available()
FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGER = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

# On the interpreter's device of 4 multiprocessors these take every way through the plan: several rows to a program,
# one, a loop, splits with one program's tile or with several, odd sizes, wide and narrow K, a tile to a warp. The first
# is upstream's.
SHAPES = [(1, 2), (), (1,), (7, 5), (64, 64), (300, 24), (3, 5000), (5000, 3), (40000,), (3, 3001, 5), (2, 700, 64)]
SHAPES += [(5, 21, 70), (50, 4, 300)]
if ON_GPU:
    SHAPES += [(4096, 256), (200, 2560, 3), (200, 40999, 3), (4, 1048577, 4), (1, 2**24), (16, 2**20), (2**20, 16)]
    SHAPES += [
        (65536, 256),
        (64, 512, 512),
        (100000, 200),
        (1024, 50257),
        (1000000, 9),
        (16, 21, 65536),
        (8, 3, 262144),
    ]

FEW = [(7, 5), (40000,), (3, 3001, 5)]

WITH_DIM = [(shape, dim) for shape in SHAPES for dim in range(max(len(shape), 1))]
FEW_WITH_DIM = [(shape, dim) for shape in FEW for dim in range(len(shape))]


def name(value: object) -> str:
    return str(value).removeprefix("torch.").replace(" ", "")


def each(names: str, values: list) -> pytest.MarkDecorator:
    """``parametrize`` with readable ids."""
    ids = ["-".join(map(name, value)) if "," in names else name(value) for value in values]
    return pytest.mark.parametrize(names, values, ids=ids)


def draw(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Many equal elements, so that ties are common."""
    if dtype is torch.bool:
        return torch.rand(shape, device=device) > 0.7
    if dtype.is_floating_point:
        return torch.randn(shape, device=device).to(dtype)
    low = 0 if dtype is torch.uint8 else -100
    return torch.randint(low, 100, shape, dtype=dtype, device=device)


def draw_factors(shape: tuple[int, ...], count: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Factors whose product, of ``count`` of them, neither overflows nor vanishes.

    The more, the nearer to 1 they are. Up to 65536 their digits behind it are many enough for roundings to be random.
    """
    if not dtype.is_floating_point:
        signs = _signs(shape, device)
        return (torch.ones(shape, device=device) if dtype in (torch.bool, torch.uint8) else signs).to(dtype)
    factors = torch.exp(torch.randn(shape, device=device, dtype=torch.float64) / max(count, 1) ** 0.5)
    return (factors * _signs(shape, device)).to(dtype)


def draw_exact_factors(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Signs, with a power of two here and there: every product is exact, and every element counts."""
    few = min(0.01, 20 / max(math.prod(shape), 1))  # a half holds 2**15
    powers = (torch.rand(shape, device=device) < few) * torch.randint(-1, 2, shape, device=device)
    return _signs(shape, device).to(dtype) * torch.exp2(powers).to(dtype)


def _signs(shape: tuple[int, ...], device: str) -> torch.Tensor:
    return torch.randint(0, 2, shape, device=device) * 2 - 1


def _misaligned(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape)


LAYOUTS = {
    "every second": lambda x: torch.stack([x, -x], -1)[..., 0],
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "permuted": lambda x: x.movedim(0, -1).contiguous().movedim(-1, 0),
    "rows apart": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]],
    "expanded": lambda x: x[:1].expand(x.shape),
    "misaligned": _misaligned,
}
layouts = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=[key.replace(" ", "-") for key in LAYOUTS])


def put_nans(x: torch.Tensor) -> torch.Tensor:
    """A copy with a NaN here and there, of either sign."""
    x = x.clone()
    flat = x.view(-1)
    at = torch.randint(flat.numel(), (1 + flat.numel() // 200,), device=x.device)
    flat[at] = float("nan")
    flat[at[::2]] *= -1
    return x


def assert_same(actual: torch.Tensor, native: torch.Tensor) -> None:
    """Equal to the bit, except that a NaN is a NaN and 0.0 is -0.0; of the same dtype, shape and strides."""
    torch.testing.assert_close(actual, native, rtol=0, atol=0, equal_nan=True, check_stride=True)


def assert_same_error(actual, native) -> None:
    """Both callables raise the same class with the same text."""
    with pytest.raises(Exception) as expected:  # noqa: PT011 whatever PyTorch raises
        native()
    with pytest.raises(expected.type) as raised:
        actual()
    assert str(raised.value) == str(expected.value)
