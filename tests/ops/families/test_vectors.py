# SPDX-License-Identifier: Apache-2.0
"""Rows that are whole vectors are loaded as vectors.

Triton does so of its own accord only for multiples of 16 elements; for others a kernel has to say so, or each load is
of one element. Only the compiler shows it.
"""

from __future__ import annotations

import re

from flag_gems_overrides.perf import resources
from flag_gems_overrides.perf.cases import parse
from flag_gems_overrides.perf.devices import H200

# Cases by the bytes that a load takes: the greatest divisor of a row that is no more than a vector.
LOADS = {
    16: [
        "amax 70000x200 dim=1 bfloat16",
        "max_dim 70000x200 dim=1 float32",
        "logsumexp 70000x200 dim=1 float32",
        "softmax 70000x200 dim=1 bfloat16",
        "softmax_backward 64x512x512 dim=1 float32",
        "layer_norm 8192x200 normalized=1 bfloat16",
        "layer_norm_backward 8192x8200 normalized=1 bfloat16",
        "rms_norm 1165x82600 normalized=1 bfloat16",
        "rms_norm 64x694804 normalized=1 float32",
        "layer_norm 486x399816 normalized=1 float32",
        "layer_norm_backward 2x4576216 normalized=1 bfloat16",
        "batch_norm 16x32x8200 bfloat16",
        "batch_norm 300000x48x3 bfloat16",
        "batch_norm 4326x51675 bfloat16",
        "batch_norm_backward 1917328x76 bfloat16",
        "batch_norm_backward 14665x8523 bfloat16",
        "batch_norm_backward 16x352x39489 float16",
        "batch_norm_backward 3x4232x759 float16",
        "group_norm 300x32x82600 groups=32 bfloat16",
        "group_norm_backward 300x32x82600 groups=32 bfloat16",
        "group_norm 64x1024x14x14 groups=32 bfloat16",
        "group_norm_backward 64x1024x14x14 groups=32 bfloat16",
        "group_norm 151x1x18549 groups=1 float16",
        "group_norm_backward 256x512x65 groups=16 float32",
        "group_norm_backward 20x25648x24 groups=2 float16",
        "group_norm_backward 2x2564x1032 groups=2 float16",
        "cross_entropy_loss 1000x200 bfloat16",
        "cumsum 70000x200 dim=1 bfloat16",
        "cumsum 70000x82600 dim=1 float32",
        "cumsum 8192x4097 dim=1 bfloat16",
        "cumsum 128x329155 dim=1 float16",
        "cumsum 2735123x41 dim=1 bfloat16",
    ],
    8: [
        "batch_norm 64x256x14x14 bfloat16",
        "var_mean 70000x200 dim=1 bfloat16",  # 15.5 us, in 16 bytes 19.5 (H200)
    ],
    # A warp loads a row of 32 columns: no lane has to hear of another's rows.
    4: ["cumsum 64x300x200 dim=1 float32"],
}
# And by those that a store takes.
STORES = {
    16: ["nll_loss2d_backward 8x100x256x256 bfloat16"],
    8: ["nll_loss2d_backward 1445x7x26532x1 bfloat16"],
}
# What else these cases launch: sums over programs, whose rows are float32 and lie one below the other.
SUMS = {"sum_partials", "batch_norm_flat_merge", "batch_norm_backward_flat_merge"}
# ``ld.global.v4.b32``, and ``cp.async.cg.shared.global [..], [..], 0x10``.
LOAD = re.compile(r"ld\.global[\w.:]*?(?:\.v(\d))?\.b(\d+)|cp\.async\.c[ag]\.shared\.global [^,]+,[^,]+, (0x\w+|\d+)")
STORE = re.compile(r"st\.global[\w.:]*?(?:\.v(\d))?\.b(\d+)")


def test_rows_of_whole_vectors_are_loaded_and_gradients_stored_as_vectors(tmp_path):
    cases = [parse(case) for group in (*LOADS.values(), *STORES.values()) for case in group]
    loads: dict[str, dict[str, set[int]]] = {}
    stored = {}
    for row in resources.survey(cases, [H200], folder=tmp_path, sass=False):
        ptx = (tmp_path / f"{row['kernel']}-{row['digest']}.ptx").read_text()
        widths = {_width(*match.groups()) for match in LOAD.finditer(ptx)}
        loads.setdefault(row["case"], {}).setdefault(row["kernel"], set()).update(widths)
        stored[row["case"]] = {_width(*match.groups(), None) for match in STORE.finditer(ptx)}
    widest = {case: {max(loads[case][name]) for name in loads[case] if name not in SUMS} for case in loads}
    assert {case: widest[case] for group in LOADS.values() for case in group} == _by_case(LOADS)
    assert {case: stored[case] for group in STORES.values() for case in group} == _by_case(STORES)


def _by_case(cases: dict[int, list[str]]) -> dict[str, set[int]]:
    return {case: {width} for width, group in cases.items() for case in group}


def _width(lanes: str | None, bits: str | None, copied: str | None) -> int:
    return int(copied, 0) if bits is None else int(lanes or 1) * int(bits) // 8
