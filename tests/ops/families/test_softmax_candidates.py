# SPDX-License-Identifier: Apache-2.0
"""Which launches of softmax are legal, and which of them the estimate prefers."""

from __future__ import annotations

import pytest
from gpus import A100, B200, H100, H200

from flag_gems_overrides.ops.families.softmax.candidates import candidates, spills
from flag_gems_overrides.ops.families.softmax.plan import (
    Configuration,
    Problem,
    configurations,
    estimate,
    launch,
)


@pytest.mark.parametrize(
    ("N", "K", "elements", "warps", "vec", "rule"),
    [
        (100, 6, 16, 4, 2, "a power of two of columns"),
        (100, 2, 16, 4, 4, "whole vectors"),
        (100, 8, 16, 4, 8, "whole vectors"),  # of 32 bytes
        (129, 2, 2, 4, 2, "no more elements than a program"),
        (1, 256, 4, 1, 4, "no more elements than a program"),
        (1, 2**30, 4, 32, 4, "no more elements than a program"),
    ],
)
def test_programs_that_cannot_have_all_columns(N, K, elements, warps, vec, rule):
    with pytest.raises(ValueError, match=rule):
        launch(Problem(5, N, K, 4, 1), Configuration("short", elements, warps, vec=vec), H200)


@pytest.mark.parametrize(
    ("N", "K", "elements", "width", "rule"),
    [(29, 3, 16, 8, "all columns"), (700, 3, 16, 4, "no more elements"), (29, 6, 1, 8, "no more elements")],
)
def test_what_is_not_side_by_side(N, K, elements, width, rule):
    with pytest.raises(ValueError, match=rule):
        launch(Problem(500, N, K, 2, 1), Configuration("short", elements, 4, block_k=width), H200)


# Their microseconds on an H100 (torch 2.11, Triton 3.6) differ by a fifth or more.
@pytest.mark.parametrize(
    ("problem", "faster", "slower"),
    [
        # 202 and 334: neighbours in memory are neighbours in a warp.
        ((8388608, 15, 1, 2, 1), Configuration("rows", 4, 4), Configuration("rows", 16, 4)),
        # 19.1 and 33.0: fewer programs start.
        ((92539, 93, 1, 2, 1), Configuration("rows", 8, 4), Configuration("rows", 4, 2)),
        # 49.3 and 65.6: twice as many threads share a column.
        ((80, 118, 519, 8, 2), Configuration("short", 16, 8), Configuration("short", 8, 4)),
        # 8.2 and 11.9: groups, for more programs.
        ((32, 2960, 7, 4, 1), Configuration("split", 8, 8, 64, 1, 8, 16), Configuration("short", 32, 32)),
        # 39.4 and 62.9: several blocks of columns as they lie.
        ((238240, 11, 6, 2, 2), Configuration("short", 8, 8, block_k=8), Configuration("short", 32, 4)),
        # 88 and 124, 228 and 274, 1364 and 1541 (H200): more programs on a multiprocessor, which overlap.
        (
            (1000, 45, 1000, 2, 2),
            Configuration("split", 32, 4, 128, 8, 64),
            Configuration("split", 32, 8, 128, 8, 128),
        ),
        ((438, 39, 8192, 2, 2), Configuration("short", 32, 2), Configuration("split", 32, 4, 128, 8, 64)),
        (
            (1024, 1024, 1024, 2, 1),
            Configuration("split", 32, 8, 128, 8, 64),
            Configuration("split", 64, 16, 128, 8, 32),
        ),
        # 6.0 and 7.5
        ((9, 32768, 1, 4, 1), Configuration("split", 16, 8, 64, 4, 4, 8), Configuration("rows", 32, 32)),
    ],
)
def test_the_estimate_prefers_what_is_much_faster(problem, faster, slower):
    problem = Problem(*problem)
    assert estimate(problem, faster, H100) < estimate(problem, slower, H100)


# Microseconds on an H200 (torch 2.11, Triton 3.6): of pairs loaded two at a time, and of what is next.
@pytest.mark.parametrize(
    ("M", "N", "configuration"),
    [
        (4096, 9002, Configuration("rows", 32, 16, 64)),  # 59.5 and 64.9
        (4096, 7670, Configuration("rows", 32, 8, 64)),  # 52.0 and 53.0
        (20, 7670, Configuration("rows", 32, 8, 64)),  # 3.85 and 4.40
    ],
)
def test_even_rows_of_16_bits_are_held_in_pairs(M, N, configuration):
    assert configurations(Problem(M, N, 1, 2, 2), H200)[0] == configuration


# Microseconds on an H200: of what is chosen, and of what was before the estimate knew how much loops have in flight,
# what a few groups wait for, and that the sums of log_softmax's gradient read one of its inputs.
@pytest.mark.parametrize(
    ("problem", "slower"),
    [
        ((8192, 50304, 1, 2, 1), Configuration("split", 16, 16, 64, 8, 8)),  # 451.8 and 474.0
        ((16384, 20000, 1, 2, 1), Configuration("split", 16, 8, 64, 8, 8)),  # 333.0 and 352.5
        ((16, 1048576, 1, 2, 2, True), Configuration("split", 32, 8, 128, 8, 8, 66)),  # 36.7 and 44.6
        ((8, 4096, 1024, 2, 1), Configuration("split", 32, 8, 128, 8, 128, 16)),  # others 55.8 to 62.9, and 73.2
        ((1, 4096, 4096, 2, 2, True), Configuration("split", 32, 8, 128, 8, 64, 16)),  # 39.1 and 45.2
        ((64, 16384, 64, 2, 2, True), Configuration("split", 32, 16, 128, 8, 64, 16)),  # 128.5 and 141.7
        ((77, 2333, 180, 2, 2), Configuration("split", 16, 8, 128, 4, 128, 16)),  # 97.6 and 121.7
    ],
)
def test_large_problems_are_not_launched_as_before(problem, slower):
    problem = Problem(*problem)
    chosen = configurations(problem, H200)[0]
    assert chosen != slower
    assert estimate(problem, chosen, H200) < estimate(problem, slower, H200)


@pytest.mark.parametrize(
    ("problem", "configuration"),
    [
        ((8192, 50257, 1, 4, 1), Configuration("split", 64, 4, 72, 4, 4, 13)),
        ((13300, 5233, 1, 8, 2), Configuration("split", 8, 32, 32, 2, 2)),
        ((1379, 13704, 1, 2, 2), Configuration("split", 16, 32, 32, 8, 8)),
        ((1656, 121699, 1, 4, 2), Configuration("split", 32, 4, 72, 4, 4, 60)),
    ],
)
def test_what_spills_is_no_candidate(problem, configuration):
    problem = Problem(*problem)
    launched = launch(problem, configuration, H100)
    assert spills(problem, configuration, launched, H100)
    assert launched not in [each for _, each in candidates(problem, H100)]


@pytest.mark.parametrize("limits", [A100, H200, B200])
@pytest.mark.parametrize(
    "problem", [(4096, 8192, 1, 2, 1), (8, 300000, 1, 4, 2), (64, 500, 64, 2, 2), (9, 5000, 7, 8, 1)]
)
def test_candidates_are_few(problem, limits):
    found = list(candidates(Problem(*problem), limits))
    assert 4 <= len(found) <= 80
    assert len({launched for _, launched in found}) == len(found)
    assert configurations(Problem(*problem), limits)[0] in [configuration for configuration, _ in found]
