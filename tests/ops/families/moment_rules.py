# SPDX-License-Identifier: Apache-2.0
"""What the rules say of moments, of which the estimate may know better."""

from __future__ import annotations

from gpus import H200

from flag_gems_overrides.ops.families.reduction.defaults import kinds
from flag_gems_overrides.ops.families.reduction.launches import Configuration, Plan, Problem, launch


def configuration_by_rules(M: int, N: int, K: int, itemsize: int) -> Configuration:
    return kinds(Problem(M, N, K, itemsize, 3), H200)[0]


def plan_by_rules(M: int, N: int, K: int, itemsize: int) -> Plan:
    return launch(Problem(M, N, K, itemsize, 3), configuration_by_rules(M, N, K, itemsize), H200)
