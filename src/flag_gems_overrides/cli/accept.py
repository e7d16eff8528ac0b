# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from flag_gems_overrides.cli import _words
from flag_gems_overrides.perf import baselines, records
from flag_gems_overrides.perf.cases import CaseError


def accept(
    record: _words.Record,
    folder: _words.Baselines = _words.BASELINES,
    reason: Annotated[
        str | None, typer.Option(help="Why an override may move or launch more than upstream, where it does.")
    ] = None,
) -> None:
    """Make the last session of a record the baseline that the perf gate compares with."""
    with _words.complaints(records.RecordError, CaseError, baselines.BaselineError, OSError):
        session = records.read(record)[-1]
        for path in baselines.accept(folder, session, reason):
            Console(highlight=False).print(f"accepted {path}", soft_wrap=True)
