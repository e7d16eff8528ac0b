# SPDX-License-Identifier: Apache-2.0
"""The variance of a row is rounded before eps is added to it.

Where it has no other use, the compiler makes one operation of both: skip_layer_norm, which stores statistics only for
a gradient, had other bits with one than without. Only the compiler shows it.
"""

from __future__ import annotations

import re

from flag_gems_overrides.perf import resources
from flag_gems_overrides.perf.cases import parse
from flag_gems_overrides.perf.devices import H200

CASES = {
    "skip_layer_norm 700x3 normalized=1 float32": "layer_norm_columns",
    "skip_layer_norm 19x1001 normalized=1 float32": "layer_norm_rows",
    "skip_layer_norm 700x3 normalized=1 float64": "layer_norm_columns",
}
# ``fma.rn.f32 %r3, %r1, %r2, 0f00000000``, then ``add.f32 %r4, %r3, %eps``, then ``rsqrt.approx.ftz.f32 %r5, %r4``.
ROOT = re.compile(r"rsqrt\.approx[.\w]*\s+%\w+, (%\w+);")
SUM = r"add\.[.\w]+\s+{}, (%\w+), (%\w+);"
ROUNDED = r"fma\.rn[.\w]*\s+{}, [%\w]+, [%\w]+, 0[fd]0+;"


def test_variance_is_rounded_before_eps_is_added(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "processes", lambda: 1)  # importing takes longer than compiling these
    kernels = {}
    for row in resources.survey([parse(case) for case in CASES], [H200], folder=tmp_path, sass=False):
        kernels[row["case"]] = row["kernel"]
        ptx = (tmp_path / f"{row['kernel']}-{row['digest']}.ptx").read_text()
        roots = ROOT.findall(ptx)
        assert roots, row["case"]
        for root in roots:
            summands = re.search(SUM.format(root), ptx)
            assert summands, row["case"]
            assert any(re.search(ROUNDED.format(each), ptx) for each in summands.groups()), row["case"]
    assert kernels == CASES
