# SPDX-License-Identifier: Apache-2.0
"""benchmark/beside_amax.py times what it says."""

from __future__ import annotations

import pytest
import scripts
import torch

beside_amax = scripts.load("beside_amax")


@pytest.mark.parametrize("dim", [0, 1])
def test_every_reduction_is_the_one_of_its_name(dim, device):
    x = torch.randn(5, 7, device=device)
    want = {
        "amax": x.amax(dim),
        "sum_dim": x.sum(dim),
        "mean_dim": x.mean(dim),
        "any_dim": x.any(dim),
        "var_mean": torch.var_mean(x, dim),
        **{f"vector_norm ord={o}": torch.linalg.vector_norm(x, o, dim) for o in beside_amax.ORDERS},
    }
    got = {name: call(x, dim) for name, call in beside_amax.reductions().items()}
    assert got.keys() == want.keys()
    for name, result in got.items():
        torch.testing.assert_close(result, want[name])


def test_a_line_that_was_cut_off_is_measured_again(tmp_path):
    path = tmp_path / "record.jsonl"
    assert beside_amax.whole_lines(path) == ""
    path.write_text('{"key": "a"}\n{"ke')
    assert beside_amax.whole_lines(path) == '{"key": "a"}\n'
