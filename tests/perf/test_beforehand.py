# SPDX-License-Identifier: Apache-2.0
"""Problems compiled in workers, before or while they are measured."""

from __future__ import annotations

import pytest
import torch

from flag_gems_overrides.perf import beforehand, workers
from flag_gems_overrides.perf.beforehand import Prepared
from flag_gems_overrides.perf.cases import make
from flag_gems_overrides.perf.problems import Problem

ONE, TWO, THREE = (Problem("softmax", make("softmax", f"{rows}x64 dim=1", "float32"), rows == 2) for rows in (1, 2, 3))


@pytest.fixture
def events(monkeypatch):
    """What happens in turn: what the workers were asked for, and their answers. They have no time for the third."""
    happened = []

    def run(function, tasks, processes, seconds, environment):
        happened.append((processes, seconds, environment))
        for key, name in tasks:
            if key == THREE.case.key and name == "upstream":
                return
            happened.append(f"{key.split()[1]} {name}")
            died = "status 1" if (key, name) == (ONE.case.key, "override") else None
            yield workers.Answer((key, name), {"kernel": [1.0]} if name == "upstream" else {}, died)

    monkeypatch.setattr(workers, "run", run)
    monkeypatch.setattr(beforehand, "processes", lambda: 8)
    return happened


COMPILED = [
    (ONE, Prepared({"override": "status 1"}, {"kernel": [1.0]})),
    (TWO, Prepared({}, {"kernel": [1.0]})),
    (THREE, Prepared({}, {})),
]


def test_on_the_only_gpu_all_is_compiled_before(events, monkeypatch):
    monkeypatch.setattr(beforehand, "gpu_beside", lambda: None)
    found = beforehand.compiled([ONE, TWO, THREE], 60.0)
    assert next(found) == COMPILED[0]
    assert events[0] == (8, 30.0, {"OMP_NUM_THREADS": "1"})
    assert events[-1] == "3x64 override"
    assert list(found) == COMPILED[1:]


def test_a_worker_that_found_no_memory_beside_others_says_nothing_of_its_provider(monkeypatch):
    def run(function, tasks, processes, seconds, environment=None):
        for key, name in tasks:
            died = "status 1: torch.AcceleratorError: CUDA error: out of memory" if name == "override" else "status 1"
            yield workers.Answer((key, name), None, died)

    monkeypatch.setattr(workers, "run", run)
    monkeypatch.setattr(beforehand, "gpu_beside", lambda: None)
    assert list(beforehand.compiled([ONE], 60.0)) == [(ONE, Prepared({"upstream": "status 1"}, {}))]


def test_beside_another_gpu_a_problem_comes_when_it_is_compiled(events, monkeypatch):
    monkeypatch.setattr(beforehand, "gpu_beside", lambda: "GPU-1")
    found = beforehand.compiled([ONE, TWO, THREE], 60.0)
    assert next(found) == COMPILED[0]
    assert events == [
        (7, 60.0, {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "GPU-1"}),
        "1x64 override",
        "1x64 upstream",
    ]
    assert next(found) == COMPILED[1]
    assert events[3:] == ["2x64 compile", "2x64 override", "2x64 upstream"]
    assert list(found) == COMPILED[2:]


@pytest.mark.parametrize(
    ("visible", "kinds", "current", "beside"),
    [
        (None, ["H100"], 0, None),
        (None, ["H100", "H100"], 0, "1"),
        (None, ["H100", "H100"], 1, "0"),
        (None, ["H100", "A100", "H100"], 0, "2"),
        ("5,7", ["H100", "H100"], 0, "7"),
        ("GPU-a,GPU-b", ["H100", "A100"], 1, None),
    ],
)
def test_the_gpu_beside_is_of_the_same_kind(visible, kinds, current, beside, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(kinds))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: kinds[index])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert beforehand.gpu_beside() == beside
