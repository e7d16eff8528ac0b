# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own kernels, kept from before they were overridden."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from pkgutil import resolve_name
from typing import Any

import torch

from flag_gems_overrides.operators import Operator


def native_function(override: Operator, dispatch_key: str, device: str) -> Callable[..., Any]:
    """What answers in PyTorch's place for an override."""
    return outside_aten(override) if override.overload is None else Native(override.overload, dispatch_key, device)


def outside_aten(override: Operator) -> Callable[..., Any]:
    """PyTorch's function for one that is not aten's, called as upstream's is: what need not be given has the same name
    in both, and a place of its own in each."""
    native = override.native
    function = eval(native, {"torch": torch}) if override.composition else resolve_name(native)
    parameters = inspect.signature(override.load()[0]).parameters.values()
    required = sum(parameter.default is parameter.empty for parameter in parameters)
    names = [parameter.name for parameter in parameters][required:]

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args[:required], **dict(zip(names, args[required:], strict=False)), **kwargs)

    return call


class Native:
    """The kernel that aten's ``overload`` has for ``dispatch_key`` at the time this is made.

    Called with the arguments of the aten operator, or of the upstream function that mirrors it: that may say
    ``None`` where aten has another default, or no such argument. Raises what PyTorch raises.
    """

    def __init__(self, overload: str, dispatch_key: str, device: str) -> None:
        packet, _, variant = overload.partition(".")
        self._overload = getattr(getattr(torch.ops.aten, packet), variant or "default")
        # PyTorch has gradients without a kernel for the CPU, where the interpreter runs.
        has_kernel = torch._C._dispatch_has_computed_kernel_for_dispatch_key(self._overload.name(), dispatch_key)
        self._kernel = torch.library.get_kernel(self._overload, dispatch_key) if has_kernel else None
        # PyTorch composes some operators, such as rms_norm, of others. Those are what autograd records.
        composed = torch._C._dispatch_has_kernel_for_dispatch_key(self._overload.name(), "CompositeImplicitAutograd")
        self._below = nullcontext if composed else torch._C._AutoDispatchBelowAutograd
        self._key = torch._C._dispatch_key_parse(dispatch_key)
        self._keys = torch._C.DispatchKeySet(self._key)
        # What lies above the backend for every plain tensor: autograd, autocast, in-place and view tracking.
        self._above = torch._C._dispatch_keys(torch.empty(0, device=device)) - self._keys
        schema = self._overload._schema
        self._defaults = [a.default_value if a.has_default_value() else None for a in schema.arguments]
        # Upstream's function may take by position what aten takes by name only.
        self._positional = sum(not a.kwarg_only for a in schema.arguments)
        self._named = [a.name for a in schema.arguments if a.kwarg_only]
        self._result = getattr(torch.return_types, packet, None) if len(schema.returns) > 1 else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kwargs |= zip(self._named, args[self._positional :], strict=False)
        args = args[: self._positional]
        values = [default if arg is None else arg for arg, default in zip(args, self._defaults, strict=False)]
        kwargs = {name: value for name, value in kwargs.items() if value is not None}
        if self._is_chosen_for(values):
            if self._kernel is None:
                raise NotImplementedError(f"PyTorch has no kernel of {self._overload.name()} for this device.")
            # Nothing may be recorded for autograd inside the kernel: the caller is below it, or called us directly.
            with self._below():
                result = self._kernel.call_boxed(self._keys, *values, **kwargs)
        else:
            result = self._overload(*values, **kwargs)
        return self._result(result) if self._result else result

    def _is_chosen_for(self, values: list[Any]) -> bool:
        """Whether the dispatcher, below autograd, would choose this backend.

        Not for sparse or nested tensors, subclasses, negated views or another device's tensors. Only a direct
        call brings these here.
        """
        keys = torch._C.DispatchKeySet.from_raw_repr(0)
        for value in values:
            if isinstance(value, torch.Tensor):
                keys = keys | torch._C._dispatch_keys(value)
        keys = keys - self._above - torch._C._dispatch_tls_local_exclude_set()
        return keys.highestPriorityTypeId() == self._key
