# SPDX-License-Identifier: Apache-2.0
"""The base class of what goes wrong by the user's input or machine, not by a mistake in this package."""

from __future__ import annotations


class UserError(Exception):
    """The message is one line that names the file, the field and the remedy. ``gems-overrides`` prints it and ends with
    status 2."""
