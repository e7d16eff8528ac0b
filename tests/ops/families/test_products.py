# SPDX-License-Identifier: Apache-2.0
"""Lanes that add each other's products hold the same sums.

Where a product and its addition to another lane's become one operation, either lane rounds the other's product only.
Their sums differ in the last bit, and all may store theirs to one place of shared memory. Only the compiler shows it.
"""

from __future__ import annotations

import re

import pytest

from flag_gems_overrides.perf import resources
from flag_gems_overrides.perf.cases import parse
from flag_gems_overrides.perf.devices import H200

ALIGNED = [
    "var_correction 300x24 dim=1 float32",
    "std 300x24 dim=1 float64",
    "var_mean 70000x24 dim=1 bfloat16",
    "vector_norm 300x24 dim=1 float32",
    "logsumexp 300x24 dim=1 float32",
    "softmax 64x512x512 dim=1 bfloat16",
    "softmax 4x25976x64 dim=1 bfloat16",
    "group_norm 6x1127x13x44 groups=1 float32",
    "batch_norm 2224x21x256 bfloat16",
    "fused_add_rms_norm 33x8 normalized=1 float64",
    "rms_norm 90x4 normalized=1 float32",
]
# Rows that begin anywhere.
ODD = [
    "softmax 64x9345 dim=1 float16",
    "log_softmax 3x661167 dim=1 float32",
    "softmax_backward 300x7 dim=1 float32",
    "softmax_backward 16x957 dim=1 bfloat16",
    "softmax_backward 3x36957 dim=1 bfloat16",
    "group_norm 30x7x38 groups=1 float32",
    "group_norm_backward 3x5x35 groups=5 float32",
    "group_norm_backward 40x2x1001 groups=2 float32",
    "group_norm_backward 300x64x51 groups=1 float32",
    "group_norm_backward 300x5001x3 groups=1 float32",
    "fused_add_rms_norm 700x3 normalized=1 float64",
]
EXCHANGED = re.compile(r"shfl\.sync\.bfly\.b32\s+(%\w+)")
# Of 64 bits, a register of two that were exchanged.
JOINED = re.compile(r"mov\.b64\s+(%\w+), \{(%\w+), (%\w+)\}")
ADDED = re.compile(r"fma\.rn\.f\d+\s+%\w+, [^,]+, [^,]+, (%\w+);")


# Of aligned rows in inputs that begin beside a vector each lane has one element of it.
@pytest.mark.parametrize(("offset", "cases"), [(0, ALIGNED + ODD), (1, ALIGNED)], ids=["0", "1"])
def test_products_are_rounded_before_lanes_add_them(tmp_path, offset, cases):
    merged = {}
    for row in resources.survey([parse(case) for case in cases], [H200], folder=tmp_path, offset=offset, sass=False):
        ptx = (tmp_path / f"{row['kernel']}-{row['digest']}.ptx").read_text()
        assert "error" not in row
        exchanged = set(EXCHANGED.findall(ptx))
        exchanged |= {joined for joined, *halves in JOINED.findall(ptx) if exchanged & set(halves)}
        found = [added for added in ADDED.findall(ptx) if added in exchanged]
        if found:
            merged[row["case"], row["kernel"]] = found
    assert not merged
