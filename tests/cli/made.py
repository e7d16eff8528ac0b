# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from perf import rows

from flag_gems_overrides.perf.records import Recorder


def write_record(path, *made, **changes):
    recorder = Recorder(path, rows.head(**changes), [row["key"] for row in made])
    for row in made:
        recorder.row(row)
    recorder.close()
    return path


class Meter:
    """Answers at once; interrupted at a case if told so."""

    def __init__(self, stop_at: str = "") -> None:
        self.head = {key: value for key, value in rows.head("count").items() if key not in ("kind", "schema")}
        self.measured: list[str] = []
        self._stop_at = stop_at

    def measure(self, case):
        if case.dtype == self._stop_at:
            raise KeyboardInterrupt
        self.measured.append(case.key)
        return {name: value for name, value in rows.counted(case.key).items() if name != "kind"}
