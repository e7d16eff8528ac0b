# SPDX-License-Identifier: Apache-2.0
"""What the plans choose for random problems, by the times of their configurations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpus import H100, H200

from flag_gems_overrides.perf.statistics import geomean
from flag_gems_overrides.perf.tune.families import FAMILIES

RECORDS = Path(__file__).parents[3] / "benchmark" / "records"
GPUS = {"nvidia-h100-80gb-hbm3": H100, "nvidia-h200": H200}
# Of the problems whose choice was timed: geometric mean of its time over the fastest's, and the share of problems
# within 10 % of it. A change that makes plans worse fails here, without a GPU; a better one lowers these.
BOUNDS = {
    "softmax": (1.015, 0.98),
    "norm": (1.017, 0.975),
    "group_norm": (1.018, 0.965),
    "batch_norm": (1.026, 0.93),
    "reduction": (1.012, 0.99),
    "moments": (1.025, 0.93),  # of reductions; along rows, columns and in classes
    "scan": (1.017, 0.965),
    "gather": (1.017, 0.99),
}
# Of all problems; the others' choices are not among the configurations that were timed.
MIN_TIMED = 0.7


@pytest.mark.parametrize("name", BOUNDS)
def test_chosen_configurations_are_near_the_fastest(name):
    plan = FAMILIES["reduction" if name == "moments" else name].plan
    timed = [(row, limits) for row, limits in rows() if row["family"] == name]
    ratios = [ratio for row, limits in timed if (ratio := over_the_fastest(plan, row, limits))]
    bound, share = BOUNDS[name]
    assert len(ratios) >= MIN_TIMED * len(timed)
    assert geomean(ratios) <= bound
    assert sum(ratio < 1.1 for ratio in ratios) >= share * len(ratios)


def rows():
    for gpu, limits in GPUS.items():
        for path in sorted((RECORDS / gpu).glob("regret-*.jsonl")):
            for line in path.read_text().splitlines()[1:]:
                yield json.loads(line), limits


def over_the_fastest(plan, row, limits):
    """The time of what is chosen over the least; None if it was not timed."""
    problem = plan.Problem(*row["row"]["problem"])
    us: dict = {}
    for values, time in row["us"]:
        launched = plan.launch_or_none(problem, plan.Configuration(*values), limits)
        if launched is not None:
            us.setdefault(launched, time)
    chosen = plan.launch(problem, plan.choose(problem, limits), limits)
    return us[chosen] / min(us.values()) if chosen in us else None
