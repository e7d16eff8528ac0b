# SPDX-License-Identifier: Apache-2.0
"""``gems-overrides``: words in, words out. One module for each command."""

from __future__ import annotations

import typer

from flag_gems_overrides.cli.ablate import ablate
from flag_gems_overrides.cli.accept import accept
from flag_gems_overrides.cli.bench import bench
from flag_gems_overrides.cli.doctor import doctor
from flag_gems_overrides.cli.list import list_overrides
from flag_gems_overrides.cli.patches import patches
from flag_gems_overrides.cli.profile import profile
from flag_gems_overrides.cli.quality import quality
from flag_gems_overrides.cli.report import report
from flag_gems_overrides.cli.resources import resources
from flag_gems_overrides.cli.status import show_status

app = typer.Typer(
    help="FlagGems operators, faster and corrected, over the installed flag_gems.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("doctor")(doctor)
app.command("list")(list_overrides)
app.command("status")(show_status)
app.command("bench")(bench)
app.command("profile")(profile)
app.command("report")(report)
app.command("quality")(quality)
app.command("resources")(resources)
app.command("accept")(accept)
app.command("ablate")(ablate)
app.add_typer(patches, name="patches")


def main() -> None:
    app()
