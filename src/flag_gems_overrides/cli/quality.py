# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flag_gems_overrides.cli._options import say
from flag_gems_overrides.errors import UserError
from flag_gems_overrides.perf.baselines import slug
from flag_gems_overrides.perf.files import make_folder, write

FOLDER = Path("benchmark/quality")


def quality(folder: Annotated[Path, typer.Option(help="Where to put <device>.json.")] = FOLDER) -> None:
    """Measure how often the harness raises a false alarm here, and which planted slowdowns it finds. Needs a GPU."""
    import torch

    if not torch.cuda.is_available():
        raise UserError("no GPU: there are no timings whose quality could be measured; run it on a GPU machine")
    make_folder(folder)
    from flag_gems_overrides.perf.quality import assess
    from flag_gems_overrides.perf.timing import Timer

    found = assess(Timer(torch.device("cuda", torch.cuda.current_device())))
    path = folder / f"{slug(found['conditions']['device']['name'])}.json"
    write(path, json.dumps(found, indent=1) + "\n")
    alarms = found["false_alarms"]
    say(f"{alarms['found']} false alarms in {alarms['comparisons']} comparisons, noise {found['noise']:.1%}")
    for slowdown, tally in found["detected"].items():
        say(f"{slowdown} slower: found {tally['found']} of {tally['comparisons']}")
    say(f"wrote {path}")
