# SPDX-License-Identifier: Apache-2.0
"""What several tests of the plans of norms have in common."""

from __future__ import annotations

from flag_gems_overrides.ops.families.norm.launches import (
    Launch,
    Problem,
    launch,
)
from flag_gems_overrides.ops.families.norm.plan import configurations
from flag_gems_overrides.ops.launch.devices import Limits


def default(M: int, N: int, size: int, backward: bool, limits: Limits) -> Launch:
    problem = Problem(M, N, 1, size, backward)
    return launch(problem, configurations(problem, limits)[0], limits)
