# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import pytest

from flag_gems_overrides.ops.launch.sizes import cdiv, power_of_2, power_of_2_within


@pytest.mark.parametrize(
    ("n", "smallest", "largest"), [(0, 1, 1), (1, 1, 1), (2, 2, 2), (3, 4, 2), (2**31 + 1, 2**32, 2**31)]
)
def test_powers_of_2(n, smallest, largest):
    assert (power_of_2(n), power_of_2_within(n)) == (smallest, largest)


@pytest.mark.parametrize("a", [0, 1, 5, 6, 7, 2**53 + 1])
@pytest.mark.parametrize("b", [1, 3, 6])
def test_division_rounds_up(a, b):
    assert cdiv(a, b) == a // b + (a % b > 0)
    assert cdiv(a, b) * b - a in range(b)
    assert a > 2**50 or cdiv(a, b) == math.ceil(a / b)
