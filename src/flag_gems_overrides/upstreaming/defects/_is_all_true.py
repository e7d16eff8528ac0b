# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/_is_all_true.py, which is there from 5.0.2 on."""

from __future__ import annotations

import torch

from ._defect import Seen, check_value, defect

aten = torch.ops.aten


@defect(
    "T1",
    title="a strided input is read linearly",
    pytorch="the elements of the view",
    upstream={"4.2.0": Seen(None, None), "5.0.2": Seen("AssertionError: False", "AssertionError: False")},
    hidden="flag_gems has no _is_all_true before 5.0.2",
)
def t1(device: torch.device) -> None:
    x = torch.tensor([True, False, True, False], device=device)[::2]
    check_value(aten._is_all_true(x), True, torch.bool)
