# SPDX-License-Identifier: Apache-2.0
"""log_softmax and its gradient."""

from __future__ import annotations

import torch
from accuracy.softmaxes import Softmaxes

from flag_gems_overrides.ops.log_softmax import log_softmax, log_softmax_backward


class TestLogSoftmax(Softmaxes):
    log = True
    forward = staticmethod(log_softmax)
    backward = staticmethod(log_softmax_backward)
    native = staticmethod(torch.ops.aten._log_softmax.default)
    native_backward = staticmethod(torch.ops.aten._log_softmax_backward_data.default)
    public = staticmethod(torch.log_softmax)
    logged = "GEMS LOG_SOFTMAX"
