# SPDX-License-Identifier: Apache-2.0
"""What upstream answers differently from PyTorch: one row a defect, one module an upstream ops file."""

from __future__ import annotations

from importlib import import_module

from flag_gems_overrides.operators import OPERATORS

from ._defect import FIXED, Backend, Defect

__all__ = ["DEFECTS", "FIXED", "Backend", "Defect"]

DEFECTS: dict[str, Defect] = {
    row.id: row
    for module in dict.fromkeys(operator.module for operator in OPERATORS.values())
    for row in vars(import_module(f"{__name__}.{module}")).values()
    if isinstance(row, Defect)
}
