# SPDX-License-Identifier: Apache-2.0
"""Whether the answer that is timed is PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from flag_gems_overrides.perf import op_inputs
from flag_gems_overrides.perf.beforehand import check_context, first_line

# Of the bytes of all inputs and outputs. Two runs of one kernel may differ by as much; who saves more by narrower
# outputs computes something else.
_MAX_SAVED = 0.03
# Where numbers are moved to. By turns what cancels in a product stays; all up a sum moves by what its terms may.
_MOVES = ((math.inf, -math.inf), (-math.inf, math.inf), (math.inf, math.inf))


class Reference:
    """PyTorch's answer to a call of ``op``.

    Where PyTorch fails on the GPU, or writes beyond its tensors, the CPU answers in float64: the gradient of group_norm
    with 140944 groups asks CUDA for a grid that is too large.

    Args:
        native: PyTorch's function for inputs where ``inputs`` are.
    """

    def __init__(self, op: str, inputs: op_inputs.Arguments, native: Callable[..., Any] | None = None) -> None:
        self._op = op
        self._inputs = inputs
        self._native = op_inputs.on_copies(op, native or op_inputs.native(op))
        self.failure = op_inputs.native_unsafe(op, inputs)
        """Why PyTorch has no answer on the GPU."""
        if self.failure is None:
            try:
                self._answer = self._native(*inputs)
                return
            except Exception as error:
                check_context(f"{op}: native: {first_line(error)}")
                self.failure = first_line(error)
        # In float64, for the CPU refuses half inputs with float32 statistics.
        self._inputs = tuple(_in_float64(_on_cpu(value)) for value in inputs)
        self._native = op_inputs.on_copies(op, op_inputs.native(op, "cpu"))
        self._answer = self._native(*self._inputs)

    def is_right(self, answer: Any) -> bool:
        """Whether each output is PyTorch's or, where terms cancel and that is rounding noise, as close to the truth."""
        if self.failure is not None:
            answer = _on_cpu(answer)
        elif _saved_share(self._inputs, answer, self._answer) > _MAX_SAVED:
            return False
        if op_inputs.agree(self._op, self._inputs, answer, self._answer):
            return True
        ours, theirs = (op_inputs.outputs(each) for each in (answer, self._answer))
        if [x.numel() for x in ours] != [x.numel() for x in theirs] or not all(x.is_floating_point() for x in theirs):
            return False
        truth = [exact.to(x.device) for exact, x in zip(self._truth(), theirs, strict=True)]
        errors = [_error(b, exact) for b, exact in zip(theirs, truth, strict=True)]
        # PyTorch may be exact by luck, and nothing is more exact than float64: its noise is how far its answer moves
        # with its inputs.
        for move in _MOVES:
            moved = op_inputs.outputs(self._native(*(_moved(value, move, i) for i, value in enumerate(self._inputs))))
            errors = [max(e, _error(b, exact)) for e, b, exact in zip(errors, moved, truth, strict=True)]
        return all(
            op_inputs.close(a, b) or _error(a, exact) <= 2 * error
            for a, b, exact, error in zip(ours, theirs, truth, errors, strict=True)
        )

    def _truth(self) -> Sequence[torch.Tensor]:
        """In float64, by the CPU where the inputs are float64: PyTorch's answer on the GPU would be judged by itself.

        Its batch norm merges counts in float32 there: of channels of 317565 x 109 elements its statistics err by 3e-8.
        """
        native, inputs = self._native, self._inputs
        if any(isinstance(value, torch.Tensor) and value.dtype is torch.float64 for value in inputs):
            native, inputs = op_inputs.on_copies(self._op, op_inputs.native(self._op, "cpu")), _on_cpu(inputs)
        return op_inputs.outputs(native(*map(_in_float64, inputs)))


def _saved_share(inputs: op_inputs.Arguments, answer: Any, reference: Any) -> float:
    """Of all bytes, those that outputs narrower than PyTorch's save.

    flag_gems stores float32 statistics of half rows as half.
    """
    ours, theirs = op_inputs.outputs(answer), op_inputs.outputs(reference)
    saved = sum(max(b.nbytes - a.nbytes, 0) for a, b in zip(ours, theirs, strict=False) if a.numel() == b.numel())
    return saved / max(sum(x.nbytes for x in (*inputs, *theirs) if isinstance(x, torch.Tensor)), 1)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_on_cpu, value))
    return value.cpu() if isinstance(value, torch.Tensor) else value


def _in_float64(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def _moved(value: Any, move: tuple[float, float], position: int) -> Any:
    """In float32 at least. Numbers a unit in the last place up or down, by turns as ``move`` has it; the other way
    round for every second argument."""
    if isinstance(value, torch.dtype) and value.is_floating_point:
        return torch.promote_types(value, torch.float32)
    if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
        return value
    value = value.to(torch.promote_types(value.dtype, torch.float32))
    turn = (torch.arange(value.numel(), device=value.device).view(value.shape) + position) % 2
    neighbour = torch.nextafter(value, value.new_tensor(move)[turn])
    return torch.where(value.isfinite(), neighbour, value)


def _error(x: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest, with one unit in the last place of the largest value; infinite for a NaN that should not be."""
    if not x.numel():
        return 0.0
    ulp = torch.finfo(x.dtype).eps * float(exact.nan_to_num(0, 0, 0).abs().max())
    difference = (x.double().flatten() - exact.flatten()).abs()
    difference[x.double().flatten() == exact.flatten()] = 0
    # A truth that is beyond the dtype's largest number is infinite in it.
    rounded = exact.flatten().to(x.dtype)
    difference[rounded.isinf() & (x.flatten() == rounded)] = 0
    difference[x.flatten().isnan() & exact.flatten().isnan()] = 0
    return float(difference.nan_to_num(math.inf, math.inf).max()) + ulp
