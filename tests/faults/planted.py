# SPDX-License-Identifier: Apache-2.0
"""The accuracy suite goes red for every planted fault. ``tox run -e faults``."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from faults.equivalent import EQUIVALENT
from faults.judging import Suite
from faults.mutations import Fault, faults

from flag_gems_overrides.catalog import OVERRIDES

ROOT = Path(__file__).parents[2]
OPS = ROOT / "src" / "flag_gems_overrides" / "ops"
# Of the whole suite of a fault.
SECONDS = 500

# Which accuracy tests a file answers to, by the start of its name.
JUDGES = {
    "_layernorm": ["layernorm"],
    "layernorm": ["layernorm", "layernorm_errors"],
    "_softmax": ["softmax", "log_softmax"],
    "softmax": ["softmax"],
    "log_softmax": ["log_softmax"],
    "_reduction": ["prod", "max", "min", "amax", "argmax"],
    "_scratch": ["prod", "max", "softmax", "layernorm"],
    "prod": ["prod"],
    "max": ["max"],
    "min": ["min"],
    "amax": ["amax"],
    "amin": ["min"],
    "argmax": ["argmax"],
    "argmin": ["argmax"],
}


def _files(file: str) -> tuple[str, ...]:
    start = max((start for start in JUDGES if file.startswith(start)), key=len, default=None)
    names = [*JUDGES[start], "far"] if start else []
    return tuple(str(ROOT / "tests" / "accuracy" / f"test_{name}.py") for name in names)


PLANTED = [fault for file in sorted(OPS.glob("*.py")) if _files(file.name) for fault in faults(file)]


def test_there_are_enough_faults():
    assert len(PLANTED) >= 40
    assert set(EQUIVALENT) <= {fault.name for fault in PLANTED}
    kernels = {file.name for file in OPS.glob("*.py") if "\n@triton.jit" in file.read_text()}
    assert all(map(_files, kernels | {f"{override.module}.py" for override in OVERRIDES.values()}))


@pytest.fixture(scope="session")
def suites(tmp_path_factory):
    """Suites by their files, started when they are asked for."""
    return functools.cache(lambda files: Suite(files, tmp_path_factory.mktemp("suite")))


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_fault_is_noticed(fault: Fault, suites, record_property):
    if fault.name in EQUIVALENT:
        pytest.skip(EQUIVALENT[fault.name])
    test = suites(_files(fault.file)).noticed_by(fault, SECONDS)
    assert test is not None, "no test notices"
    record_property("noticed by", test)
