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
from flag_gems_overrides.perf.answers import Reference
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
    assert Reference(case.op, inputs, native).is_right(answer), f"{name}: its answer is not PyTorch's"
    return Call(name, native if dispatched else override, inputs, op_inputs.outputs(answer))
