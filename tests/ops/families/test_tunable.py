# SPDX-License-Identifier: Apache-2.0
"""What every family offers the tuner: configurations that are few, legal, and right."""

from __future__ import annotations

import json
import math
import random

import pytest
from gpus import A100, B200, H200

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.ops.launch import devices
from flag_gems_overrides.ops.plans import table
from flag_gems_overrides.perf import op_inputs
from flag_gems_overrides.perf.answers import Reference
from flag_gems_overrides.perf.cases import Case, make
from flag_gems_overrides.perf.problems import problems
from flag_gems_overrides.perf.tune.families import FAMILIES

DEVICES = {
    "H200": H200,
    "A100": A100,
    "B200": B200,
}
MAX_CONFIGURATIONS = 24
OPS = [(family, op) for family, members in FAMILIES.items() for op in members.ops]
# Sizes that the interpreter computes in a moment; rows, columns, one element, a long row, odd and even.
ALONG = ("1x1 dim=1", "5x33 dim=1", "3x16 dim=1", "600x3x2 dim=1", "7x40x5 dim=1", "2x3000 dim=1", "4x64x32 dim=1")
GROUPS = (
    "1x1x1 groups=1",
    "3x6x33 groups=2",
    "5x8 groups=4",
    "2x6x4099 groups=2",
    "2x70x64 groups=1",
    "40x3x1 groups=3",
)
NORMALIZED = ("1x1 normalized=1", "5x33 normalized=1", "70x16 normalized=1", "2x3000 normalized=1", "40x1 normalized=1")


def case_of(op: str, size: str, dtype: str) -> Case:
    """``size`` for an op along a dimension, over the last ones, over all but the second, or of so many dimensions."""
    if OPERATORS[op].ndim:
        size = "x".join([*size.removesuffix(" dim=1").split("x"), "1", "1"][: OPERATORS[op].ndim])
    return make(op, size if "dim" in OPERATORS[op].arguments else size.replace(" dim=1", ""), dtype)


@pytest.fixture(autouse=True)
def without_tables(monkeypatch, tmp_path):
    monkeypatch.setattr(table, "FOLDER", tmp_path)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("family", "op"), OPS)
def test_configurations_are_few_and_legal(family, op, device):
    plan, call, limits = FAMILIES[family].plan, FAMILIES[family].call, DEVICES[device]
    # Other ones for each device.
    for case in [each.case for each in problems([op], 100, 0, [*DEVICES].index(device))]:
        problem = call.problem(case.op, *op_inputs.arguments(case, "meta"))
        found = plan.configurations(problem, limits)
        assert 0 < len(found) <= MAX_CONFIGURATIONS, case.key
        assert len(set(found)) == len(found), case.key
        assert plan.choose(problem, limits) == found[0], case.key
        assert type(problem)(*json.loads(json.dumps(problem))) == problem
        hash(plan.class_of(problem))
        for configuration in found:
            assert plan.Configuration(*json.loads(json.dumps(configuration))) == configuration
            plan.launch(problem, configuration, limits)
            assert 0 < plan.estimate(problem, configuration, limits) < math.inf, (case.key, configuration)


@pytest.mark.parametrize(("family", "op"), OPS)
def test_every_configuration_answers_right(family, op, device):
    plan, call, limits = FAMILIES[family].plan, FAMILIES[family].call, devices.limits(0)
    random.seed(0)
    for size in {"norm": NORMALIZED, "group_norm": GROUPS}.get(family, ALONG):
        case = case_of(op, size, random.choice(["bfloat16", "float32"]))
        arguments = op_inputs.arguments(case, device)
        reference = Reference(op, arguments)
        for configuration in plan.configurations(call.problem(op, *arguments), limits):
            answer = call.launch_with(configuration, op, *arguments)
            assert reference.is_right(answer), (case.key, configuration)


@pytest.mark.parametrize(("family", "op"), OPS)
def test_a_row_of_the_table_is_what_is_chosen(family, op, tmp_path):
    """The last configuration of a problem, which is not the default, by a table that says so."""
    plan, call, limits = FAMILIES[family].plan, FAMILIES[family].call, DEVICES["H200"]
    size = {"norm": "4096x1024 normalized=1", "group_norm": "64x320x64x64 groups=32"}.get(family, "4096x1024 dim=1")
    case = case_of(op, size, "bfloat16")
    problem = call.problem(op, *op_inputs.arguments(case, "meta"))
    *_, last = plan.configurations(problem, limits)
    row = table.Row(tuple(problem), tuple(last), 1.0, 2.0, None, 0.5)
    content = {
        "schema": 1,
        "device": {"name": "H200", "capability": [9, 0], "sm_count": 132, "l2_bytes": 60 << 20, "copy_gbps": 4243.5},
        "versions": {},
        "date": "",
        "command": "",
        "families": {family: [row._asdict()]},
    }
    (tmp_path / "h200.json").write_text(json.dumps(content))
    assert plan.choose(problem, limits) == last
