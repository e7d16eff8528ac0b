# SPDX-License-Identifier: Apache-2.0
"""Which answers agree; tests/perf/test_counting.py and tests/gpu measure."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from flag_gems_overrides.operators import Operator
from flag_gems_overrides.perf import meters, providers, records
from flag_gems_overrides.perf.answers import Reference
from flag_gems_overrides.perf.cases import parse

from . import rows

X = torch.arange(12.0).flip(0).view(4, 3)


class Tuned:
    """Like argmin that tunes on its first call, for which all configurations write, and then leaves half out."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        self.calls += 1
        out = torch.empty(x.shape[0], dtype=torch.int64)
        written = len(out) if self.calls == 1 else len(out) // 2
        out[:written] = x.argmin(dim)[:written]
        return out


def agrees(op, function, *arguments, must_run=True):
    return meters._agrees(op, function, arguments, Reference(op, arguments, getattr(torch, op)), must_run)


def test_what_a_tuned_kernel_leaves_unwritten_does_not_agree():
    assert agrees("argmin", torch.argmin, X, 1) is True
    assert agrees("argmin", Tuned(), X, 1) is False


def test_nan_is_left_where_values_are_not_written():
    def half(x, dim):
        out = torch.empty_like(x[:, 0])
        out[:2] = x.amax(dim)[:2]
        return out

    assert agrees("amax", half, X, 1) is False


@pytest.mark.parametrize("index", [3, -1, 2**62])
def test_an_index_out_of_range_does_not_agree(index):
    assert agrees("argmin", lambda x, dim: torch.full((4,), index), X, 1) is False


def test_why_a_provider_cannot_run_is_said_and_an_override_must():
    def broken(x, dim):
        raise ValueError("first\nsecond")

    assert agrees("amax", broken, X, 1, must_run=False) == "ValueError: first"
    with pytest.raises(ValueError, match="first"):
        agrees("amax", broken, X, 1)


def test_the_head_names_the_peers(monkeypatch):
    timer = SimpleNamespace(bandwidth=lambda: (4243.0, 4600.0), cold=lambda: rows.COLD)
    monkeypatch.setattr(meters, "Timer", lambda device: timer)
    monkeypatch.setattr(meters.quality, "noise", lambda timer: 0.01)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    head = meters.DeviceMeter("kernel", "core", ("quack", "compile", "quack")).head
    assert head["peers"] == ["compile", "quack"]
    records.check({"kind": "session", "schema": records.SCHEMA, **head}, "head")
    assert "peers" not in meters.DeviceMeter("kernel", "core").head


@pytest.mark.skipif(torch.cuda.is_available(), reason="counts are made where there is no GPU")
def test_what_is_left_unwritten_does_not_agree_when_counted(monkeypatch):
    case = parse("amax 6x40 dim=1 float32")
    clean = meters.CountMeter("interpreter").measure(case)["providers"]["override"]
    assert clean["agrees"]
    implementation, supports = providers.OPERATORS["amax"].load()

    def half(x, dim):
        answer = implementation(x, dim)
        out = torch.empty_like(answer)
        out[:3] = answer[:3]
        return out

    monkeypatch.setattr(Operator, "load", lambda self: (half, supports))
    assert not meters.CountMeter("interpreter").measure(case)["providers"]["override"]["agrees"]
