# SPDX-License-Identifier: Apache-2.0
"""What the interpreter uses of Triton beyond its public names, and all that differs in it between Triton's versions.

The other files take these names from here. A Triton that breaks the interpreter is to be dealt with here, by asking
for the feature: its version says nothing about a build of its main branch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import FunctionType
from typing import Any

import triton.language as tl
from triton._C.libtriton import interpreter as memory
from triton._C.libtriton import ir
from triton._utils import canonicalize_ptr_dtype, validate_block_shape
from triton.backends.nvidia.compiler import CUDAOptions
from triton.language import core, standard
from triton.language.semantic import TritonSemantic
from triton.runtime import autotuner, interpreter
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import InterpreterBuilder, InterpreterOptions, ReduceOps, ScanOps, TensorHandle
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

__all__ = [
    "LAUNCH_OPTIONS",
    "InterpreterBuilder",
    "InterpreterError",
    "InterpreterOptions",
    "JITFunction",
    "ReduceOps",
    "ScanOps",
    "TensorDescriptor",
    "TensorHandle",
    "TritonSemantic",
    "autotuner",
    "core",
    "descriptor",
    "ir",
    "is_volatile",
    "memory",
    "pointer_type",
    "replace_builtins",
    "standard",
    "stock",
    "validate_block_shape",
]

stock: Any = interpreter
LAUNCH_OPTIONS = frozenset(field.name for field in dataclasses.fields(CUDAOptions))


def pointer_type(dtype: Any) -> tl.dtype:
    """The type of a pointer to a torch dtype."""
    return tl.str_to_ty(canonicalize_ptr_dtype(dtype, is_const=False), None)


def is_volatile(options: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Whether a load is, of which these arguments follow pointers, mask and other.

    It comes last, or by name. What comes before it is a cache modifier and an eviction policy, or one policy for both.
    """
    return named.get("is_volatile", options[-1] if options else False)


def descriptor(argument: TensorDescriptor, value: Callable[[Any], Any]) -> tl.tensor_descriptor:
    """A descriptor as a kernel sees it; ``value`` makes of any other argument what the kernel sees of that."""
    made = stock.interpreter_semantic.make_tensor_descriptor(
        base=value(argument.base),
        shape=[value(size) for size in argument.shape],
        strides=[*map(value, argument.strides[:-1]), tl.constexpr(1)],
        block_shape=[tl.constexpr(size) for size in argument.block_shape],
        padding_option=argument.padding,
    )
    if hasattr(made.handle, "round_f32_to_tf32"):
        made.handle.round_f32_to_tf32 = argument.round_f32_to_tf32
    return made


def replace_builtins(replacement: Callable[[Any], Any]) -> None:
    """Put ``replacement(builtin)`` in the place of each builtin of the language, for good.

    The stock interpreter scans triton.language for builtins, and replaces them, at every launch and at every call of a
    device function, which takes half of the time. Once is enough.
    """

    def replace(owner: Any, name: str, builtin: Any, *what_restores_it: Any) -> None:
        setattr(owner, name, replacement(builtin))

    stock._patch_attr = replace
    stock._patch_lang(FunctionType((lambda: None).__code__, {"tl": tl, "core": core}))
