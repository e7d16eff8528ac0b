# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses

import torch
import triton
import triton.language as tl

from flag_gems_overrides import interpreter
from flag_gems_overrides.interpreter import Traffic


@triton.jit
def _scale(x_ptr, y_ptr, total_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    x += tl.load(x_ptr + tl.zeros_like(i))
    tl.store(y_ptr + i, x * factor, mask=i < n)
    tl.atomic_add(total_ptr, tl.sum(x, 0))


def _run(x: torch.Tensor, y: torch.Tensor, **options) -> None:
    total = torch.zeros(1, dtype=torch.float32)
    _scale[(3,)](x, y, total, 10, 2.0, BLOCK=4, **options)


def test_a_launch():
    with interpreter.observe() as launches:
        _run(torch.rand(10), torch.empty(10, dtype=torch.float16), num_warps=8, num_stages=2)
    (launch,) = launches
    assert (launch.kernel, launch.grid, launch.num_warps, launch.num_stages) == ("_scale", (3, 1, 1), 8, 2)
    assert launch.options == {"BLOCK": 4, "num_warps": 8, "num_stages": 2}
    assert launch.arguments == {
        # 10 lanes that are not masked, and 12 that all read the first element.
        "x_ptr": Traffic(loaded=40 + 48, distinct_read=40),
        "y_ptr": Traffic(stored=20, distinct_written=20),
        "total_ptr": Traffic(updated=12, distinct_read=4, distinct_written=4),
    }
    assert (launch.loaded, launch.stored, launch.updated) == (88, 20, 12)
    assert launch.outside == Traffic()


def test_every_launch_and_only_inside():
    x, y = torch.rand(10), torch.empty(10)
    _run(x, y)
    with interpreter.observe() as outer:
        _run(x, y)
        with interpreter.observe() as inner:
            _run(x, y)
    _run(x, y)
    assert (len(outer), len(inner)) == (2, 1)
    assert outer[1] == inner[0]


def test_views_of_one_storage_are_told_apart():
    both = torch.rand(10, 2)
    with interpreter.observe() as launches:
        _two_columns[(1,)](both[:, 0], both[:, 1], 10, BLOCK=16)
    assert launches[0].arguments == {
        "x_ptr": Traffic(loaded=40, distinct_read=40),
        "y_ptr": Traffic(stored=40, distinct_written=40),
    }


@triton.jit
def _two_columns(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + 2 * i, tl.load(x_ptr + 2 * i, mask=i < n), mask=i < n)


def test_wider_accesses_than_elements():
    @triton.jit
    def kernel(x_ptr, y_ptr):
        words = x_ptr.to(tl.pointer_type(tl.int64)) + tl.arange(0, 2)
        tl.store(y_ptr + tl.arange(0, 2), tl.load(words))

    x, y = torch.arange(4, dtype=torch.int32), torch.empty(2, dtype=torch.int64)
    with interpreter.observe() as launches:
        kernel[(1,)](x, y)
    assert launches[0].arguments["x_ptr"] == Traffic(loaded=16, distinct_read=16)
    assert torch.equal(y, x.view(torch.int64))


def test_accesses_that_are_not_aligned():
    @triton.jit
    def kernel(x_ptr, y_ptr):
        word = (x_ptr + 1).to(tl.pointer_type(tl.int32))
        tl.store(y_ptr, tl.load(word))
        tl.store(word, 0)

    x, y = torch.arange(8, dtype=torch.uint8), torch.empty(1, dtype=torch.int32)
    kernel[(1,)](x, y)
    assert y.item() == 0x04030201
    assert x.tolist() == [0, 0, 0, 0, 0, 5, 6, 7]


def test_what_is_outside_counts_apart():
    around = torch.zeros(16)
    x = torch.from_numpy(around.numpy()[:4])
    with interpreter.observe() as launches:
        _run(x, torch.empty(10))
    assert launches[0].arguments["x_ptr"] == Traffic(loaded=16 + 48, distinct_read=16)
    assert launches[0].outside == Traffic(loaded=24)


def test_an_argument_without_elements():
    with interpreter.observe() as launches:
        _two_columns[(1,)](torch.empty(0), torch.empty(0), 0, BLOCK=16)
    assert launches[0].arguments == {"x_ptr": Traffic(), "y_ptr": Traffic()}


def test_a_launch_can_be_recorded():
    with interpreter.observe() as launches:
        _run(torch.rand(10), torch.empty(10))
    assert dataclasses.asdict(launches[0])["arguments"]["x_ptr"]["loaded"] == 88
