# SPDX-License-Identifier: Apache-2.0
"""Which of flag_gems' operators hurt a user's training or inference step: the side that starts the processes.

Every measurement has a process of its own with a time limit (child.py), so that one that crashes the device takes no
other with it. Results are kept after each, and a run that was interrupted goes on with what is missing.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flag_gems_overrides.errors import UserError
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf.files import write
from flag_gems_overrides.perf.statistics import Comparison, compare
from flag_gems_overrides.perf.steps import check_name
from flag_gems_overrides.perf.workers import reason

SCHEMA = 1
NATIVE, ALL, ALL_WITH_OVERRIDES, ENABLED = "native", "all", "all with overrides", "enable() of overrides"
OVERRIDE = " (override)"
# A step this much slower than native is worth an entry in the list; less may be the device's mood.
SLOWER = 0.99
# Of the loss, relative to native's. Whole models differ by about this much when sums are taken in another order.
LOSS_TOLERANCE = 0.01


class AblationError(UserError):
    """Nothing can be measured; the message says why."""


@dataclass
class Row:
    """What one variant did. Either ``error`` or the rest."""

    name: str
    error: str | None = None
    native_ms: list[float] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    @property
    def comparison(self) -> Comparison | None:
        """Native's time over this one's: below 1 is slower."""
        return compare(self.ms, self.native_ms, seed=self.name) if self.ms else None

    @property
    def lost_ms(self) -> float | None:
        """Milliseconds that a step takes longer than natively."""
        found = self.comparison
        if found is None:
            return None
        native = sorted(self.native_ms)[len(self.native_ms) // 2]
        return native / found.ratio - native

    def loss_difference(self, native: Row | None) -> float | None:
        """The largest relative difference of the losses of the same steps; None if the step returns none."""
        if native is None or not self.losses or not native.losses:
            return None
        pairs = zip(self.losses, native.losses, strict=False)
        differences = [abs(ours - theirs) / max(abs(theirs), 1e-12) for ours, theirs in pairs]
        return float("inf") if any(value != value for value in differences) else max(differences)


@dataclass
class Report:
    """All rows of one step function under one set of conditions."""

    conditions: dict[str, Any]
    reached: list[str] = field(default_factory=list)
    exclude_argument: str = "exclude"
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def native(self) -> Row | None:
        return self.rows.get(NATIVE)

    def harm(self, row: Row) -> str | None:
        """Why the variant should not be used; None if it may."""
        if row.error is not None:
            return row.error
        difference, found = row.loss_difference(self.native), row.comparison
        if difference is not None and difference > LOSS_TOLERANCE:
            return "its loss is no number" if math.isinf(difference) else f"its loss differs by {difference:.2%}"
        if found is not None and found.high < SLOWER:
            return f"{row.lost_ms:.2f} ms a step slower"
        return None

    def ranked(self) -> list[Row]:
        """Worst first: what fails, what changes the loss, then by the time that it costs."""

        def order(row: Row) -> tuple[bool, bool, float]:
            difference = row.loss_difference(self.native)
            return row.error is None, difference is None or difference <= LOSS_TOLERANCE, -(row.lost_ms or 0.0)

        return sorted(self.rows.values(), key=order)

    def excluded(self) -> tuple[list[str], list[str]]:
        """What to leave out of flag_gems, and which overrides not to install."""
        harmful = [row.name for row in self.ranked() if self.harm(row)]
        overrides = [name.removesuffix(OVERRIDE) for name in harmful if name.endswith(OVERRIDE)]
        measured = {name.removesuffix(OVERRIDE) for name in self.rows if name.endswith(OVERRIDE)}
        # With an override in its place, what upstream's function does is no reason to leave it out.
        return [name for name in harmful if name in self.reached and name not in measured - set(overrides)], overrides

    def lines(self) -> list[str]:
        """What the user can paste: two calls, or one."""
        gems, overrides = self.excluded()
        return [
            f"flag_gems_overrides.install(exclude={overrides})",
            f"flag_gems.enable({self.exclude_argument}={gems})",
            "# or both in one call, without what is known to be harmful",
            f"flag_gems_overrides.enable(exclude={list(dict.fromkeys(gems + overrides))})",
        ]

    def save(self, path: Path) -> None:
        """Write atomically."""
        value = {"schema": SCHEMA, **asdict(self), "rows": [asdict(row) for row in self.rows.values()]}
        write(path, json.dumps(value, indent=1) + "\n")


def load(path: Path) -> Report:
    """A report that was saved.

    Raises:
        AblationError: it is no such file.
    """
    try:
        value = json.loads(path.read_text())
        if value["schema"] != SCHEMA:
            raise AblationError(
                f"{path}: schema: {value['schema']} is not known here, {SCHEMA} is; use another --output"
            )
        rows = {row["name"]: Row(**row) for row in value["rows"]}
        return Report(value["conditions"], value["reached"], value["exclude_argument"], rows)
    except OSError as error:
        raise AblationError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, AblationError):
            raise
        raise AblationError(f"{path}: no report of ablate ({error}); use another --output") from None


class Ablation:
    """One run over a step function.

    Args:
        step: ``module:function``; called without arguments, returns a loss or None.
        steps: whose losses are compared, and which one sample times.
        rounds: samples of native and of each variant.
        limit_s: seconds that a process may take.
        only: operators to measure alone, all that are reached if empty.
    """

    def __init__(
        self, step: str, path: Path, steps: int = 5, rounds: int = 10, limit_s: float = 180, only: tuple[str, ...] = ()
    ) -> None:
        check_name(step)
        self._path = path
        self._options = {"step": step, "steps": steps, "rounds": rounds}
        self._limit_s = limit_s
        self._only = only
        self._modules: list[str] = []
        self._waiting: _Child | None = None
        found = self._child(None)
        if "error" in found:
            raise AblationError(f"{step}: {found['error']}")
        self._modules = found["modules"]
        conditions = {**self._options, "versions": found["versions"], "device": found["device"]}
        self.report = Report(conditions, found["reached"], found["exclude_argument"])
        if path.exists():
            before = load(path)
            if before.conditions == conditions:
                self.report.rows = before.rows
        unknown = sorted(set(only) - set(found["reached"]))
        if unknown:
            raise AblationError(f"--only: {step} does not reach {', '.join(unknown)}; it reaches {found['reached']}")

    def variants(self) -> list[str]:
        """All that are measured, in order: first what says most."""
        reached = [name for name in self.report.reached if not self._only or name in self._only]
        overrides = [name + OVERRIDE for name in reached if name in OPERATORS]
        return [NATIVE, ALL, ALL_WITH_OVERRIDES, ENABLED, *reached, *overrides]

    def run(self) -> Iterator[Row]:
        """Measure what is missing, row by row. The report is saved after each."""
        try:
            for name in self.variants():
                if name not in self.report.rows:
                    found = self._child(name)
                    self.report.rows[name] = Row(name, **found)
                    self.report.save(self._path)
                yield self.report.rows[name]
        finally:
            if self._waiting is not None:
                self._waiting.close()

    def _child(self, variant: str | None) -> dict[str, Any]:
        child = self._waiting or _Child(self._modules)
        # Imports take longer than most measurements; the next process is through with them by then.
        self._waiting = None if variant is None else _Child(self._modules)
        try:
            return child.measure({**self._options, "variant": variant}, self._limit_s)
        finally:
            child.close()


class _Child:
    """A process that imports ``modules``, then waits for what it is to measure."""

    def __init__(self, modules: list[str]) -> None:
        self._files = tempfile.TemporaryDirectory()
        folder = Path(self._files.name)
        self._output = folder / "row.json"
        (folder / "modules.json").write_text(json.dumps(modules))
        command = [sys.executable, "-m", "flag_gems_overrides.perf.ablate.child", str(folder)]
        self._log = (folder / "log").open("w+")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, text=True, start_new_session=True
        )

    def measure(self, job: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """What the process answers, or ``{"error": ...}``."""
        try:
            self._process.communicate(json.dumps(job), limit_s)
        except subprocess.TimeoutExpired:
            return {"error": f"not through after {limit_s:g} s"}
        if self._output.exists():
            found: dict[str, Any] = json.loads(self._output.read_text())
            return found
        self._log.seek(0)
        return {"error": reason(self._process.returncode, self._log.read())}

    def close(self) -> None:
        """End the process, with all that it has started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._log.close()
        self._files.cleanup()
