# SPDX-License-Identifier: Apache-2.0
"""Which configuration of a batch norm is taken. The GPU is an H200."""

from __future__ import annotations

import pytest
import torch
from gpus import A100, B200, H100, H200

from flag_gems_overrides.ops.families.batch_norm import prepare
from flag_gems_overrides.ops.families.batch_norm.launches import MAX_PROGRAMS_BY_WORDS, by_words, launch, merge_of
from flag_gems_overrides.ops.families.batch_norm.layout import View
from flag_gems_overrides.ops.families.batch_norm.plan import choose, configurations, estimate, plan, plan_sums
from flag_gems_overrides.ops.families.batch_norm.types import Configuration, Flat, Groups, Problem
from flag_gems_overrides.ops.launch import devices
from flag_gems_overrides.ops.launch.sizes import cdiv


@pytest.mark.parametrize(("M", "N", "K", "edges"), [(3, 3, 8001, False), (40, 20, 3001, True), (8, 64, 1001, True)])
def test_forward_tiles_of_little_have_no_heads_and_tails(M, N, K, edges):
    assert (plan(Problem(M, N, K, 2, 1), H200).tiling.edges > 0) == edges


@pytest.mark.parametrize(
    ("problem", "configuration", "programs", "tiles"),
    [
        (Problem(4480, 3, 3, 2, 2), Configuration("groups", 4, 4, 2, 27, 1, stages=3), 105, 1),
        (Problem(1, 1, 52479, 4, 2), Configuration("groups", 1, 4, 2, 20, 1, stages=3), None, 1),
        (Problem(8, 56, 10153, 2, 2), Configuration("groups", 1, 4, 2, 20, 4, stages=3), 504, 5),
    ],
    ids=str,
)
def test_programs_of_few_tiles_are_rounded_up(problem, configuration, programs, tiles):
    planned = launch(problem, configuration, H200)
    assert isinstance(planned, Groups)
    assert cdiv(planned.slice_size, planned.tiling.rows) == tiles
    assert programs in (None, planned.programs)


@pytest.mark.parametrize(
    ("shape", "tiles", "programs"), [((35110, 5, 1), 1, 87), ((11144, 5, 3), 1, 87), ((8192, 60, 1), 3, 86)]
)
def test_fewer_programs_than_multiprocessors_are_rounded_up(shape, tiles, programs):
    planned = launch(Problem(*shape, 2, 2), Configuration("flat", shape[1], 4, 2, 16, tiles, stages=3), H200)
    assert isinstance(planned, Flat)
    assert planned.programs == programs


@pytest.mark.parametrize(("M", "N", "kernel"), [(2713, 28976, "flat"), (1500, 30000, "flat"), (2713, 8000, "groups")])
def test_many_columns_that_l2_does_not_hold_are_read_as_they_lie(M, N, kernel):
    assert choose(Problem(M, N, 1, 4, 2), H200).kernel == kernel


@pytest.mark.parametrize(
    ("problem", "configuration", "programs"),
    [
        (Problem(8000, 32, 1, 4, 1), Configuration("flat", 32, 4, 4, 16, 1, stages=3), 125),
        (Problem(56029, 2, 1, 2, 2), Configuration("flat", 2, 4, 2, 16, 1, stages=3), 54),
        (Problem(13489, 112, 1, 2, 1), Configuration("flat", 112, 4, 4, 16, 5, stages=3), 63),
    ],
    ids=str,
)
def test_few_elements_are_read_by_as_many_programs_as_multiprocessors_at_most(problem, configuration, programs):
    planned = launch(problem, configuration, H200)
    assert isinstance(planned, Flat)
    assert planned.programs == programs


def test_channels_that_programs_hold_badly_are_shared_by_groups():
    assert choose(Problem(8079, 17, 2, 2, 1), H200).kernel == "groups"


def test_groups_have_no_lanes_of_channels_that_there_are_not():
    assert choose(Problem(22324, 3, 8, 2, 1), H200)[:2] == ("groups", 1)


@pytest.mark.parametrize(
    ("problem", "configuration", "words"),
    [
        (Problem(1, 1, 84365, 4, 2), Configuration("groups", 1, 4, 2, 20, 1, stages=3), True),
        (Problem(20, 1, 56272, 2, 2), Configuration("groups", 1, 4, 2, 20, 2, stages=3), True),
        (Problem(9000, 304, 1, 2, 2), Configuration("groups", 32, 16, 2, 16, 2), True),
        (Problem(1, 1, 84365, 8, 2), Configuration("groups", 1, 4, 2, 20, 1, stages=3), False),
    ],
    ids=str,
)
def test_groups_exchange_words_of_two_float32(problem, configuration, words):
    planned = launch(problem, configuration, H200)
    assert isinstance(planned, Groups)
    assert by_words(problem, planned) == words


@pytest.mark.parametrize(
    ("shape", "warps_per_sm", "words"),
    [((16, 64, 25000), 24, True), ((16, 32, 40000), 24, True), ((20, 6, 65536), 20, False)],
)
def test_small_groups_of_many_programs_exchange_words(shape, warps_per_sm, words):
    problem = Problem(*shape, 2, 1)
    planned = launch(problem, Configuration("groups", 1, 4, 2, warps_per_sm, 1, stages=3), H200)
    assert isinstance(planned, Groups)
    assert planned.programs > MAX_PROGRAMS_BY_WORDS
    assert by_words(problem, planned) == words


@pytest.mark.parametrize(
    ("layout", "dtype", "registers"),
    [
        ((3779, 3, 4), torch.float16, 128),
        ((1000, 3, 12), torch.float16, 128),
        ((3779, 3, 4), torch.bfloat16, None),
        ((2048, 3, 8), torch.float16, None),
        ((3779, 150, 4), torch.float16, None),
        ((1000, 3, 4), torch.float16, None),
        ((16, 16, 704), torch.float32, 128),
        ((1, 43, 15011), torch.float32, 128),
        ((16, 160, 704), torch.float32, None),
    ],
)
def test_full_programs_that_are_alone_on_a_multiprocessor_have_all_registers(layout, dtype, registers, monkeypatch):
    monkeypatch.setattr(devices, "limits", lambda device: H200)
    monkeypatch.setattr(prepare.batch_norm_channels, "bind", lambda *_, **options: options.get("maxnreg"))
    held = Configuration("channels", 1, 16, 1 if layout[2] > 15000 else 0)
    assert prepare.forward_launch(View(*layout), dtype, True, 0.1, 1e-5, 0, held) == registers


@pytest.mark.parametrize(
    ("problem", "configuration", "merge"),
    [
        (Problem(18, 320016, 3, 2, 2), Configuration("flat", 1, 4, 2, 16, 4, stages=3), (128, 8, 4)),
        (Problem(300, 120, 99, 4, 1), Configuration("flat", 1, 4, 4, 16, 2, stages=3), (2, 1024, 8)),
        (Problem(56259, 3, 16, 2, 1), Configuration("flat", 3, 4, 4, 16, 5, stages=3), (8, 128, 4)),
    ],
    ids=str,
)
def test_as_many_channels_are_merged_as_leave_many_programs(problem, configuration, merge):
    flat = launch(problem, configuration, H200)
    assert isinstance(flat, Flat)
    assert merge_of(problem, flat, H200) == merge


# (problem, configuration, its microseconds, another one, its microseconds)
TIMED = [
    ((64, 1024, 196, 2, 1), ("channels", 1, 8, 0, 32), 22.7, ("channels", 1, 16), 25.9),
    ((64, 1024, 196, 2, 2), ("channels", 1, 8, 0, 24), 31.3, ("flat", 1, 2, 2, 8, 4, False, 3), 44.7),
    ((32, 256, 784, 4, 2), ("channels", 1, 16, 0, 16), 27.8, ("groups", 1, 4, 4, 12, 1, False, 3), 34.4),
    ((477, 589, 2, 2, 1), ("channels", 8, 8, 0, 0, 1, True), 5.5, ("channels", 2, 8), 10.1),
    ((7, 608, 1091, 2, 1), ("channels", 1, 8, 1), 13.1, ("channels", 1, 8), 17.8),
    ((7, 83, 256, 4, 2), ("channels", 1, 4), 4.2, ("channels", 1, 8, 0, 0, 1, True), 5.6),
    ((71, 32287, 8, 2, 2), ("channels", 4, 4, 1, 0, 1, True), 70.3, ("channels", 1, 2, 1, 0, 1, True), 104.9),
    ((1169, 225, 1, 8, 1), ("channels", 4, 8, 1), 7.7, ("channels", 8, 16, 1), 9.7),
    ((432, 21281, 1, 4, 1), ("channels", 32, 16), 46.0, ("channels", 8, 16), 63.9),
    ((32, 228696, 1, 2, 2), ("channels", 32, 2), 30.0, ("channels", 16, 4), 37.7),
    ((448, 188, 1, 4, 2), ("channels", 4, 4), 4.8, ("channels", 1, 16), 6.0),
    ((25, 459, 60, 4, 1), ("channels", 1, 4), 6.1, ("flat", 1, 2, 4, 16, 2, False, 3), 11.3),
    ((8, 25152, 216, 4, 1), ("channels", 2, 4), 126.8, ("flat", 1, 2, 2, 16, 4, False, 3), 206.3),
    ((7, 2125, 1416, 2, 2), ("channels", 1, 16, 2), 53.2, ("flat", 1, 2, 1, 16, 7, False, 3), 87.2),
    ((32, 3384, 6, 4, 2), ("channels", 4, 4), 8.6, ("flat", 1, 4, 2, 16, 4, False, 3), 12.1),
    ((300, 475, 1, 4, 1), ("channels", 8, 8), 4.6, ("flat", 1, 2, 4, 16, 1, False, 3), 9.1),
    ((2048, 10, 1, 4, 1), ("channels", 2, 4), 5.3, ("flat", 10, 1, 4, 16, 1, False, 3), 9.3),
    ((1564, 8, 1, 2, 2), ("channels", 1, 4), 4.1, ("flat", 8, 1, 2, 16, 1, False, 3), 7.2),
    ((17, 2144, 1, 4, 2), ("channels", 8, 1), 3.6, ("flat", 1, 4, 2, 16, 1, False, 3), 7.3),
    ((24, 24, 1340, 2, 1), ("channels", 1, 16), 7.5, ("groups", 1, 4, 2, 16, 2, False, 3), 9.9),
    ((1, 1744, 24, 2, 1), ("channels", 8, 1), 3.5, ("groups", 2, 2, 2, 24, 1, False, 3), 5.8),
    ((11, 4, 3, 2, 2), ("channels", 1, 1), 3.0, ("groups", 4, 4, 1, 27, 1, False, 3), 4.1),
    ((40, 2437, 136, 2, 2), ("channels", 1, 8), 39.1, ("groups", 1, 4, 2, 32), 50.5),
    ((1, 1, 1, 2, 1), ("channels", 1, 1), 2.8, ("groups", 1, 4, 4, 16, 2), 4.0),
    ((43, 2093, 1, 2, 1), ("channels", 8, 1), 3.9, ("groups", 64, 8, 8, 16, 1073741824), 5.2),
    ((5, 69641, 1, 2, 2), ("channels", 64, 2), 4.7, ("groups", 128, 4, 4, 32, 2), 6.0),
    ((2, 50972, 1, 4, 2), ("channels", 256, 2), 4.1, ("groups", 64, 4, 2, 32, 2), 7.3),
    ((900, 17669, 5, 2, 1), ("flat", 1, 4, 4, 8, 4, False, 3), 207.9, ("channels", 2, 16), 380.6),
    ((8192, 29, 2, 4, 1), ("flat", 29, 4, 4, 16, 3, False, 3), 11.0, ("channels", 1, 16), 18.8),
    ((14520, 115, 1, 2, 1), ("flat", 115, 4, 2, 16, 5, False, 3), 14.2, ("channels", 1, 16), 45.8),
    ((5504, 44546, 1, 4, 2), ("flat", 1, 8, 2, 16, 2, False, 3), 1766.9, ("channels", 1, 16), 7898.8),
    ((19343, 12, 116, 2, 1), ("flat", 12, 8, 4, 16, 6, False, 3), 74.2, ("flat", 6, 8, 4, 16, 6, False, 3), 111.2),
    ((390229, 2, 7, 2, 1), ("flat", 2, 8, 4, 16, 5, False, 3), 24.5, ("groups", 1, 4, 8, 15, 1, False, 3), 42.8),
    ((72946, 55, 2, 4, 1), ("flat", 55, 8, 4, 16, 3, False, 3), 45.4, ("groups", 4, 4, 4, 15, 1, True, 3), 140.5),
    ((176, 1058, 95, 2, 2), ("flat", 1, 4, 2, 8, 4, False, 3), 81.0, ("groups", 1, 4, 4, 36), 167.2),
    ((109256, 191, 9, 2, 2), ("flat", 1, 4, 2, 16, 4), 681.0, ("groups", 4, 8, 2, 27, 1, False, 3), 1721.5),
    ((55774392, 2, 1, 2, 1), ("flat", 2, 8, 4, 16, 4, False, 3), 245.4, ("groups", 2, 16, 4, 16, 2), 590.0),
    ((8388608, 7, 1, 2, 1), ("flat", 7, 8, 4, 16, 5, False, 3), 142.1, ("groups", 8, 16, 8, 16, 2), 226.1),
    ((1016770, 97, 1, 4, 2), ("flat", 97, 4, 1, 16, 3, False, 3), 719.2, ("groups", 16, 16, 4, 32, 2), 1869.8),
    ((5833, 23, 1, 2, 2), ("flat", 23, 2, 2, 16), 8.1, ("groups", 32, 16, 4, 16), 10.6),
    ((2800, 2048, 1, 4, 1), ("groups", 16, 16, 4, 16, 2), 31.1, ("channels", 2, 16), 89.4),
    ((1016, 19, 13, 4, 1), ("groups", 1, 4, 4, 10, 2, True, 3), 8.6, ("flat", 19, 8, 2, 16, 1, False, 3), 11.9),
    ((1321, 8, 13133, 4, 1), ("groups", 1, 4, 4, 8, 1, False, 3), 592.3, ("flat", 1, 4, 4, 16, 2, False, 3), 834.6),
    ((5, 4, 11390, 2, 2), ("groups", 1, 4, 2, 10, 1, False, 3), 7.5, ("flat", 1, 2, 1, 16, 4, False, 3), 15.1),
    ((8, 24, 17197, 2, 2), ("groups", 1, 4, 1, 20, 4, False, 3), 19.7, ("flat", 1, 4, 2, 16, 4, False, 3), 30.7),
    ((38777, 8, 1, 2, 1), ("groups", 4, 8, 2, 8), 7.5, ("flat", 8, 4, 4, 16), 11.7),
    ((40177, 2, 1, 4, 1), ("groups", 2, 8, 4, 16), 6.7, ("flat", 2, 4, 4, 16, 1, False, 3), 8.6),
    ((44550, 8, 1, 2, 2), ("groups", 4, 16, 1, 32), 8.1, ("flat", 8, 8, 2, 16, 2, False, 3), 10.2),
    ((1, 2, 284463, 2, 1), ("groups", 1, 4, 4, 8, 1, False, 3), 9.5, ("groups", 1, 4, 1, 16, 1, False, 3), 14.0),
    ((1, 1, 9271184, 2, 1), ("groups", 1, 4, 4, 10, 1, False, 3), 26.4, ("groups", 1, 2, 2, 20, 1, False, 3), 33.7),
    ((2, 3, 666309, 4, 2), ("groups", 1, 4, 4, 10, 1, False, 3), 36.4, ("groups", 2, 4, 2, 20, 1, False, 3), 54.6),
    ((40, 3, 510, 4, 2), ("groups", 1, 4, 4, 20, 1, True, 3), 6.2, ("groups", 1, 8, 2, 20, 1, False, 3), 8.2),
    ((6456, 49, 1, 2, 1), ("groups", 32, 16, 4, 16), 10.3, ("groups", 64, 16, 8, 16), 13.5),
    ((61536, 9, 1, 2, 1), ("groups", 16, 16, 8, 16), 11.6, ("groups", 16, 16, 4, 32), 31.7),
    ((12286, 11, 1, 4, 2), ("groups", 8, 16, 4, 16), 8.0, ("groups", 4, 16, 4, 16, 2), 11.0),
    ((117510, 4, 1, 2, 2), ("groups", 2, 8, 4, 12, 2, False, 3), 8.7, ("groups", 2, 16, 4, 12, 2, False, 3), 11.2),
    ((150, 40000, 1, 2, 2), ("groups", 64, 4, 2, 32, 2), 24.5, ("channels", 16, 4, 1), 31.8),
    ((611, 3448, 1, 2, 2), ("groups", 32, 16, 2, 16, 2), 15.4, ("channels", 16, 16, 1), 19.4),
    ((128, 2256, 1, 2, 2), ("channels", 16, 4), 4.6, ("groups", 32, 4, 4, 16, 2), 5.7),
    ((1, 10016064, 9, 4, 2), ("channels", 16, 1), 384.7, ("channels", 8, 1), 758.7),
    ((181, 84866, 8, 4, 2), ("channels", 4, 16, 0, 0, 1, True), 393.1, ("channels", 2, 8), 709.2),
    ((7969, 18, 139, 4, 2), ("flat", 1, 1, 2, 8, 2, False, 3), 121.8, ("groups", 1, 4, 4, 10, 1, False, 3), 153.7),
]


@pytest.mark.parametrize(("problem", "fast", "us", "slow", "slower_us"), TIMED, ids=str)
def test_what_was_much_faster_is_estimated_to_be_faster(problem, fast, us, slow, slower_us):
    problem = Problem(*problem)
    assert slower_us > us
    of_fast, of_slow = (estimate(problem, Configuration(*each), H100) for each in (fast, slow))
    assert of_fast < of_slow


@pytest.mark.parametrize(
    ("problem", "chosen", "slow"),
    [
        ((231847, 5, 1, 2, 1), None, ("groups", 8, 8, 8, 8)),
        ((1, 1, 120047, 2, 2), ("groups", 1, 4, 1, 20), ("groups", 1, 4, 2, 20)),
        ((1, 1, 229920, 2, 2), ("groups", 1, 4, 2, 20), ("groups", 1, 4, 4, 10)),
        ((343, 6139, 20, 4, 1), ("channels", 1, 16), ("channels", 1, 8)),
        ((7, 16384, 1259, 4, 1), None, ("channels", 1, 16, 1)),
        ((81, 52645, 15, 2, 1), ("channels", 2, 2, 2), ("channels", 1, 1, 2)),
    ],
    ids=str,
)
def test_what_was_much_slower_is_not_chosen(problem, chosen, slow):
    problem = Problem(*problem)
    planned = plan(problem, H200)
    assert planned != launch(problem, Configuration(*slow), H200)
    assert chosen is None or planned == launch(problem, Configuration(*chosen), H200)


@pytest.mark.parametrize("limits", [A100, H100, H200, B200], ids=str)
@pytest.mark.parametrize("problem", [Problem(*each[0]) for each in TIMED], ids=str)
def test_the_choice_is_the_configuration_with_the_lowest_estimate(problem, limits):
    found = configurations(problem, limits)
    assert choose(problem, limits) == found[0]
    assert [estimate(problem, each, limits) for each in found] == sorted(
        estimate(problem, each, limits) for each in found
    )
    assert len({launch(problem, each, limits) for each in found}) == len(found)


@pytest.mark.parametrize("problem", [Problem(8, 428, 5940, 2, 2), Problem(8, 200, 9940, 2, 2)], ids=str)
def test_channels_of_a_little_more_than_l2_holds_may_be_read_in_turns(problem):
    assert any(each.blocks for each in configurations(problem, H100))


@pytest.mark.parametrize("problem", [Problem(40000, 64, 33, 8, 2), Problem(1, 1, 84365, 8, 1)], ids=str)
def test_sums_in_evaluation_are_not_added_up_by_flat(problem):
    assert not isinstance(plan_sums(problem, H200), Flat)
