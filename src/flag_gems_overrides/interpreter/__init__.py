# SPDX-License-Identifier: Apache-2.0
"""flag_gems on Triton's interpreter, for machines without a GPU.

    from flag_gems_overrides import interpreter

    interpreter.activate()  # before anything imports flag_gems
    import flag_gems

From then on ``@triton.jit`` kernels run on CPU tensors in this process, flag_gems' and any others. Nothing on disk is
changed. flag_gems believes in one NVIDIA device, "cpu", of four SMs with a Hopper's limits each; LibEntry, LibTuner,
heuristics and autotuning run as they are, and of tied configurations the first one wins. About 20 us for each Triton
operation of each program, plus numpy's time for large blocks: small shapes, few programs. In parallel by process only.

To look at kernels while they run: :func:`check_bounds`, :func:`observe`, :func:`undefined_lanes`.

Like a GPU, and unlike the stock interpreter of at least one supported Triton version:

- ``and``, ``or`` and ``not`` on blocks are element by element, and so are comparisons in a row;
- a loop's variable is a tensor; a float argument is a float32 scalar, and widens what it meets;
- bfloat16 is computed in float32 and rounded to nearest even;
- ``tl.maximum``, ``tl.minimum``, ``tl.max``, ``tl.min`` and ``tl.clamp`` drop NaN unless told to propagate it, and
  what the index of a maximum says about NaN depends on its place;
- reductions are trees, each step rounded to the block's type; of equal maxima the first one's index counts;
- with ``launch_cooperative_grid=True`` the programs of a launch run at the same time, so that they can wait for each
  other at atomic operations and volatile loads; :class:`DeadlockError` if none of them can go on;
- unknown launch options, global variables that are not constexpr, and grids larger than CUDA's are errors.

Not modelled: warps, registers, shared memory and their limits; races; any order of
programs but one after the other (or in turns, if cooperative); what num_warps and num_stages change; alignment, and
hints about it; contraction to fused multiply-adds; TF32 and approximate functions; subnormal numbers flushed to zero;
the type check of values that a loop carries; constexprs as such (a kernel sees plain numbers, and a number that gets a
name becomes a tensor). Inline assembly, CUDA's libdevice called directly, and atomics on bfloat16 do not run.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings

from flag_gems_overrides import requirements
from flag_gems_overrides.interpreter.errors import DeadlockError, OutOfBoundsError
from flag_gems_overrides.interpreter.observation import Launch, Traffic, check_bounds, observe, undefined_lanes

__all__ = [
    "DeadlockError",
    "Launch",
    "OutOfBoundsError",
    "Traffic",
    "activate",
    "check_bounds",
    "is_active",
    "observe",
    "undefined_lanes",
]

_active = False


def is_active() -> bool:
    return _active


def activate(vendor: str = "nvidia") -> None:
    """Make flag_gems run on CPU tensors through Triton's interpreter, from here to the end of the process.

    Args:
        vendor: whose operators and configurations flag_gems takes, by its own names of vendors.

    Raises:
        RuntimeError: flag_gems, or Triton without TRITON_INTERPRET=1, has been imported already, or Triton is of a
            version that has not been tried; the message says how to go on.
    """
    global _active
    if _active:
        return
    requirements.check_triton()
    for package in ("numpy", "greenlet"):
        if importlib.util.find_spec(package) is None:
            raise RuntimeError(f"the interpreter needs {package}: pip install 'flag-gems-overrides[interpreter]'")
    if "flag_gems" in sys.modules:
        raise RuntimeError(
            "flag_gems has been imported already, and looked for a GPU then. Call "
            "flag_gems_overrides.interpreter.activate() before the first `import flag_gems`."
        )
    triton = sys.modules.get("triton")
    if triton is not None and type(triton.language.sum).__name__ != "InterpretedFunction":
        raise RuntimeError(
            "triton has been imported already, without TRITON_INTERPRET=1, and compiles its kernels. Call "
            "flag_gems_overrides.interpreter.activate() before the first `import triton`, or set TRITON_INTERPRET=1 "
            "in the environment."
        )
    os.environ["TRITON_INTERPRET"] = "1"
    # They import Triton.
    from flag_gems_overrides.interpreter import language, libdevice
    from flag_gems_overrides.interpreter.vendor import import_flag_gems

    language.patch()
    libdevice.provide()
    import_flag_gems(vendor=vendor)
    # PyTorch warns in every process that flag_gems registers over a CPU kernel, which is what it is meant to do here.
    warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
    _active = True
