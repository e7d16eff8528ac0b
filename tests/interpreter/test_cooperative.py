# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from flag_gems.utils.libentry import libentry
from triton.runtime.errors import InterpreterError

from flag_gems_overrides import interpreter


@triton.jit
def _exchange(x_ptr, flags_ptr, BLOCK: tl.constexpr):
    """Every program gives its block to the one before it, and waits for the other's."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    i = tl.arange(0, BLOCK)
    mine = tl.load(x_ptr + program * BLOCK + i)
    tl.atomic_xchg(flags_ptr + program, 1, sem="release")
    before = (program + programs - 1) % programs
    while tl.atomic_add(flags_ptr + before, 0, sem="acquire") == 0:
        pass
    tl.store(x_ptr + before * BLOCK + i, mine)


def _exchanged(kernel, programs: int) -> torch.Tensor:
    x = torch.arange(4 * programs)
    flags = torch.zeros(programs, dtype=torch.int32)
    kernel[(programs,)](x, flags, BLOCK=4, num_warps=1, launch_cooperative_grid=True)
    return x


@pytest.mark.parametrize("programs", [1, 2, 5, 40])
def test_programs_that_wait_for_each_other(programs: int):
    with interpreter.check_bounds():
        assert torch.equal(_exchanged(_exchange, programs), torch.arange(4 * programs).roll(-4))


def test_again_through_libentry():
    """Its second launch has no options any more; the kernel that it kept has them."""
    entry = libentry()(_exchange)
    for _ in range(3):
        assert torch.equal(_exchanged(entry, 3), torch.arange(12).roll(-4))


@triton.jit
def _column_means(x_ptr, partial_ptr, arrived_ptr, out_ptr, M, N: tl.constexpr):
    """Partial sums of the rows of each program, a barrier over the grid, and the columns of each program."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    j = tl.arange(0, N)
    total = tl.zeros([N], tl.float32)
    for row in range(program, M, programs):
        total += tl.load(x_ptr + row * N + j)
    tl.store(partial_ptr + program * N + j, total)
    tl.debug_barrier()
    tl.atomic_add(arrived_ptr, 1, sem="release")
    while tl.load(arrived_ptr, volatile=True) < programs:
        pass
    for column in range(program, N, programs):
        total = 0.0
        for other in range(programs):
            total += tl.load(partial_ptr + other * N + column)
        tl.store(out_ptr + column, total / M)


def test_a_barrier_over_the_grid():
    x = torch.randn(50, 16)
    partial, out = torch.full((3, 16), torch.nan), torch.full((16,), torch.nan)
    arrived = torch.zeros(1, dtype=torch.int32)
    _column_means[(3,)](x, partial, arrived, out, 50, N=16, launch_cooperative_grid=True)
    torch.testing.assert_close(out, x.mean(0))


@triton.jit
def _locked(lock_ptr, count_ptr):
    """No program may be in between another's load and store."""
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    count = tl.load(count_ptr)
    tl.atomic_add(count_ptr + 1, 1)
    tl.store(count_ptr, count + 1)
    tl.atomic_xchg(lock_ptr, 0)


def test_a_lock():
    lock, count = torch.zeros(1, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    _locked[(20,)](lock, count, launch_cooperative_grid=True)
    assert count.tolist() == [20, 20]


@triton.jit
def _waits(flag_ptr, times):
    while tl.atomic_add(flag_ptr, 0) < times:
        pass


def test_programs_that_wait_for_nobody():
    with pytest.raises(interpreter.DeadlockError, match=r"_waits: programs \(0, 0, 0\), \(1, 0, 0\) wait"):
        _waits[(2,)](torch.zeros(1, dtype=torch.int32), 1, launch_cooperative_grid=True)
    # And the next launch is as if nothing had been.
    assert torch.equal(_exchanged(_exchange, 2), torch.arange(8).roll(-4))


@triton.jit
def _looks_at_all(flags_ptr, programs):
    """As many atomic operations that change nothing as there are programs."""
    tl.atomic_xchg(flags_ptr + tl.program_id(0), 1)
    for other in range(programs):
        while tl.atomic_add(flags_ptr + other, 0) == 0:
            pass


def test_looking_around_is_no_deadlock():
    flags = torch.zeros(150, dtype=torch.int32)
    _looks_at_all[(150,)](flags, 150, launch_cooperative_grid=True)
    assert flags.all()


@triton.jit
def _fails_in_one(flag_ptr):
    tl.atomic_add(flag_ptr, 1)
    if tl.program_id(0) == 1:
        tl.load(flag_ptr + 100)
    while tl.atomic_add(flag_ptr, 0) < 100:
        pass


def test_an_error_in_one_program_ends_the_launch():
    flag = torch.zeros(1, dtype=torch.int32)
    with interpreter.check_bounds(), pytest.raises(interpreter.OutOfBoundsError, match=r"in program \(1, 0, 0\)"):
        _fails_in_one[(3,)](flag, launch_cooperative_grid=True)


@triton.jit
def _divides_by_zero(flag_ptr):
    tl.atomic_add(flag_ptr, 1)
    x = tl.load(flag_ptr).to(tl.float32)
    tl.store(flag_ptr + 1, ((x / 0.0) > 3.0).to(tl.int32))
    tl.static_assert(False, "seen")


def test_warnings_of_numpy_are_off_in_every_program():
    flag = torch.zeros(2, dtype=torch.int32)
    with pytest.raises(InterpreterError, match="AssertionError"):
        _divides_by_zero[(2,)](flag, launch_cooperative_grid=True)
    assert flag[1] == 1
