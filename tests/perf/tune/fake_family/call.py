# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import os

import torch

from . import plan


def problem(op, x, dim, half_to_float):
    M, N, K = (math.prod(sizes) for sizes in (x.shape[:dim], x.shape[dim : dim + 1], x.shape[dim + 1 :]))
    return plan.Problem(M, N, K, x.element_size())


def launch_with(configuration, op, x, dim, half_to_float):
    if configuration.warps == 5:
        raise ValueError("5 warps are none")
    if os.environ.get("FAKE_ENDS") == str(configuration.warps):
        os._exit(1)
    return torch._softmax(x, dim, half_to_float) + (configuration.warps == 3)
