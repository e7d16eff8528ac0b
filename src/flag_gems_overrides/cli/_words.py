# SPDX-License-Identifier: Apache-2.0
"""Words that several commands take, and what becomes of bad ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

Baselines = Annotated[Path, typer.Option(help="Folder of accepted baselines.")]
Output = Annotated[Path, typer.Option(help="Record to append to.")]
Record = Annotated[Path, typer.Argument(help="A record, as bench or the benchmarks write it.", show_default=False)]
ShapeFile = Annotated[Path, typer.Option(help="File of shapes.")]

BASELINES = Path("benchmark/baselines")
RECORD = Path("benchmark_result.jsonl")
SURVEY = Path("benchmark/baselines/resources.jsonl")
SHAPES = Path("benchmark/core_shapes.yaml")


def wide_console() -> Console:
    """For tables: as wide as the terminal, and wide enough for them where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=200)


@contextmanager
def complaints(*kinds: type[Exception]) -> Iterator[None]:
    """What is wrong with a file or an argument is said in one line, with exit status 2."""
    try:
        yield
    except kinds as error:
        Console(stderr=True, highlight=False).print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from None
