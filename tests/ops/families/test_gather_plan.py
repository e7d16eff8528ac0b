# SPDX-License-Identifier: Apache-2.0
"""What nll_loss is planned as, without a GPU."""

from __future__ import annotations

import pytest
from gpus import H200
from hypothesis import given
from hypothesis import strategies as st

from flag_gems_overrides.ops.families.gather import plan
from flag_gems_overrides.ops.families.gather.nll_flat import divisor


@pytest.mark.parametrize(
    ("problem", "kernel"),
    [
        # Rows: few targets, short rows of whole vectors, and others.
        ((2, 32051344, 1, 4), plan.Fill),
        ((100000, 96, 1, 2), plan.Fill),
        ((136519, 16, 1, 2), plan.Tile),
        ((524288, 16, 1, 2), plan.Tile),
        ((195064, 21, 1, 2), plan.Short),
        ((2000000, 3, 1, 2), plan.Short),
        # Images: few positions of many classes, a few classes of many, and many of both.
        ((5067, 85, 477, 2), plan.Fill),
        ((263024, 16, 6, 2), plan.Fill),
        ((1, 2, 2, 8), plan.Flat),
        ((8, 520, 72, 4), plan.Flat),
        ((1, 16, 163840, 2), plan.Flat),
        ((163, 1, 12616, 2), plan.Tile),
        ((1, 8, 2**28 - 2**12, 8), plan.Tile),  # 32 bits do not number these
        ((3, 10873, 1980, 4), plan.Images),  # from lines on
        ((4, 55, 422022, 4), plan.Images),  # H200: 117 us, flat 147
        ((20057, 9, 3, 2), plan.Fill),  # H200: 3.6 us, flat 4.0
        ((560712, 1, 1, 4), plan.Short),  # H200: 5.3 us, in tiles 5.6
        ((4, 8, 452240, 2), plan.Tile),  # 19.2 us, flat 21.7
        ((3, 44, 332112, 4), plan.Flat),  # 61.8 us, in tiles of one warp 69.2
        ((1198, 18, 1537, 2), plan.Images),  # 39.4 us, flat 54.7
    ],
    ids=str,
)
def test_the_kernel_of_a_gradient(problem, kernel):
    assert isinstance(plan.gradient(plan.Problem(*problem), H200), kernel)


@given(
    N=st.integers(1, 1 << 16),
    C=st.integers(1, 1 << 12),
    D=st.sampled_from([1, 1, 2, 3, 40, 1027, 70000]),
    size=st.sampled_from([2, 4, 8]),
)
def test_the_lowest_estimate_is_chosen(N, C, D, size):
    problem = plan.Problem(N, C, D, size)
    found = plan.configurations(problem, H200)
    estimates = [plan.estimate(problem, each, H200) for each in found]
    assert estimates == sorted(estimates)
    assert plan.gradient(problem, H200) == plan.launch(problem, found[0], H200)
    assert len({plan.launch(problem, each, H200) for each in found}) == len(found)


@pytest.mark.parametrize(
    ("problem", "better", "worse"),
    [
        # Targets are read once, not for each class: 269 us, 431 and 581.
        ((3, 7, 6982888, 4), ("images", 1, 4, 16, 4, 0), ("flat", 1, 4, 4, 2, 4)),
        ((3, 7, 6982888, 4), ("images", 1, 4, 16, 4, 0), ("flat", 1, 4, 4, 1, 4)),
        # Odd images by warps that share sectors: 85 us, 205.
        ((34939, 73, 42, 2), ("fill", 2, 4), ("flat", 1, 4, 4, 16, 1)),
        # Targets of a thread take registers: 88 us, 136.
        ((1, 1, 20775961, 4), ("tile", 4, 1, 8, 0, 1024), ("tile", 8, 1, 8, 0, 1024)),
        # Short rows by vectors of two rows: 7.0 us, 17.4.
        ((195064, 21, 1, 2), ("short", 4, 4), ("tile", 1, 4, 8, 0, 1024)),
    ],
    ids=str,
)
def test_estimates_are_in_the_order_of_times(problem, better, worse):
    """Of an H100."""
    problem = plan.Problem(*problem)
    first, second = (plan.estimate(problem, plan.Configuration(*each), H200) for each in (better, worse))
    assert first < second


@pytest.mark.parametrize(
    ("problem", "block_c", "block_d"),
    [
        ((1000, 8, 520, 2), 4, 256),
        ((500, 19, 1344, 2), 2, 512),
    ],
)
def test_tiles_of_images_leave_few_lanes_without_a_position(problem, block_c, block_d):
    found = plan.launch(plan.Problem(*problem), plan.TILE, H200)
    assert isinstance(found, plan.Tile)
    assert (found.block_c, found.block_d) == (block_c, block_d)


def test_little_images_of_one_class_are_rows_of_it():
    assert plan.gradient_problem(3, 1, 20000, 2) == (60000, 1, 1, 2)
    assert plan.gradient_problem(3, 2, 20000, 2) == (3, 2, 20000, 2)
    assert plan.gradient_problem(1, 1, 1 << 20, 2) == (1 << 20, 1, 1, 2)
    assert plan.gradient_problem(2, 1, 1 << 20, 2) == (2, 1, 1 << 20, 2)


def test_images_of_few_classes_that_begin_anywhere():
    found = plan.launch(plan.Problem(4, 29, 239451, 4), plan.IMAGES._replace(classes=7), H200)
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
    found = plan.launch(plan.Problem(*problem), plan.IMAGES._replace(classes=5), H200)
    assert isinstance(found, plan.Images)
    assert (found.vec, found.step) == (vec, step)
    assert step * problem[2] % vec == 0


@pytest.mark.parametrize(
    ("problem", "chosen", "block", "vec", "classes", "programs"),
    [
        ((1, 4, 16384, 2), plan.PAIRS, 128, 2, 1, 256),  # little: a class to a thread, of 16 bits two elements
        ((3, 32, 251, 2), plan.FLAT, 128, 1, 1, 189),
        ((5, 201, 200, 4), plan.FLAT, 128, 1, 3, 524),
        ((1, 32, 37920, 2), plan.PAIRS, 128, 2, 8, 593),  # some: as many as leave four programs to a multiprocessor
        ((5, 256, 1122, 2), plan.PAIRS, 128, 2, 11, 526),
        ((74, 17, 1153, 2), plan.FLAT, 256, 1, 9, 667),  # and two parts of them, where they are too few
        ((208, 8, 685, 4), plan.FLAT, 256, 1, 8, 557),
        ((8, 136, 6712, 8), plan.IN_ORDER, 128, 4, 1, 14263),  # many: as they lie in memory
        ((263024, 16, 6, 4), plan.IN_ORDER, 512, 1, 1, 49317),
        ((7, 3, 2, 8), plan.FLAT, 128, 1, 1, 1),  # a vector is less than an image
    ],
    ids=str,
)
def test_flat_images(problem, chosen, block, vec, classes, programs):
    found = plan.launch(plan.Problem(*problem), chosen, H200)
    assert isinstance(found, plan.Flat)
    assert (found.block, found.vec, found.classes, found.programs) == (block, vec, classes, programs)


@given(
    N=st.integers(1, 1 << 12),
    C=st.integers(1, 300),
    D=st.integers(2, 5000),
    size=st.sampled_from([2, 4, 8]),
    configuration=st.sampled_from([plan.FLAT, plan.PAIRS, plan.IN_ORDER]),
)
def test_flat_programs_have_all_once(N, C, D, size, configuration):
    found = plan.launch_or_none(plan.Problem(N, C, D, size), configuration, H200)
    if found is None:
        assert N * C * D > 2**30
        return
    assert isinstance(found, plan.Flat)
    assert D % found.vec == 0
    assert found.vec < D
    vectors = N * -(-C // found.classes) * D // found.vec
    assert 0 <= found.programs * found.block - vectors < found.block
    assert vectors % found.align == 0


@given(d=st.integers(2, 2**31 - 1), x=st.integers(0, 2**31 - 1), quotient=st.integers(0, 2**31))
def test_a_divisor_divides(d, x, quotient):
    by, shift = divisor(d)
    assert -(2**31) <= by < 0  # of 32 bits with the highest one
    multiple = min(quotient % (2**31 // d + 1) * d, 2**31 - 1)
    for each in (x, multiple, max(multiple - 1, 0)):
        assert each * (by + 2**32) >> 32 + shift == each // d


@given(N=st.integers(1, 1 << 20), C=st.integers(1, 70), size=st.sampled_from([2, 4, 8]))
def test_vectors_of_short_rows_are_of_two_at_most(N, C, size):
    found = plan.launch(plan.Problem(N, C, 1, size), plan.SHORT, H200)
    assert isinstance(found, plan.Short)
    assert found.vec <= 16 // size
    assert all((begin + found.vec - 1) // C < 2 for begin in range(C))
    assert found.vec == 16 // size or 2 * found.vec > C + 1  # no fewer than need be
    assert 0 <= found.programs * found.vectors * found.vec - N * C < found.vectors * found.vec


@pytest.mark.parametrize("problem", [(700, 33, 1, 2), (2, 2**15, 2**15, 2)], ids=str)
def test_what_is_no_flat_image(problem):
    with pytest.raises(ValueError, match="images"):
        plan.launch(plan.Problem(*problem), plan.FLAT, H200)


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
        ((797, 21, 2680, 8), 256, 528, True),  # no multiple of 16: targets one by one
        ((67585, 160, 1, 4), 256, 264, True),
        ((67584, 160, 1, 4), 256, 264, False),  # a block to each program
    ],
)
def test_programs_that_load_targets_before_they_are_wanted(problem, block, programs, prefetch):
    for reduced in (False, True):
        assert plan.forward(plan.Problem(*problem), reduced, H200) == (block, programs, plan.WARPS, prefetch)


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
    assert plan.forward(plan.Problem(*problem), reduced, H200) == (*expected, False)


@pytest.mark.parametrize(
    ("problem", "kernel"),
    [
        ((2247547, 24, 1, 4), "short"),
        ((661688, 66, 1, 2), "short"),
        ((1220649, 185, 1, 2), "short"),
        ((2097152, 17, 1, 8), "short"),
        ((577878, 128, 1, 4), "fill"),  # whole vectors
        ((165424, 184, 1, 8), "fill"),  # longer
        ((25545, 88, 1, 4), "fill"),  # in L2
    ],
)
def test_rows_in_memory_that_are_written_as_they_lie(problem, kernel):
    """461688 x 66 float16 filled 30.0 us, so 28.7 (H100)."""
    assert plan.choose(plan.Problem(*problem), H200).kernel == kernel


@pytest.mark.parametrize("problem", [(8, 456, 11715, 2), (1, 656, 219951, 2)])
def test_images_in_memory_are_of_several_warps(problem):
    """3 x 117 x 446783 bfloat16 131 us by one warp, 125 by four (H100)."""
    chosen = plan.choose(plan.Problem(*problem), H200)
    assert (chosen.kernel, chosen.warps) == ("images", 4)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ((82573, 1, 1253, 4), ("flat", 1, 8, 4, 1, 4)),  # eight positions to a thread: 459 us, so 351 (H200)
        ((256, 8, 51345, 4), ("flat", 1, 8, 4, 1, 8)),
        ((1147, 33, 411, 4), ("flat", 1, 8, 4, 1, 4)),
        ((74, 516, 2173, 4), ("images", 1, 4, 32, 1, 32)),  # from vectors on: 105 us, so 82.1 (H200)
        ((1, 600, 97335, 4), ("images", 1, 4, 32, 1, 32)),  # 63.2 us, otherwise 69.0 (H200)
        ((13, 49, 313749, 4), ("images", 1, 8, 32, 1, 8)),  # from lines on: 491 us, so 230 (H200)
        ((329, 64, 8908, 4), ("images", 1, 8, 32, 1, 32)),  # from sectors on: 221 us, so 202 (H200)
        ((300, 100, 1501, 4), ("images", 1, 4, 32, 1, 8)),  # from lines on: 67.4 us, so 51.0 (H200)
        ((3, 117, 446783, 2), ("images", 1, 4, 8, 8, 0)),  # from sectors on: 121 us, so 95.6 (H200)
    ],
)
def test_images_in_memory(problem, expected):
    assert plan.choose(plan.Problem(*problem), H200)[: len(expected)] == expected


@pytest.mark.parametrize(
    ("problem", "positions"),
    [
        # 4.2 us, one by one 5.4, filled 4.7 (H200).
        ((16978, 7, 12, 2), 2),
        ((500, 21, 150, 2), 2),
        # Little, where it is all the same.
        ((2262, 3, 20, 2), 1),
    ],
)
def test_short_images_of_16_bits_in_pairs(problem, positions):
    chosen = plan.choose(plan.Problem(*problem), H200)
    assert chosen.kernel == "flat"
    assert chosen.positions == positions


def test_short_images_of_many_bytes_are_not_in_pairs():
    found = plan.configurations(plan.Problem(39485, 7, 42, 2), H200)
    assert all(each.kernel != "flat" or each.positions == 1 for each in found)


def test_aligned_images_begin_at_sectors_or_lines():
    for problem, align in (((74, 516, 2173, 4), 32), ((13, 49, 313749, 4), 8), ((2, 150, 200001, 8), 16)):
        found = plan.gradient(plan.Problem(*problem), H200)
        assert isinstance(found, plan.Images)
        assert found.align == align
        assert found.step * problem[2] % align == 0
        assert found.blocks * found.vectors * found.vec >= -(-problem[2] // align) * align


def test_an_image_is_not_aligned_beyond_itself():
    assert plan.launch_or_none(plan.Problem(1, 600, 31, 4), plan.ALIGNED._replace(positions=32), H200) is None


@pytest.mark.parametrize("positions", [0, 1, 2, 5, 32])
def test_few_positions_of_a_loss_are_as_many_lanes(positions):
    """nll_loss_forward 1 x 100 bfloat16 takes 70 instructions, with a lane for each thread of a warp 102."""
    found = plan.forward(plan.Problem(positions, 100, 1, 2), True, H200)
    assert found == (1 << max(positions - 1, 0).bit_length(), 1, 1, False)
