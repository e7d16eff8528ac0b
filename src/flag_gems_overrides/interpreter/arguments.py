# SPDX-License-Identifier: Apache-2.0
"""From the arguments of a launch to what the kernel sees of them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import triton.language as tl

from flag_gems_overrides.interpreter.triton_internals import (
    JITFunction,
    TensorDescriptor,
    TensorHandle,
    descriptor,
    pointer_type,
    stock,
)


def bind(kernel: JITFunction, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Every parameter's value by name."""
    if len(args) > len(kernel.params):
        raise TypeError(f"{kernel.__name__}() takes {len(kernel.params)} arguments but {len(args)} were given")
    bound = dict(zip(kernel.arg_names, args, strict=False))
    for parameter in kernel.params[len(args) :]:
        if parameter.name in options:
            bound[parameter.name] = options[parameter.name]
        elif parameter.has_default:
            bound[parameter.name] = parameter.default
        else:
            raise TypeError(f"{kernel.__name__}() missing the argument {parameter.name!r}")
    for name in kernel.arg_names[: len(args)]:
        if name in options:
            raise TypeError(f"{kernel.__name__}() got multiple values for argument {name!r}")
    return bound


def values(kernel: JITFunction, bound: dict[str, Any]) -> dict[str, Any]:
    """The parameters as the kernel's code sees them."""
    constexprs = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
    return {name: value if name in constexprs else _value(value) for name, value in bound.items()}


def tensors(bound: dict[str, Any]) -> dict[str, Any]:
    """What the kernel got pointers to, by the parameter's name; ``name[i]`` inside a tuple."""
    found: dict[str, Any] = {}
    for name, value in bound.items():
        if isinstance(value, tuple):
            found |= tensors({f"{name}[{i}]": item for i, item in enumerate(value)})
        elif hasattr(value, "data_ptr") or isinstance(value, TensorDescriptor):
            found[name] = value
    return found


def _value(argument: Any) -> Any:
    # The stock interpreter copies every tensor's storage through aten operators, before and after the launch. CPU
    # tensors need no copy, and an aten operator may be the very kernel that is being launched.
    if hasattr(argument, "data_ptr"):
        if hasattr(argument, "device") and argument.device.type != "cpu":
            raise ValueError(f"the interpreter runs on CPU tensors, and got one on {argument.device}")
        return _scalar(argument.data_ptr(), np.uint64, _pointer_type(argument.dtype))
    if isinstance(argument, bool):
        return _scalar(argument, np.bool_, tl.int1)
    if isinstance(argument, int):
        if -(2**31) <= argument < 2**31:
            return _scalar(argument, np.int32, tl.int32)
        return _scalar(argument, np.int64, tl.int64) if argument < 2**63 else _scalar(argument, np.uint64, tl.uint64)
    if isinstance(argument, float):
        # The stock interpreter leaves a Python number, which takes the type of what it meets instead of widening it.
        return _scalar(argument, np.float32, tl.float32)
    if isinstance(argument, tuple):
        return stock._tuple_create(argument, map(_value, argument))
    if isinstance(argument, TensorDescriptor):
        return descriptor(argument, _value)
    return argument


def _scalar(value: Any, array_type: Any, dtype: tl.dtype) -> tl.tensor:
    return tl.tensor(TensorHandle(np.array([value], array_type), dtype), dtype)


_pointer_type = functools.cache(pointer_type)
