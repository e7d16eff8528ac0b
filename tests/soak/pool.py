# SPDX-License-Identifier: Apache-2.0
"""Calls of random shapes and dtypes, with the answers that they must get."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

import torch
from torch.utils._pytree import tree_map_only

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf import beforehand, op_inputs, problems, workers
from flag_gems_overrides.perf.cases import OVERRIDE, Case

ON_GPU = torch.cuda.is_available()
# So that a GPU needs less time for a call than the host, which then has many in flight.
MAX_ELEMENTS = 2**20 if ON_GPU else 2**11
CASES_PER_OP = 16 if ON_GPU else 4
# One process takes ten minutes for the kernels of all cases.
SECONDS_TO_COMPILE = 300


class Call(NamedTuple):
    """A case with inputs, and the bits of the answer, which were judged."""

    name: str
    function: Callable
    inputs: tuple
    expected: list[torch.Tensor]

    def run(self) -> object:
        try:
            return self.function(*self.inputs)
        except Exception as error:
            raise RuntimeError(self.name) from error

    def is_answered_right(self) -> bool:
        return all(map(_same, op_inputs.outputs(self.run()), self.expected))


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit for bit, but that a NaN is a NaN: the variance of one element."""
    if not a.is_floating_point():
        return torch.equal(a, b)
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())


def draw(chance: random.Random, dispatched: tuple[str, ...], device: str) -> list[Call]:
    """Calls of every override, through PyTorch those that are ``dispatched``. No override may be in force yet."""
    seed = chance.randrange(2**32)
    # No dispatcher leads to what is outside of aten.
    dispatched = tuple(op for op in dispatched if OPERATORS[op].overload is not None)
    cases = [
        case
        for op, operator in OPERATORS.items()
        for case in islice(
            # In bool few random numbers are all alike.
            (c for c in problems.cases(op, seed, MAX_ELEMENTS) if c.dtype != "bool" or len(operator.dtypes) == 1),
            CASES_PER_OP,
        )
    ]
    if ON_GPU:
        tasks = [(case.key, OVERRIDE) for case in cases]
        list(workers.run(f"{beforehand.__name__}:compiler", tasks, beforehand.processes(), SECONDS_TO_COMPILE))
    return [_call(case, chance.random() < 0.25, case.op in dispatched, device) for case in cases]


def _call(case: Case, misaligned: bool, dispatched: bool, device: str) -> Call:
    inputs = op_inputs.arguments(case, device)
    if misaligned:
        inputs = tree_map_only(
            torch.Tensor, lambda x: torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape), inputs
        )
    override, native = (
        op_inputs.on_copies(case.op, function) for function in (op_inputs.override(case.op), op_inputs.native(case.op))
    )
    answer = override(*inputs)
    name = f"{case.key}{' misaligned' if misaligned else ''}"
    try:
        _judge(case, inputs, answer, native)
    except AssertionError as error:
        raise AssertionError(f"{name}: {error}") from None
    return Call(name, native if dispatched else override, inputs, op_inputs.outputs(answer))


def _judge(case: Case, inputs: tuple, answer: object, native: Callable) -> None:
    wide = tree_map_only(torch.Tensor, lambda x: x.double() if x.is_floating_point() else x, inputs)
    wide = tuple(torch.float64 if isinstance(value, torch.dtype) else value for value in wide)
    results = (
        op_inputs.outputs(op_inputs.compared(case.op, arguments, result))
        for arguments, result in ((inputs, answer), (inputs, native(*inputs)), (wide, native(*wide)))
    )
    for actual, theirs, truth in zip(*results, strict=True):
        assert actual.shape == theirs.shape
        if not actual.is_floating_point():
            assert torch.equal(actual, theirs)
            continue
        assert torch.equal(actual.isnan(), truth.isnan()), "NaN elsewhere"
        actual, theirs, truth = (x.nan_to_num() for x in (actual, theirs, truth))
        error, native_error = (float((x.double() - truth).abs().max()) for x in (actual, theirs))
        # Not as narrow as tests/accuracy/judge.py: in few random numbers native's error happens to be almost none.
        slack = 1e-9 if case.dtype == "float64" else 16 * torch.finfo(actual.dtype).eps
        allowed = 4 * native_error + slack * max(1.0, float(truth.abs().max()))
        assert error <= allowed, f"error {error:.3g} above {allowed:.3g}, native's own {native_error:.3g}"
