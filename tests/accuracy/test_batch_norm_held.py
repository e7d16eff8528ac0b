# SPDX-License-Identifier: Apache-2.0
"""Batch norms whose programs hold one channel in tiles, of 16 bits as pairs."""

from __future__ import annotations

import itertools

import pytest
import torch
from accuracy.batch_norms import LAYOUTS, Case, check, check_gradients
from accuracy.reductions import each

from flag_gems_overrides.ops.families.batch_norm import plan, types

# Runs of whole vectors, of parts of them and of single elements; one tile that is whole; one run.
SHAPES = [(3, 5, 14, 14), (7, 3, 7, 7), (9, 2, 8, 8), (4, 3, 128), (5, 1, 10, 15), (1, 2, 331), (2, 3, 500)]
HELD = types.Configuration("channels", 1, 1, warps_per_sm=8)
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def held_tiles(monkeypatch, device_with):
    device_with()
    monkeypatch.setattr(plan, "choose", lambda problem, limits: HELD)


@each("dtype", DTYPES)
@each("shape", SHAPES)
def test_channels_in_tiles(shape, dtype, device):
    check(Case(shape, dtype, device))


@pytest.mark.parametrize("misaligned", [False, True])
@each("dtype", DTYPES)
@each("shape", [(7, 3, 257), (2, 3, 1031), (4, 2, 13, 23), (5, 2, 517)])
def test_channels_in_tiles_with_heads_and_tails(shape, dtype, misaligned, device, monkeypatch):
    monkeypatch.setattr(plan, "choose", lambda problem, limits: HELD._replace(warps=4, loads=1))
    case = Case(shape, dtype, device)
    if misaligned:
        case.x, case.dy = (LAYOUTS["misaligned"](tensor) for tensor in (case.x, case.dy))
    check(case)


@pytest.mark.parametrize("loads", [0, 1])
def test_a_large_mean_is_exact(loads, device, monkeypatch):
    """What a mean of many float32 is rounded by is found from the deviations, those of heads and tails too."""
    monkeypatch.setattr(plan, "choose", lambda problem, limits: HELD._replace(warps=4, loads=loads))
    torch.manual_seed(0)
    for _ in range(8):
        case = Case((5, 2, 517 if loads else 516), torch.float32, device, mean=1e4)
        mean, truth = case.ours().mean, case.exact().mean
        torch.testing.assert_close(mean.double().flatten(), truth.flatten(), rtol=2**-24, atol=0)


@each("dtype", DTYPES)
@each("shape", SHAPES)
def test_misaligned_channels_in_tiles(shape, dtype, device):
    case = Case(shape, dtype, device)
    case.x, case.dy = (LAYOUTS["misaligned"](tensor) for tensor in (case.x, case.dy))
    check(case)


@each("shape", SHAPES)
def test_some_gradients_of_channels_in_tiles(shape, device):
    case = Case(shape, torch.bfloat16, device)
    for training in (True, False):
        exact, native = case.exact(training), case.native(training)
        for mask in itertools.product([True, False], repeat=3):
            check_gradients(mask, case.ours(training, mask), native, exact)
