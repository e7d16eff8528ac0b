# SPDX-License-Identifier: Apache-2.0
"""Which run an element of a tile is of."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from flag_gems_overrides.ops.families.batch_norm.tile import quotient, run_of

MAX_UNITS = 16384  # of a tile: run_of asserts what follows from it


@triton.jit
def divide(numbers_ptr, divisors_ptr, quotients_ptr, N: tl.constexpr):
    lanes = tl.arange(0, N)
    found = quotient(tl.load(numbers_ptr + lanes), tl.load(divisors_ptr + lanes))
    tl.store(quotients_ptr + lanes, found)


@triton.jit
def runs(firsts_ptr, vectors_ptr, runs_ptr, BLOCK: tl.constexpr, VEC: tl.constexpr):
    program = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    found = run_of(tl.load(firsts_ptr + program), lanes, tl.load(vectors_ptr + program), BLOCK, VEC)
    tl.store(runs_ptr + program * BLOCK + lanes, found)


def test_quotients_are_exact_by_a_multiplication(device):
    divisors = torch.arange(1, MAX_UNITS + 1, dtype=torch.int64).repeat(8, 1)
    largest = torch.minimum((2**30 - 1) // divisors, torch.tensor(2 * MAX_UNITS - 1))
    whole = largest // divisors
    random = torch.randint(2**31, divisors.shape, generator=torch.Generator().manual_seed(0)) % (largest + 1)
    multiples = random // divisors * divisors
    numbers = torch.where(torch.arange(8)[:, None] < 4, multiples, random)
    numbers[1] = (numbers[1] - 1).clamp(min=0)
    numbers[2], numbers[3] = whole[0] * divisors[0], (whole[0] * divisors[0] - 1).clamp(min=0)
    numbers[4], numbers[5] = divisors[0] - 1, divisors[0]
    numbers[6] = largest[0]
    numbers, divisors = (each.flatten().int().to(device) for each in (numbers, divisors))
    quotients = torch.empty_like(numbers)
    divide[(1,)](numbers, divisors, quotients, N=numbers.numel())
    assert torch.equal(quotients, numbers // divisors)


def test_quotients_are_exact_up_to_their_bound(device):
    divisors = torch.tensor([1, 2, 3, 5, 7, 641, 6700417 % 32768, 16383, 16384, 32767, 32768], dtype=torch.int64)
    below = (2**30 - 1) // divisors
    numbers = torch.stack([below, below // divisors * divisors, below // divisors * divisors - 1]).clamp(min=0)
    divisors = divisors.repeat(3, 1)
    padding = 64 - numbers.numel()
    numbers = torch.cat([numbers.flatten(), torch.zeros(padding, dtype=torch.int64)]).int().to(device)
    divisors = torch.cat([divisors.flatten(), torch.ones(padding, dtype=torch.int64)]).int().to(device)
    quotients = torch.empty_like(numbers)
    divide[(1,)](numbers, divisors, quotients, N=64)
    assert torch.equal(quotients, numbers // divisors)


def test_runs_are_those_of_a_division(device):
    """Short runs and long ones, from tiles that begin anywhere."""
    for block, vec in ((128, 1), (128, 8), (1024, 4)):
        vectors = torch.tensor([1, 2, 3, 7, 8, 17, block // vec - 1, block // vec, block // vec + 1, 70001, 2**28])
        first = (torch.tensor([0, 5, 6, 11, 15, 16, 1000, 70000, 70001 * 3 - 1, 2**28 - 3]) * vec)[:, None]
        firsts, vectors = (each.flatten().int().to(device) for each in torch.broadcast_tensors(first, vectors))
        found = torch.empty(firsts.numel(), block, dtype=torch.int32, device=device)
        runs[(firsts.numel(),)](firsts, vectors, found, BLOCK=block, VEC=vec)
        elements = firsts[:, None] + torch.arange(block, device=device)
        assert torch.equal(found, (elements // vec // vectors[:, None]).int())
