# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from flag_gems_overrides.perf.report.summary import conditions, summary

from .. import rows
from .made import KEYS, columns, counts, lines, shown


def nothing(row: dict) -> dict:
    """The row as of an empty tensor, of which nobody moves a byte."""
    for provider in row["providers"].values():
        provider.update({name: 0 for name in ("loaded", "stored", "launches") if name in provider})
    return row | {"compulsory": {"read": 0, "written": 0}}


def cells(table, i=0) -> dict[str, str]:
    return dict(zip([column.name for column in table.columns], table.lines[i].cells, strict=True))


def test_means_are_against_each_and_verdicts_against_the_best():
    means = summary(shown())[0]
    first = cells(means)
    assert (first["vs Torch"], first["vs Gems"], first["vs Liger"]) == ("1.06x", "0.71x", "2.12x")
    assert (first["worst"], first["FASTER"], first["SAME"], first["SLOWER"]) == ("0.50x", "0", "1", "1")
    assert cells(means, 2)["vs Liger"] == "-"


def test_verdicts_are_counted_for_each_provider_without_wrong_answers():
    providers = summary(shown())[1]
    assert [line.cells for line in providers.lines] == [
        ["Torch", "4", "1.26x", "3", "0", "1", "0"],
        ["Gems", "3", "0.79x", "0", "2", "1", "0"],
        ["Liger", "3", "2.38x", "3", "0", "0", "0"],
    ]


def test_the_worst_cases_come_first_with_their_shape():
    worst = summary(shown())[2]
    assert [line.cells[:4] for line in worst.lines[:2]] == [
        ["softmax", "64x64 dim=1", "bfloat16", "Gems"],
        ["softmax", "64x64 dim=1", "bfloat16", "Torch"],
    ]
    assert [line.word for line in worst.lines[:3]] == ["SLOWER", "SLOWER", "SAME"]
    assert worst.lines[0].key == KEYS[1]
    ratios = [float(cells(worst, i)["Ratio"].rstrip("x")) for i in range(len(worst.lines))]
    assert ratios == sorted(ratios)


def test_counts_have_means_alone():
    (means,) = summary(counts(rows.counted(launches=2)))
    assert means.lines[0].cells == ["softmax", "float32", "1", "1.00", "1.00", "1", "2", "0", "0", "1"]
    (note,) = means.notes
    assert "passes are per compulsory byte" in note, "said once, not below each table"


def test_an_empty_tensor_is_in_no_mean_of_passes():
    empty = nothing(rows.counted("softmax 0x16 dim=1 float32"))
    assert summary(counts(empty))[0].lines[0].cells[3:7] == ["-", "-", "0", "0"]
    both = [empty, rows.counted(loaded=3 * 65536)]
    assert summary(counts(*both))[0].lines[0].cells[3:7] == ["1.00", "2.00", "1", "1"]


def test_without_an_upstream_to_count_there_are_no_means():
    alone = rows.counted()
    alone["providers"]["upstream"] = {"absent": "flag_gems 5.0.2 has no amin"}
    assert summary(counts(alone))[0].lines[0].cells == ["softmax", "float32", "1", "-", "-", "-", "-", "0", "0", "0"]


def test_conditions_name_the_code_and_of_the_host_no_bandwidth():
    head = rows.head(commit="0123456789abcdef0123-dirty")
    assert "copies at 4243 GB/s, reads at 4600 GB/s; noise 1.0%" in conditions(head)
    assert conditions(head).endswith("code 1111111111111111, commit 0123456789ab-dirty")
    assert "GB/s" not in conditions(rows.head("wrapper"))
    assert "commit unknown" in conditions(rows.head(commit=None))


def test_only_what_was_timed_has_a_column():
    alone = [row for row in lines() if row["providers"].pop("liger", None)]
    assert "vs Liger" not in [column.name for column in summary(shown(*alone))[0].columns]


def test_columns_are_named_aligned_and_ranked():
    means, providers, worst = summary(shown())
    assert columns(means) == (
        "Op 0<; dtype 0<; Cases 5; vs Torch 1; vs Gems 1; vs Liger 4; worst 2; FASTER 3; SAME 3; SLOWER 3; UNSURE 3"
    )
    assert columns(providers) == "Against 0<; Cases 0; geomean 0; FASTER 0; SAME 0; SLOWER 0; UNSURE 0"
    assert columns(worst) == (
        "Op 0<; Size Detail 0<; dtype 0<; Against 1<; Verdict 2<; Ratio 0; Change 4<; Override Latency (ms) 3; "
        "Their Latency (ms) 3"
    )
    (counted,) = summary(counts(rows.counted()))
    assert columns(counted) == (
        "Op 0<; dtype 0<; Cases 1; Gems passes 2; Override passes 0; Gems launches 2; Override launches 0; LESS 1; "
        "SAME 1; MORE 1"
    )
    titles = [table.title for table in (means, providers, worst, counted)]
    assert titles == [
        "Geometric means, and verdicts against the best of all",
        "Verdicts by provider",
        "Worst cases",
        "Means of passes, sums of launches",
    ]


def test_the_worst_case_with_all_that_is_said_of_it():
    made = lines()
    for name, ms in (("override", 4.0), ("native", 3.0)):
        made[1]["providers"][name]["samples_ms"] = [ms] * 20
    (worst,) = [line for line in summary(shown(*made))[2].lines if line.cells[3] == "Torch" and line.key == KEYS[1]]
    assert worst.word == "SLOWER"
    assert worst.cells == [
        *("softmax", "64x64 dim=1", "bfloat16", "Torch", "SLOWER"),
        *("0.75x", "-25.0 % [-25.0 %, -25.0 %]", "4.000", "3.000"),
    ]


def test_a_commit_is_cut_but_not_that_files_were_changed():
    assert conditions(rows.head(commit="0123456789abcdef")).endswith(", commit 0123456789ab")
