# SPDX-License-Identifier: Apache-2.0
"""How groups are shared out. The GPU is an H200."""

from __future__ import annotations

import pytest
import torch
from gpus import H200

from flag_gems_overrides.ops.families.group_norm import layer_norm, prepare
from flag_gems_overrides.ops.families.group_norm.launches import (
    BackwardFew,
    BackwardRows,
    BackwardSplit,
    Configuration,
    Problem,
    Rows,
    ShortRows,
    Tile,
)
from flag_gems_overrides.ops.families.group_norm.plan import choose, launch, plan
from flag_gems_overrides.ops.launch import devices
from flag_gems_overrides.ops.launch.sizes import power_of_2


@pytest.mark.parametrize(
    ("samples", "N", "K", "itemsize", "chunks"),
    [(60000, 1, 13, 4, 2), (200000, 1, 25, 2, 2), (200000, 1, 3, 2, 1), (200000, 1, 26, 2, 1)]
    + [(60000, 1, 13, 8, 2), (3000, 1, 15, 2, 2), (100000, 4, 7, 2, 1), (60000, 2, 17, 2, 2), (100000, 1, 31, 4, 2)],
)
def test_tiles_of_single_elements_are_halved(samples, N, K, itemsize, chunks):
    planned = plan(Problem(samples * 8, N, K, 8, itemsize, 2, True), H200)
    assert isinstance(planned, Tile)
    assert planned.chunks == chunks


def test_odd_groups_of_16_bits_are_in_chunks_of_a_warp():
    planned = plan(Problem(2000, 1, 141, 1, 2, 1), H200)
    assert isinstance(planned, Rows)
    assert (planned.warps, planned.chunks) == (planned.groups, 5)


@pytest.mark.parametrize(
    ("M", "size", "itemsize", "lanes"),
    [(63000, 144, 4, (3, 16)), (125930, 72, 4, (3, 8)), (200000, 36, 4, (3, 4)), (252000, 72, 2, (3, 4))],
)
def test_whole_vectors_are_in_three_chunks_with_few_masked_lanes(M, size, itemsize, lanes):
    planned = plan(Problem(M, 1, size, 7, itemsize, 1), H200)
    assert isinstance(planned, Rows)
    assert (planned.chunks, planned.vectors.lanes) == lanes


@pytest.mark.parametrize(("samples", "lone"), [(115, True), (2000, False)])
def test_few_groups_of_float64_each_have_a_program(samples, lone):
    planned = plan(Problem(8 * samples, 1, 917, 8, 8, 2, True), H200)
    assert isinstance(planned, BackwardRows)
    assert (planned.programs == 8 * samples) == lone


@pytest.mark.parametrize(
    ("samples", "C", "K", "groups", "itemsize", "warps"),
    [
        (2, 8192, 4, 32, 2, 2),
        (69, 8192, 1, 16, 4, 2),
        (40, 4096, 1, 8, 2, 2),
        (1000, 513, 1, 1, 2, 2),
        (300, 1001, 1, 1, 2, 4),
    ],
)
def test_few_groups_load_weight_and_bias_early(samples, C, K, groups, itemsize, warps):
    planned = plan(Problem(samples * groups, C // groups, K, groups, itemsize, 1, True), H200)
    assert isinstance(planned, Rows)
    assert (planned.early, planned.warps) == (True, warps)


@pytest.mark.parametrize(
    ("M", "N", "K", "groups", "itemsize", "vec", "rows", "warps"),
    [
        (560183 * 3, 1, 1, 3, 2, 8, 8, 4),
        (60001 * 5, 1, 1, 5, 8, 2, 2, 4),
        (100000, 9, 1, 1, 2, 2, 2, 4),
    ],
)
def test_a_thread_has_whole_groups_of_a_few_elements(M, N, K, groups, itemsize, vec, rows, warps):
    planned = plan(Problem(M, N, K, groups, itemsize, 1), H200)
    assert isinstance(planned, ShortRows)
    assert (planned.vec, planned.rows, planned.warps) == (vec, rows, warps)
    assert (planned.programs - 1) * planned.groups < M <= planned.programs * planned.groups


@pytest.mark.parametrize(
    ("M", "N", "K", "groups", "itemsize"),
    [
        (3342264, 1, 8, 71112, 4),
        (250000, 1, 8, 1, 4),
        (2500, 1, 8, 5, 4),
        (300000, 9, 1, 1, 4),
        (300000, 3, 3, 1, 2),
        (1600000, 1, 1, 4, 2),
        (215008, 1, 9, 6719, 8),
        (30000, 1, 8, 1, 2),
        (1, 1, 10, 1, 2),
        (56, 1, 9, 1, 2),
    ],
)
def test_threads_share_other_groups(M, N, K, groups, itemsize):
    """Of other sizes, or few, or, of float32, of too many or too few elements, or of several channels' own weights."""
    assert isinstance(plan(Problem(M, N, K, groups, itemsize, 1), H200), Rows)


@pytest.mark.parametrize(
    ("problem", "configuration"),
    [
        (Problem(300, 1, 5, 1, 4, 2), Configuration("short", 1)),
        (Problem(300, 1, 5, 1, 4, 1), Configuration("short", 1, vec=3)),
        (Problem(300, 1, 5, 1, 4, 1), Configuration("short", 1, vec=8)),
        (Problem(300, 1, 9, 1, 2, 1), Configuration("short", 1, vec=8)),
        (Problem(2**30, 1, 5, 2**30, 2, 1), Configuration("short", 1)),
    ],
)
def test_not_all_groups_are_short(problem, configuration):
    """No gradients, vectors, more elements than registers, or channels whose numbers are not of 32 bits."""
    with pytest.raises(ValueError, match=r".+"):
        launch(problem, configuration, H200)


@pytest.mark.parametrize(
    ("M", "N"),
    [
        (2771, 237),
        (20000, 300),
    ],
)
def test_a_warp_has_a_group_of_little_float32(M, N):
    planned = plan(Problem(M, N, 1, 1, 4, 1), H200)
    assert isinstance(planned, Rows)
    assert planned.groups == planned.warps


@pytest.mark.parametrize(
    ("M", "size", "groups", "chunks"),
    [
        (100000, 9, 20, 0),
    ],
)
def test_very_many_groups_of_a_channel_are_in_three_chunks(M, size, groups, chunks):
    p = plan(Problem(M, 1, size, groups, 2, 1), H200)
    assert (p.chunks if isinstance(p, Rows) else 0) == chunks


@pytest.mark.parametrize(
    ("M", "N", "K", "groups", "held"),
    [
        (1693816, 37, 1, 1, 4),
        (400000, 41, 1, 1, 4),
        (1693816, 31, 1, 1, 0),
        (112 * 512, 1, 50, 512, 0),
    ],
)
def test_a_warp_has_gradients_of_odd_groups(M, N, K, groups, held):
    p = plan(Problem(M, N, K, groups, 2, 2, True), H200)
    found = p.samples * p.groups if isinstance(p, Tile) and (p.warps, p.stages) == (1, 1) else 0
    assert found == held


@pytest.mark.parametrize(
    ("M", "size", "itemsize", "groups", "halved"),
    [
        (80000, 16, 8, 0, False),
        (300000, 16, 2, 0, False),
    ],
)
def test_many_small_groups_of_single_elements_or_pairs_are_halved(M, size, itemsize, groups, halved):
    planned = plan(Problem(M, 1, size, 1, itemsize, 1), H200)
    assert isinstance(planned, Rows)
    assert (planned.chunks == 2) == halved
    assert not halved or (planned.groups, planned.warps) == (groups, 4)


@pytest.mark.parametrize(
    ("K", "itemsize", "warps"),
    [
        (4500, 2, 8),
        (4499, 2, 8),
        (2252, 2, 4),
    ],
)
def test_groups_of_16_bits_have_half_of_the_warps_where_more_lanes_have_elements(K, itemsize, warps):
    planned = plan(Problem(4096, 2, K, 8, itemsize, 1), H200)
    assert isinstance(planned, Rows)
    assert planned.warps == warps


@pytest.mark.parametrize(
    ("C", "K", "itemsize", "programs"),
    [
        (531, 608, 4, 8),
        (531, 200, 2, 4),
        (1024, 1024, 2, 4),
    ],
)
def test_sums_of_a_channel_at_a_time_have_more_programs(C, K, itemsize, programs):
    found = choose(Problem(80, C, K, 1, itemsize, 2, True), H200)
    assert (found.kernel, found.programs_per_sm, found.block_d == 1) == ("split", programs, programs == 8)


@pytest.mark.parametrize(
    ("samples", "C", "K", "groups", "itemsize", "tile"),
    [
        (19, 16384, 171, 4, 2, (2, 32, 1)),
        (30, 20000, 35, 2, 4, (8, 8, 1)),
        (8, 433, 10343, 1, 2, (1, 256, 4)),
    ],
)
def test_sums_of_channels_of_no_whole_vectors_are_as_they_lie(samples, C, K, groups, itemsize, tile):
    """Channels and vectors of a tile, and warps: two vectors to a thread."""
    found = plan(Problem(samples * groups, C // groups, K, groups, itemsize, 2, True), H200)
    assert isinstance(found, BackwardSplit)
    assert found.sums.unaligned
    assert (found.sums.block_d, found.sums.block_hw * itemsize // 16, found.sums_warps) == tile


@pytest.mark.parametrize("samples", [512, 1024, 4096])
def test_sums_of_float64_channels_are_estimated_with_eight_bytes(samples):
    assert choose(Problem(samples, 3044, 1, 1, 8, 2, True), H200).kernel == "channels"


@pytest.mark.parametrize(
    ("samples", "K", "itemsize"),
    [
        (512, 4500, 4),
        (40, 8000, 4),
        (512, 6000, 2),
    ],
)
def test_many_large_groups_have_eight_warps(samples, K, itemsize):
    """48 x 8 x 13145 float16 in 8 groups 13.6 us, 15.1 by 16 warps (H100)."""
    planned = plan(Problem(samples * 8, 2, K, 8, itemsize, 1), H200)
    assert isinstance(planned, Rows)
    assert planned.warps == 8


@pytest.mark.parametrize(
    ("K", "itemsize"),
    [
        (10242, 4),
        (24570, 4),
        (40957, 4),
        (40957, 2),
        (20477, 8),
    ],
)
def test_groups_of_one_channel_are_held_whatever_their_size(K, itemsize):
    whole = K // 8 * 8
    held, as_whole = (plan(Problem(3456, 1, each, 27, itemsize, 1), H200) for each in (K, whole))
    assert isinstance(held, Rows)
    assert isinstance(as_whole, Rows)
    assert held.warps == as_whole.warps


@pytest.mark.parametrize(
    ("samples", "C", "K", "groups", "itemsize"),
    [
        (11, 71, 1, 1, 2),
        (5, 741, 7, 1, 2),
        (8, 320, 64, 32, 2),
        (1059, 3, 1, 1, 2),
        (6, 771, 3, 3, 8),
        (200, 24, 20, 4, 2),
        (4, 4096, 1, 8, 4),
        (61, 2943, 2, 1, 4),
        (4, 80, 1, 1, 4),
        (6, 4, 41, 4, 2),
        (7, 494, 1, 2, 2),
    ],
)
def test_gradients_of_little_data_are_one_launch(samples, C, K, groups, itemsize):
    planned = plan(Problem(samples * groups, C // groups, K, groups, itemsize, 2, True), H200)
    assert isinstance(planned, BackwardFew)


@pytest.mark.parametrize(
    ("samples", "C", "K", "groups", "itemsize"),
    [
        (9, 3, 1, 3, 2),
        (32, 1, 4, 1, 2),
        (15, 30, 1, 30, 2),
        (73, 2, 1, 2, 2),
        (64, 1, 3, 1, 4),
        (101, 3, 1, 1, 2),
        (21, 32, 2, 16, 2),
        (29, 14, 3, 14, 4),
        (16, 60, 32, 60, 2),
    ],
)
def test_gradients_of_a_few_elements_are_tiles(samples, C, K, groups, itemsize):
    planned = plan(Problem(samples * groups, C // groups, K, groups, itemsize, 2, True), H200)
    assert isinstance(planned, Tile)


def test_channels_of_many_samples_in_lines_of_their_own_are_not_read_beside_groups():
    assert isinstance(plan(Problem(3608 * 32, 1, 1, 32, 2, 2, True), H200), Tile)


@pytest.mark.parametrize(("samples", "C", "K", "groups", "itemsize"), [(512, 133, 9, 133, 4), (64, 4874, 4, 2, 2)])
def test_more_data_are_not_read_twice(samples, C, K, groups, itemsize):
    planned = plan(Problem(samples * groups, C // groups, K, groups, itemsize, 2, True), H200)
    assert not isinstance(planned, BackwardFew)


@pytest.mark.parametrize(
    ("M", "N", "K"),
    [
        (13, 1, 5760),
        (3, 1, 7000),
        (40, 1, 6000),
    ],
)
def test_few_groups_of_float64_are_held(M, N, K):
    """13 x 64 x 90 float64 5.1 us, in two launches 6.0 (H100)."""
    assert isinstance(plan(Problem(M, N, K, 1, 8, 1, True), H200), Rows)


@pytest.mark.parametrize("M", [100, 192, 400])
def test_many_float32_of_a_thread_are_loaded_before_weight_and_bias(M):
    """192 groups of 16 x 1024 float32 14.8 us, 17.9 with all at once; those of one channel have one weight (H100)."""
    by_16_warps = Configuration("rows", 16, 1, 4)
    early = {N: launch(Problem(M, N, 16384 // N, 1, 4, 1, True), by_16_warps, H200) for N in (1, 16)}
    assert all(isinstance(each, Rows) for each in early.values())
    assert [each.early for each in early.values()] == [True, False]
    assert launch(Problem(M, 12, 1000, 1, 4, 1, True), by_16_warps, H200).early


@pytest.mark.parametrize(("samples", "groups", "warps"), [(600, 1, 8), (600, 2, 4)])
def test_as_many_float32_by_fewer_warps_are_loaded_with_weight_and_bias(samples, groups, warps):
    """600 x 1000 x 8 float32 19.5 us, 22.4 before them (H100)."""
    planned = plan(Problem(samples * groups, 1000 // groups, 8, groups, 4, 1, True), H200)
    assert isinstance(planned, Rows)
    assert (planned.early, planned.warps) == (True, warps)


@pytest.mark.parametrize(
    ("samples", "C", "K", "groups", "itemsize"),
    [
        (9, 21707769, 1, 1, 2),
        (9, 3738299, 2, 1, 2),
        (5, 4800000, 2, 4, 4),
        (5, 9000000, 1, 1, 2),
        (3, 5000001, 1, 1, 4),
        (30, 2000003, 1, 1, 2),
        (8, 4800000, 3, 32, 2),
        (40, 150000, 7, 1, 8),
        (5, 96000, 4, 32, 8),
        (2, 2400000, 4, 1, 2),
        (2, 300000, 1, 1, 4),
        (100, 5000, 15, 1, 2),
        (464, 7703, 15, 1, 2),
        (736, 4003, 3, 1, 4),
        (8, 524288, 13, 32, 4),
        (273, 36465, 16, 1, 4),
        (60, 26484, 32, 1, 4),
    ],
)
def test_sums_of_many_short_channels_are_held(samples, C, K, groups, itemsize):
    """9 x 21707769 bf16 955 us, 2713 by parts of groups, 3 x 5000001 float32 152 and 265 (H100)."""
    assert choose(Problem(samples * groups, C // groups, K, groups, itemsize, 2, True), H200).kernel == "channels"


@pytest.mark.parametrize(
    ("samples", "C", "K", "groups", "itemsize"),
    [
        (8, 600000, 40, 4, 2),
        (2, 80000, 16, 4, 2),
        (2, 1060873, 5, 1, 2),
        (16, 12000, 100, 4, 2),
        (1, 1200000, 7, 1, 4),
        (1, 1048576, 58, 32, 2),
    ],
)
def test_sums_of_longer_or_few_channels_are_of_parts(samples, C, K, groups, itemsize):
    """8 x 600000 x 40 float16 758 us, 849 by channels. Of one sample, which has no other sums, 1 x 1200000 x 7 float32
    74 and 105, 1 x 1048576 x 58 bf16 239 and 306 (H100)."""
    assert choose(Problem(samples * groups, C // groups, K, groups, itemsize, 2, True), H200).kernel == "split"


@pytest.mark.parametrize(("samples", "C", "K", "groups"), [(915, 842, 28, 2), (69, 64, 5451, 32), (50, 8, 2699, 4)])
def test_groups_of_16_bits_that_stay_in_the_cache_are_in_a_loop(samples, C, K, groups):
    """915 x 842 x 28 bf16 in 2 89.6 us, by channels 102, 69 x 64 x 5451 in 32 83.7, by parts 97.1 (H100)."""
    assert choose(Problem(samples * groups, C // groups, K, groups, 2, 2, True), H200).kernel == "loop"


@pytest.mark.parametrize(
    ("samples", "C", "K"),
    [
        (8, 376, 39936),
        (8, 376, 32768),
    ],
)
def test_many_long_channels_are_read_again_from_the_cache(samples, C, K):
    """8 x 376 x 39936 bf16 327 us by 16 warps, 359 by 8, in several launches 396 (H100)."""
    found = choose(Problem(samples * C, 1, K, C, 2, 2, True), H200)
    assert (found.kernel, found.warps) == ("loop", 16)


@pytest.mark.parametrize(
    ("samples", "groups", "K", "itemsize", "programs", "tile"),
    [
        (512, 3000, 2, 2, 8, (64, 8)),
        (256, 2196, 1, 2, 4, (64, 16)),
        (1000, 700, 1, 4, 4, (128, 8)),
        (512, 1000, 1, 2, 4, (512, 2)),
        (256, 800, 1, 2, 8, (256, 2)),
    ],
)
def test_tiles_of_many_groups_fill_sectors(samples, groups, K, itemsize, programs, tile):
    """512 x 3000 x 2 bf16 23.1 us, 43.8 with two groups to a tile; of few groups all samples are in one, but for many
    pieces, 1000 x 700 float32 16.3 and 36.9 (H100)."""
    configuration = Configuration("tile", 32 // programs, tile[0] * tile[1], 1, 1, 1, K, programs, 3)
    planned = launch(Problem(samples * groups, 1, K, groups, itemsize, 2, True), configuration, H200)
    assert isinstance(planned, Tile)
    assert (planned.samples, planned.groups) == tile


@pytest.fixture
def planned_by_norm(monkeypatch):
    """The functions that launch layer normalizations, for an H200, without launching any."""
    monkeypatch.setattr(devices, "limits", lambda index: H200)
    monkeypatch.setattr(layer_norm, "forward_launch", lambda *arguments: None)
    monkeypatch.setattr(layer_norm, "backward_launch", lambda *arguments: "launch")


@pytest.mark.parametrize(
    ("M", "N", "K", "groups", "dtype", "is_so"),
    [
        (400, 20000, 1, 1, torch.bfloat16, True),
        (66, 13000, 1, 2, torch.float16, False),
        (66, 6500, 2, 1, torch.float16, False),
        (3, 1000000, 1, 1, torch.float32, False),
        (1000, 513, 1, 1, torch.bfloat16, False),
        (1000, 40000, 1, 1, torch.float16, True),
        (10, 30000, 1, 1, torch.float32, True),
        (300, 9000, 1, 1, torch.float64, False),
        (20000, 1000, 1, 1, torch.bfloat16, True),
        (20, 12000, 1, 1, torch.bfloat16, True),
        (5, 10001, 1, 1, torch.float32, True),
        (4000, 4097, 1, 1, torch.float16, False),
        (1000, 3001, 1, 1, torch.float32, False),
        (1000, 256, 1, 1, torch.float32, False),
        (200000, 24, 1, 1, torch.float32, False),
    ],
)
def test_long_rows_are_held_by_layer_norm(M, N, K, groups, dtype, is_so, planned_by_norm):
    problem = Problem(M, N, K, groups, dtype.itemsize, 1)
    assert (layer_norm.forward_or_none(problem, plan(problem, H200), dtype, 1e-5, 0) is not None) == is_so


@pytest.mark.parametrize(
    ("M", "N", "groups", "dtype", "is_so"),
    [
        (2000, 5000, 1, torch.float32, True),
        (40000, 301, 1, torch.float32, True),
        (2000, 5000, 2, torch.float32, False),
        (1496171, 66, 1, torch.float16, False),
        (1024, 9, 1, torch.float32, False),
        (1500, 600, 1, torch.float32, False),
        (300, 3000, 1, torch.float32, True),
        (10000, 700, 1, torch.float64, True),
        (3000, 5000, 1, torch.bfloat16, True),
        (800, 2049, 1, torch.bfloat16, False),
        (40000, 300, 1, torch.float16, False),
        (30, 2000003, 1, torch.float32, False),
    ],
)
def test_gradients_of_rows_are_held_by_layer_norm(M, N, groups, dtype, is_so, planned_by_norm):
    problem = Problem(M, N, 1, groups, dtype.itemsize, 2, True)
    found = layer_norm.backward_or_none(problem, plan(problem, H200), dtype, (True, True, True), 0)
    assert (found is not None) == is_so


@pytest.mark.parametrize(("size", "groups", "HW", "registers"), [(17, 8, 1, 72), (15, 5, 1, 72), (7, 4, 3, None)])
def test_groups_of_singles_have_registers_for_weight_and_bias(size, groups, HW, registers, monkeypatch):
    monkeypatch.setattr(devices, "limits", lambda device: H200)
    monkeypatch.setattr(prepare.group_norm_rows, "bind", lambda *_, **options: options.get("maxnreg"))
    sizes = prepare.Sizes(4877, size * groups, HW, groups)
    configuration = Configuration("rows", 4, 1024 // power_of_2(size * HW), 1, 2)
    assert prepare.forward_launch(torch.float16, sizes, 1e-5, 0, configuration) == registers


@pytest.mark.parametrize(("N", "registers"), [(4, 128), (400, None)])
def test_few_groups_with_edges_in_vectors_of_several_channels_have_all_registers(N, registers, monkeypatch):
    monkeypatch.setattr(devices, "limits", lambda device: H200)
    monkeypatch.setattr(prepare.group_norm_rows, "bind", lambda *_, **options: options.get("maxnreg"))
    configuration = Configuration("rows", 16, 1, 4)
    assert prepare.forward_launch(torch.float32, prepare.Sizes(N, 6, 4099, 2), 1e-5, 0, configuration) == registers
