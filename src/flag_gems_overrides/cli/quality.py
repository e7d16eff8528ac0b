# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flag_gems_overrides.cli import _words
from flag_gems_overrides.perf.baselines import slug, write

FOLDER = Path("benchmark/quality")


def quality(folder: Annotated[Path, typer.Option(help="Where to put <device>.json.")] = FOLDER) -> None:
    """Measure how often the harness raises a false alarm here, and which planted slowdowns it finds. Needs a GPU."""
    import torch

    console = Console(highlight=False)
    if not torch.cuda.is_available():
        console.print("No GPU: there are no timings whose quality could be measured.")
        raise typer.Exit(2)
    from flag_gems_overrides.perf.quality import assess
    from flag_gems_overrides.perf.timing import ThrottledError, Timer

    with _words.complaints(ThrottledError):
        found = assess(Timer(torch.device("cuda", torch.cuda.current_device())))
    path = folder / f"{slug(found['conditions']['device']['name'])}.json"
    with _words.complaints(OSError):
        write(path, json.dumps(found, indent=1) + "\n")
    alarms = found["false_alarms"]
    console.print(f"{alarms['found']} false alarms in {alarms['comparisons']} comparisons, noise {found['noise']:.1%}")
    for slowdown, tally in found["detected"].items():
        console.print(f"{slowdown} slower: found {tally['found']} of {tally['comparisons']}")
    console.print(f"written to {path}", soft_wrap=True)
