# SPDX-License-Identifier: Apache-2.0
"""What the cross entropy of logits is planned as, without a GPU."""

from __future__ import annotations

import pytest
from gpus import H200
from hypothesis import example, given
from hypothesis import strategies as st

from flag_gems_overrides.ops.families.gather import logits_plan
from flag_gems_overrides.ops.families.gather.launches import Problem
from flag_gems_overrides.ops.families.gather.plan import WARPS


def forward(N, C, size, classes=True, gradient=False, written=False):
    return logits_plan.cross_entropy(Problem(N, C, 1, size), H200, written, classes, gradient)


def shared(N, C, size):
    return logits_plan.cross_entropy(Problem(N, C, 1, size), H200, False, True, False, True)


def lanes(plan):
    return plan.width // plan.vec


ROWS = {
    "N": st.integers(1, 3000) | st.integers(1, 1 << 24),
    "C": st.integers(1, 1024),
    "size": st.sampled_from([2, 4, 8]),
    "classes": st.booleans(),
    "gradient": st.booleans(),
}


@given(**ROWS)
@example(2100, 1000, 2, True, False)
@example(1422493, 9, 2, True, False)
@example(16777216, 1, 2, False, True)
def test_whole_rows_of_logits(N, C, size, classes, gradient):
    if not logits_plan.is_whole(Problem(N, C, 1, size), H200):
        assert C > 512
        return
    found = forward(N, C, size, classes, gradient)
    assert isinstance(found, logits_plan.Whole)
    threads = found.warps * 32
    assert found.depth * found.width - found.width < C <= found.depth * found.width
    assert C % found.vec == 0
    assert 0 < found.programs * found.block_r < N + found.block_r or found.programs == 1
    assert found.registers * threads <= H200.registers_per_sm
    # Warps beyond the fewest have a piece for each thread, and run at once.
    assert found.warps <= WARPS or threads <= found.block_r * found.width // found.vec
    assert found.warps <= WARPS or found.programs <= H200.sm_count


@given(**ROWS)
@example(484203, 61, 2, True, False)
def test_programs_of_many_rows(N, C, size, classes, gradient):
    if not logits_plan.is_whole(Problem(N, C, 1, size), H200):
        return
    found = forward(N, C, size, classes, gradient)
    tiles = -(-N // found.block_r)
    if tiles == found.programs:
        return
    per_sm = -(-found.programs // H200.sm_count)
    # A warp has whole rows, at most so many elements to a lane, and all programs run at once.
    assert lanes(found) <= 32
    assert found.warps == WARPS
    assert found.block_r * found.depth * found.width <= WARPS * 32 * 32
    assert found.registers % 8 == 0 or found.registers == logits_plan.MAX_REGISTERS
    assert per_sm * found.registers * WARPS * 32 <= H200.registers_per_sm
    # No program has a tile more than the others need.
    assert -(-tiles // -(-tiles // found.programs)) == found.programs


def test_threads_have_registers_for_targets_of_several_rows_in_parts():
    """49250942 x 3 float16 spilled 32 bytes in 64 registers."""
    found = forward(49250942, 3, 2)
    assert (found.block_r, found.depth, found.registers) == (4 * WARPS * 32, 3, 72)
    # 24 bytes of rows of four logits to a load.
    assert forward(23454632, 4, 2).registers == 80
    # Rows of one part, and two rows.
    assert forward(49250942, 1, 2).registers == forward(49250942, 5, 2).registers == 64


@pytest.mark.parametrize(
    ("C", "size", "expected"),
    [(102, 2, 8), (61, 2, 4), (18, 2, 2), (9, 2, 1), (209, 2, 16), (700, 2, 32), (65, 4, 8), (107, 4, 8), (27, 8, 4)],
)
def test_lanes_of_a_row(C, size, expected):
    assert lanes(forward(500000, C, size)) == expected


def test_a_row_that_would_leave_lanes_idle_has_half_of_them():
    found = forward(149385, 320, 2)
    assert (lanes(found), found.depth) == (16, 3)


@pytest.mark.parametrize(("C", "rows"), [(1, 4), (4, 4), (18, 2), (32, 1), (61, 1)])
def test_few_lanes_have_several_rows(C, rows):
    found = forward(1 << 24, C, 2)
    assert found.block_r * lanes(found) == rows * WARPS * 32


@pytest.mark.parametrize(("C", "lanes_of_row"), [(32, 8), (16, 4)])
def test_rows_of_one_part(C, lanes_of_row):
    for N in (20000, 208809):
        for gradient in (False, True):
            found = forward(N, C, 4, gradient=gradient)
            assert (lanes(found), found.depth) == (lanes_of_row, 1)
            assert found.block_r * lanes(found) == 2 * WARPS * 32
    assert lanes(forward(208809, C // 4 * 3, 4)) < lanes_of_row
    # Which float64 does not compile with a gradient.
    assert all(forward(N, C // 2, 8, gradient=True).depth > 1 for N in (20000, 208809))


def test_few_rows_are_shared_by_more_lanes():
    assert [lanes(forward(N, 23, 2)) for N in (500000, 10000, 4888)] == [2, 2, 4]


def test_what_takes_more_registers_has_fewer_programs():
    programs = [forward(1 << 22, 801, 2, classes, gradient).programs for classes, gradient in CASES]
    assert programs == sorted(programs, reverse=True)
    assert programs[0] > programs[-1]


CASES = [(True, False), (False, False), (False, True)]


@pytest.mark.parametrize(
    ("N", "C", "size"), [(1, 1000, 4), (133, 777, 4), (100000, 1000, 4), (20000, 700, 2), (54952, 431, 8)]
)
def test_rows_that_are_held_whole(N, C, size):
    assert isinstance(forward(N, C, size), logits_plan.Whole)
    assert not isinstance(forward(N, 10 * C, size), logits_plan.Whole)


@given(N=ROWS["N"], C=st.integers(513, 5000), size=ROWS["size"])
@example(262144, 1024, 8)
@example(4096, 2345, 8)
@example(262144, 4096, 2)
def test_longer_rows_that_warps_of_a_program_hold(N, C, size):
    if logits_plan.is_whole(Problem(N, C, 1, size), H200):
        return
    # A distribution, or a gradient that comes later, takes more registers.
    assert isinstance(forward(N, C, size, classes=False), logits_plan.Looped)
    assert isinstance(forward(N, C, size, gradient=True), logits_plan.Looped)
    found = forward(N, C, size)
    most = 128 * (22 if size == 8 else 32)
    if not isinstance(found, logits_plan.Whole):
        assert most < C or (size == 2 and C % 8) or 32 * 8 * H200.sm_count > N
        return
    assert most >= C
    assert lanes(found) in (64, 128)
    assert lanes(found) * found.block_r == found.warps * 32
    assert found.depth * found.vec <= most // 128
    # All programs run at once, and have several tiles each, unless a loop would leave many lanes idle.
    tiles, share = -(-N // found.block_r), C / (1024 if C <= 1024 else 2048 if C <= 2048 else 4096)
    least = (3 if size == 8 else 4) if share > 3 / 4 else {2: 3, 4: 2, 8: 1}[size]
    assert -(-tiles // found.programs) >= least
    assert found.programs * found.registers * found.warps * 32 <= H200.sm_count * H200.registers_per_sm


@pytest.mark.parametrize(
    ("N", "C", "size", "expected"),
    [
        (20000, 1100, 8, 64),
        (20000, 1300, 8, 64),
        (4096, 2345, 8, 128),
        (20000, 2700, 8, 128),
        (700, 540, 8, 64),
        (20000, 1304, 2, 64),
        (8192, 4096, 2, 128),
        # Of no whole vectors, of which a loop leaves a third of its lanes idle, or a quarter.
        (20000, 1305, 2, 64),
        (20000, 2301, 2, 128),
        (4000, 1500, 2, 64),
        (4096, 2345, 4, 128),
        (1400, 1100, 4, 64),
    ],
)
def test_lanes_of_a_longer_row(N, C, size, expected):
    assert lanes(forward(N, C, size)) == expected


@pytest.mark.parametrize(
    ("N", "C", "size"),
    [(10000, 4096, 8), (432, 712, 8), (1100, 900, 8), (20000, 1405, 2), (20000, 1700, 2), (500, 1100, 4)],
)
def test_longer_rows_that_a_loop_reads(N, C, size):
    assert isinstance(forward(N, C, size), logits_plan.Looped)


@pytest.mark.parametrize(("C", "size", "elements"), [(1100, 8, 18), (1151, 8, 18), (1304, 2, 24)])
def test_longer_rows_that_are_held_with_their_gradient(C, size, elements):
    """20000 x 1100 float64 262 us in a loop, so 172 (H100)."""
    problem = Problem(20000, C, 1, size)
    found = forward(*problem[:2], size, gradient=True, written=True)
    assert isinstance(found, logits_plan.Whole)
    assert (lanes(found), found.depth * found.vec) == (64, elements)
    # What is found again has a row's statistics.
    again = logits_plan.cross_entropy_gradient(problem, H200, False, True)
    assert isinstance(again, logits_plan.Whole)
    assert again[:5] == found[:5]
    assert isinstance(logits_plan.cross_entropy_gradient(problem, H200, False), logits_plan.LoopedGradient)
    assert isinstance(forward(20000, C, size, gradient=True), logits_plan.Looped)
    assert isinstance(forward(20000, 2 * C, size, gradient=True, written=True), logits_plan.Looped)


@pytest.mark.parametrize(
    ("N", "C", "size", "rows"),
    [(19, 193, 8, 1), (40, 130, 8, 1), (100, 256, 8, 1), (200, 256, 8, 2), (500, 256, 8, 4), (19, 193, 4, 2)],
)
def test_tiles_of_few_rows_are_small_where_each_has_a_multiprocessor(N, C, size, rows):
    """100 x 256 float64 6.33 us by tiles of four rows, 5.57 by one for each (H100)."""
    found = forward(N, C, size)
    assert found.block_r == rows
    assert found.programs == -(-N // rows) <= H200.sm_count


@pytest.mark.parametrize(("N", "C", "size"), [(1, 947, 4), (132, 777, 4), (24, 605, 4)])
def test_few_rows_of_no_whole_vectors_are_read_in_a_loop(N, C, size):
    assert isinstance(forward(N, C, size), logits_plan.Looped)
    assert isinstance(forward(N, 511, size), logits_plan.Whole)


@pytest.mark.parametrize("problem", [(31, 49, 1, 2), (35, 17, 1, 2), (64, 27, 1, 2), (86, 11, 1, 4), (8, 97, 1, 4)])
def test_few_logits_are_of_one_program(problem):
    found = logits_plan.cross_entropy(Problem(*problem), H200, False, True)
    assert found.programs == 1
    assert found.block_r * found.width <= 2 * 32 * found.warps


@pytest.mark.parametrize(
    ("N", "C", "size", "warps"),
    [
        (500, 3, 4, 16),
        (763, 3, 2, 32),
        (1500, 3, 2, 32),
        (500, 3, 8, 16),
        (93, 5, 4, 4),
        (912, 1, 2, 8),
        (1111, 1, 2, 16),
        (1500, 1, 8, 16),
        (3000, 1, 2, 32),
        (1000, 4, 4, 16),
        (500, 7, 2, 16),
        (300, 5, 4, 16),
    ],
)
def test_few_classes_are_of_one_program(N, C, size, warps):
    """1111 x 1 bfloat16 4.75 us by 8 warps, 4.00 by 16; 763 x 3 4.72 by six programs, 4.12 by one (H100)."""
    found = logits_plan.cross_entropy(Problem(N, C, 1, size), H200, False, True, False, True)
    assert (found.programs, found.warps) == (1, warps)


@pytest.mark.parametrize(
    ("C", "size", "gradient", "reduced"),
    [(5, 8, False, True), (3, 2, True, True), (9, 2, False, True), (3, 2, False, False)],
)
def test_more_pieces_that_are_of_several_programs(C, size, gradient, reduced):
    """Programs wait for each other only where one would have too many, or more than losses of few classes."""
    N = 1024 if C <= 4 else 512
    found = logits_plan.cross_entropy(Problem(N, C, 1, size), H200, False, True, gradient, reduced)
    assert found.programs > 1


@pytest.mark.parametrize(("N", "warps"), [(1168, 4), (132 * 4, 16)])
def test_several_programs_of_a_multiprocessor_have_few_warps(N, warps):
    assert forward(N, 163, 2).warps == warps


@pytest.mark.parametrize(("N", "C"), [(5000, 723), (8000, 1000), (20001, 400)])
def test_rows_beyond_what_runs_at_once_are_in_equal_shares(N, C):
    found = forward(N, C, 2)
    tiles = -(-N // found.block_r)
    assert found.programs < tiles <= found.programs * (-(-tiles // found.programs))
    assert found.registers
    # All at once.
    assert forward(1056, C, 2).registers == 0


@pytest.mark.parametrize(
    ("N", "C", "size", "warps", "group"),
    [
        (1, 13753, 2, 16, 1),
        (56, 7232, 4, 16, 1),
        (64, 20001, 2, 32, 1),
        (20, 4000, 2, 4, 1),
        (41, 65536, 2, 8, 8),  # too long
        (66, 65536, 2, 8, 8),
        (67, 65536, 2, 32, 1),  # so many rows are of one each in a loop too
        (128, 32000, 4, 32, 1),
        (80, 32874, 8, 8, 6),
        (1, 7600, 8, 8, 4),  # of float64 registers hold less
        (133, 7232, 4, 8, 1),  # more rows than multiprocessors
        (140, 20000, 4, 8, 1),
        (140, 40000, 4, 8, 3),  # several load more at once
        (224, 40000, 4, 8, 1),
        (200, 20000, 2, 8, 1),
        (200, 65536, 2, 8, 2),
        (260, 3500, 8, 8, 1),
        (140, 4100, 8, 8, 2),
    ],
)
def test_a_long_row_of_one_tile_is_of_one_program(N, C, size, warps, group):
    found = forward(N, C, size)
    assert (found.warps, found.group) == (warps, group)


@given(N=ROWS["N"], C=st.integers(1, 512), size=ROWS["size"])
def test_the_gradient_of_whole_rows(N, C, size):
    found = logits_plan.cross_entropy_gradient(Problem(N, C, 1, size), H200, False)
    assert isinstance(found, logits_plan.Whole)
    assert found.programs <= H200.sm_count * logits_plan.PER_SM
    assert found.registers * found.warps * 32 <= H200.registers_per_sm


@given(N=st.integers(1, 140), C=st.integers(1025, 1 << 23), size=ROWS["size"])
@example(66, 4097, 2)
@example(66, 4104, 2)
@example(1, 1 << 23, 8)
def test_few_long_rows_are_shared(N, C, size):
    found = shared(N, C, size)
    vec = 16 // size
    if N > 66 or (16384 if N == 1 else 4096) >= C // vec * vec:
        assert found == forward(N, C, size)
        return
    assert isinstance(found, logits_plan.Shared)
    threads, tile = found.warps * 32, found.depth * found.warps * 32
    # All run at once.
    assert found.programs == N * found.group
    assert found.programs * threads * found.registers <= H200.sm_count * H200.registers_per_sm
    vectors = C // found.vec
    assert 1 < found.group <= -(-vectors // tile)
    # The last program has a word for each thread at least, and not many.
    assert found.rows >= N
    assert found.members >= found.group
    assert threads <= found.rows * found.members <= 8 * threads


def test_vectors_of_a_thread_of_a_shared_row():
    assert [shared(*problem).depth for problem in ((8, 73960, 2), (64, 61115, 2), (64, 61115, 4))] == [2, 4, 4]


@pytest.mark.parametrize("changes", [{"written": True}, {"shared": False}, {"reduced": False}])
def test_what_the_last_program_does_not_merge(changes):
    asked = {"written": False, "shared": True, "reduced": True}
    found = logits_plan.cross_entropy(Problem(8, 73960, 1, 2), H200, **{**asked, **changes})
    assert isinstance(found, logits_plan.Looped)


@pytest.mark.parametrize(("N", "C", "size"), [(1, 16, 8), (1, 5, 8), (3, 7, 8), (1, 9, 2), (1, 16, 4), (2, 20, 4)])
def test_few_logits_are_a_lane_each(N, C, size):
    """Triton gives each thread all elements of a smaller tile. 1 x 16 float64: 3.28 us, so 2.75 (H200)."""
    found = shared(N, C, size)
    assert found.block_r * found.width >= 32
    assert (found.depth, found.warps, found.programs) == (1, 1, 1)
