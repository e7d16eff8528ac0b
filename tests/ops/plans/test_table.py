# SPDX-License-Identifier: Apache-2.0
"""Tables of configurations: what is refused, and which row is found."""

from __future__ import annotations

import copy
import json
from typing import NamedTuple

import pytest
from gpus import H200

from flag_gems_overrides.ops.plans import table


class Problem(NamedTuple):
    M: int
    N: int
    K: int
    itemsize: int


class Configuration(NamedTuple):
    kernel: str
    warps: int


def row(M, N, K=1, itemsize=2, best=("rows", 4)):
    return {
        "problem": [M, N, K, itemsize],
        "configuration": best and list(best),
        "us": 3.1,
        "default_us": 4.0,
        "next_us": None,
        "share": 0.8,
    }


def content(*rows, sm_count=132, capability=(9, 0)):
    return {
        "schema": 1,
        "device": {
            "name": "NVIDIA H200",
            "capability": list(capability),
            "sm_count": sm_count,
            "l2_bytes": 60 << 20,
            "copy_gbps": 4243.5,
        },
        "versions": {"torch": "2.11.0", "triton": "3.6.0"},
        "date": "2026-11-22",
        "command": "gems-overrides tune",
        "families": {"fake": list(rows)},
    }


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(table, "FOLDER", tmp_path)
    return tmp_path


def put(folder, name="h200", **changes):
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content(*changes.pop("rows", [row(64, 64)]), **changes)))
    return path


def find(M, N, K=1, itemsize=2, limits=H200, is_legal=lambda configuration: True):
    def launch_or_none(problem, configuration, limits):
        return configuration if is_legal(configuration) else None

    problem = Problem(M, N, K, itemsize)
    return table.lookup("fake", problem, lambda p: (p.itemsize, p.K == 1), Configuration, launch_or_none, limits)


def edited(path, place, value):
    made = content(row(64, 64))
    *parents, last = place
    inner = made
    for step in parents:
        inner = inner[step]
    if value is KeyError:
        del inner[last]
    else:
        inner[last] = value
    path.write_text(json.dumps(made))
    return path


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        (["schema"], 2, "schema: 2 is not known here, 1 is"),
        (["families"], KeyError, "families: is missing"),
        (["extra"], 1, "extra: is not known"),
        (["device", "sm_count"], KeyError, "device.sm_count: is missing"),
        (["device", "sm_count"], "132", "device.sm_count: '132' should be int or float"),
        (["device", "copy_gbps"], 0, "device.copy_gbps: 0 should be positive"),
        (["device", "capability"], [9], "device.capability: [9] is not [major, minor]"),
        (["families", "fake"], {}, "families.fake: {} should be list"),
        (["families", "fake", 0], [], "families.fake[0]: [] should be dict"),
        (["families", "fake", 0, "us"], KeyError, "families.fake[0].us: is missing"),
        (["families", "fake", 0, "us"], -1.0, "families.fake[0].us: -1.0 should be positive"),
        (["families", "fake", 0, "us"], float("nan"), "families.fake[0].us: nan should be positive"),
        (["families", "fake", 0, "spee"], 1, "families.fake[0].spee: is not known"),
        (["families", "fake", 0, "problem", 1], 64.0, "families.fake[0].problem[1]: 64.0 should be int or bool"),
        (["families", "fake", 0, "configuration", 0], None, "families.fake[0].configuration[0]: None should be"),
    ],
)
def test_a_broken_table_is_refused_with_file_and_field(tmp_path, place, value, complaint):
    path = edited(tmp_path / "h200.json", place, value)
    with pytest.raises(table.TableError) as error:
        table.load(path)
    assert str(error.value).startswith(f"{path}: {complaint}")


def test_what_is_no_json_is_refused(tmp_path):
    path = tmp_path / "h200.json"
    path.write_text('{"schema": 1')
    with pytest.raises(table.TableError, match=r"h200\.json: not JSON"):
        table.load(path)
    with pytest.raises(table.TableError, match=r"none\.json: No such file"):
        table.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"problem": [64, 64, 1]}, r"families.fake\[0\].problem: \[64, 64, 1\] should be \(M, N, K, itemsize\)"),
        ({"configuration": ["rows"]}, r"families.fake\[0\].configuration: \['rows'\] should be \(kernel, warps\)"),
        ({"problem": [0, 64, 1, 2]}, r"families.fake\[0\].problem: \[0, 64, 1, 2\] has a size below 1"),
    ],
)
def test_a_row_that_the_family_cannot_read_is_refused(folder, changed, complaint):
    put(folder, rows=[row(64, 64) | changed])
    with pytest.raises(table.TableError, match=complaint):
        find(64, 64)


def test_a_row_may_leave_out_what_has_a_default(folder):
    class Wider(NamedTuple):
        M: int
        N: int
        K: int
        itemsize: int
        residual: bool = False

    put(folder, rows=[row(64, 64, best=("rows", 1))])

    def find_wider(problem):
        return table.lookup("fake", problem, lambda p: p.residual, Configuration, lambda *_: True, H200)

    assert find_wider(Wider(64, 64, 1, 2)) == Configuration("rows", 1)
    assert find_wider(Wider(64, 64, 1, 2, True)) is None


def test_the_nearest_row_of_the_class_is_found(folder):
    put(
        folder,
        rows=[
            row(64, 64, best=("rows", 1)),
            row(256, 64, best=("rows", 2)),
            row(256, 64, itemsize=4, best=("rows", 8)),
            row(256, 64, K=64, best=("split", 4)),
        ],
    )
    assert find(70, 60) == Configuration("rows", 1)
    assert find(200, 60) == Configuration("rows", 2)
    assert find(200, 60, itemsize=4) == Configuration("rows", 8)
    assert find(256, 64, K=33) == Configuration("split", 4)
    assert find(64, 64, itemsize=8) is None


def test_what_is_far_away_says_nothing(folder):
    put(folder)
    assert find(64 * 2, 64)
    assert find(64 * 2 + 1, 64) is None


def test_the_default_may_be_the_nearest(folder):
    put(folder, rows=[row(64, 64, best=None), row(256, 64)])
    assert find(64, 64) is None
    assert find(256, 64)


def test_what_is_not_legal_here_is_passed_over(folder):
    put(folder, rows=[row(64, 64, best=("rows", 16)), row(128, 64, best=("rows", 4))])
    assert find(64, 64, is_legal=lambda c: c.warps < 16) == Configuration("rows", 4)
    assert find(64, 64, is_legal=lambda c: False) is None


def test_without_a_table_there_is_only_the_default(folder):
    assert find(64, 64) is None
    put(folder)
    assert table.lookup("other", Problem(64, 64, 1, 2), str, Configuration, lambda *_: True, H200) is None


def test_a_device_takes_the_table_of_the_one_most_like_it(folder):
    put(folder, "a100", rows=[row(64, 64, best=("rows", 1))], sm_count=108, capability=(8, 0))
    put(folder, "h200", rows=[row(64, 64, best=("rows", 2))])
    put(folder, "h100-pcie", rows=[row(64, 64, best=("rows", 3))], sm_count=114)
    ampere = H200._replace(capability=(8, 6), sm_count=84)
    assert table.nearest(ampere).path.stem == "a100"
    assert table.nearest(H200).path.stem == "h200"
    assert table.nearest(H200._replace(capability=(10, 0), sm_count=148)).path.stem == "h200"


def test_rows_are_counted_by_multiprocessor(folder):
    """What 4096 rows are to 132 multiprocessors, 1024 are to 33."""
    put(folder, rows=[row(4096, 64, best=("rows", 2)), row(1024, 64, best=("rows", 1))])
    quarter = H200._replace(sm_count=33)
    assert find(1024, 64, limits=quarter) == Configuration("rows", 2)


def test_a_device_of_another_size_has_no_table(folder):
    put(folder)
    assert table.nearest(H200._replace(sm_count=33)) is not None
    assert table.nearest(H200._replace(sm_count=32)) is None
    assert find(64, 64, limits=H200._replace(sm_count=4)) is None


def test_where_plans_come_from_is_said(folder):
    assert table.describe(H200) == "by estimates: there is no table of a GPU like this one"
    put(folder)
    table._nearest.cache_clear()
    assert table.describe(H200) == "the table of NVIDIA H200"
    scaled = "the table of NVIDIA H200, scaled from 132 to 108 multiprocessors"
    assert table.describe(H200._replace(sm_count=108, capability=(8, 0))) == scaled


def test_the_shipped_tables_are_whole():
    for path in sorted(table.FOLDER.glob("*.json")):
        loaded = table.load(path)
        assert loaded.families
        assert all(rows == tuple(sorted(rows, key=lambda r: r.problem)) for rows in loaded.families.values())


def test_content_is_whole(tmp_path):
    """What the other tests break is right before."""
    path = tmp_path / "h200.json"
    path.write_text(json.dumps(copy.deepcopy(content(row(64, 64)))))
    assert table.load(path).families["fake"][0].configuration == ("rows", 4)
