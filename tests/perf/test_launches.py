# SPDX-License-Identifier: Apache-2.0
"""What a record keeps of a launch."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from flag_gems_overrides.perf.launches import Launched


def test_a_launch_in_the_interpreter_has_grid_and_options_that_json_has():
    options = {"BLOCK": 64, "EPS": 0.5, "IDENTITY": float("-inf"), "dtype": torch.float32, "FLAT": True}
    assert Launched("rows", (torch.tensor(3), 1, 1), options, None).row() == {
        "kernel": "rows",
        "grid": [3, 1, 1],
        "options": {"BLOCK": 64, "EPS": 0.5, "IDENTITY": "-inf", "dtype": "torch.float32", "FLAT": True},
    }


def test_a_compiled_launch_has_what_it_takes_of_the_device():
    loaded = []
    compiled = SimpleNamespace(
        metadata=SimpleNamespace(shared=2048), n_regs=40, n_spills=3, _init_handles=lambda: loaded.append(True)
    )
    row = Launched("rows", (3, 1, 1), {}, compiled).row()
    assert loaded, "registers are known after loading"
    assert {name: row[name] for name in row if name not in ("kernel", "grid", "options")} == {
        "registers": 40,
        "spilled_bytes": 12,
        "shared_bytes": 2048,
    }
