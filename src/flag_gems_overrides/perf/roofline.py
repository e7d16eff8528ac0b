# SPDX-License-Identifier: Apache-2.0
"""What a device allows, and a guess at the time from what is known without running."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf.cases import OVERRIDE, Case
from flag_gems_overrides.perf.devices import Gpu, occupancy

# What one launch takes on the device however little it does: an empty kernel on an H200.
LAUNCH_MS = 0.002
# Warps of a multiprocessor that keep its share of the memory bandwidth busy: 4.5 TB/s at 600 ns are 20 KiB in flight
# on each of 132, and a warp with 16-byte loads in every lane has 512 bytes, several times over.
ENOUGH_WARPS = 16


def extent(case: Case) -> tuple[int, int]:
    """(M, N): rows, and the size that is reduced or normalized: of batch norm channels and the rest, of losses of
    classes the batch and the classes."""
    total = math.prod(case.shape)
    arguments, family = dict(case.arguments), OPERATORS[case.op].family
    if family == "batch_norm":
        reduced = total // max(1, case.shape[1])
    elif family == "gather":
        reduced = case.shape[1]
    elif "normalized" in OPERATORS[case.op].arguments:
        reduced = math.prod(case.shape[-arguments.get("normalized", len(case.shape) - 1) :])
    elif "groups" in arguments:
        reduced = math.prod(case.shape[1:]) // arguments["groups"]
    elif "dim" in arguments:
        reduced = case.shape[arguments["dim"]]
    else:
        reduced = total
    return total // max(1, reduced), reduced


def flops(case: Case) -> int:
    return OPERATORS[case.op].flops * math.prod(case.shape)


def intensity(case: Case, compulsory: Mapping[str, int]) -> float:
    """Operations for each compulsory byte: 5 N over 8 N for softmax in float32."""
    return flops(case) / max(1, sum(compulsory.values()))


def dram_bytes(compulsory: Mapping[str, int], l2_bytes: int, l2: str) -> int:
    """The compulsory bytes that reach memory.

    Args:
        l2: "cold" if the cache was full of another's unwritten lines before: then every line written pushes out one
            of those, and it makes no difference that our own stay behind. "hot" if the tensors may still be there from
            the call before: what fits is neither read nor, within the call, written.
    """
    total = compulsory["read"] + compulsory["written"]
    return total if l2 == "cold" or total > l2_bytes else 0


def reads_mostly(compulsory: Mapping[str, int]) -> bool:
    """Whether reading rather than copying says what memory can do: for reductions."""
    return compulsory["read"] > 8 * compulsory["written"]


def cold_ms(cold: Mapping[str, Sequence[float]], compulsory: Mapping[str, int]) -> float | None:
    """What a plain copy, or read, of as many bytes takes from a cold cache; None for less than was measured.

    Args:
        cold: as the head of a session has it, by rising bytes. Between two sizes the logarithms are interpolated, and
            beyond the last the time grows with the bytes.
    """
    total = compulsory["read"] + compulsory["written"]
    sizes, times = cold["bytes"], cold["read_us" if reads_mostly(compulsory) else "copy_us"]
    if total < sizes[0]:
        return None
    between = math.exp(np.interp(math.log(total), np.log(sizes), np.log(times)))
    return between * max(1.0, total / sizes[-1]) / 1e3


def estimate_ms(compulsory: Mapping[str, int], launches: Sequence[Mapping[str, Any]], gpu: Gpu) -> float:
    """Time from the bytes, and from how much of the device the grid of the largest launch fills."""
    bandwidth = gpu.read_gbps if reads_mostly(compulsory) else gpu.copy_gbps
    filled = max((_filled(launch, gpu) for launch in launches), default=1.0)
    return LAUNCH_MS * max(1, len(launches)) + sum(compulsory.values()) / (bandwidth * filled) / 1e6


def _filled(launch: Mapping[str, Any], gpu: Gpu) -> float:
    """The share of the device's memory bandwidth that a launch can draw."""
    warps = int(launch["options"].get("num_warps", 4))
    resident = occupancy(gpu, warps, launch.get("registers", 0), launch.get("shared_bytes", 0))
    programs = math.prod(launch["grid"])
    at_once = max(1, round(resident * gpu.threads_per_sm / (32 * warps))) * gpu.sm_count
    waves = math.ceil(programs / at_once)
    even = programs / (waves * at_once) if waves > 1 else 1.0
    busy = min(programs, at_once) * warps / (gpu.sm_count * ENOUGH_WARPS)
    return even * min(1.0, busy)


def estimates(gpu: Gpu, rows: Iterable[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    """Estimated and measured milliseconds of those case lines that say what was launched."""
    pairs = []
    for row in rows:
        samples = row["providers"].get(OVERRIDE, {}).get("samples_ms")
        if samples and row.get("launches"):
            pairs.append((estimate_ms(row["compulsory"], row["launches"], gpu), median(samples)))
    return [estimated for estimated, _ in pairs], [measured for _, measured in pairs]


def rank_correlation(estimated: Sequence[float], measured: Sequence[float]) -> float:
    """Spearman's: 1 if the estimate sorts cases as measuring does."""
    return float(np.corrcoef(_ranks(estimated), _ranks(measured))[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    """The rank of each value; equal values share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[which]
