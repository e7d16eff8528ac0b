# SPDX-License-Identifier: Apache-2.0
"""compute-sanitizer finds nothing in any kernel. ``tox run -e sanitize``, on a GPU machine with the CUDA toolkit."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kernels import KERNELS

FOLDER = Path(__file__).parent
# Of one tool over the whole short list, which takes seconds without it.
SECONDS = 1800
# The sanitizer's exit status if it has found something; otherwise it is that of what it ran.
FOUND = 86
# A mistake is often made by many threads. At least one for each kernel.
MOST_REPORTS = 40

TOOLS = {
    # A tensor ends where its allocation does, see _run.
    "memcheck": [],
    "initcheck": [],
    # Of shared memory. An exchange between warps is what it looks for; "all" says which instructions too.
    "racecheck": ["--racecheck-report", "all"],
    "synccheck": [],
}
pytestmark = pytest.mark.timeout(SECONDS + 60)


@pytest.fixture(scope="session")
def sanitizer() -> list[str]:
    """compute-sanitizer, restricted to our kernels: PyTorch's are not ours to judge."""
    found = shutil.which("compute-sanitizer")
    if not torch.cuda.is_available():
        pytest.fail("needs a GPU: torch.cuda.is_available() is False", pytrace=False)
    if found is None:
        pytest.fail("needs compute-sanitizer, of the CUDA toolkit, in PATH", pytrace=False)
    options = subprocess.run([found, "--help"], capture_output=True, text=True).stdout
    # The older name, of which the newer versions have kept the meaning.
    name = "--kernel-name" if "--kernel-name" in options else "--kernel-regex"
    # Children are not ours either: Triton calls a compiler, torch what tells it about the machine.
    program = [found, "--target-processes", "application-only"]
    return [*program, *(word for kernel in KERNELS for word in (name, f"kernel_substring={kernel}"))]


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    """The short list alone: what fails here fails without a sanitizer, and Triton need not compile under one."""
    if torch.cuda.is_available():
        status, output = _run([], "test_short_list.py")
        assert status == 0, output


@pytest.mark.parametrize("tool", TOOLS)
def test_nothing_is_found(tool: str, sanitizer: list[str]):
    status, output = _run([*sanitizer, *_options(tool)], "test_short_list.py::test_answer")
    print(_reports(output))
    assert status != FOUND, f"{tool} found something"
    assert status == 0, f"exit status {status}: {' '.join([*sanitizer, *_options(tool)])}\n{output[-6000:]}"
    # Also where it was not attached to the process, the status is that of the process.
    assert re.search(r"SUMMARY: 0 (errors|hazards)", output), output[-6000:]


def test_memcheck_finds_a_mistake(sanitizer: list[str]):
    status, output = _run([*sanitizer, *_options("memcheck")], "mistakes.py::test_memcheck")
    assert status == FOUND, f"exit status {status}\n{output[-6000:]}"


def test_initcheck_finds_a_mistake_in_a_kernel_of_each_name(sanitizer: list[str]):
    """So that the restriction to names lets every one of ours through."""
    status, output = _run([*sanitizer, *_options("initcheck")], "mistakes.py::test_initcheck")
    assert status == FOUND, f"exit status {status}\n{output[-6000:]}"
    assert [kernel for kernel in KERNELS if kernel not in _reports(output)] == [], output[-6000:]


def _options(tool: str) -> list[str]:
    return ["--tool", tool, *TOOLS[tool], "--error-exitcode", str(FOUND), "--print-limit", str(MOST_REPORTS)]


def _run(prefix: list[str], tests: str) -> tuple[int, str]:
    """The exit status and output of these tests, whose every tensor has an allocation of exactly its size."""
    python = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "timeout=0"]
    process = subprocess.Popen(
        [*prefix, *python, str(FOLDER / tests)],
        env=os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the sanitizer's child too
        output, _ = process.communicate()
        pytest.fail(f"not through after {SECONDS} s: {' '.join(process.args)}\n{output[-6000:]}", pytrace=False)
    return process.returncode, output


def _reports(output: str) -> str:
    """What the sanitizer itself says."""
    return "\n".join(line for line in output.splitlines() if line.startswith("========="))
