# SPDX-License-Identifier: Apache-2.0
"""GPUs that tests plan for, and the interpreter's device."""

from __future__ import annotations

from flag_gems_overrides.ops.launch.devices import Limits

A100 = Limits(108, 40 << 20, 65536, 2048, 163 << 10, (8, 0))
RTX4090 = Limits(128, 72 << 20, 65536, 1536, 99 << 10, (8, 9))
H100_PCIE = Limits(114, 50 << 20, 65536, 2048, 227 << 10, (9, 0))
H100 = H100_PCIE._replace(sm_count=132)
H200 = H100._replace(l2_bytes=60 << 20)
B200 = Limits(148, 126 << 20, 65536, 2048, 227 << 10, (10, 0))
INTERPRETER = Limits(4, 1 << 20, 65536, 2048, 227 << 10, (9, 0))
