# SPDX-License-Identifier: Apache-2.0
"""No problem, however odd, makes a launch do many times the work that it is: what a cliff is made of, without a GPU.

1700000 x 1 x 2 of bfloat16 took 1026 us in 1.7 million programs of 64 lanes for 2 elements each; torch.compile 9.7.
"""

from __future__ import annotations

import math

import pytest
from gpus import A100, H200, RTX4090
from hypothesis import given, settings
from hypothesis import strategies as st
from work import KINDS, Kind, Work

from flag_gems_overrides.ops.launch.devices import Limits

DEVICES = {
    "H200": H200,
    "A100": A100,
    "RTX4090": RTX4090,
}
LARGEST_EXPONENT = 28

# What a device does at once costs the same, used or not: so many lanes and programs of a multiprocessor are free.
FREE_LANES, FREE_PROGRAMS = 4096, 32
# Elements for a program, four to a thread of one warp: with fewer, starting programs is the work.
MIN_ELEMENTS = 128
# The busiest program over an even share of all multiprocessors; what is small may be one program's: sum 24 x 36053
# bfloat16 takes 4.73 us by programs of 65536 lanes, 5.23 by four to a row (H100).
MAX_SERIAL, SMALL = 4, 16384
# Iterations of a program wait for memory one after the other.
FREE_ITERATIONS, MIN_ELEMENTS_PER_ITERATION = 8, 256


def excess(kind: Kind, problem: tuple[int, int, int], itemsize: int, limits: Limits) -> list[str]:
    """What of a launch is more than it may be."""
    M, N, K = problem
    work = kind.work(M, N, K, itemsize, limits)
    elements, sms = M * N * K, limits.sm_count
    share = elements / sms
    found = {
        "lanes": (work.lanes, kind.max_lanes * elements + FREE_LANES * sms),
        "programs": (work.programs, elements / MIN_ELEMENTS + FREE_PROGRAMS * sms),
        "lanes of one program": (work.lanes / work.programs, MAX_SERIAL * max(share, SMALL)),
        "iterations": (work.iterations, max(share / MIN_ELEMENTS_PER_ITERATION, FREE_ITERATIONS)),
        "bytes": _bytes(kind, work, problem, itemsize, limits),
    }
    return [f"{found} {name}, {most:.0f} are allowed" for name, (found, most) in found.items() if found > most]


def _bytes(kind: Kind, work: Work, problem: tuple[int, int, int], itemsize: int, limits: Limits) -> tuple[float, float]:
    """(Moved, allowed). Numbers in the workspace are of four bytes, written and read."""
    elements = math.prod(problem)
    result = elements // problem[1] if kind.reduces else elements
    moved = (work.reads * kind.inputs * elements + result) * itemsize + 2 * 4 * work.workspace
    free = FREE_LANES * limits.sm_count * itemsize
    return moved, kind.max_bytes * (kind.inputs * elements + result) * itemsize + free


@st.composite
def problems(draw: st.DrawFn, has_inner: bool) -> tuple[int, int, int]:
    """(M, N, K), each of all magnitudes, together no more than 2**28 elements."""
    left = draw(st.integers(0, LARGEST_EXPONENT))
    sizes = []
    for _ in range(3 if has_inner else 2):
        exponent = draw(st.integers(0, left))
        left -= exponent
        sizes.append(draw(st.integers(max(1 << exponent >> 1, 1), 1 << exponent)))
    M, N, K = (*draw(st.permutations(sizes)), 1)[:3]
    return M, N, K


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@settings(max_examples=max(200, settings().max_examples))
@given(data=st.data())
def test_no_problem_makes_much_more_work_than_it_is(data, kind, device):
    problem = data.draw(problems(True) | problems(False) if kind.has_inner else problems(False))
    itemsize = data.draw(st.sampled_from(kind.itemsizes))
    assert excess(kind, problem, itemsize, DEVICES[device]) == []


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("problem", [(1700000, 1, 2), (1048576, 3, 2), (1412818, 5, 19)], ids=str)
@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.has_inner and not kind.reduces], ids=lambda kind: kind.name
)
def test_the_known_cliffs_are_none(kind, problem, itemsize):
    assert excess(kind, problem, itemsize, DEVICES["H200"]) == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.has_inner], ids=lambda kind: kind.name)
@pytest.mark.parametrize("problem", [(4, 1376837, 1), (12, 1376837, 1), (24, 347678, 1), (8197496, 1, 1)], ids=str)
def test_no_program_has_a_long_row_to_itself(kind, problem):
    """4 x 1376837 float32 took 1354 us by as many programs as rows; FlagGems 505."""
    for itemsize in (2, 4, 8):
        assert excess(kind, problem, itemsize, DEVICES["H200"]) == []
