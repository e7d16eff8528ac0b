# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import flag_gems
import pytest
import reproductions
import torch

from flag_gems_overrides import enable, harmful, install, uninstall
from flag_gems_overrides.harmful import HARMFUL, Harmful
from flag_gems_overrides.registration import enabling, upstream

ROOT = Path(__file__).parents[2]
CAPABILITY = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
# Two of a GPU's threads store to one element here, in any order.
RACE = pytest.mark.xfail(CAPABILITY is not None, reason="a race", strict=False)
HERE = [
    pytest.param(each, marks=[RACE] if each.name == "nll_loss_backward" else [], id=each.name)
    for each in HARMFUL
    if each.holds(flag_gems.__version__, CAPABILITY)
]


class TestData:
    @pytest.mark.parametrize("each", HERE)
    def test_each_reproduction_shows_it(self, each, device):
        """If it no longer does, flag_gems has changed: the row's versions are to be closed."""
        registered = {function.__name__ for function in upstream.rows(flag_gems).values()}
        assert each.name in registered
        if device == "cpu":
            assert reproductions.shows(each, device)
        else:  # after an illegal memory access a process can use its GPU no more
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                assert process.submit(reproductions.shows, each, device).result()

    def test_versions_and_devices(self):
        row = Harmful("mm", "", "", versions=">=5.0.2,<5.4", capabilities=((9, 0), (9, 9)))
        assert row.holds("5.0.2", (9, 0))
        assert row.holds("5.3.4.post1.dev166+ged2508bcb", (9, 0))
        assert not row.holds("4.2.0", (9, 0))
        assert not row.holds("5.4.0", (9, 0))
        assert not row.holds("5.0.2", (8, 0))
        assert not row.holds("5.0.2", None)
        assert not row.holds("unknown", (9, 0))

    def test_the_documented_table_is_this_one(self):
        assert harmful.table() in (ROOT / "docs" / "harmful.md").read_text()


@pytest.mark.usefixtures("torch_library")
class TestEnable:
    @pytest.fixture
    def subtraction(self, monkeypatch):
        """That of flag_gems is harmful, and has no override."""
        monkeypatch.setattr(harmful, "HARMFUL", (*HARMFUL, Harmful("sub", "", "")))

    @pytest.mark.usefixtures("subtraction")
    def test_overrides_are_in_force_and_harmful_operators_are_not(self, x, who):
        with enable() as enabled:
            assert who(torch.softmax, x, 1) == ["ours"]
            assert "softmax" in enabled.overrides
            names = {each.name for each in enabled.left_out}
            assert "sub" in names
            assert not {"layer_norm_backward", "sum", "batch_norm"} & names  # overrides stand there
            registered = {entry.split("/")[1] for entry in enabled._library._op_impls}
        assert {"add.Tensor", "_softmax", "sum"} <= registered
        assert "sub.Tensor" not in registered
        assert who(torch.softmax, x, 1) == []

    @pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")  # upstream's subtraction, in the gradient
    def test_var_is_composed_of_the_override_above_autograd(self, x, caplog):
        def variance(x):
            return torch.var(x, 1, False).sum()

        expected = torch.func.grad(variance)(x)
        with enable(), caplog.at_level("DEBUG", logger="flag_gems.ops.var"):
            torch.testing.assert_close(torch.func.grad(variance)(x), expected)
        assert "GEMS VAR_CORRECTION" in caplog.messages

    def test_everything_is_as_it_was_afterwards(self, state):
        before = state()
        enable().disable()
        uninstall()
        assert not before.differences(state())

    def test_the_choice_before_is_the_choice_after(self):
        before = install(include=["max"])
        enabled = enable()
        enabled.disable()
        enabled.disable()
        assert enabling.installation._installation.names == before

    def test_exclude(self, x, who):
        with enable(exclude=["softmax", "add", "layer_norm_backward"]) as enabled:
            assert who(torch.softmax, x, 1) == []
            assert "softmax" not in enabled.overrides
            assert not any(entry.startswith("aten/add.Tensor/") for entry in enabled._library._op_impls)
            assert "layer_norm_backward" in {each.name for each in enabled.left_out}

    def test_bad_names(self, state):
        before = state()
        with pytest.raises(ValueError, match="registers no function named"):
            enable(exclude=["no_such_op"])
        with pytest.raises(TypeError, match="must be a list of names"):
            enable(exclude="add")
        assert not before.differences(state())

    @pytest.mark.usefixtures("subtraction")
    def test_what_is_left_out_is_logged_once(self, monkeypatch, caplog):
        monkeypatch.setattr(enabling, "_said", set())
        for _ in range(2):
            with enable():
                pass
        lines = [record.getMessage() for record in caplog.records if record.name == enabling.logger.name]
        assert len(lines) == 1
        assert "sub" in lines[0]


def test_what_is_left_out_is_an_argument_of_enable_by_the_name_that_it_has():
    def old(lib=None, unused=None): ...

    def new(lib=None, exclude=None): ...

    assert enabling.exclude_argument(SimpleNamespace(enable=old)) == "unused"
    assert enabling.exclude_argument(SimpleNamespace(enable=new)) == "exclude"
