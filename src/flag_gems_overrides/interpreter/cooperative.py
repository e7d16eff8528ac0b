# SPDX-License-Identifier: Apache-2.0
"""Launches whose programs wait for each other.

The stock interpreter runs one program after the other, and a program that waits for a later one waits for ever. Here
each program is a greenlet. At an atomic operation or a volatile load, the only operations that a program can wait with,
the next program runs. A program that changed memory runs on for a few of them: so it finds that the others have not
written yet, and waits.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable
from typing import Any

from greenlet import getcurrent, greenlet

from flag_gems_overrides.interpreter.builder import Builder
from flag_gems_overrides.interpreter.errors import DeadlockError

Index = tuple[int, int, int]
# Changes of memory in a row after which a program lets others run. No kernel publishes as many numbers at once.
MAX_CHANGES = 8


def run(builder: Builder, kernel: str, program: Callable[[], Any], indices: Iterable[Index]) -> None:
    """Run ``program`` once for each grid index, all of them at the same time.

    Raises:
        DeadlockError: no program changes memory any more, and none ends.
    """
    scheduler = getcurrent()
    running = [(index, greenlet(program)) for index in indices]
    # A program may look at every other one, a turn each, before it goes on without having changed anything itself.
    patience = 100 + 4 * len(running)
    progress = False
    changes = 0

    def next_program(changed_memory: bool) -> None:
        nonlocal progress, changes
        progress = progress or changed_memory
        changes = changes + 1 if changed_memory else 0
        if 0 < changes < MAX_CHANGES:
            return
        changes = 0
        scheduler.switch()

    for _, turn in running:
        turn.gr_context = contextvars.copy_context()
    builder.yield_program = next_program
    idle_rounds = 0
    try:
        while running:
            progress = False
            for index, turn in running:
                builder.grid_idx = index
                turn.switch()
            left = [(index, turn) for index, turn in running if not turn.dead]
            progress = progress or len(left) < len(running)
            running = left
            idle_rounds = 0 if progress else idle_rounds + 1
            if idle_rounds > patience:
                waiting = ", ".join(str(index) for index, _ in running[:8]) + (", ..." if len(running) > 8 else "")
                raise DeadlockError(
                    f"{kernel}: programs {waiting} wait, and have changed nothing in memory for {idle_rounds} rounds"
                )
    finally:
        builder.yield_program = None
        for _, turn in running:
            turn.throw()
