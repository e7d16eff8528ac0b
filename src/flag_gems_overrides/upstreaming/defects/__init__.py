# SPDX-License-Identifier: Apache-2.0
"""What upstream answers differently from PyTorch: one row a defect, one module an upstream ops file."""

from __future__ import annotations

from . import amax, amin, argmax, argmin, layernorm, log_softmax, max, min, prod, softmax
from ._defect import FIXED, Backend, Defect

__all__ = ["DEFECTS", "FIXED", "Backend", "Defect"]

DEFECTS: dict[str, Defect] = {
    row.id: row
    for module in (layernorm, prod, max, amax, min, amin, argmax, argmin, softmax, log_softmax)
    for row in vars(module).values()
    if isinstance(row, Defect)
}
