# SPDX-License-Identifier: Apache-2.0
"""The families of kernels that can be tuned."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from flag_gems_overrides.perf.cases import Case


class Family(NamedTuple):
    """A family of kernels that can be tuned. Its ``plan`` and ``call`` are as DESIGN says: see ``ops/plans``."""

    package: str
    ops: tuple[str, ...]
    """Ops whose problems are all of the family's problems."""

    @property
    def name(self) -> str:
        return self.package.rpartition(".")[2]

    @property
    def plan(self) -> Any:
        return import_module(f"{self.package}.plan")

    @property
    def call(self) -> Any:
        return import_module(f"{self.package}.call")


_PACKAGE = "flag_gems_overrides.ops.families"
FAMILIES = {
    family.name: family
    for family in (
        Family(f"{_PACKAGE}.softmax", ("softmax", "softmax_backward")),
        Family(f"{_PACKAGE}.norm", ("layer_norm", "layer_norm_backward", "skip_layer_norm")),
        Family(f"{_PACKAGE}.group_norm", ("group_norm", "group_norm_backward")),
        Family(f"{_PACKAGE}.batch_norm", ("batch_norm", "batch_norm_backward")),
        Family(f"{_PACKAGE}.reduction", ("amax", "max_dim")),
        Family(f"{_PACKAGE}.scan", ("cumsum",)),
        Family(f"{_PACKAGE}.gather", ("nll_loss_backward", "nll_loss2d_backward")),
    )
}


class Point(NamedTuple):
    """A problem of a family, and a case that has it."""

    family: Family
    case: Case
    problem: Any
