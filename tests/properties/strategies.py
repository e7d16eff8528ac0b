# SPDX-License-Identifier: Apache-2.0
"""Tensors of any shape, strides, dtype and special values."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGER = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

shapes = st.lists(st.integers(0, 9), max_size=4).map(tuple)
filled_shapes = st.lists(st.integers(1, 9), max_size=4).map(tuple)


@st.composite
def tensors(draw, shapes=filled_shapes, dtypes=FLOATING, special=True):
    """A tensor of a drawn shape: dense, or permuted, sliced or expanded; some elements NaN, infinite or equal."""
    shape, dtype = draw(shapes), draw(st.sampled_from(dtypes))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    order = draw(st.permutations(range(len(shape))))
    step = draw(st.sampled_from([1, 2]))
    stored = [shape[axis] for axis in order]
    if stored:
        stored[-1] *= step
    if dtype.is_floating_point:
        dense = torch.randn(stored, generator=generator, dtype=torch.float64)
        if special and dense.numel():
            for value in draw(st.lists(st.sampled_from([float("nan"), float("inf"), -float("inf"), 0.0]), max_size=3)):
                dense.view(-1)[draw(st.integers(0, dense.numel() - 1))] = value
        dense = dense.to(dtype)
    else:
        low = 0 if dtype in (torch.uint8, torch.bool) else -3
        dense = torch.randint(low, 4, stored, generator=generator).to(dtype)
    dense = dense.to(DEVICE)
    if stored:
        dense = dense[..., ::step]
    return dense.permute([order.index(axis) for axis in range(len(shape))]) if shape else dense


@st.composite
def with_dim(draw, tensors):
    """A tensor and one of its dimensions, counted from either end."""
    tensor = draw(tensors)
    rank = max(tensor.dim(), 1)
    return tensor, draw(st.integers(-rank, rank - 1))
