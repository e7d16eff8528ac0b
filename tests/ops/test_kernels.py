# SPDX-License-Identifier: Apache-2.0
"""What holds for every function that Triton compiles."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import triton.language as tl

from flag_gems_overrides import ops
from flag_gems_overrides.ops.launch.prepared import Entry


def test_none_looks_a_constant_up():
    """Triton 3.6 and 3.7 forget a called function's globals in the key of the first kernel that calls it, not in the
    others': the same kernel was compiled again where another had come before it in the process."""
    functions = 0
    for module in pkgutil.walk_packages(ops.__path__, ops.__name__ + "."):
        names = vars(import_module(module.name))
        for value in names.values():
            function = getattr(value.jit_function if isinstance(value, Entry) else value, "fn", None)
            if function is None or function.__module__ != module.name:
                continue
            functions += 1
            constants = [name for name in function.__code__.co_names if isinstance(names.get(name), tl.constexpr)]
            assert not constants, f"{module.name}.{function.__name__}"
    assert functions > 50
