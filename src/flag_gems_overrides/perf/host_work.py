# SPDX-License-Identifier: Apache-2.0
"""What a function does outside of its own kernels: allocations, and aten operators that move data."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_ALLOCATIONS = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
# Write their first argument without reading it.
_OVERWRITES = ("copy_", "fill_", "zero_")


class HostWork(TorchDispatchMode):
    """Counts inside a ``with`` block. On a GPU each such operator is a launch that reads its inputs and writes its
    outputs. Views do not count. Operators on meta tensors do not either, as when a launch is prepared."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded = self.stored = self.launches = self.allocations = self.allocated = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        outputs = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        if any(x.is_meta for x in outputs):
            return result
        name = func._schema.name.removeprefix("aten::")
        written = self._written(func, args, kwargs)
        known = {x.untyped_storage()._cdata for x in inputs}
        fresh = [x for x in outputs if x.untyped_storage()._cdata not in known]
        self.allocations += len(fresh)
        self.allocated += sum(x.untyped_storage().nbytes() for x in fresh)
        is_view = not fresh and not written and bool(outputs)
        if name not in _ALLOCATIONS and not is_view:
            self.launches += 1
            read = [x for x in inputs if not (name in _OVERWRITES and x is args[0])]
            self.loaded += sum(map(_bytes, read))
            self.stored += sum(map(_bytes, written or outputs))
        return result

    @staticmethod
    def _written(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
        """The arguments that the operator changes."""
        named = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)} | kwargs
        changed = [a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        return [x for x in tree_leaves([named.get(name) for name in changed]) if isinstance(x, torch.Tensor)]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
