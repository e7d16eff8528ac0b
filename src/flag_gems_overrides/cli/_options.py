# SPDX-License-Identifier: Apache-2.0
"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flag_gems_overrides.benchmark_files import benchmark_file

Baselines = Annotated[Path, typer.Option(help="Folder of accepted baselines.")]
Output = Annotated[Path, typer.Option(help="Record to append to.")]
Record = Annotated[Path, typer.Argument(help="A record, as bench or the benchmarks write it.", show_default=False)]

BASELINES = Path("benchmark/baselines")
RECORD = Path("benchmark_result.jsonl")
SURVEY = Path("benchmark/baselines/resources.jsonl")
SHAPES = Path("benchmark/core_shapes.yaml")


def _shipped(path: Path) -> Path:
    """Outside a checkout, the wheel's copy of the default."""
    return benchmark_file(path.name) if path == SHAPES else path


ShapeFile = Annotated[Path, typer.Option(help="File of shapes.", callback=_shipped)]


def say(text: str, err: bool = False) -> None:
    """Print a line as it is: no colours, no wrapping."""
    typer.echo(text, err=err)


def console() -> Console:
    """For tables: as wide as the terminal. Where there is none, the tables are plain text and never wrapped."""
    return Console(highlight=False)
