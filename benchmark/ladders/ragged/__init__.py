# SPDX-License-Identifier: Apache-2.0
"""ragged: an alignment that the compiler cannot see

Rows of different lengths, packed one behind the other, and a table of where each begins: a batch of sentences without
padding. Every row begins at a multiple of 16 elements. Triton knows that of arguments, which it looks at before it
compiles; of a number that is loaded from memory it can know nothing, unless it is told.
"""

import torch

from flag_gems_overrides.perf.ladder import Rung

RUNGS = {
    "triton_plain": Rung(passes=1.0),
    "triton_multiple_of": Rung(passes=1.0, after="triton_plain"),
}
TARGET = (16384, 4096)
SHAPES = {"shapes": [TARGET]}
SMALL_SHAPES = [(3, 208), (16, 512)]
OPERATIONS = 1


def inputs(shape: tuple[int, ...], device: str | torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """All rows in one tensor, and the rows + 1 places at which they begin and the last one ends. N is the longest."""
    rows, longest = shape
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(longest // 32, longest // 16 + 1, (rows,), generator=generator) * 16
    starts = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    return torch.randn(int(starts[-1]), device=device), starts.to(device)


def reference(x: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    return 2 * x
