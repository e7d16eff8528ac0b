# SPDX-License-Identifier: Apache-2.0
"""Whole models: milliseconds a step with the overrides against PyTorch, and the losses of the first 30 steps.

Needs ``transformers`` (the extra ``models``). Without a GPU small versions run in the interpreter, for their losses.
``--record json`` writes each case into ``models.json`` beside ``--output``.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

import flag_gems
import pytest
import torch

import flag_gems_overrides
from flag_gems_overrides import registration
from flag_gems_overrides.perf import run
from flag_gems_overrides.perf.statistics import compare
from flag_gems_overrides.registration import upstream
from flag_gems_overrides.registration.host import extension

pytest.importorskip("transformers", reason="the extra 'models' is not installed")
import models

STEPS = 30
ROUNDS, SAMPLE_SECONDS = 24, 0.15
# Native's own losses are this far apart when sums are taken in another order: weights moved by one part in a million.
NUDGE = 1e-6
MODES = {"training": models.training, "inference": models.inference}
BATCHES = {"training": (8, 64), "inference": (1, 64)}
CASES = [
    (name, mode, batch)
    for name in models.MODELS
    for mode, batches in BATCHES.items()
    for batch in batches[: 2 if torch.cuda.is_available() else 1]
]
# Sums of a training run in float32 in the interpreter differ by less.
INTERPRETER_TOLERANCE = 1e-3


def overrides():
    """flag_gems with nothing but the overrides."""
    stack = ExitStack()
    names = stack.enter_context(registration.use_overrides())
    stack.enter_context(upstream.use_gems(flag_gems, names))
    return stack


@contextmanager
def cublaslt():
    """PyTorch with matrix products of cuBLASLt instead of cuBLAS, which sums in another order."""
    before = torch.backends.cuda.preferred_blas_library()
    torch.backends.cuda.preferred_blas_library("cublaslt")
    try:
        yield
    finally:
        torch.backends.cuda.preferred_blas_library(before)


WAYS = {
    "native": nullcontext,
    "cublaslt": cublaslt,
    "overrides": overrides,
    "enable": flag_gems_overrides.enable,
}


def losses(make, way, nudged=False):
    """Of the first steps."""
    step = make()
    if nudged:
        weights = [cell.cell_contents for cell in step.__closure__ if isinstance(cell.cell_contents, torch.nn.Module)]
        with torch.no_grad():
            for parameter in weights[0].parameters():
                parameter.mul_(1 + NUDGE)
    with WAYS[way]():
        return [float(step()) for _ in range(STEPS if run.is_timed() else 3)]


def apart(some, others):
    return max(abs(a - b) / abs(b) for a, b in zip(some, others, strict=True))


@pytest.mark.parametrize(("name", "mode", "batch"), CASES, ids=lambda value: str(value))
def test_perf_model(name, mode, batch, request, record_property):
    timed = run.is_timed()
    size = models.Size() if timed else models.TINY

    def make():
        return MODES[mode](name, batch if timed else 2, size)

    want = losses(make, "native")
    bound = max(3 * apart(losses(make, "native", nudged=True), want), 1e-3) if timed else INTERPRETER_TOLERANCE
    row = {"case": f"{name} {mode} batch {batch}", "bound": bound}
    row["losses"] = {"native": want, "overrides": losses(make, "overrides")}
    if timed:
        row |= times(make(), row["case"])
        record_property("native / overrides", row["ratio"][0])
        print(json.dumps({key: value for key, value in row.items() if key not in ("losses", "samples_ms")}), flush=True)
    if request.config.option.record == "json":
        append(request.config.option.output.with_name("models.json"), row)
    assert apart(row["losses"]["overrides"], want) <= bound


# In the interpreter a backward pass of everything crashes the process; ablate says what of it does on a device.
@pytest.mark.skipif(not torch.cuda.is_available(), reason="all of flag_gems needs a CUDA device")
@pytest.mark.parametrize("name", models.MODELS)
def test_model_under_enable(name, request):
    """With all of flag_gems but what enable() leaves out, training gives native's losses.

    All sums are in another order here, those of matrix products too.
    """
    size = models.Size() if run.is_timed() else models.TINY

    def make():
        return models.training(name, 8 if run.is_timed() else 2, size)

    want, got = losses(make, "native"), losses(make, "enable")
    others = losses(make, "native", nudged=True), losses(make, "cublaslt")
    bound = max(3 * max(apart(other, want) for other in others), 1e-2)
    row = {"case": f"{name} under enable()", "bound": bound, "losses": {"native": want, "enable": got}}
    print(row["case"], f"{apart(got, want):.4%}", flush=True)
    if request.config.option.record == "json":
        append(request.config.option.output.with_name("models.json"), row)
    assert apart(got, want) <= bound


def times(step, seed):
    """Milliseconds a step, in the order A B B A."""
    ways = ("native", "overrides")
    samples = {way: [] for way in ways}
    # Calls would go through Python for as long as it is being built in the background.
    with suppress(extension.BuildError):
        extension.build()
    for way in ways:
        with WAYS[way]():
            for _ in range(3):
                one = timed_steps(step, 2)
    count = max(2, round(SAMPLE_SECONDS / one))
    for _ in range(ROUNDS):
        pairs = {way: [] for way in ways}
        for way in (*ways, *reversed(ways)):
            with WAYS[way]():
                step()
                pairs[way].append(timed_steps(step, count))
        for way in ways:
            samples[way].append(1e3 * sum(pairs[way]) / 2)
    ratio, low, high, _ = compare(samples["overrides"], samples["native"], seed)
    return {
        **{f"{way}_ms": round(statistics.median(samples[way]), 4) for way in ways},
        "ratio": [round(value, 4) for value in (ratio, low, high)],
        "samples_ms": samples,
    }


def timed_steps(step, count):
    """Seconds a step."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


def append(path: Path, row) -> None:
    """Into a JSON file of rows, which is replaced as a whole."""
    from importlib.metadata import version

    record = json.loads(path.read_text()) if path.exists() else {"rows": []}
    record["device"] = torch.cuda.get_device_name() if run.is_timed() else "cpu"
    record["versions"] = {name: version(name) for name in ("torch", "triton", "flag_gems", "transformers")}
    record["rows"] = [*(each for each in record["rows"] if each["case"] != row["case"]), row]
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(unfinished, path)
