# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled for GPUs that need not be here."""

from __future__ import annotations

import pytest

from flag_gems_overrides.perf import devices, resources
from flag_gems_overrides.perf.cases import COUNTED_DTYPES


def test_every_shipped_configuration_compiles_without_spills(shapes, surveyed):
    """What changed since the recorded survey is compiled, the rest is known. `gems-overrides resources` records."""
    cases = resources.cases(shapes, shapes.ops, "core", COUNTED_DTYPES)
    rows = resources.survey(cases, devices.KNOWN, known=surveyed)
    assert {row["arch"] for row in rows} == {gpu.arch for gpu in devices.KNOWN}
    failures = list(resources.failures(rows))
    if failures:
        pytest.fail("\n".join(map(str, failures)), pytrace=False)
