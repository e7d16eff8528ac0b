# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib

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


@pytest.fixture
def block_pointers():
    """What a kernel with block pointers is expected to do: to run, or the error of a Triton that has none any more."""
    # pytest imports this file before it is decided whether Triton compiles.
    import triton.language as tl
    from triton.language.semantic import TritonSemantic
    from triton.runtime.errors import InterpreterError

    if hasattr(TritonSemantic, "make_block_ptr") or hasattr(tl.core, "_block_ptr"):
        return contextlib.nullcontext()
    return pytest.raises(InterpreterError, match="Block pointers have been removed")
