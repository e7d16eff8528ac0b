# SPDX-License-Identifier: Apache-2.0
"""Faults that are none are still among those that are planted: a kernel that changes its name or file keeps its own.

Every accuracy test judges faults.
"""

from __future__ import annotations

from faults.equivalent import EQUIVALENT


def test_every_name_is_of_a_fault():
    # Listed here, by the one worker that runs this, not by all that collect it.
    from faults.planted import PLANTED

    assert len(PLANTED) >= 40
    assert set(EQUIVALENT) <= {fault.name for fault in PLANTED}


def test_every_accuracy_test_judges_a_family_or_all():
    from faults.planted import ACCURACY, JUDGES

    tests = {path.stem.removeprefix("test_") for path in ACCURACY.glob("test_*.py")}
    assert tests == {name for names in JUDGES.values() for name in names} | {"far"}
