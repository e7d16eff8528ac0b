# SPDX-License-Identifier: Apache-2.0
"""Worker processes: answers, deaths, and an end in time."""

from __future__ import annotations

import os
import sys
import time

import pytest

from flag_gems_overrides.perf import workers


def double():
    print("not an answer")

    def answer(task):
        print("not an answer")
        return 2 * task

    return answer


def end_at_three():
    def answer(task):
        if task == 3:
            print("three", file=sys.stderr, flush=True)
            os._exit(7)
        return task

    return answer


def never():
    return lambda task: time.sleep(1000) if task == 3 else task


def folder_of():
    return lambda task: os.environ["PLACE"]


def broken():
    raise ValueError("no GPU")


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    paths = [os.path.dirname(__file__), *sys.path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


def run(function, tasks, processes=2, **options):
    return list(workers.run(f"test_workers:{function}", tasks, processes, **options))


def test_every_task_is_answered():
    answers = run("double", range(7))
    assert sorted((answer.task, answer.value) for answer in answers) == [(n, 2 * n) for n in range(7)]


def test_a_process_that_ends_is_replaced_and_its_task_said():
    answers = {answer.task: answer for answer in run("end_at_three", range(6))}
    assert answers.pop(3).died == "its process ended with status 7: three"
    assert all(answer.value == task for task, answer in answers.items())
    assert len(answers) == 5


def test_a_task_that_takes_too_long_ends_its_process(monkeypatch):
    monkeypatch.setattr(workers, "TASK_SECONDS", 3.0)
    answers = {answer.task: answer for answer in run("never", range(6))}
    assert answers[3].died == "no answer after 3 s"
    assert sum(answer.died is None for answer in answers.values()) == 5


def test_a_process_that_cannot_be_started_is_no_answer():
    with pytest.raises(workers.WorkerError, match="ended with status 1: ValueError: no GPU"):
        run("broken", range(3))


def test_nothing_is_begun_after_the_time():
    assert run("double", range(5), seconds=0) == []


def test_each_process_has_a_folder_of_its_own():
    places = {answer.value for answer in run("folder_of", range(8), environment={"PLACE": "{folder}/x"})}
    assert all(place.endswith("/x") and not os.path.exists(place[:-2]) for place in places)


def test_processes_end_with_whoever_asked():
    answers = workers.run("test_workers:double", range(1000), 2)
    next(answers)
    answers.close()


@pytest.mark.parametrize(
    ("status", "log", "reason"),
    [
        (-6, "", "killed by SIGABRT: without a word"),
        (1, "Traceback\nValueError: a\n\nand more\n", "ended with status 1: ValueError: a"),
        (
            1,
            "torch.AcceleratorError: CUDA error: b\nCompile with\n",
            "ended with status 1: torch.AcceleratorError: CUDA error: b",
        ),
        (3, "one\n two \n", "ended with status 3: two"),
        (1, "KeyError: " + "x" * 300, "ended with status 1: KeyError: " + "x" * 190),
    ],
)
def test_why_a_process_ended(status, log, reason):
    assert workers.reason(status, log) == reason
