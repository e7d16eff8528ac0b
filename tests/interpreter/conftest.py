# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from flag_gems_overrides import interpreter
from flag_gems_overrides.registration import compat


@pytest.fixture(autouse=True)
def _in_the_interpreter() -> None:
    if not interpreter.is_active():
        pytest.skip("Triton compiles where there is a GPU")


@pytest.fixture(autouse=True)
def _right_libentry(_in_the_interpreter):
    """Upstream's LibEntry loses constexprs on a Triton newer than it knows."""
    compat.apply()
    yield
    compat.undo()


@pytest.fixture(autouse=True)
def bounded() -> None:
    """These tests say themselves when bounds are checked."""
