# SPDX-License-Identifier: Apache-2.0
"""cumsum where only a GPU shows it: size."""

from __future__ import annotations

import pytest
import torch

from flag_gems_overrides.ops.cumsum import cumsum

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("K", [3, 6])
def test_matrices_of_few_columns_of_more_than_2_to_the_31_elements(K):
    x = torch.zeros(2**31 // (18 * K) + 5000, 18, K, device="cuda", dtype=torch.float16)
    x[-3:] = 0.5
    y = cumsum(x, 1)
    assert torch.equal(y[-3:], torch.cumsum(x[-3:], 1))
    assert not y[:-3].any()
