# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from flag_gems_overrides.perf.report.tables import size, tables

from .. import rows
from .made import KEYS, columns, counts, lines, shown


def cells(table, i=0) -> dict[str, str]:
    return dict(zip([column.name for column in table.columns], table.lines[i].cells, strict=True))


def test_one_table_for_each_op_and_dtype_in_upstreams_columns():
    made = tables(shown())
    assert [table.title for table in made] == [
        f"Operator: {op}  Performance Test (dtype={dtype}, mode=kernel, level=core)"
        for op, dtype in (("softmax", "bfloat16"), ("softmax", "float32"), ("prod", "float32"))
    ]
    names = [column.name for column in made[0].columns]
    assert names[0] == "Size Detail"
    for name in ("Torch Latency (ms)", "Gems Latency (ms)", "Gems Speedup", "Override Latency (ms)", "vs Liger"):
        assert name in names
    assert "Liger Latency (ms)" not in cells(made[2])
    slow = cells(made[0], 1)
    assert slow["Size Detail"] == "64x64 dim=1"
    assert (slow["Verdict"], slow["Against"]) == ("SLOWER", "Gems")
    assert slow["Change"].startswith("0.50x [")
    assert (slow["Override Speedup"], slow["vs Gems"], slow["Gems Speedup"]) == ("0.75x", "0.50x", "1.50x")
    assert (slow["Override GBPS"], slow["of copy"]) == ("34", "1%")


@pytest.mark.parametrize(
    ("level", "scope"), [("8x64 dim=1", "shape=8x64 dim=1"), ("hunt --seed 1", "level=hunt --seed 1")]
)
def test_a_title_tells_a_shape_from_a_level(level, scope):
    assert tables(shown(rows.timed(override=1.0), level=level))[0].title.endswith(f"mode=kernel, {scope})")


def test_a_peer_that_is_faster_decides_the_verdict():
    row = rows.timed(override=1.156, native=2.152, upstream=1.5, quack=1.023)
    made = cells(tables(shown(row))[0])
    assert (made["Verdict"], made["Against"]) == ("SLOWER", "QuACK")
    assert made["vs QuACK"] == "0.88x"
    row["providers"]["quack"]["agrees"] = False
    made = cells(tables(shown(row))[0])
    assert (made["Verdict"], made["Against"]) == ("FASTER", "Gems")
    assert (made["vs QuACK"], made["QuACK Latency (ms)"]) == ("0.88x *", "1.022 *")


def test_a_record_with_cold_copies_has_the_share_of_one():
    (softmax, _, prod) = tables(shown(cold=rows.COLD))
    for table in (softmax, prod):
        assert {len(line.cells) for line in table.lines} == {len(table.columns)}
    # 64 MiB take 68 us, the cases 1 and 2 ms.
    assert [cells(softmax, i)["of cold copy"] for i in (0, 1)] == ["7%", "3%"]
    assert "of cold copy" not in cells(tables(shown())[0])
    small = lines()[0] | {"compulsory": {"read": 8, "written": 8}}
    assert cells(tables(shown(small, cold=rows.COLD))[0])["of cold copy"] == "-"


def test_times_of_the_host_have_no_bandwidth():
    assert "Override GBPS" not in cells(tables(shown(measure="wrapper"))[0])


def test_what_a_figure_lacks_is_said_once_for_each_kind():
    made = lines()[:3]
    for row, n in zip(made, (50257, 128256, 65537), strict=True):
        row["providers"]["quack"] = {"absent": f"AssertionError: Input N {n} is not divisible by 8"}
        row["providers"]["liger"] = {"absent": "takes the last dim only"}
        row["providers"]["upstream"]["agrees"] = False
    notes = [note for table in tables(shown(*made)) for note in table.notes]
    assert notes == [
        "Gems: * another answer than PyTorch's (2 cases).",
        "Liger: not called: takes the last dim only (2 cases).",
        "QuACK: failed with AssertionError: Input N 50257 is not divisible by 8 (2 cases).",
        "Gems: * another answer than PyTorch's (1 case).",
        "Liger: not called: takes the last dim only (1 case).",
        "QuACK: failed with AssertionError: Input N 65537 is not divisible by 8 (1 case).",
    ]
    assert "3 rounds dropped: the device was throttled." in tables(shown())[-1].notes


def test_counts_have_a_ratio_and_a_verdict():
    more = rows.counted(loaded=65536 * 2, launches=3, allocations=2, allocated=3 << 20)
    less = rows.counted("softmax 64x128 dim=1 float32", loaded=0)
    fewer = rows.counted("softmax 64x512 dim=1 float32")
    fewer["providers"]["upstream"]["launches"] = 2
    same = rows.counted("softmax 32x256 dim=1 float32", loaded=65536 + 100)
    (table,) = tables(counts(more, less, fewer, same))
    assert [cells(table, i)["Verdict"] for i in range(4)] == ["MORE", "LESS", "LESS", "SAME"]
    assert [cells(table, i)["Bytes Ratio"] for i in range(4)] == ["0.67x", "2.00x", "1.00x", "1.00x"]
    first = cells(table)
    assert (first["Gems Passes"], first["Override Passes"]) == ("1.00", "1.50")
    assert (first["Override Loaded"], first["Override Stored"]) == ("1.00", "0.50")
    assert first["Override Allocations"] == "2 (3.0 MiB)"
    assert first["Size Detail"] == "64x256 dim=1", "no mark of a wrong answer"


def test_a_wrong_answer_a_failure_and_no_call_are_three_notes():
    wrong, failed, unsafe = (rows.counted(f"softmax {n}x256 dim=1 float32") for n in (1, 2, 3))
    wrong["providers"]["upstream"]["agrees"] = False
    failed["providers"]["upstream"] = {"absent": "RuntimeError: Triton Error"}
    unsafe["providers"]["upstream"] = {"absent": "writes beyond the gradients"}
    (table,) = tables(counts(wrong, failed, unsafe))
    assert table.notes == [
        "Gems: * another answer than PyTorch's (1 case).",
        "Gems: failed with RuntimeError: Triton Error (1 case).",
        "Gems: not called: writes beyond the gradients (1 case).",
    ]
    assert [cells(table, i)["Verdict"] for i in range(3)] == ["-", "-", "-"], "nothing to compare with"
    assert cells(table)["Size Detail"] == "1x256 dim=1 *"
    assert cells(table, 1)["Gems Passes"] == "-"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"), (3 << 30, "3.0 GiB")]
)
def test_sizes_read_well(count, text):
    assert size(count) == text


def test_columns_are_named_aligned_and_ranked():
    assert columns(tables(shown(cold=rows.COLD))[0]) == (
        "Size Detail 0<; Verdict 0<; Against 2<; Change 8<; Override Latency (ms) 1; Override Speedup 1; "
        "Torch Latency (ms) 4; Gems Latency (ms) 5; Gems Speedup 7; vs Gems 2; Liger Latency (ms) 6; vs Liger 3; "
        "Override GBPS 11; of copy 10; of read 12; of cold copy 9"
    )
    assert columns(tables(counts(rows.counted()))[0]) == (
        "Size Detail 0<; Verdict 0<; Bytes Ratio 1; Gems Loaded 5; Override Loaded 4; Gems Stored 6; "
        "Override Stored 5; Gems Passes 3; Override Passes 2; Gems Launches 2; Override Launches 1; "
        "Gems Allocations 7; Override Allocations 6"
    )


def test_a_line_has_the_key_and_the_verdict_of_its_case():
    found = [(line.key, line.word) for table in tables(shown()) for line in table.lines]
    assert found == list(zip(KEYS, ("SAME", "SLOWER", "SAME", "FASTER"), strict=True))
    (alone,) = tables(shown(rows.timed(override=1.0)))[0].lines
    assert alone.word == ""
