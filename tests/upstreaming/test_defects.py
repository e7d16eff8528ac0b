# SPDX-License-Identifier: Apache-2.0
"""Upstream's defects: PyTorch and the overrides do not have them, bare upstream does what the rows say."""

from __future__ import annotations

from importlib.metadata import version

import flag_gems
import pytest
import torch

import flag_gems_overrides
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.registration import upstream
from flag_gems_overrides.upstreaming.defects import DEFECTS, FIXED, Defect
from flag_gems_overrides.upstreaming.observe import composed, dispatched, observe
from flag_gems_overrides.upstreaming.status import Standing, backend, droppable, visible

RELEASE = version("flag_gems")
ROWS = [pytest.param(row, id=row.id, marks=[pytest.mark.gpu] if row.needs_gpu else []) for row in DEFECTS.values()]
# Of functions that this flag_gems has.
HAD = [
    param
    for param in ROWS
    if not any(upstream.predates(OPERATORS[name], flag_gems) for name in param.values[0].functions)
]


@pytest.mark.parametrize("row", ROWS)
def test_pytorch_does_not_have_it(row: Defect, device: str) -> None:
    with composed(row.functions):
        if device == "cpu" and row.native_cpu:
            with pytest.raises((AssertionError, RuntimeError)):
                row.reproduce(torch.device(device))
        else:
            row.reproduce(torch.device(device))


@pytest.mark.parametrize("row", HAD)
def test_the_overrides_do_not_have_it(row: Defect, device: str) -> None:
    with flag_gems_overrides.use_overrides(include=row.functions), dispatched(row.functions):
        row.reproduce(torch.device(device))


def test_bare_upstream_does_what_the_rows_say() -> None:
    # The first one kills its process. The others must still run, and a second test would start two more processes.
    outcomes = observe(["no such defect", *visible(RELEASE, backend())])
    assert outcomes.pop("no such defect") == "the process ended with status 1"
    assert list(outcomes) == visible(RELEASE, backend())
    surprises = [DEFECTS[id].surprise(outcome, RELEASE, backend()) for id, outcome in outcomes.items()]
    assert not any(surprises), "\n".join(filter(None, surprises))


def test_every_known_defect_has_a_row() -> None:
    count = {"L": 7, "P": 7, "X": 5, "N": 4, "A": 7, "S": 7, "Q": 6, "M": 4, "NL": 6, "CU": 7, "G": 4, "R": 5, "FR": 4}
    count |= {"U": 12, "AM": 4, "T": 1, "H": 4, "LS": 3}
    count |= {
        "E": 6,
        "Y": 4,
        "Z": 4,
        "K": 2,
        "V": 5,
        "W": 3,
        "D": 2,
        "J": 2,
        "B": 8,
        "CB": 1,
        "CE": 9,
        "SL": 6,
        "FA": 4,
    }
    assert set(DEFECTS) == {f"{letter}{number}" for letter in count for number in range(1, count[letter] + 1)}


@pytest.mark.parametrize("row", DEFECTS.values(), ids=DEFECTS)
def test_rows_name_overrides_and_say_why_they_hide(row: Defect) -> None:
    assert set(row.functions) <= set(OPERATORS)
    hides = any(None in seen for seen in row.upstream.values())
    assert bool(row.hidden) == hides
    assert not row.needs_gpu or row.recorded(RELEASE, "interpreter") is None


def test_the_record_of_the_newest_release_that_is_not_later_counts() -> None:
    row = DEFECTS["S4"]
    assert row.recorded("4.2.0", "interpreter") == row.recorded("5.0.1", "interpreter") == "ZeroDivisionError"
    assert row.recorded("5.0.2", "cuda") == row.recorded("5.10", "cuda") == "AssertionError: dtype torch.float16"


def test_a_release_that_fixes_a_defect_is_a_surprise_that_names_the_override() -> None:
    row = DEFECTS["P7"]
    assert row.surprise("AssertionError: Invalid dim", "5.0.2", "cuda") is None
    assert "drop the override of prod_dim" in (row.surprise(FIXED, "5.1.0", "cuda") or "")
    assert "IndexError" in (row.surprise("IndexError: no", "5.1.0", "cuda") or "")


def test_an_override_is_droppable_when_none_of_its_defects_is_left() -> None:
    fixed = {"P6", "P7"}
    standings = [Standing(row, FIXED if row.id in fixed else "AssertionError") for row in DEFECTS.values()]
    assert droppable(standings) == []  # prod_dim has P1 and P2 too
    standings = [Standing(row, FIXED if "prod_dim" in row.functions else None) for row in DEFECTS.values()]
    assert droppable(standings) == ["prod_dim"]
