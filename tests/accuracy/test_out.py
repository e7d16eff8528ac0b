# SPDX-License-Identifier: Apache-2.0
"""Sums into a tensor that the caller gives, and _is_all_true, beside PyTorch."""

from __future__ import annotations

import pytest
import torch
from accuracy.reductions import FEW, assert_same, draw, draw_whole_numbers, each, layouts

from flag_gems_overrides.ops._is_all_true import _is_all_true
from flag_gems_overrides.ops.nansum import nansum_out
from flag_gems_overrides.ops.sum import sum_dim_out, sum_out

nan = float("nan")
SUMS = [
    (sum_dim_out, torch.ops.aten.sum.IntList_out),
    (nansum_out, torch.ops.aten.nansum.out),
]
sums = pytest.mark.parametrize(("ours", "theirs"), SUMS, ids=[ours.__name__ for ours, _ in SUMS])


def outs(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    """Contiguous, misaligned, with gaps, without elements, and of which one element stands for all."""
    count = torch.Size(shape).numel()
    gaps = torch.empty(*shape, 2, dtype=dtype, device=device)[..., 0]
    misaligned = torch.empty(count + 1, dtype=dtype, device=device)[1:].view(shape)
    return [
        torch.empty(shape, dtype=dtype, device=device),
        misaligned,
        gaps,
        torch.empty(0, dtype=dtype, device=device),
    ]


@sums
@each("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
@each(
    "shape, dims",
    [((), None), ((7, 5), [0]), ((2, 5000), [1]), ((3, 301, 5), [0, 2]), ((3, 301, 5), []), ((2, 0), [1])],
)
def test_any_out(shape, dims, dtype, ours, theirs, device):
    x = draw(shape, dtype, device) if dtype is torch.bool else draw_whole_numbers(shape, dtype, device)
    for keepdim in False, True:
        expected = torch.sum(x, dims, keepdim)
        for out in outs(expected.shape, expected.dtype, device):
            assert ours(x, dims, keepdim, out=out) is out
            assert torch.equal(out, expected)


@sums
@each("dtype", [torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool])
@each("source", [torch.float32, torch.bfloat16, torch.int32, torch.uint8, torch.bool])
def test_elements_are_converted_to_the_dtype_of_out(source, dtype, ours, theirs, device):
    if ours is nansum_out and (not dtype.is_floating_point or not source.is_floating_point):
        return  # for integers PyTorch takes one dtype only
    # Not below 0, which an unsigned dtype does not have: what that gives differs between devices.
    x = (draw_whole_numbers((6, 5), torch.float32, device).abs() * 2.75).to(source)
    found, expected = torch.empty(6, dtype=dtype, device=device), torch.empty(6, dtype=dtype, device=device)
    assert_same(ours(x, [1], out=found), theirs(x, [1], out=expected))


@each("shape", [*FEW, (), (0,), (3, 0)])
@each("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool])
def test_whole(shape, dtype, device):
    x = draw(shape, dtype, device) if dtype is torch.bool else draw_whole_numbers(shape, dtype, device)
    for requested in None, torch.float64, torch.int32, torch.bool:
        expected = torch.sum(x, dtype=requested)
        for out in outs((), expected.dtype, device):
            assert sum_out(x, dtype=requested, out=out) is out
            assert_same(out, expected)


def test_out_may_share_memory_with_the_input(device):
    for rows in 40, 300:
        x = draw_whole_numbers((rows, 300), torch.float32, device)
        expected = torch.sum(x, 0)
        assert torch.equal(sum_dim_out(x, [0], out=x[0]), expected)
        expected = torch.sum(x)
        assert sum_out(x, out=x[3, 3]) == expected


def test_a_resized_out_warns(device):
    out = torch.empty(3, device=device)
    with pytest.warns(UserWarning, match="resized"):
        sum_dim_out(torch.ones(2, 4, device=device), [0], out=out)
    assert out.tolist() == [2] * 4


def test_errors_are_pytorchs(device):
    x, out = torch.ones(3, 4, device=device), torch.empty(4, device=device)
    text = "Expected out tensor to have dtype {}, but got {} instead"
    for call in (
        lambda: sum_dim_out(x, [0], dtype=torch.float64, out=out),
        lambda: sum_out(x, dtype=torch.float64, out=out),
        lambda: nansum_out(x, [0], dtype=torch.float64, out=out),
    ):
        with pytest.raises(RuntimeError, match=text.format("double", "float")):
            call()
    with pytest.raises(RuntimeError, match=text.format("float", "double")):
        sum_out(x, out=out.double())
    with pytest.raises(RuntimeError, match=text.format("long int", "int")):
        sum_out(x.int(), out=out.int())
    for function in sum_dim_out, nansum_out:
        with pytest.raises(IndexError, match="Dimension out of range"):
            function(x, [2], out=out)
        with pytest.raises(RuntimeError, match="appears multiple times"):
            function(x, [0, -2], out=out)


def test_nan_is_left_out(device):
    x = torch.tensor([[nan, 1.0, 2.0], [nan, nan, nan]], device=device)
    out = torch.empty(2, device=device)
    assert nansum_out(x, [1], out=out).tolist() == [3, 0]


def test_dispatched(overridden, device):
    x = draw_whole_numbers((40, 300), torch.float32, device)
    whole, rows = torch.sum(x), torch.sum(x, 1, keepdim=True)
    with overridden():
        assert torch.equal(torch.ops.aten.sum.out(x, out=torch.empty((), device=device)), whole)
        assert torch.equal(torch.sum(x, 1, keepdim=True, out=torch.empty(40, 1, device=device)), rows)
        assert torch.ops.aten._is_all_true(x == x)


@layouts
@each("shape", FEW)
def test_is_all_true(shape, layout, device):
    x = layout(torch.ones(shape, device=device)) > 0
    for _ in range(2):
        actual = _is_all_true(x)
        assert actual.dtype is torch.bool
        assert actual.shape == ()
        assert bool(actual) == bool(x.cpu().numpy().all())
        x = x.clone(memory_format=torch.preserve_format)
        x[tuple(size - 1 for size in shape)] = False


def test_is_all_true_of_no_element_and_of_one(device):
    assert _is_all_true(torch.ones(3, 0, dtype=torch.bool, device=device))
    assert _is_all_true(torch.tensor(True, device=device))
    assert not _is_all_true(torch.tensor(False, device=device))
