# SPDX-License-Identifier: Apache-2.0
"""softmax and its gradient."""

from __future__ import annotations

import torch
from accuracy.softmaxes import Softmaxes

from flag_gems_overrides.ops.softmax import softmax, softmax_backward


class TestSoftmax(Softmaxes):
    log = False
    forward = staticmethod(softmax)
    backward = staticmethod(softmax_backward)
    native = staticmethod(torch.ops.aten._softmax.default)
    native_backward = staticmethod(torch.ops.aten._softmax_backward_data.default)
    public = staticmethod(torch.softmax)
    logged = "GEMS SOFTMAX"
