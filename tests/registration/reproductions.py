# SPDX-License-Identifier: Apache-2.0
"""What is known to be wrong in flag_gems, called: in a process of its own where it may stop the GPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from flag_gems_overrides.harmful import Harmful


def shows(each: Harmful, device: str) -> bool:
    """Whether its reproduction raises with flag_gems' operator, or differs from PyTorch's answer."""
    import flag_gems

    want = _value(each.reproduction, device)
    try:
        with flag_gems.use_gems(include=[each.name]):
            got = _value(each.reproduction, device)
        same = [a.dtype == b.dtype and torch.allclose(a, b, equal_nan=True) for a, b in zip(got, want, strict=True)]
    except Exception:
        return True
    return not all(same)


def _value(reproduction: str, device: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    with torch.device(device):
        value = eval(reproduction, {"torch": torch, "F": F})
    return [value] if isinstance(value, torch.Tensor) else list(value)
