# SPDX-License-Identifier: Apache-2.0
"""What makes one reduction a particular one, as data: the kernels and the launches of the family read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton.language as tl
from triton import JITFunction

TRITON = {
    torch.bool: tl.int1,
    torch.uint8: tl.uint8,
    torch.int8: tl.int8,
    torch.int16: tl.int16,
    torch.int32: tl.int32,
    torch.int64: tl.int64,
    torch.uint32: tl.uint32,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
}


class Dtypes(NamedTuple):
    """The dtypes of a reduction."""

    converted: torch.dtype
    """What elements are converted to first."""
    accumulator: torch.dtype
    """What is combined, within a program, between programs and between launches."""
    result: torch.dtype


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """What elements of ``dtype`` are combined in: int32 or float32, unless they have 64 bits."""
    if dtype in (torch.int64, torch.float64):
        return dtype
    return torch.float32 if dtype.is_floating_point else torch.int32


def unchanged(dtype: torch.dtype, requested: torch.dtype | None, count: int) -> Dtypes:
    """The result has the dtype of the input; none can be requested."""
    return Dtypes(dtype, accumulator(dtype), dtype)


def promoted(dtype: torch.dtype, requested: torch.dtype | None, count: int) -> Dtypes:
    """The result has the requested dtype; by default that of the input, and int64 for bool and integers."""
    converted = requested or (dtype if dtype.is_floating_point else torch.int64)
    return Dtypes(converted, accumulator(converted), converted)


class Compiled:
    """What kernels are compiled with: functions, numbers and dtypes, as one constexpr.

    It is no tuple: from Triton 3.8 on a constexpr that is one is taken apart, and ``tl.reduce`` refuses a function that
    is a constexpr itself.
    """

    @property
    def cache_key(self) -> str:
        """Part of Triton's key for compiled kernels, so that a changed function is compiled again."""
        return str([getattr(part, "cache_key", part) for part in vars(self).values()])

    def __str__(self) -> str:
        """For records of launches: ``multiply 1.0 bf16 fp32``."""
        return " ".join(str(getattr(part, "__name__", part)) for part in vars(self).values() if part is not None)


@dataclass(frozen=True)
class Arithmetic(Compiled):
    """The part of a policy that kernels are compiled with, for the dtypes of one launch.

    Kernels take it as ``OP`` and call its functions: ``OP.combine(a, b)``.
    """

    combine: JITFunction
    replaces: JITFunction | None
    prologue: JITFunction | None
    epilogue: JITFunction | None
    parameter: float
    identity: int | float
    converted: tl.dtype
    accumulator: tl.dtype
    narrow: tl.dtype | None
    together: bool


# Compared by identity: a policy is part of the key of every call.
@dataclass(frozen=True, eq=False)
class Policy:
    """One reduction operator.

    Dimensions that are not adjacent in memory are reduced one after the other. The first launch converts the elements
    and applies ``prologue``, the last one applies ``epilogue``, and accumulators pass between them.
    """

    name: str
    """As PyTorch's error messages say it."""
    combine: JITFunction
    """``(a, b)``: two accumulators as one. Associative and commutative."""
    identity: Callable[[torch.dtype], int | float]
    """By dtype, the element that changes no result. Takes the place of elements that are not there."""
    dtypes: Callable[[torch.dtype, torch.dtype | None, int], Dtypes]
    """By the dtype of the input, the one that the caller requests, and the number of elements to a result."""
    prologue: JITFunction | None = None
    """``(x, OP)``: what is combined instead of the converted elements."""
    epilogue: JITFunction | None = None
    """``(result, count, OP)``: the final result, from the accumulator and the number of elements that it combines."""
    parameter: float = 0.0
    """A number that ``prologue`` and ``epilogue`` depend on, as ``OP.parameter``."""
    single: Policy | None = None
    """Takes the place of this policy where a result is made of one element."""
    of_bytes: Policy | None = None
    """Takes the place of this policy where elements are bytes."""
    empty: Callable[[str, int | None], Exception] | None = None
    """By ``name`` and dimension, the error for a dimension without elements; without a dimension, for a whole tensor
    without elements. ``None``: the result is that of ``identity``."""
    values: bool = True
    """Whether results are wanted."""
    positions: bool = False
    """Whether positions are wanted: of the first element that equals the result, or that is NaN as the result is."""
    narrow: Callable[[torch.dtype], torch.dtype | None] | None = None
    """For a dtype of elements a dtype of 32 bits: neighbours that have 32 bits together are combined in it before they
    are converted to 64-bit accumulators."""
    together: bool = False
    """Whether neighbours that have 32 bits together are combined before they meet what is kept of others, if they are
    bytes. Their accumulators are fewer then, which leaves registers for bytes on their way."""
    replaces: JITFunction | None = None
    """``(x, best)``, needed for positions: whether ``combine(best, x)`` differs from ``best``."""

    @property
    def accumulators(self) -> int:
        """Numbers that are kept of what was combined: a value, and its position."""
        return 2 if self.positions else 1

    def arithmetic(self, dtypes: Dtypes, *, elements: torch.dtype, first: bool, last: bool) -> Arithmetic:
        """For the ``first`` and/or ``last`` launch of a reduction, that reads tensors of dtype ``elements``."""
        wide = first and dtypes.accumulator is torch.int64 and dtypes.converted is torch.int64
        narrow = self.narrow(elements) if wide and self.narrow is not None else None
        return Arithmetic(
            combine=self.combine,
            replaces=self.replaces if self.positions else None,
            prologue=self.prologue if first else None,
            epilogue=self.epilogue if last else None,
            parameter=self.parameter,
            identity=self.identity(elements),
            converted=TRITON[dtypes.converted if first else dtypes.accumulator],
            accumulator=TRITON[dtypes.accumulator],
            narrow=None if narrow is None else TRITON[narrow],
            together=self.together and first and elements.itemsize == 1,
        )
