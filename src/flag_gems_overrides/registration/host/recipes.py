# SPDX-License-Identifier: Apache-2.0
"""What Python did for one call, as a recipe that the C++ kernel can follow for all calls of the same description."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from flag_gems_overrides.ops.launch.allocation import Allocation
from flag_gems_overrides.ops.launch.prepared import Launch
from flag_gems_overrides.ops.launch.workspace import Counters

_ALLOCATION, _ARGUMENT, _COPY, _COUNTER, _VALUE = range(5)  # kernel.cpp: Param::Kind
_NULL = (_VALUE, 0)
Param = tuple[int, int]


class OtherWork(TorchDispatchMode):
    """PyTorch's operators inside a ``with`` block, with what they were given and gave."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple, dict, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, result))
        return result


def recipe(
    extension: ModuleType,
    events: Sequence[tuple[Any, Any]],
    work: OtherWork,
    arguments: Sequence[Any],
    result: Any,
) -> Any | None:
    """The recipe, or None if Python did anything that a recipe cannot say.

    Args:
        events: the allocations, counters and launches.
        arguments: all, in the schema's order.
        result: what Python returned.
    """
    launches = [(maker, made) for maker, made in events if isinstance(maker, Launch)]
    allocations = [(maker, made) for maker, made in events if isinstance(maker, Allocation)]
    counters = [(maker, made) for maker, made in events if isinstance(maker, Counters)]
    if not launches:
        return None
    device = next(argument.device for argument in arguments if isinstance(argument, torch.Tensor))
    if any(made.device != device for _, made in (*allocations, *counters)):
        return None

    # Nothing is freed before this ends, so no two tensors share an address unless they are views of each other. Which
    # arguments do is a part of the call's description.
    places: dict[int, Param] = {}
    for place, argument in enumerate(arguments):
        if isinstance(argument, torch.Tensor):
            places.setdefault(argument.data_ptr(), (_ARGUMENT, place))
    made = extension.Recipe(device)
    for place, (wanted, tensor) in enumerate(allocations):
        made.allocate(list(wanted.shape), [] if tensor.is_contiguous() else list(wanted.stride), wanted.dtype)
        places[tensor.data_ptr()] = (_ALLOCATION, place)
    for place, (asked, tensor) in enumerate(counters):
        made.count(asked.dtype, asked.size)
        places[tensor.data_ptr()] = (_COUNTER, place)
    copies = _copies(work, arguments, {tensor.data_ptr() for _, tensor in (*allocations, *counters)})
    if copies is None:
        return None
    for place, (argument, tensor) in enumerate(copies):
        made.copy(argument)
        places[tensor.data_ptr()] = (_COPY, place)
    places.pop(0, None)

    for launch, tensors in launches:
        described = _launch(launch, tensors, places, device)
        if described is None:
            return None
        made.launch(*described)
    by_identity = {id(tensor): (_ALLOCATION, place) for place, (_, tensor) in enumerate(allocations)}
    by_identity |= {id(out): (_ARGUMENT, place) for place, out in enumerate(arguments) if isinstance(out, torch.Tensor)}
    for each in result if isinstance(result, tuple) else (result,):
        if each is not None and id(each) not in by_identity:
            return None
        made.result(None if each is None else by_identity[id(each)])
    return made


def _copies(work: OtherWork, arguments: Sequence[Any], known: set[int]) -> list[tuple[int, torch.Tensor]] | None:
    """Arguments that were made contiguous; None if PyTorch did anything else than that, views, and what is known."""
    copies = []
    for func, args, kwargs, result in work.calls:
        if func._schema.is_mutable or not isinstance(result, torch.Tensor):
            return None
        if result.is_meta or result.data_ptr() in known or _is_view(args, result):
            continue
        if func is not torch.ops.aten.contiguous.default or len(args) != 1 or kwargs:
            return None
        places = [place for place, argument in enumerate(arguments) if _is_same(argument, args[0])]
        if not places:
            return None
        copies.append((places[0], result))
    return copies


def _is_same(argument: Any, tensor: torch.Tensor) -> bool:
    """Not by identity: a dispatch mode is handed other Python objects of the same tensors."""
    return isinstance(argument, torch.Tensor) and (
        (argument.data_ptr(), argument.shape, argument.stride(), argument.dtype)
        == (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
    )


def _is_view(args: tuple, result: torch.Tensor) -> bool:
    """Whether nothing was computed: an address says what the result is."""
    storages = [arg.untyped_storage()._cdata for arg in args if isinstance(arg, torch.Tensor) and not arg.is_meta]
    return result.untyped_storage()._cdata in storages


def _launch(
    launch: Launch, tensors: Sequence[torch.Tensor | None], places: Mapping[int, Param], device: torch.device
) -> tuple | None:
    index, grid, scalars = launch.parts()
    compiled = launch.compiled(tensors)
    if compiled is None or index != (device.index or 0):
        return None
    metadata = compiled.metadata
    scratch = (getattr(metadata, f"{kind}_scratch_size", 0) for kind in ("global", "profile"))
    if getattr(metadata, "num_ctas", 1) != 1 or any(scratch):
        return None
    params: list[Param] = []
    values = (*tensors, *scalars)
    # What Triton made a constant of (an absent tensor, a 1) is no parameter of the kernel.
    for value, kind in zip(values, list(compiled.src.signature.values())[: len(values)], strict=True):
        if kind == "constexpr":
            continue
        param = places.get(value.data_ptr()) if isinstance(value, torch.Tensor) else _scalar(value, kind)
        if param is None:
            return None
        params.append(param)
    # Triton's kernels end with two pointers to scratch memory.
    return (
        compiled.function,
        list(grid),
        32 * metadata.num_warps,
        metadata.shared,
        bool(getattr(metadata, "launch_cooperative_grid", False)),
        bool(getattr(metadata, "launch_pdl", False)),
        [*params, _NULL, _NULL],
    )


def _scalar(value: Any, kind: str) -> Param | None:
    if kind in ("fp32", "fp64"):
        (bits,) = struct.unpack("I" if kind == "fp32" else "Q", struct.pack("f" if kind == "fp32" else "d", value))
        return _VALUE, bits
    if kind.lstrip("iu").isdigit():
        return _VALUE, int(value) & (2**64 - 1)
    return None
