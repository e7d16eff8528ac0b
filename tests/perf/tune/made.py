# SPDX-License-Identifier: Apache-2.0
"""A family and a clock of our own for the tuner."""

from __future__ import annotations

import torch
from gpus import H200

from flag_gems_overrides.ops.plans import table
from flag_gems_overrides.perf.cases import make
from flag_gems_overrides.perf.timing import Times
from flag_gems_overrides.perf.tune.families import Family, Point

LIMITS = H200
FAKE = Family("perf.tune.fake_family", ("softmax",))
CONTENT = {
    "schema": 1,
    "device": {"name": "H200", "capability": [9, 0], "sm_count": 132, "l2_bytes": 60 << 20, "copy_gbps": 4243.5},
    "versions": {"torch": "2.11.0"},
    "date": "2026-11-22",
    "command": "gems-overrides tune",
}


class Clock:
    """A configuration takes ``us[warps]`` microseconds."""

    def __init__(self, **us: float) -> None:
        self.device = torch.device("cpu")
        self.us = {int(name.removeprefix("w")): value for name, value in us.items()}
        self.looks: list[set[int]] = []

    def bandwidth(self):
        return 4000.0, 4500.0

    def group(self, call_bytes):
        return 1

    def device_times(self, calls, effort=1):
        self.looks.append({configuration.warps for configuration in calls})
        return Times({c: [self.us.get(c.warps, 10.0) / 1e3] * (5 * effort) for c in calls})


def point(size="64x32 dim=1"):
    case = make("softmax", size, "float32")
    return Point(FAKE, case, FAKE.plan.Problem(*case.shape, 1, 4))


def row(M, best=("rows", 2), us=7.0):
    return table.Row((M, 32, 1, 4), best, us, 10.0, 8.0, 0.5)
