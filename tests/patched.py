# SPDX-License-Identifier: Apache-2.0
"""A flag_gems with our patches in place of our overrides: what tests/accuracy calls when FLAGGEMS_PATCHED is set."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

from flag_gems_overrides.operators import OPERATORS, Operator
from flag_gems_overrides.registration import compat, upstream
from flag_gems_overrides.upstreaming.series import FIXES
from flag_gems_overrides.upstreaming.series import PACKAGE as THEIRS

OURS = "flag_gems_overrides.ops"

# What the fixes alone answer otherwise than the tests ask, in the interpreter, and why that is left: a pattern of test
# ids, and the reason. A test that passes after all is an error.
DIFFERENCES = (
    (
        r"test_layernorm\.py::test_equal_elements_are_exactly_0\[(5-7|3-33|2-100|3-1001)-float32\]"
        r"|test_layernorm\.py::test_equal_elements_of_rows_too_long_for_all_programs_are_exactly_0\[float32\]",
        "upstream's mean is a sum divided by N, rounded twice; PyTorch's is no more exact",
    ),
    (
        r"test_layernorm\.py::test_values_that_are_not_finite_.*\[\((4,16,64|16,301)\)-1--?inf\]",
        "the mean of a row with an infinity is that infinity, PyTorch's is NaN; the row's results are NaN in both",
    ),
    (
        r"test_nll_loss\.py::test_a_target_that_is_no_class_",
        "upstream asserts it in Triton's debug mode alone",
    ),
    (
        r"test_nll_loss\.py::test_errors_are_pytorchs",
        "upstream asserts shapes that do not go together: AssertionError, not RuntimeError",
    ),
    (
        r"test_reduction\.py::test_the_type_of_the_result\[(max|min)_dim\]",
        "called by itself upstream's function returns its own named tuple; through the dispatcher it is PyTorch's",
    ),
    (
        r"test_reduction\.py::test_no_elements_and_dimensions_that_are_not_there\[\(1(,1){64}\)-64-\w+-"
        r"(prod_dim|max_dim|min_dim|argmax|argmin|any_dim|all_dim|count_nonzero)\]",
        "a tensor of 65 dimensions, which PyTorch refuses to reduce, is reduced",
    ),
    (
        r"test_reduction\.py::test_no_elements_and_dimensions_that_are_not_there\[.+-1-float32-vector_norm--inf\]",
        "the error says that the tensor is empty, PyTorch's also which dimension",
    ),
    (
        r"test_pairs\.py::test_aminmax_out",
        "the error names the dtype as Python does, torch.float64; PyTorch's own says double",
    ),
    (
        r"test_rms_norm\.py::test_with_its_statistic\[\(16,301\)-",
        "compared bit by bit with our rms_norm, whose last bits differ: it has no fix",
    ),
    (
        r"test_moments\.py::(test_beside_a_large_mean|test_several_dimensions\[\[.+\]\])"
        r"|test_moments\.py::test_shapes\[\(3,3001,5\)-float32\]",
        "upstream's variance is of one pass in float32 without a shift: right, but for more roundings than ours",
    ),
)


def fixed() -> list[Operator]:
    """The operators of the loaded flag_gems that a fix of the generic file is written for."""
    import flag_gems

    rows = [operator for operator in OPERATORS.values() if (FIXES / f"{operator.module}.patch").exists()]
    return [operator for operator in rows if not upstream.predates(operator, flag_gems)]


def fixes_alone(folder: str) -> bool:
    """Whether the flag_gems in a folder has no kernels of ours."""
    return not (Path(folder) / "flag_gems/runtime/backend" / THEIRS.replace(".", "/") / "launch").exists()


def concerned(module: ModuleType, name: str | None) -> bool:
    """Whether a test of this module, of the operator of this name if it is one's, calls a file that a fix changed.

    Those of tensors of more than 2^31 elements do not count: they run a few programs of a launch that they know.
    """
    if module.__name__.endswith("test_far"):
        return False
    if name in OPERATORS:
        return OPERATORS[name] in fixed()
    return any(getattr(value, "__module__", "").startswith("flag_gems.ops.") for value in vars(module).values())


def difference(test: str) -> str | None:
    """Why the fixes alone do not pass a test, by its id; None if they should."""
    return next((reason for pattern, reason in DIFFERENCES if re.search(pattern, test)), None)


def stand_in(folder: str) -> None:
    """Let ``flag_gems_overrides.ops`` be what the patches made of the flag_gems in ``folder``.

    Kernels that they added take our files' place, and a function that this flag_gems has not yet is ours, on the
    patched one's helpers. If they are fixes alone, our modules get the functions of the files that these changed.
    """
    import flag_gems

    home = Path(flag_gems.__file__).parent
    assert home.parent == Path(folder).resolve(), f"flag_gems is {home}, not the one in {folder}"
    if fixes_alone(folder):
        compat.apply()  # these go through LibEntry, and the Triton may be newer than it knows
        for operator in fixed():
            setattr(
                importlib.import_module(f"{OURS}.{operator.module}"), operator.name, getattr(flag_gems, operator.name)
            )
        return
    ours, theirs = importlib.import_module(OURS), importlib.import_module(THEIRS)
    theirs.__path__ = [*theirs.__path__, *ours.__path__]
    for name in [name for name in sys.modules if name.startswith(f"{OURS}.")]:
        del sys.modules[name]
    sys.modules[OURS] = theirs
    for module in dict.fromkeys(operator.module for operator in OPERATORS.values()):
        importlib.import_module(f"{THEIRS}.{module}")
    for name in [name for name in sys.modules if name.startswith(f"{THEIRS}.")]:
        sys.modules[name.replace(THEIRS, OURS)] = sys.modules[name]
    for override in OPERATORS.values():
        if not upstream.predates(override, flag_gems):
            function = getattr(sys.modules[f"{THEIRS}.{override.module}"], override.name)
            assert getattr(flag_gems, override.name) is function, f"flag_gems.{override.name} is not the patched one"
