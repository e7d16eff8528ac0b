# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import flag_gems
import pytest
import torch

from flag_gems_overrides import install, uninstall, use_overrides
from flag_gems_overrides.registration import upstream

pytestmark = [
    pytest.mark.filterwarnings("ignore:Warning only once for all operators"),
    pytest.mark.usefixtures("torch_library"),
]


class TestDispatch:
    def test_install_then_enable(self, x, enable, who):
        install()
        enable("softmax", "max")
        assert who(torch.softmax, x, 1) == ["ours"]
        assert who(torch.max, x) == ["ours"]
        assert who(torch.amax, x, 1) == []

    def test_install_then_enable_everything(self, x, who):
        install()
        flag_gems.enable(unused=[])
        for call in (lambda: torch.softmax(x, 1), lambda: torch.max(x, 1), lambda: torch.prod(x)):
            assert who(call)[0] == "ours"

    def test_install_then_use_gems(self, x, use_gems, who):
        install()
        with use_gems("softmax"):
            assert who(torch.softmax, x, 1) == ["ours"]
        assert who(torch.softmax, x, 1) == []

    def test_enable_then_install(self, x, enable, who):
        enable("softmax", "max")
        assert who(torch.max, x) == ["upstream"]
        install()
        assert who(torch.softmax, x, 1) == ["ours"]
        assert who(torch.max, x) == ["ours"]
        assert who(torch.amax, x, 1) == []
        uninstall()
        assert who(torch.softmax, x, 1) == ["upstream"]
        assert who(torch.max, x) == ["upstream"]

    def test_a_choice_of_overrides_over_an_enabled_flag_gems(self, x, enable, who):
        enable("softmax", "max")
        install(include=["max"])
        assert (who(torch.softmax, x, 1), who(torch.max, x)) == (["upstream"], ["ours"])
        install(exclude=["max"])
        assert (who(torch.softmax, x, 1), who(torch.max, x)) == (["ours"], ["upstream"])

    def test_use_gems_around_install(self, x, use_gems, who, state):
        before = state()
        with use_gems("softmax"):
            assert who(torch.softmax, x, 1) == ["upstream"]
            install()
            assert who(torch.softmax, x, 1) == ["ours"]
        assert who(torch.softmax, x, 1) == []
        uninstall()
        assert not before.differences(state())

    def test_use_gems_inside_an_enabled_flag_gems(self, x, enable, use_gems, who):
        enable("softmax")
        install()
        with use_gems("max"):
            assert (who(torch.softmax, x, 1), who(torch.max, x)) == (["ours"], ["ours"])
        assert (who(torch.softmax, x, 1), who(torch.max, x)) == (["ours"], [])
        uninstall()
        assert (who(torch.softmax, x, 1), who(torch.max, x)) == (["upstream"], [])

    def test_one_of_two_libraries_changes(self, x, enable, use_gems, who):
        """Whichever of the two is looked at first."""
        enable("softmax")
        with use_gems("max"):
            for include in (["softmax"], ["softmax", "max"], ["max"], ["softmax", "max"]):
                install(include=include)
                ours = {name: "ours" if name in include else "upstream" for name in ("softmax", "max")}
                assert who(torch.softmax, x, 1) == [ours["softmax"]]
                assert who(torch.max, x) == [ours["max"]]

    def test_a_library_of_the_callers_own(self, x, enable, who, overload_dump):
        before = overload_dump("_softmax")
        library = torch.library.Library("aten", "IMPL")
        enable("softmax", lib=library)
        install()
        assert who(torch.softmax, x, 1) == ["ours"]
        library._destroy()
        assert who(torch.softmax, x, 1) == []
        assert overload_dump("_softmax") == before
        install(include=["softmax"])
        assert overload_dump("_softmax") == before

    def test_a_library_that_is_dropped(self, x, enable, who, overload_dump):
        before = overload_dump("_softmax")
        enable("softmax", lib=torch.library.Library("aten", "IMPL"))
        install()
        assert who(torch.softmax, x, 1) == ["ours"]
        flag_gems.current_work_registrar = None
        assert who(torch.softmax, x, 1) == []
        assert overload_dump("_softmax") == before

    def test_enabled_while_installed_then_uninstalled(self, x, enable, who):
        install()
        enable("softmax", "max")
        uninstall()
        assert (who(torch.softmax, x, 1), who(torch.max, x)) == (["upstream"], ["upstream"])
        install(include=["max"])
        assert (who(torch.softmax, x, 1), who(torch.max, x)) == (["upstream"], ["ours"])

    def test_enabled_again_over_an_installation(self, x, enable, who):
        enable("softmax")
        install()
        enable("softmax", "max") if hasattr(flag_gems, "only_enable") else None
        assert who(torch.softmax, x, 1) == ["ours"]
        uninstall()
        assert who(torch.softmax, x, 1) == ["upstream"]

    @pytest.mark.parametrize("enabled", [False, True])
    def test_uninstall_restores_everything(self, enabled, names, enable, state):
        if enabled:
            enable(*names)
        before = state()
        install()
        during = state()
        changed = set(map(str, before.differences(during)))
        assert {str(("flag_gems", name)) for name in names} <= changed
        # But for native_layer_norm, from 5.3.4 on: what is registered stays, and what it calls is another.
        registered = {key: function.__name__ for key, function in upstream.rows(flag_gems).items()}
        assert {key for key, name in registered.items() if name in names} <= changed or not enabled
        install(include=["max", "softmax"])
        with use_overrides(exclude=["max"]), use_overrides(include=["max"]):
            install()
        uninstall()
        assert not before.differences(state())

    def test_in_use_gems_uninstall_restores_everything(self, names, use_gems, state):
        with use_gems(*names):
            before = state()
            install()
            uninstall()
            assert not before.differences(state())


class TestNativeBehindAnEnabledFlagGems:
    """PyTorch's own kernels are found even if flag_gems was enabled before the first installation."""

    def test_found_under_enable(self, fresh, names, enable, state, device, who):
        enable(*names)
        before = state()
        install()
        z = torch.tensor([1 + 2j, 3], device=device)
        assert torch.equal(torch.prod(z, 0), torch.tensor(3 + 6j, device=device))
        uninstall()
        assert not before.differences(state())
        assert who(torch.max, torch.ones(3, device=device)) == ["upstream"]

    def test_found_under_use_gems(self, fresh, names, use_gems, device, overload_dump):
        before = overload_dump("prod.dim_int")
        z = torch.tensor([1 + 2j, 3], device=device)
        with use_gems(*names):
            inside = overload_dump("prod.dim_int")
            install()
            assert torch.equal(torch.prod(z, 0), torch.tensor(3 + 6j, device=device))
            uninstall()
            assert overload_dump("prod.dim_int") == inside
        assert overload_dump("prod.dim_int") == before

    def test_a_library_that_was_destroyed_is_none_of_them(self, fresh, enable, x, who):
        library = torch.library.Library("aten", "IMPL")
        enable("softmax", lib=library)
        library._destroy()
        install()
        assert who(torch.softmax, x, 1) == []

    def test_refused_where_the_library_holds_more(self, fresh, enable, state):
        library = torch.library.Library("aten", "IMPL")
        enable("softmax", lib=library)
        library.impl("geometric_", lambda self: self, "Meta", allow_override=True)
        before = state()
        with pytest.raises(RuntimeError, match="also holds geometric_ for Meta"):
            install()
        assert not before.differences(state())
        library._destroy()
