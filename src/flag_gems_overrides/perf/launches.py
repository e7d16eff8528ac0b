# SPDX-License-Identifier: Apache-2.0
"""Which kernels an override launches, how, and what they take of the device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from triton import knobs

from flag_gems_overrides.ops.launch.prepared import Entry


class Launched(NamedTuple):
    """One launch of one of our kernels."""

    kernel: str
    grid: tuple[int, ...]
    options: dict[str, Any]
    """Constexpr parameters and launch options by name."""
    compiled: Any
    """Triton's ``CompiledKernel``; None in the interpreter."""

    def row(self) -> dict[str, Any]:
        """The launch as records keep it."""
        plain = {name: value if _is_plain(value) else str(value) for name, value in self.options.items()}
        row: dict[str, Any] = {"kernel": self.kernel, "grid": [int(n) for n in self.grid], "options": plain}
        if self.compiled is not None and hasattr(self.compiled, "metadata"):
            self.compiled._init_handles()
            row |= {
                "registers": self.compiled.n_regs,
                "spilled_bytes": 4 * self.compiled.n_spills,
                "shared_bytes": self.compiled.metadata.shared,
            }
        return row


def _is_plain(value: Any) -> bool:
    """Whether JSON has it: no infinities, no dtypes, no functions."""
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


@contextmanager
def captured() -> Iterator[list[Launched]]:
    """Collects the launches of our kernels inside the block, which go the slow way that looks every kernel up."""
    launches: list[Launched] = []
    run = Entry.run

    def run_and_note(self: Entry, *args: Any, grid: Any, **options: Any) -> Any:
        kernel, constexprs = run(self, *args, grid=grid, **options)
        launches.append(Launched(self.jit_function.__name__, grid, options, kernel))
        return kernel, constexprs

    def look_up(_: object) -> None:
        """A prepared launch leaves the fast path while there is a hook into launches."""

    knobs.runtime.launch_enter_hook.add(look_up)
    Entry.run = run_and_note  # type: ignore[method-assign]
    try:
        yield launches
    finally:
        Entry.run = run  # type: ignore[method-assign]
        knobs.runtime.launch_enter_hook.remove(look_up)
