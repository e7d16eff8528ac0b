# SPDX-License-Identifier: Apache-2.0
"""A made-up session of two ops, in which one case is slower, one answer wrong, and a peer missing."""

from __future__ import annotations

from flag_gems_overrides.perf.records import Session
from flag_gems_overrides.perf.report.tables import Table
from flag_gems_overrides.perf.report.view import View, view

from .. import rows

KEYS = (
    "softmax 4096x4096 dim=1 bfloat16",
    "softmax 64x64 dim=1 bfloat16",
    "softmax 64x64 dim=1 float32",
    "prod 65536 float32",
)


def lines() -> list[dict]:
    made = [rows.timed(key, override=1.0, native=1.5, upstream=1.0, liger=3.0) for key in KEYS]
    made[1]["providers"]["override"]["samples_ms"] = rows.samples(2.0)
    made[3]["providers"]["liger"] = {"absent": "liger has no prod"}
    made[3]["providers"]["upstream"]["agrees"] = False
    made[3]["rounds"]["dropped"] = 3
    return made


def session(**changes) -> Session:
    return Session(rows.head(**changes), {line["key"]: line for line in lines()}, ended=True)


def shown(*made: dict, **changes) -> View:
    """A view of these case lines; of all of the session if there are none."""
    return view(rows.head(**changes), made or lines())


def counts(*made: dict) -> View:
    return view(rows.head("count"), made)


def columns(table: Table) -> str:
    """Each column's name and rank; text has a <."""
    return "; ".join(f"{name} {rank}{'<' * text}" for name, rank, text in table.columns)
