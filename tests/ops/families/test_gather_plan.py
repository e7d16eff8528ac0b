# SPDX-License-Identifier: Apache-2.0
"""What nll_loss is planned as, without a GPU."""

from __future__ import annotations

import pytest
from gpus import H200
from hypothesis import given
from hypothesis import strategies as st

from flag_gems_overrides.ops.families.gather import plan
from flag_gems_overrides.ops.launch.sizes import WARP


@pytest.mark.parametrize(
    ("problem", "kernel"),
    [
        ((3, 10873, 1980, 4), plan.Scatter),
        # Tiles of several classes: the fewest classes, the most positions and bytes, and images that are whole vectors.
        ((1, 15000, 2304, 2), plan.Tile),
        ((2, 3000, 4080, 4), plan.Tile),
        ((2, 2999, 4080, 4), plan.Scatter),
        ((2, 3000, 4100, 4), plan.Scatter),
        ((2, 4200, 4080, 4), plan.Scatter),
        ((1, 15000, 2302, 2), plan.Scatter),
        ((2, 7421, 5247, 4), plan.Scatter),
        ((3, 512, 167290, 4), plan.Scatter),
        ((3, 511, 167290, 4), plan.Images),
        ((3, 512, 43691, 4), plan.Scatter),
        ((3, 512, 43690, 4), plan.Images),
        # Few classes: writing the others would take as long as the zeros.
        ((4, 89, 448818, 2), plan.Images),
        ((5067, 85, 477, 2), plan.Fill),
        # A second launch takes longer than it saves.
        ((1, 8192, 551, 4), plan.Images),
        # Rows, whose targets are few.
        ((2, 32051344, 1, 4), plan.Fill),
        ((8, 520, 72, 4), plan.Fill),
        # Rows of little bytes, in whole vectors or few.
        ((35099, 9, 1, 2), plan.Fill),
        ((35099, 16, 1, 2), plan.Tile),
        ((3000, 9, 1, 2), plan.Tile),
        # Rows of whole vectors, and of more bytes, of all of a tile, and others.
        ((136519, 16, 1, 2), plan.Tile),
        ((6441, 64, 32, 2), plan.Tile),
        ((6441, 65, 32, 2), plan.Fill),
        ((524288, 16, 1, 2), plan.Tile),
        ((3030101, 8, 1, 2), plan.Short),
        ((2000000, 4, 1, 2), plan.Tile),
        ((100000, 96, 1, 2), plan.Fill),
        ((195064, 21, 1, 2), plan.Short),
        ((100000, 12, 1, 2), plan.Short),
        ((2000000, 3, 1, 2), plan.Short),
        ((100000, 95, 1, 2), plan.Short),
        ((100000, 191, 1, 2), plan.Short),
        ((50000, 193, 1, 2), plan.Fill),
        ((50000, 97, 1, 4), plan.Fill),
        # More bytes, of rows that are not much longer.
        ((100000, 193, 1, 2), plan.Short),
        ((70000, 129, 1, 4), plan.Short),
        ((70000, 131, 1, 4), plan.Fill),
        # A few whole vectors of 4 or 8 bytes to a class, and fewer bytes, or more vectors.
        ((4406240, 6, 1, 8), plan.Short),
        ((2000000, 12, 1, 4), plan.Short),
        ((200000, 12, 1, 4), plan.Fill),
        ((2000000, 24, 1, 4), plan.Fill),
        # Small images that tiles of whole vectors are full of; fewer positions, or bytes.
        ((11071, 7, 64, 8), plan.Tile),
        ((20000, 12, 64, 8), plan.Tile),
        ((20000, 14, 60, 4), plan.Tile),
        ((263024, 16, 6, 4), plan.Fill),
        ((3000, 14, 60, 4), plan.Fill),
        ((20000, 9, 64, 8), plan.Fill),
        # Many classes of small images, and fewer classes, or bytes.
        ((1, 23392, 1064, 2), plan.Fill),
        ((1, 10000, 1020, 4), plan.Fill),
        ((32, 1023, 1020, 4), plan.Tile),
        ((1, 6000, 1020, 4), plan.Fill),
        ((1, 5900, 1020, 4), plan.Tile),
        ((1, 66185, 551, 4), plan.Fill),
        ((451, 2089, 216, 2), plan.Fill),
        # More targets than a program reads.
        ((2, 5000, 1032, 4), plan.Tile),
        # Classes enough for a program with several of them that begin at the same lane, and too few.
        ((4, 29, 239451, 4), plan.Images),
        ((4, 15, 239451, 4), plan.Tile),
        ((3, 40, 50001, 2), plan.Images),
        # Narrower vectors of odd images, and too few classes for these.
        ((1198, 16, 1537, 2), plan.Images),
        ((1198, 15, 1537, 2), plan.Tile),
        ((1198, 18, 1538, 2), plan.Tile),
        ((1198, 18, 127, 2), plan.Tile),
        ((400, 16, 1537, 4), plan.Images),
        # Odd images of some bytes: the most, and of as many classes as a tile has or images.
        ((1, 16, 65535, 4), plan.Little),
        ((1, 16, 82001, 4), plan.Images),
        ((1, 15, 88001, 4), plan.Tile),
        ((1, 16, 45060, 4), plan.Tile),
        ((1, 4, 150001, 4), plan.Tile),
        ((1, 20, 45059, 4), plan.Images),
        ((1, 16, 80001, 2), plan.Little),
        ((1, 16, 164001, 2), plan.Images),
        ((74, 17, 1153, 2), plan.Little),
        ((1, 5, 300001, 2), plan.Little),
        ((1, 40, 40001, 2), plan.Images),
        # Tiny ones: the most bytes, and positions; of 16 bits, and of other images.
        ((1, 2, 2, 8), plan.Fill),
        ((1, 8, 32, 4), plan.Fill),
        ((1, 9, 32, 4), plan.Tile),
        ((2, 4, 18, 4), plan.Tile),
        ((2, 14, 12, 2), plan.Tile),
        ((1, 2, 47, 4), plan.Little),
        ((4, 6, 3, 4), plan.Little),
        # Small images in words, of few elements, and in whole vectors; odd ones, and longer ones.
        ((15, 20, 2, 2), plan.Tile),
        ((18, 5, 24, 8), plan.Tile),
        ((64, 16, 24, 2), plan.Tile),
        ((3, 16, 15, 2), plan.Tile),
        ((8, 4, 40, 2), plan.Tile),
        ((3, 16, 15, 4), plan.Little),
        ((8, 4, 40, 4), plan.Little),
        ((8, 3, 680, 2), plan.Little),
        ((100, 10, 32, 2), plan.Little),
        # The most that is little, and more.
        ((2, 4, 65536, 4), plan.Little),
        ((2, 4, 65600, 4), plan.Tile),
    ],
    ids=str,
)
def test_the_kernel_of_a_gradient(problem, kernel):
    assert isinstance(plan.gradient(plan.Problem(*problem), H200), kernel)


@pytest.mark.parametrize(
    ("N", "C", "size", "threads_have"),
    [
        (195064, 21, 2, 4),
        (700000, 7, 2, 4),
        (400000, 10, 4, 4),
        (100000, 21, 2, 2),
        (2000000, 3, 2, 2),
        (100000, 65, 4, 2),
    ],
)
def test_vectors_of_a_thread_that_has_short_rows(N, C, size, threads_have):
    found = plan.gradient(plan.Problem(N, C, 1, size), H200)
    assert isinstance(found, plan.Short)
    assert found.vectors == threads_have * 32 * found.warps


@pytest.mark.parametrize(
    ("problem", "block_c", "block_d"),
    [
        ((330, 8, 520, 4), 4, 128),
        ((237, 311, 320, 8), 1, 512),
        ((200, 20, 600, 4), 2, 256),
        ((500, 19, 1344, 4), 1, 512),
    ],
)
def test_tiles_of_images_leave_few_lanes_without_a_position(problem, block_c, block_d):
    found = plan.gradient(plan.Problem(*problem), H200)
    assert isinstance(found, plan.Tile)
    assert (found.block_c, found.block_d) == (block_c, block_d)


def test_little_images_of_one_class_are_rows_of_it():
    assert plan.gradient_problem(3, 1, 20000, 2) == (60000, 1, 1, 2)
    assert plan.gradient_problem(3, 2, 20000, 2) == (3, 2, 20000, 2)
    assert plan.gradient_problem(1, 1, 1 << 20, 2) == (1 << 20, 1, 1, 2)
    assert plan.gradient_problem(2, 1, 1 << 20, 2) == (2, 1, 1 << 20, 2)


def test_images_of_few_classes_that_begin_anywhere():
    found = plan.gradient(plan.Problem(4, 29, 239451, 4), H200)
    assert isinstance(found, plan.Images)
    assert found.step == 4


@pytest.mark.parametrize(
    ("problem", "vec", "step"),
    [
        ((1198, 16, 1537, 2), 2, 2),
        ((1198, 31, 1537, 2), 2, 2),
        ((1198, 32, 1537, 2), 4, 4),
        ((1198, 39, 1537, 2), 4, 4),
        ((1198, 40, 1537, 2), 8, 8),
        ((1198, 22, 1538, 2), 8, 4),
        ((400, 19, 1537, 4), 2, 2),
        ((400, 20, 1537, 4), 4, 4),
        ((400, 16, 1537, 8), 2, 2),
    ],
    ids=str,
)
def test_odd_images_of_few_classes_have_narrower_vectors(problem, vec, step):
    """Of which more classes begin at the same lane; a program has the same elements of all of these."""
    found = plan.gradient(plan.Problem(*problem), H200)
    assert isinstance(found, plan.Images)
    assert (found.vec, found.step) == (vec, step)
    assert step * problem[2] % vec == 0


def test_little_output_of_one_class_has_two_targets_to_a_thread():
    found = plan.gradient(plan.Problem(297, 1, 1, 2), H200)
    assert isinstance(found, plan.Tile)
    assert found.block_n <= 2 * 32 * found.warps


@pytest.mark.parametrize(
    ("problem", "vec", "grid"),
    [
        ((1, 5, 368, 2), 1, (3, 5, 1)),
        ((17, 3, 513, 2), 1, (5, 3, 17)),
        ((3, 16, 15, 4), 1, (1, 16, 1)),  # few elements, in place of zeros and what is none
        ((2, 21, 4096, 2), 2, (16, 11, 2)),  # pairs of 16 bits
        ((2, 21, 4095, 2), 1, (32, 6, 2)),
        ((101, 3, 168, 2), 2, (1, 2, 101)),
        ((101, 3, 167, 2), 1, (2, 2, 101)),
        ((1, 5, 15000, 2), 1, (118, 3, 1)),  # too few for pairs
        ((64, 19, 256, 4), 1, (2, 3, 64)),
        ((1, 872, 144, 8), 1, (2, 218, 1)),
        ((128, 8, 520, 4), 1, (5, 1, 128)),  # some bytes
        ((352, 8, 256, 4), 1, (2, 1, 352)),
        ((60, 30, 1024, 2), 2, (4, 4, 60)),
        ((960, 10, 77, 4), 1, (1, 1, 960)),
        ((1, 8000, 129, 2), 1, (2, 264, 1)),  # four tiles of classes one after the other
    ],
    ids=str,
)
def test_little_images_have_a_position_to_a_thread(problem, vec, grid):
    found = plan.gradient(plan.Problem(*problem), H200)
    assert isinstance(found, plan.Little)
    assert (found.vec, found.grid) == (vec, grid)
    assert found.block_n * found.block_d <= vec * 32 * max(found.warps, 4)


@given(N=st.integers(1, 1 << 20), C=st.integers(1, 70), size=st.sampled_from([2, 4, 8]))
def test_vectors_of_short_rows_are_of_two_at_most(N, C, size):
    found = plan.launch(plan.Problem(N, C, 1, size), plan.SHORT, H200)
    assert isinstance(found, plan.Short)
    assert found.vec <= 16 // size
    assert all((begin + found.vec - 1) // C < 2 for begin in range(C))
    assert found.vec == 16 // size or 2 * found.vec > C + 1  # no fewer than need be
    assert 0 <= found.programs * found.vectors * found.vec - N * C < found.vectors * found.vec


@pytest.mark.parametrize(("N", "D"), [(1, 9), (4, 2), (2, 1000), (3, 15)])
def test_a_warp_has_no_less_little_positions_than_threads(N, D):
    found = plan.launch(plan.Problem(N, 5, D, 4), plan.LITTLE, H200)
    assert isinstance(found, plan.Little)
    assert found.block_n * found.block_c * found.block_d >= WARP * found.warps


@pytest.mark.parametrize("problem", [(700, 33, 1, 2), (2, 2**15, 2**15, 2)], ids=str)
def test_what_is_no_little_image(problem):
    with pytest.raises(ValueError, match="images of less than"):
        plan.launch(plan.Problem(*problem), plan.LITTLE, H200)


def test_a_grid_has_few_programs_along_its_other_axes():
    with pytest.raises(ValueError, match="more programs"):
        plan.launch(plan.Problem(2**24, 1, 2, 2), plan.LITTLE, H200)


@pytest.mark.parametrize(
    ("problem", "block", "programs", "prefetch"),
    [
        ((1358390, 174, 1, 2), 256, 264, True),
        ((5949, 64, 705, 4), 256, 264, True),
        ((3011803, 64, 1, 2), 256, 264, True),  # the fewest bytes of a position
        ((3011803, 63, 1, 2), 512, 1024, False),
        ((8388608, 16, 1, 2), 512, 1024, False),
        ((2, 1, 33554432, 2), 512, 1024, False),
        ((800, 24, 2680, 8), 256, 264, True),
        ((300, 100, 10000, 2), 256, 264, True),
        ((67585, 160, 1, 4), 256, 264, True),
        ((67584, 160, 1, 4), 256, 264, False),  # a block to each program
    ],
)
def test_programs_that_load_targets_before_they_are_wanted(problem, block, programs, prefetch):
    for reduced in (False, True):
        assert plan.forward(plan.Problem(*problem), reduced) == (block, programs, plan.WARPS, prefetch)


@pytest.mark.parametrize(
    ("problem", "reduced", "expected"),
    [
        ((1024, 3, 1, 4), True, (1024, 1, 16)),
        ((1624, 1, 1, 4), True, (2048, 1, 16)),
        ((2048, 4, 1, 8), True, (2048, 1, 16)),
        ((2049, 4, 1, 8), True, (256, 9, 4)),
        ((1280, 9, 1, 4), True, (2048, 1, 16)),  # of a sector each
        ((1281, 9, 1, 4), True, (256, 6, 4)),
        ((128, 1, 12, 2), True, (2048, 1, 16)),
        ((1624, 1, 1, 4), False, (256, 7, 4)),  # nobody waits for others
    ],
)
def test_few_targets_of_one_program(problem, reduced, expected):
    assert plan.forward(plan.Problem(*problem), reduced) == (*expected, False)
