# SPDX-License-Identifier: Apache-2.0
"""Measures cases one after the other and records each as soon as it is measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from flag_gems_overrides.perf.cases import COUNTED_DTYPES, TIMED_DTYPES, Case
from flag_gems_overrides.perf.meters import CountMeter, DeviceMeter, Meter
from flag_gems_overrides.perf.records import Recorder


def is_timed() -> bool:
    """Whether this machine can time; else it counts."""
    return torch.cuda.is_available()


def dtypes() -> tuple[str, ...]:
    """What is measured unless asked otherwise: upstream's on a GPU; for counts one of each size is enough."""
    return TIMED_DTYPES if is_timed() else COUNTED_DTYPES


def meter(mode: str, level: str, peers: Iterable[str] = ()) -> Meter:
    """The meter for this machine."""
    if is_timed():
        return DeviceMeter(mode, level, tuple(peers))
    return CountMeter(level)


def measure(cases: Iterable[Case], meter: Meter, recorder: Recorder | None = None) -> list[dict[str, Any]]:
    """The case lines of ``cases``; those that the recorder's session holds already are not measured again."""
    rows = []
    for case in cases:
        row = recorder.session.rows.get(case.key) if recorder else None
        if row is None:
            row = meter.measure(case)
            if recorder:
                recorder.row(row)
            if is_timed():
                torch.cuda.empty_cache()
        rows.append(row)
    return rows
