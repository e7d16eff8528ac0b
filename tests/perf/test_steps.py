# SPDX-License-Identifier: Apache-2.0
"""A step is a function of a module, named in one word."""

from __future__ import annotations

import sys

import pytest

from flag_gems_overrides.perf import steps


@pytest.mark.parametrize("name", ["train", "train:", ":step", "train:step:again", ""])
def test_a_name_of_another_form_is_refused(name):
    with pytest.raises(steps.StepError, match=f"^{name}: not of the form MODULE:FUNCTION, such as train:step"):
        steps.load(name)


def test_a_step_of_the_working_directory_is_found(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (tmp_path / "my_training.py").write_text("def step():\n    return 7\n")
    assert steps.load("my_training:step")() == 7
    monkeypatch.delitem(sys.modules, "my_training")


def test_errors_of_the_module_are_passed_on():
    with pytest.raises(AttributeError, match="no_step"):
        steps.load("json:no_step")
