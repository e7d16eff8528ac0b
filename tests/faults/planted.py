# SPDX-License-Identifier: Apache-2.0
"""The accuracy suite goes red for every planted fault. ``tox run -e faults``."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.equivalent import EQUIVALENT
from faults.judging import noticed_by
from faults.mutations import Fault, faults

ROOT = Path(__file__).parents[2]
OPS = ROOT / "src" / "flag_gems_overrides" / "ops"
# Of the whole suite of a fault.
SECONDS = 500

# Which accuracy tests a file answers to, by the start of its name.
JUDGES = {
    "_layernorm": ["layernorm"],
    "layernorm": ["layernorm"],
    "_softmax": ["softmax", "log_softmax"],
    "softmax": ["softmax"],
    "log_softmax": ["log_softmax"],
    "_reduction": ["prod", "max", "min", "amax", "argmax"],
    "_scratch": ["prod", "max"],
    "prod": ["prod"],
    "max": ["max"],
    "min": ["min"],
    "amax": ["amax"],
    "amin": ["min"],
    "argmax": ["argmax"],
    "argmin": ["argmax"],
}


def _suite(fault: Fault) -> tuple[str, ...]:
    start = max((start for start in JUDGES if fault.file.startswith(start)), key=len, default=None)
    return tuple(str(ROOT / "tests" / "accuracy" / f"test_{name}.py") for name in JUDGES.get(start, []))


PLANTED = [fault for file in sorted(OPS.glob("*.py")) for fault in faults(file) if _suite(fault)]


def test_there_are_enough_faults():
    assert len(PLANTED) >= 40
    assert set(EQUIVALENT) <= {fault.name for fault in PLANTED}


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_fault_is_noticed(fault: Fault, tmp_path: Path, record_property):
    if fault.name in EQUIVALENT:
        pytest.skip(EQUIVALENT[fault.name])
    test = noticed_by(fault, _suite(fault), tmp_path, SECONDS)
    assert test is not None, "no test notices"
    record_property("noticed by", test)
