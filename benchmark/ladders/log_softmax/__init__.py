# SPDX-License-Identifier: Apache-2.0
"""log_softmax: how often is a row read?

y = x - max(x) - log(sum(exp(x - max(x)))) over each row of x: [M, N], float32. The rungs differ in one thing: how many
times a row comes from memory, and how much of the device a row occupies. 8 bytes per element are compulsory.
"""

import torch

from flag_gems_overrides.perf.ladder import Rung

SHORT, WIDE = (262144, 128), (1024, 131072)

RUNGS = {
    "native": Rung(),  # one reading or three, by the length of the row
    "compiled": Rung(),
    "triton_three": Rung(passes=2.0),
    "triton_rows": Rung(passes=1.0, after="triton_three", target=SHORT, max_n=32768),
    "triton_running": Rung(passes=1.5, after="triton_three", target=WIDE),
    "override": Rung(passes=1.0, after="triton_rows"),
}
TARGET = (4096, 8192)
SHAPES = {"shapes": [SHORT, (4096, 8192), WIDE]}
SMALL_SHAPES = [(3, 200), (16, 512), (2, 3000)]
OPERATIONS = 5


def inputs(shape: tuple[int, ...], device: str | torch.device) -> tuple[torch.Tensor]:
    return (torch.randn(shape, device=device) - 10,)


def reference(x: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(x, -1)
