# SPDX-License-Identifier: Apache-2.0
"""Where a command runs flag_gems."""

from __future__ import annotations

from rich.console import Console


def prepare(console: Console) -> None:
    """Activate the interpreter if there is no GPU, and say so. Must come before triton and flag_gems."""
    import torch

    if not torch.accelerator.is_available():
        from flag_gems_overrides import interpreter

        interpreter.activate()
        console.print("No GPU: flag_gems runs in Triton's interpreter, on the CPU.\n")
