# SPDX-License-Identifier: Apache-2.0
"""The accuracy suite goes red for every planted fault: a process for each, an hour in all. ``tox run -e faults``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from faults.mutations import Fault, faults

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "flag_gems_overrides"

# Which accuracy tests a file answers to, by the start of its name.
JUDGES = {
    "_layernorm": ["layernorm"],
    "layernorm": ["layernorm"],
    "_softmax": ["softmax", "log_softmax"],
    "softmax": ["softmax"],
    "log_softmax": ["log_softmax"],
    "_reduction": ["prod", "max", "amax"],
    "prod": ["prod"],
    "max": ["max"],
    "amax": ["amax"],
}

# Broken in text, right in effect; each with the reason.
EQUIVALENT: dict[str, str] = {}


def _judges(fault: Fault) -> list[str]:
    start = max((start for start in JUDGES if fault.file.startswith(start)), key=len, default=None)
    return [f"tests/accuracy/test_{name}.py" for name in JUDGES.get(start, [])]


ALL = [fault for file in sorted((PACKAGE / "ops").glob("*.py")) for fault in faults(file)]
PLANTED = [fault for fault in ALL if _judges(fault)]


def test_there_are_enough_faults():
    assert len(PLANTED) >= 40
    assert set(EQUIVALENT) <= {fault.name for fault in PLANTED}


@pytest.mark.parametrize("fault", [f for f in PLANTED if f.name not in EQUIVALENT], ids=lambda fault: fault.name)
def test_fault_is_noticed(fault: Fault, tmp_path: Path):
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / PACKAGE.name / "ops" / fault.file).write_text(fault.source, encoding="utf-8")
    suite = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *_judges(fault)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    assert suite.returncode == pytest.ExitCode.TESTS_FAILED, f"not noticed:\n{suite.stdout[-2000:]}"
