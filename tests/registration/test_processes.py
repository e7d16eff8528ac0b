# SPDX-License-Identifier: Apache-2.0
"""Overrides in other processes: spawned, forked, two at once with the same caches."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import sqlite3
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import children
import pytest
import torch
from torch.utils.data import DataLoader

# flag_gems says so, and Python 3.12 of a fork of a process with threads.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Warning only once for all operators"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]


def _assert_close(actual: list[torch.Tensor], native: list[torch.Tensor]) -> None:
    for ours, theirs in zip(actual, native, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.fixture
def kernels(overridden) -> list[str]:
    """Which of ours answer in this process, where the overrides are known to be in force."""
    with overridden():
        launched = children.answers_and_kernels(children.tensor(0))[1]
    assert len(launched) >= len(children.answers(children.tensor(0))) - 1  # a maximum and its index are one launch
    return launched


def test_two_spawned_processes_share_both_caches(tmp_path: Path, device: str, kernels: list[str]):
    context = multiprocessing.get_context("spawn")
    arguments = str(tmp_path), context.Barrier(2)
    with ProcessPoolExecutor(2, context, initializer=children.share_caches, initargs=arguments) as processes:
        done = [processes.submit(children.tune_and_compile) for _ in range(2)]
        for results, launched, tuned in (each.result() for each in done):
            _assert_close([torch.tensor(result) for result in results], children.answers(children.tensor(0)))
            assert launched == kernels
            assert tuned == [False] * len(tuned)
    databases = [*tmp_path.glob("flag_gems/**/*.db")]
    assert databases or device == "cpu"  # the interpreter keeps its own in memory
    for database in databases:
        with contextlib.closing(sqlite3.connect(database)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    for metadata in tmp_path.glob("triton/**/*.json"):
        json.loads(metadata.read_text())


def test_workers_of_a_data_loader(overridden, device, kernels):
    """CUDA cannot be used in a fork: there the workers are spawned, and dispatch to the overrides themselves."""
    native = [children.answers(children.tensor(index)) for index in range(len(children.Answers()))]
    start = {"multiprocessing_context": "fork"}
    if device == "cuda":
        start = {"multiprocessing_context": "spawn", "worker_init_fn": children.dispatch_to_overrides}
    with overridden():
        loaded = list(DataLoader(children.Answers(), None, num_workers=2, **start))
    for (actual, launched), expected in zip(loaded, native, strict=True):
        _assert_close(actual, expected)
        assert launched == kernels
