# SPDX-License-Identifier: Apache-2.0
"""Uninitialized memory that shows where nothing was written: NaN, and -1 in integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C._dynamo import guards
from torch.utils._python_dispatch import _disable_current_modes

_ALLOCATORS = (
    (torch, "empty"),
    (torch, "empty_like"),
    (torch, "empty_strided"),
    (torch.Tensor, "new_empty"),
    (torch.Tensor, "new_empty_strided"),
    (guards, "_empty_strided_cuda"),  # the overrides' own (see ops/_allocate.py)
)


@contextmanager
def poisoned() -> Iterator[None]:
    """Fill with 0xFF what is allocated inside the block by code that looks PyTorch's functions up at each call.

    Not PyTorch's deterministic mode: it does not fill what ``_empty_strided_cuda`` gives, changes which kernels
    PyTorch takes, and makes ``torch.compile`` compile anew. What ``torch.compile`` made before the block allocates as
    before: it has looked its allocator up already.
    """
    originals = [(owner, name, getattr(owner, name)) for owner, name in _ALLOCATORS]
    for owner, name, allocate in originals:
        setattr(owner, name, _filled(allocate))
    try:
        yield
    finally:
        for owner, name, allocate in originals:
            setattr(owner, name, allocate)


def _filled(allocate: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def allocate_and_fill(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensor = allocate(*args, **kwargs)
        if not tensor.is_meta:
            with _disable_current_modes():  # the fill is no work of the function that is counted
                tensor.untyped_storage().fill_(0xFF)  # type: ignore[attr-defined]
        return tensor

    return allocate_and_fill
