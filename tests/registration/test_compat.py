# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib.metadata
import sys
from types import ModuleType

import flag_gems
import pytest
import torch

import flag_gems_overrides
from flag_gems_overrides.registration import compat


@pytest.fixture(autouse=True)
def not_applied(as_found):
    """As a process finds it: the other tests of this folder run with the remedy applied."""
    compat.undo()
    yield
    compat.apply()


@pytest.fixture
def newer_triton(monkeypatch):
    """``LibEntry`` as it is on the first Triton version that it does not know."""
    major, minor = compat.newest_known()
    monkeypatch.setattr(sys.modules["flag_gems.utils.libentry"], "major_version", major)
    monkeypatch.setattr(sys.modules["flag_gems.utils.libentry"], "minor_version", minor + 1)


def seen() -> tuple[int, int]:
    libentry = sys.modules["flag_gems.utils.libentry"]
    return libentry.major_version, libentry.minor_version


def launch_upstream_twice(device):
    x = torch.arange(12.0, device=device).reshape(3, 4)
    return [flag_gems.softmax(x, 1) for _ in range(2)]


@pytest.mark.usefixtures("newer_triton")
class TestOnANewerTriton:
    def test_without_the_remedy_the_second_launch_fails(self, device):
        if device != "cpu":
            pytest.skip("on a GPU it would launch with shifted arguments: undefined, possibly a crash")
        with pytest.raises(TypeError, match=r"missing .* argument"):
            launch_upstream_twice(device)

    def test_with_it_both_launches_are_right(self, device):
        compat.apply()
        first, second = launch_upstream_twice(device)
        compat.undo()
        torch.testing.assert_close(first, torch.softmax(torch.arange(12.0, device=device).reshape(3, 4), 1))
        assert torch.equal(first, second)

    def test_install_applies_it_and_uninstall_undoes_it(self):
        before, known = seen(), compat.newest_known()
        flag_gems_overrides.install()
        flag_gems_overrides.install(include=["max"])
        assert seen() == known
        flag_gems_overrides.uninstall()
        assert seen() == before

    def test_nothing_installed_needs_none(self):
        before = seen()
        with flag_gems_overrides.use_overrides(include=[]):
            assert seen() == before

    def test_applied_alone_it_outlives_an_installation(self):
        before = seen()
        compat.apply()
        with flag_gems_overrides.use_overrides():
            pass
        assert seen() == compat.newest_known()
        compat.undo()
        assert seen() == before

    def test_applied_inside_an_installation_it_outlives_that(self):
        before = seen()
        with flag_gems_overrides.use_overrides():
            compat.apply()
        assert seen() == compat.newest_known()
        compat.undo()
        assert seen() == before

    def test_running_is_the_real_version(self):
        before = seen()
        assert compat.running() == before
        compat.apply()
        assert compat.running() == before
        compat.undo()


@pytest.mark.parametrize("minor", [3, 5])
def test_a_known_triton_is_left_alone(minor, monkeypatch):
    monkeypatch.setattr(sys.modules["flag_gems.utils.libentry"], "minor_version", minor)
    monkeypatch.setattr(compat, "_has_typed_block_pointers", lambda: True)
    assert compat.repairs() == []
    compat.apply()
    assert seen() == (3, minor)
    compat.undo()


def test_the_newest_known_triton_needs_no_repair_and_the_next_does(monkeypatch):
    major, minor = compat.newest_known()
    monkeypatch.setattr(compat, "_has_typed_block_pointers", lambda: True)
    monkeypatch.setattr(compat, "running", lambda: (major, minor))
    assert compat.repairs() == []
    monkeypatch.setattr(compat, "running", lambda: (major, minor + 1))
    (repair,) = compat.repairs()
    assert repair.endswith(f"on Triton 3.{minor + 1}; install() lets it see 3.{minor}")


def test_block_pointers_are_there_up_to_triton_3_7():
    version = tuple(map(int, importlib.metadata.version("triton").split(".")[:2]))
    assert compat._has_typed_block_pointers() == (version < (3, 8))


class TestPointwiseKernels:
    """flag_gems generates them with block pointers, which from Triton 3.8 on have no element type."""

    @pytest.fixture(params=[True, False], ids=["block pointers", "none"])
    def typed(self, request, monkeypatch):
        monkeypatch.setattr(compat, "_has_typed_block_pointers", lambda: request.param)
        return request.param

    def test_block_pointers_are_avoided_where_triton_lacks_them(self, typed):
        config = compat._pointwise_config()
        assert config.prefer_block_pointer
        compat.apply()
        assert config.prefer_block_pointer is typed
        compat.undo()
        assert config.prefer_block_pointer

    def test_a_choice_of_the_user_stays(self, monkeypatch):
        config = compat._pointwise_config()
        monkeypatch.setattr(config, "prefer_block_pointer", False)
        monkeypatch.setattr(compat, "_has_typed_block_pointers", lambda: False)
        compat.apply()
        compat.undo()
        assert not config.prefer_block_pointer

    def test_repairs_say_so(self, typed):
        assert any("block pointers" in repair for repair in compat.repairs()) is not typed

    @pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")
    def test_addition_on_this_triton(self, device):
        x, y = torch.randn(5, 7, device=device), torch.randn(7, 5, device=device).t()
        with flag_gems_overrides.use_overrides():
            actual = flag_gems.add(x, y)
        torch.testing.assert_close(actual, x + y)


def test_undo_without_apply_is_an_error():
    with pytest.raises(RuntimeError, match=r"undo\(\) without"):
        compat.undo()


def test_newest_known_is_what_the_installed_flag_gems_tests_for():
    expected = {"4.2.0": (3, 5)}
    assert compat.newest_known() == expected.get(flag_gems.__version__, (3, 6))


def test_a_flag_gems_that_tests_for_no_range_needs_no_remedy(monkeypatch):
    monkeypatch.setattr(compat.inspect, "getsource", lambda module: "version = 3")
    before = seen()
    assert compat.newest_known() is None
    compat.apply()
    assert seen() == before
    compat.undo()


def test_the_module_not_the_decorator_is_changed():
    assert isinstance(compat._libentry(), ModuleType)
