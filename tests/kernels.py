# SPDX-License-Identifier: Apache-2.0
"""The kernels that are launched, and the caches of what their launches need."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from flag_gems_overrides import ops
from flag_gems_overrides.ops.families.batch_norm import call as batch_norm
from flag_gems_overrides.ops.families.gather import call as gather
from flag_gems_overrides.ops.families.gather import logits
from flag_gems_overrides.ops.families.group_norm import call as group_norm
from flag_gems_overrides.ops.families.norm import call as norm
from flag_gems_overrides.ops.families.norm import rms_call as rms_norm
from flag_gems_overrides.ops.families.reduction import call as reduction
from flag_gems_overrides.ops.families.reduction import moments_call, pairs_call
from flag_gems_overrides.ops.families.scan import call as scan
from flag_gems_overrides.ops.families.softmax import call as softmax
from flag_gems_overrides.ops.launch.prepared import Entry
from flag_gems_overrides.registration import host

# By the names that the compiled kernels have.
KERNELS: dict[str, Entry] = {
    value.jit_function.__name__: value
    for module in pkgutil.walk_packages(ops.__path__, ops.__name__ + ".")
    for value in vars(import_module(module.name)).values()
    if isinstance(value, Entry)
}
# Of prepared launches, by what a call says about its tensors.
PREPARED = [
    softmax._prepare_forward,
    softmax._prepare_backward,
    reduction._prepare,
    moments_call._prepare,
    pairs_call._prepare,
    norm.prepare_forward,
    norm.prepare_backward,
    batch_norm.prepare_forward,
    batch_norm.prepare_backward,
    group_norm.prepare_forward,
    group_norm.prepare_backward,
    rms_norm.prepare_forward,
    rms_norm.prepare_backward,
    gather._prepare_forward,
    gather._prepare_backward,
    logits._prepare,
    scan._prepare,
]


def forget_launches() -> None:
    """What is launched is decided anew, by Python and by C++."""
    for cache in PREPARED:
        cache.cache_clear()
    host.forget()
