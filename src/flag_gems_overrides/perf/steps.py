# SPDX-License-Identifier: Apache-2.0
"""A training or inference step of the user's, by its name MODULE:FUNCTION."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from flag_gems_overrides.errors import UserError

Step = Callable[[], Any]


class StepError(UserError):
    """A step that cannot be called; the message names it and says why."""


def check_name(name: str) -> None:
    """Raise a StepError unless this may be the name of a step."""
    module, _, function = name.partition(":")
    if not (module and function) or ":" in function:
        raise StepError(f"{name}: not of the form MODULE:FUNCTION, such as train:step")


def load(name: str) -> Step:
    """The function, from a module of the working directory or an installed one, whose errors are passed on."""
    check_name(name)
    module, _, function = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    step: Step = getattr(importlib.import_module(module), function)
    return step
