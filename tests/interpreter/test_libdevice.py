# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from flag_gems.utils.triton_lang_helper import tl_extra_shim

from flag_gems_overrides import interpreter

UNARY = {
    "acos": torch.acos,
    "atan": torch.atan,
    "erf": torch.erf,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "fast_erf": torch.erf,
    "fast_tanh": torch.tanh,
    "log": torch.log,
    "rint": torch.round,
    "rsqrt": torch.rsqrt,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "trunc": torch.trunc,
}
BINARY = {
    "atan2": torch.atan2,
    "div_rn": torch.div,
    "fmod": torch.fmod,
    "pow": torch.pow,
}
PREDICATES = {
    "finitef": torch.isfinite,
    "isfinited": torch.isfinite,
    "isinf": torch.isinf,
    "isnan": torch.isnan,
}


@triton.jit
def _unary(x_ptr, out_ptr, FUNCTION: tl.constexpr):
    i = tl.arange(0, 8)
    tl.store(out_ptr + i, FUNCTION(tl.load(x_ptr + i)))


@triton.jit
def _binary(x_ptr, y_ptr, out_ptr, FUNCTION: tl.constexpr):
    i = tl.arange(0, 8)
    tl.store(out_ptr + i, FUNCTION(tl.load(x_ptr + i), tl.load(y_ptr + i)))


def test_all_functions_are_tested():
    ours = {name for name, value in vars(tl_extra_shim).items() if callable(value) and not name.startswith("_")}
    assert ours == {*UNARY, *BINARY, *PREDICATES, "div_rz"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name: str, dtype: torch.dtype):
    x = torch.tensor([0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.95, 1.0], dtype=dtype)
    # Halves are computed in float32, as by hardware, and stored as such.
    out = torch.empty(8, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    _unary[(1,)](x, out, FUNCTION=getattr(tl_extra_shim, name))
    torch.testing.assert_close(out, UNARY[name](x.to(out.dtype)))


@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name: str):
    x = torch.tensor([0.5, 1.5, 2.5, 7.0, 3.25, 9.0, 0.0, 1.0])
    y = torch.tensor([2.0, 0.25, 1.5, 3.0, 2.0, 4.0, 5.0, 1.0])
    out = torch.empty(8)
    _binary[(1,)](x, y, out, FUNCTION=getattr(tl_extra_shim, name))
    torch.testing.assert_close(out, BINARY[name](x, y))


def test_div_rz_rounds_towards_zero():
    x, y = torch.rand(2, 8) + 0.5
    out = torch.empty(8)
    for sign in (1, -1):
        _binary[(1,)](sign * x, y, out, FUNCTION=tl_extra_shim.div_rz)
        exact = sign * x.double() / y.double()
        assert (out.double().abs() <= exact.abs()).all()
        assert (torch.nextafter(out, sign * torch.full_like(out, torch.inf)).double().abs() > exact.abs()).all()


@pytest.mark.parametrize("name", PREDICATES)
def test_predicates(name: str):
    x = torch.tensor([1.0, torch.inf, -torch.inf, torch.nan, 0.0, -1.0, 1e38, -0.0])
    out = torch.empty(8, dtype=torch.bool)
    _unary[(1,)](x, out, FUNCTION=getattr(tl_extra_shim, name))
    assert torch.equal(out, PREDICATES[name](x))


@triton.jit
def _scalar(x_ptr, out_ptr, FUNCTION: tl.constexpr):
    tl.store(out_ptr, FUNCTION(tl.load(x_ptr), 2))


def test_a_scalar_and_a_number():
    out = torch.empty(1)
    _scalar[(1,)](torch.tensor([3.0]), out, FUNCTION=tl_extra_shim.pow)
    assert out.item() == 9


def test_a_function_that_is_not_in_numpy_says_so_when_it_is_called():
    if not interpreter.is_active():
        pytest.skip("CUDA's own libdevice is used")
    with pytest.raises(NotImplementedError, match=r"libdevice\.asinh: the interpreter has no such function"):
        tl_extra_shim.asinh(1.0)
    assert not hasattr(tl_extra_shim, "no_such_function")
