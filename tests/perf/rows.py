# SPDX-License-Identifier: Apache-2.0
"""Made-up sessions and case lines."""

from __future__ import annotations

from typing import Any

import numpy as np

# 1 us for every MiB and a launch, of copies; of reads half of it.
COLD: dict[str, Any] = {
    "bytes": [1 << 22, 1 << 23, 1 << 24],
    "copy_us": [5.0, 9.0, 17.0],
    "read_us": [2.5, 4.5, 8.5],
}


def head(measure: str = "kernel", **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "kind": "session",
        "schema": 2,
        "measure": measure,
        "level": "core",
        "device": {"name": "NVIDIA H200" if measure != "count" else "interpreter"},
        "versions": {"python": "3.12.3", "torch": "2.11.0", "triton": "3.6.0", "flag_gems": "5.0.2"},
        "digests": {"flag_gems": "0" * 16, "flag_gems_overrides": "1" * 16},
        "commit": "abc",
    }
    if measure != "count":
        made |= {
            "started": "2026-11-20T12:00:00+00:00",
            "copy_gbps": 4243.0,
            "read_gbps": 4600.0,
            "noise": 0.01,
        }
    return made | changes


def samples(ms: float, rounds: int = 20, spread: float = 0.003, seed: int = 0) -> list[float]:
    """Times around ``ms`` with a relative standard deviation of ``spread``."""
    return list(ms * np.exp(np.random.default_rng(seed).normal(0, spread, rounds)))


def timed(
    key: str = "softmax 4096x4096 dim=1 bfloat16", rounds: int = 20, spread: float = 0.003, **ms: float
) -> dict[str, Any]:
    """A case line with the given median milliseconds by provider."""
    providers = {
        name: {"samples_ms": samples(value, rounds, spread, seed), "agrees": True}
        for seed, (name, value) in enumerate(ms.items())
    }
    return {
        "kind": "case",
        "key": key,
        "l2": "cold",
        "compulsory": {"read": 2**25, "written": 2**25},
        "providers": providers,
        "rounds": {"kept": rounds, "dropped": 0, "attempts": 1},
    }


def counted(key: str = "softmax 64x256 dim=1 float32", **override: int) -> dict[str, Any]:
    """A case line with counts: upstream makes one pass in one launch, and so does the override but for changes."""
    one_pass = {
        "loaded": 65536,
        "stored": 65536,
        "atomic": 0,
        "launches": 1,
        "allocations": 1,
        "allocated": 65536,
    }
    return {
        "kind": "case",
        "key": key,
        "l2": "cold",
        "compulsory": {"read": 65536, "written": 65536},
        "providers": {
            "upstream": {**one_pass, "agrees": True},
            "override": {**one_pass, "agrees": True, **override},
        },
    }
