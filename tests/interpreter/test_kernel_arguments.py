# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from flag_gems.utils.tensor_wrapper import StridedBuffer
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.errors import InterpreterError


@triton.jit
def _describe(out_ptr, value):
    """The type that the kernel sees: 0 for a float, else the bits of an integer; and what a half becomes with it."""
    bits: tl.constexpr = 0 if value.dtype.is_floating() else value.dtype.int_bitwidth
    tl.store(out_ptr, bits)
    mixed = tl.full([4], 1.0, tl.float16) * value
    tl.store(out_ptr + 1, mixed.dtype.primitive_bitwidth)


@pytest.mark.parametrize(
    ("value", "bits", "with_half"),
    [
        (True, 1, 16),
        (5, 32, 16),
        (-(2**31), 32, 16),
        (2**31, 64, 16),
        (2**40, 64, 16),
        (2**63, 64, 16),
        # A float argument is a float32, not a number that takes the type of what it meets.
        (0.5, 0, 32),
    ],
)
def test_the_type_of_a_number(value: float, bits: int, with_half: int):
    out = torch.zeros(2, dtype=torch.int32)
    _describe[(1,)](out, value)
    assert out.tolist() == [bits, with_half]


@triton.jit
def _round_trip(x_ptr, y_ptr):
    tl.store(y_ptr + tl.arange(0, 4), tl.load(x_ptr + tl.arange(0, 4)))


FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", [torch.bool, *FLOATS, *INTEGERS])
def test_every_dtype_of_a_tensor(dtype: torch.dtype):
    x = torch.tensor([0, 1, 1, 0]).to(dtype)
    y = torch.ones_like(x)
    _round_trip[(1,)](x, y)
    assert torch.equal(x, y)


@triton.jit
def _with_tuple(y_ptr, pair, nothing, DTYPE: tl.constexpr):
    if nothing is None:
        tl.store(y_ptr, tl.load(pair[0]) + pair[1].to(DTYPE.value))


def test_tuples_none_and_dtypes():
    y = torch.zeros(1)
    _with_tuple[(1,)](y, (torch.tensor([2.0]), 3), None, DTYPE=tl.float32)
    assert y.item() == 5


def test_a_buffer_that_is_no_tensor():
    """flag_gems hands pointwise kernels its own strided views."""
    x = torch.arange(8.0)
    y = torch.zeros(4)
    _round_trip[(1,)](StridedBuffer(x, shape=(4,), strides=(1,), offset=2), y)
    assert torch.equal(y, x[2:6])


class _NoOperators(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        raise AssertionError(f"{function} in a launch")


def test_a_launch_calls_no_operator():
    """It may be inside one that flag_gems has taken over."""
    x, y = torch.ones(4), torch.zeros(4)
    with _NoOperators():
        _round_trip[(1,)](x, y)
    assert torch.equal(y, x)


def test_tensors_on_another_device_are_refused():
    with pytest.raises(ValueError, match="got one on meta"):
        _round_trip[(1,)](torch.empty(4, device="meta"), torch.empty(4))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((1,), {}, "missing the argument 'y_ptr'"),
        ((1, 2, 3), {}, "takes 2 arguments but 3 were given"),
        ((1, 2), {"x_ptr": 1}, "multiple values for argument 'x_ptr'"),
    ],
)
def test_arguments_that_do_not_fit(arguments: tuple, options: dict, message: str):
    with pytest.raises(TypeError, match=message):
        _round_trip[(1,)](*arguments, **options)


def test_unknown_options_are_refused():
    x = torch.ones(4)
    with pytest.raises(KeyError, match="Keyword argument num_warp was specified but unrecognised"):
        _round_trip[(1,)](x, x, num_warp=4)
    _round_trip[(1,)](x, x, num_warps=8, num_stages=2, maxnreg=64)


@triton.jit
def _block_pointers(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    x = tl.make_block_ptr(x_ptr, (M, N), (N, 1), (0, 0), (BLOCK, BLOCK), (1, 0))
    y = tl.make_block_ptr(y_ptr, (M, N), (N, 1), (0, 0), (BLOCK, BLOCK), (1, 0))
    for _ in range(0, N, BLOCK):
        tl.store(y, tl.load(x, boundary_check=(0, 1), padding_option="zero") * 2, boundary_check=(0, 1))
        x = tl.advance(x, (0, BLOCK))
        y = tl.advance(y, (0, BLOCK))


@pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")
def test_block_pointers(block_pointers):
    x, y = torch.randn(5, 11), torch.zeros(5, 11)
    with block_pointers:
        _block_pointers[(1,)](x, y, 5, 11, BLOCK=8)
        assert torch.equal(y, x * 2)


@triton.jit
def _descriptor(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, (M, N), (N, 1), (BLOCK, BLOCK))
    y = tl.make_tensor_descriptor(y_ptr, (M, N), (N, 1), (BLOCK, BLOCK))
    y.store([0, 4], x.load([0, 4]))


def test_tensor_descriptors():
    x, y = torch.randn(5, 12), torch.zeros(5, 12)
    _descriptor[(1,)](x, y, 5, 12, BLOCK=4)
    assert torch.equal(y[:4, 4:8], x[:4, 4:8])
    assert torch.count_nonzero(y) == 16


@triton.jit
def _shift(y_ptr, n):
    x = tl.full([4], 8, tl.uint32)
    half = x >> n
    tl.store(y_ptr + tl.arange(0, 4), x + half)


def test_a_shift_does_not_change_its_operands():
    y = torch.zeros(4, dtype=torch.int32)
    _shift[(1,)](y, 1)
    assert y.tolist() == [12] * 4


def test_an_error_in_a_kernel_names_it():
    with pytest.raises(InterpreterError, match="_describe: AttributeError"):
        _describe[(1,)](torch.zeros(2), None)
