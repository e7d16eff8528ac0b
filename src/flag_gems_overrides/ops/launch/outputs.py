# SPDX-License-Identifier: Apache-2.0
"""Tensors that the caller gives for results."""

from __future__ import annotations

import torch
from torch._prims_common.wrappers import _maybe_resize_out

# As PyTorch's messages have them.
_NAMES = {
    torch.uint8: "unsigned char",
    torch.int8: "signed char",
    torch.int16: "short int",
    torch.int32: "int",
    torch.int64: "long int",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.float32: "float",
    torch.float64: "double",
    torch.bool: "bool",
}


def check_dtype(out: torch.Tensor, expected: torch.dtype | None) -> None:
    """Raise PyTorch's RuntimeError unless ``out`` has this dtype; None expects none."""
    if expected is not None and expected is not out.dtype:
        raise RuntimeError(
            f"Expected out tensor to have dtype {_NAMES[expected]}, but got {_NAMES.get(out.dtype, out.dtype)} instead"
        )


def resize(out: torch.Tensor, shape: tuple[int, ...]) -> None:
    """Give ``out`` this shape, with PyTorch's warning if it had elements and another one."""
    _maybe_resize_out(out, shape)
