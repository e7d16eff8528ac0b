# SPDX-License-Identifier: Apache-2.0
"""The kernels that are launched, and the caches of what their launches need."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from flag_gems_overrides import ops
from flag_gems_overrides.ops import _reduction, _softmax, layernorm
from flag_gems_overrides.ops._launch import Entry

# By the names that the compiled kernels have.
KERNELS: dict[str, Entry] = {
    value.jit_function.__name__: value
    for module in pkgutil.iter_modules(ops.__path__, ops.__name__ + ".")
    for value in vars(import_module(module.name)).values()
    if isinstance(value, Entry)
}
# Of prepared launches, by what a call says about its tensors.
PREPARED = [
    _softmax._prepare_forward,
    _softmax._prepare_backward,
    _reduction._prepare,
    layernorm._forward,
    layernorm._backward,
]
