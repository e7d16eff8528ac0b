# SPDX-License-Identifier: Apache-2.0
"""Compiles the Triton kernels of one rung for a GPU that need not be here, and prints their PTX.

    python -m flag_gems_overrides.perf.ladder_compile ragged triton_multiple_of

It has a process of its own because Triton either compiles or interprets, for the life of a process. The rung is called
on tensors without data; its launches compile and do not run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from triton.runtime import JITFunction, driver

from flag_gems_overrides.interpreter import vendor
from flag_gems_overrides.perf.compile_only import _Driver
from flag_gems_overrides.perf.ladder import FOLDER, load

ARCHITECTURE = 90


def main(name: str, rung: str, folder: Path = FOLDER) -> None:
    vendor.import_flag_gems(extra_name="cuda")
    driver.set_active(_Driver(ARCHITECTURE))
    ladder = load(name, folder)
    compiled = []
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        compiled.append(run(self, *args, grid=grid, warmup=True, **options))
        return compiled[-1]

    JITFunction.run = compile_only
    inputs = (x.to("meta") if isinstance(x, torch.Tensor) else x for x in ladder.inputs(ladder.target, "cpu"))
    ladder.module(rung).run(*inputs)
    print("\n".join(kernel.asm["ptx"] for kernel in compiled))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(Path, sys.argv[3:]))
