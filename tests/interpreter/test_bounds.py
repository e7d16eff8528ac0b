# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hypothesis
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from flag_gems.utils.tensor_wrapper import StridedBuffer
from hypothesis import strategies as st

from flag_gems_overrides import interpreter
from flag_gems_overrides.interpreter.region import Region


@triton.jit
def _load(x_ptr, y_ptr, first, count, BLOCK: tl.constexpr):
    i = first + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=tl.arange(0, BLOCK) < count)
    tl.store(y_ptr + tl.arange(0, BLOCK), x)


@triton.jit
def _load_unmasked(x_ptr, y_ptr, first, count, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, BLOCK), tl.load(x_ptr + first + tl.arange(0, BLOCK)))


@triton.jit
def _store(x_ptr, y_ptr, first, count, BLOCK: tl.constexpr):
    i = first + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, i, mask=tl.arange(0, BLOCK) < count)


@triton.jit
def _atomic_add(x_ptr, y_ptr, first, count, BLOCK: tl.constexpr):
    i = first + tl.arange(0, BLOCK)
    tl.atomic_add(x_ptr + i, i, mask=tl.arange(0, BLOCK) < count)


@triton.jit
def _atomic_cas(x_ptr, y_ptr, first, count, BLOCK: tl.constexpr):
    tl.atomic_cas(x_ptr + first, 0, 0)


KERNELS = {
    "load": _load,
    "load, unmasked": _load_unmasked,
    "store": _store,
    "atomic_add": _atomic_add,
    "atomic_cas": _atomic_cas,
}
# In the middle of more, so that nothing is broken when the checker lets something through.
AROUND = torch.zeros(64, dtype=torch.int32)


def _launch(operation: str, x: torch.Tensor, first: int, count: int = 8) -> None:
    KERNELS[operation][(1,)](x, torch.zeros(8, dtype=torch.int32), first, count, BLOCK=8)


def _own_storage() -> torch.Tensor:
    """16 elements whose storage is a piece of AROUND."""
    return torch.from_numpy(AROUND.numpy()[16:32])


@pytest.mark.parametrize("operation", KERNELS)
def test_inside(operation: str):
    with interpreter.check_bounds(), interpreter.check_bounds(strict=True):
        _launch(operation, _own_storage(), 8)


@pytest.mark.parametrize("operation", KERNELS)
@pytest.mark.parametrize("first", [-1, 16])
def test_outside(operation: str, first: int):
    name = operation.removesuffix(", unmasked")
    with (
        interpreter.check_bounds(),
        pytest.raises(interpreter.OutOfBoundsError, match=rf"_{name}.*: tl\.{name} in program \(0, 0, 0\)") as raised,
    ):
        _launch(operation, _own_storage(), first)
    assert "of x_ptr (64 bytes), by 4 bytes" in str(raised.value)


@pytest.mark.parametrize("operation", ["load", "store", "atomic_add"])
def test_masked_lanes_may_be_anywhere(operation: str):
    x = _own_storage()
    with interpreter.check_bounds():
        _launch(operation, x, 12, count=4)
        _launch(operation, x, 1000, count=0)
        with pytest.raises(interpreter.OutOfBoundsError, match="1 of 5 active lanes"):
            _launch(operation, x, 12, count=5)


def test_off_unless_asked_for():
    x = _own_storage()
    _launch("store", x, 12)
    assert AROUND[32:36].tolist() == [16, 17, 18, 19]
    with interpreter.check_bounds():
        pass
    _launch("store", x, 12)


def test_nothing_is_written_outside():
    AROUND.fill_(-1)
    with interpreter.check_bounds(), pytest.raises(interpreter.OutOfBoundsError):
        _launch("store", _own_storage(), 12)
    assert (AROUND == -1).all()


def test_a_view_may_be_left_unless_strict():
    x = torch.zeros(64, dtype=torch.int32)
    with interpreter.check_bounds():
        _launch("store", x[16:32], 12)
    with (
        interpreter.check_bounds(strict=True),
        pytest.raises(
            interpreter.OutOfBoundsError, match=r"4 of 8 .* in the storage of x_ptr, but in none of its elem"
        ),
    ):
        _launch("store", x[16:32], 12)


def test_between_the_elements_of_a_view():
    x = torch.zeros(8, 8, dtype=torch.int32)
    with interpreter.check_bounds(strict=True):
        _launch("store", x[:, :4], 8, count=4)
        with pytest.raises(interpreter.OutOfBoundsError, match="4 of 8"):
            _launch("store", x[:, :4], 8, count=8)


def test_lanes_in_several_tensors():
    """A kernel may go from one argument's address to another's."""

    @triton.jit
    def kernel(x_ptr, y_ptr, distance):
        i = tl.arange(0, 8)
        tl.store(x_ptr + tl.where(i < 4, i, i + distance), i)

    x, y = torch.zeros(4, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    distance = (y.data_ptr() - x.data_ptr()) // 4
    with interpreter.check_bounds(strict=True):
        kernel[(1,)](x, y, distance)
        assert x.tolist() == [0, 1, 2, 3]
        assert y.tolist() == [0, 0, 0, 0, 4, 5, 6, 7]
        with pytest.raises(interpreter.OutOfBoundsError, match="2 of 8"):
            kernel[(1,)](x, y, distance + 2)


def test_a_pointer_of_unknown_extent_may_be_meant_by_any_lane():
    class Address:
        dtype = torch.int32

        def data_ptr(self) -> int:
            return AROUND.data_ptr()

    with interpreter.check_bounds():
        KERNELS["load"][(1,)](Address(), torch.zeros(8, dtype=torch.int32), 0, 8, BLOCK=8)


@pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")
def test_block_pointers_without_a_boundary_check(block_pointers):
    @triton.jit
    def kernel(x_ptr, N, BLOCK: tl.constexpr):
        x = tl.make_block_ptr(x_ptr, (N,), (1,), (0,), (BLOCK,), (0,))
        tl.store(x, tl.zeros([BLOCK], tl.int32))

    with (
        interpreter.check_bounds(),
        block_pointers,
        pytest.raises(interpreter.OutOfBoundsError, match=r"tl\.store"),
    ):
        kernel[(1,)](_own_storage(), 16, BLOCK=32)


def test_the_error_of_a_device_function_is_not_wrapped():
    @triton.jit
    def device_function(x_ptr):
        return tl.load(x_ptr + 100)

    @triton.jit
    def kernel(x_ptr):
        tl.store(x_ptr, device_function(x_ptr))

    with interpreter.check_bounds(), pytest.raises(interpreter.OutOfBoundsError, match=r"kernel: tl\.load"):
        kernel[(1,)](torch.zeros(4, dtype=torch.int32))


@st.composite
def _views(draw) -> torch.Tensor:
    """Any view of a few bytes: sliced, stepped, transposed, expanded."""
    x = torch.zeros(96, dtype=draw(st.sampled_from([torch.int8, torch.int16, torch.int64]))).reshape(4, 6, 4)
    for dim in range(3):
        size = x.shape[dim]
        start = draw(st.integers(0, size - 1))
        x = x[(slice(None),) * dim + (slice(start, draw(st.integers(start, size)), draw(st.integers(1, 2))),)]
    x = x.permute(draw(st.permutations(range(3))))
    return x.unsqueeze(1).expand(-1, 2, -1, -1) if draw(st.booleans()) else x


@hypothesis.given(_views(), st.sampled_from([1, 2, 4]))
def test_what_is_in_a_view(view: torch.Tensor, itemsize: int):
    region = Region("x", view)
    storage = view.untyped_storage()
    width = view.element_size()
    own = np.zeros(storage.nbytes() + 2 * 32, bool)
    for index in np.ndindex(*view.shape):
        offset = 32 + width * (view.storage_offset() + sum(np.multiply(index, view.stride())))
        own[offset : offset + width] = True
    first = np.arange(32 + storage.nbytes())
    addresses = first + storage.data_ptr() - 32
    expected = np.array([own[i : i + itemsize].all() for i in first])
    actual = region.in_elements(addresses, itemsize)
    # An access from one element into the next, over what is between them, is seen by its first and last byte alone.
    within = first % width + itemsize <= width
    assert np.array_equal(actual[within], expected[within])
    assert not (expected & ~actual).any()
    in_storage = (first >= 32) & (first + itemsize <= 32 + storage.nbytes())
    assert np.array_equal(region.in_storage(addresses, itemsize), in_storage)


def test_what_is_in_a_buffer_with_negative_strides():
    x = torch.zeros(16, dtype=torch.int32)
    region = Region("x", StridedBuffer(x, shape=(4,), strides=(-2,), offset=10))
    elements = region.in_elements(x.data_ptr() + 4 * np.arange(16), 4)
    assert elements.nonzero()[0].tolist() == list(range(4, 11))


@triton.jit
def _undefined(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < 2))
    tl.store(out_ptr + BLOCK + i, tl.load(x_ptr + i, mask=i < 2, other=0))
    # A scalar other of zero is false.
    tl.store(out_ptr + 2 * BLOCK, tl.load(x_ptr, mask=BLOCK < 0, other=0))
    tl.store(out_ptr + 2 * BLOCK + 1, tl.load(x_ptr, mask=BLOCK < 0))


def _with_undefined(dtype: torch.dtype) -> list[float]:
    out = torch.zeros(10, dtype=dtype)
    _undefined[(1,)](torch.ones(4, dtype=dtype), out, BLOCK=4)
    return out.tolist()


def test_undefined_lanes():
    assert _with_undefined(torch.int32) == [1, 1, 0, 0] * 2 + [0, 0]
    with interpreter.undefined_lanes():
        assert _with_undefined(torch.int32) == [1, 1, -1, -1, 1, 1, 0, 0, 0, -1]
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            assert str(_with_undefined(dtype)) == "[1.0, 1.0, nan, nan, 1.0, 1.0, 0.0, 0.0, 0.0, nan]"
    assert _with_undefined(torch.int32) == [1, 1, 0, 0] * 2 + [0, 0]
