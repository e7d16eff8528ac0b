# SPDX-License-Identifier: Apache-2.0
"""Faults that are none are still among those that are planted: a kernel that changes its name or file keeps its own."""

from __future__ import annotations

from faults.equivalent import EQUIVALENT
from faults.planted import PLANTED


def test_there_are_enough_faults():
    assert len(PLANTED) >= 40


def test_every_name_is_of_a_fault():
    assert set(EQUIVALENT) <= {fault.name for fault in PLANTED}
