# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from flag_gems_overrides.ops.launch.prepared import entry


@entry()
@triton.jit
def fill(x_ptr, y_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)
    if y_ptr is not None:
        tl.store(y_ptr + tl.arange(0, BLOCK), 2.0)


@pytest.mark.no_gpu  # there a prepared launch looks at nothing, which is what it is for
@pytest.mark.parametrize("other", [None, torch.zeros(8, dtype=torch.float64)], ids=["absent", "another dtype"])
def test_a_launch_is_for_the_tensors_that_it_was_prepared_for(other):
    """A GPU would run the first kernel on them: on a null pointer, or on halves of elements."""
    launch = fill.bind(-1, (1,), BLOCK=8)
    x, y = torch.zeros(8), torch.zeros(8)
    launch(x, y)
    assert (x + y).tolist() == [3.0] * 8
    with pytest.raises(RuntimeError, match=r"fill: prepared for .*, called with"):
        launch(x, other)
