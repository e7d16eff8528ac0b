# SPDX-License-Identifier: Apache-2.0
"""All commands of ``gems-overrides``, each imported when it is asked for. Needs typer."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from flag_gems_overrides.cli import missing, version
from flag_gems_overrides.errors import UserError

# Command: module and function, or Typer for a group.
_COMMANDS = {
    "doctor": ("doctor", "doctor"),
    "list": ("list", "list_overrides"),
    "status": ("status", "show_status"),
    "bench": ("bench", "bench"),
    "profile": ("profile", "profile"),
    "ladder": ("ladder", "ladder"),
    "hunt": ("hunt", "hunt"),
    "regret": ("regret", "regret"),
    "tune": ("tune", "tune"),
    "report": ("report", "report"),
    "compare": ("compare", "compare"),
    "summary": ("summary", "summary"),
    "accept": ("accept", "accept"),
    "resources": ("resources", "resources"),
    "quality": ("quality", "quality"),
    "ablate": ("ablate", "ablate"),
    "patches": ("patches", "patches"),
}


class _Commands(TyperGroup):
    """Imports commands lazily, and turns a :class:`UserError` into one line and status 2."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[cmd_name]
        try:
            found = getattr(importlib.import_module(f"flag_gems_overrides.cli.{module}"), attribute)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("flag_gems_overrides"):
                raise
            return _missing(cmd_name, error.name)
        if isinstance(found, typer.Typer):
            app = found
        else:
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            app.command(cmd_name)(found)
        command = typer.main.get_command(app)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            typer.secho("error: ", fg="red", err=True, nl=False)
            typer.echo(str(error), err=True)
            raise typer.Exit(2) from None


def _missing(command: str, package: str | None) -> Any:
    """A command that says which package it lacks."""

    def say() -> None:
        raise UserError(missing(command, package))

    app = typer.Typer(add_completion=False)
    app.command(
        command, help=f"(needs {package})", context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
    )(say)
    return typer.main.get_command(app)


app = typer.Typer(
    cls=_Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(version())
        raise typer.Exit


@app.callback()
def _describe(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """FlagGems operators, faster and corrected, over the installed flag_gems."""
