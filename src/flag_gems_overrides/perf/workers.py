# SPDX-License-Identifier: Apache-2.0
"""A function called for many tasks in processes beside each other, whatever becomes of any of them.

Compilers fill one core each, and a kernel may end the process that calls it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from flag_gems_overrides.errors import UserError

# The longest compilation that was seen took 20 s. A process that starts imports torch and flag_gems, ten seconds; where
# tests had all cores of a GPU machine, more than a minute.
TASK_SECONDS, START_SECONDS = 60.0, 300.0


def reason(status: int, log: str) -> str:
    """Why a process ended: its last error of what it wrote, for CUDA's errors end with lines of general advice."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Fatal)\b", line)]
    last = (errors or lines)[-1][:200] if lines else "without a word"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}: {last}"
    return f"ended with status {status}: {last}"


class WorkerError(UserError):
    """A process could not be started; the message has the end of what it said."""


class Answer(NamedTuple):
    """What became of one task."""

    task: Any
    value: Any
    died: str | None
    """Why the process did not answer; None if it did."""


def run(
    function: str,
    tasks: Iterable[Any],
    processes: int,
    seconds: float = float("inf"),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Answer]:
    """Answers as they come, in no particular order; tasks that were not begun after ``seconds`` are left out.

    Args:
        function: ``"package.module:function"``, called once in each process; what it returns takes a task and returns
            an answer, both as JSON has them.
        tasks: handed out in their order.
        environment: added to that of each process; ``{folder}`` in a value becomes a temporary folder of its own.

    Raises:
        WorkerError: a process could not be started.
    """
    until = time.monotonic() + seconds
    waiting = iter(list(tasks))
    lock = threading.Lock()
    answers: queue.SimpleQueue[Answer | BaseException | None] = queue.SimpleQueue()
    stop = threading.Event()

    def serve() -> None:
        worker: _Worker | None = None
        try:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    while not stop.is_set() and time.monotonic() < until:
                        with lock:
                            task = next(waiting, _NO_MORE)
                        if task is _NO_MORE:
                            break
                        worker = worker or _Worker(function, folder, environment or {})
                        with current:
                            alive.add(worker)
                            if stop.is_set():  # nobody else would end a process that was started meanwhile
                                worker.kill()
                        answer = worker.ask(task)
                        if answer.died:
                            worker.close()
                            worker = None
                        answers.put(answer)
                finally:
                    if worker:
                        worker.close()
        except BaseException as error:
            answers.put(error)
        finally:
            answers.put(None)

    alive: set[_Worker] = set()
    current = threading.Lock()
    threads = [threading.Thread(target=serve, daemon=True) for _ in range(max(1, processes))]
    for thread in threads:
        thread.start()
    try:
        running = len(threads)
        while running:
            answer = answers.get()
            if answer is None:
                running -= 1
            elif isinstance(answer, BaseException):
                raise answer
            else:
                yield answer
    finally:
        stop.set()
        with current:
            for worker in alive:
                worker.kill()
        for thread in threads:
            thread.join()


_NO_MORE = object()


class _Worker:
    """One process, which runs :mod:`worker`."""

    def __init__(self, function: str, folder: str, environment: Mapping[str, str]) -> None:
        added = {name: value.replace("{folder}", folder) for name, value in environment.items()}
        self._function = function
        self._log = Path(folder) / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "flag_gems_overrides.perf.worker", function],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | added,
            )
        self._ready = False

    def ask(self, task: Any) -> Answer:
        if not self._ready:
            _, why = self._exchange("", START_SECONDS)
            if why:
                raise WorkerError(f"a worker for {self._function} could not be started: {why}")
            self._ready = True
        line, died = self._exchange(json.dumps(task) + "\n", TASK_SECONDS)
        return Answer(task, None if died else json.loads(line), died)

    def _exchange(self, message: str, seconds: float) -> tuple[str, str | None]:
        """(The next line of the process, None), or why there is none within ``seconds``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        late = threading.Timer(seconds, self.kill)
        late.start()
        try:
            self._process.stdin.write(message)
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        finally:
            timed_out = not late.is_alive()
            late.cancel()
        if line.endswith("\n"):
            return line, None
        if timed_out:
            return "", f"no answer after {seconds:.0f} s"
        status = self._process.wait()
        return "", f"its process {reason(status, self._log.read_text(errors='replace'))}"[:300]

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.kill()
        with contextlib.suppress(OSError):  # what could not be written to a process that has ended
            self._process.communicate()
