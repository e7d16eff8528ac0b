# SPDX-License-Identifier: Apache-2.0
"""What is taken out of the dispatcher lives on for calls that have found it: nothing else keeps it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import flag_gems
import pytest
from torch.library import Library

from flag_gems_overrides import install, uninstall
from flag_gems_overrides.registration import dispatcher, retired

pytestmark = pytest.mark.filterwarnings("ignore:Warning only once for all operators")


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1e6)
    monkeypatch.setattr(retired, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(retired, "_kept", type(retired._kept)())
    return clock


def function():
    def softmax(x, dim, half_to_float):
        return x

    return softmax


def test_a_kernel_lives_for_a_while(clock):
    registered = function()
    library = Library("aten", "IMPL")
    library.impl("_softmax", registered, "CPU")
    before = sys.getrefcount(registered)
    retired.keep([retired.kernel("_softmax", "CPU")])
    library._destroy()
    clock.now += retired.SECONDS
    retired.keep([])
    assert sys.getrefcount(registered) == before
    clock.now += 1
    retired.keep([])
    assert sys.getrefcount(registered) == before - 1


def test_ours_over_flag_gems_registration(clock, enable):
    enable("softmax")
    registered = function()
    live = dispatcher.LiveRegistrations()
    key = flag_gems.runtime.device.dispatch_key
    live.update(flag_gems, {"_softmax": registered}, key)
    live.update(flag_gems, {}, key)
    kept = sys.getrefcount(registered)
    retired._kept.clear()
    assert sys.getrefcount(registered) == kept - 1


def test_flag_gems_own_while_they_are_lifted(clock):
    registered = function()
    library = Library("aten", "IMPL")
    library.impl("_softmax", registered, "CPU")
    with dispatcher.lifted(SimpleNamespace(aten_lib=library), {"_softmax": function()}, {"_softmax"}):
        kept = sys.getrefcount(registered)
        retired._kept.clear()
        assert sys.getrefcount(registered) == kept - 1
    library._destroy()


def test_switching_in_a_loop_keeps_no_more_than_of_the_last_seconds(clock, enable):
    enable("softmax", "max")
    for _ in range(5):
        install()
        uninstall()
    kept = len(retired._kept)
    for _ in range(20):
        clock.now += retired.SECONDS / 4
        install()
        uninstall()
    assert 0 < len(retired._kept) <= kept
