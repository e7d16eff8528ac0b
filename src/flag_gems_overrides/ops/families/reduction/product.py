# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Products."""

from __future__ import annotations

import triton

from .policy import Policy, promoted


@triton.jit
def multiply(a, b):
    return a * b


PRODUCT = Policy("prod", multiply, lambda dtype: 1.0 if dtype.is_floating_point else 1, promoted)
