# SPDX-License-Identifier: Apache-2.0
"""Where a command runs flag_gems."""

from __future__ import annotations

from flag_gems_overrides import environment
from flag_gems_overrides.cli import _options
from flag_gems_overrides.errors import UserError


def prepare() -> None:
    """Load flag_gems, and say so if that is in the interpreter. Must come before triton and flag_gems.

    Raises:
        UserError: flag_gems does not load.
    """
    try:
        gems = environment.load()
    except (RuntimeError, ImportError) as error:
        raise UserError(str(error)) from None
    if gems.device == "cpu":
        _options.say("No GPU: counting in Triton's interpreter, on the CPU.", err=True)
