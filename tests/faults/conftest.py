# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations


def pytest_terminal_summary(terminalreporter) -> None:
    count = {
        outcome: sum("test_fault_is_noticed" in report.nodeid for report in terminalreporter.getreports(outcome))
        for outcome in ("passed", "skipped", "failed")
    }
    if any(count.values()):
        terminalreporter.write_line(
            f"{sum(count.values())} faults planted: {count['passed']} noticed, {count['skipped']} equivalent, "
            f"{count['failed']} not noticed"
        )
