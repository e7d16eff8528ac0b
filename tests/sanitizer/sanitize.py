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

FOLDER = Path(__file__).parent
# Of one tool over the whole short list, which takes seconds without it.
SECONDS = 1800
# The sanitizer's exit status if it has found something; otherwise it is that of what it ran.
FOUND = 86
# One mistake is often made by many threads.
MAX_REPORTS = 20

# With options of their own. Padding, so that what is beyond the end of one tensor is not in the next.
TOOLS = {
    "memcheck": ["--padding", "4096"],
    "initcheck": [],
    "racecheck": ["--racecheck-report", "all"],
    "synccheck": [],
}
pytestmark = pytest.mark.timeout(SECONDS + 60)


@pytest.fixture(scope="session")
def sanitizer() -> list[str]:
    """compute-sanitizer and its options but for the tool."""
    program = shutil.which("compute-sanitizer")
    if not torch.cuda.is_available():
        pytest.fail("needs a GPU: torch.cuda.is_available() is False", pytrace=False)
    if program is None:
        pytest.fail("needs compute-sanitizer, of the CUDA toolkit, in PATH", pytrace=False)
    # No restriction to our kernels: initcheck must see who else writes. Whether PyTorch asks the driver for what it
    # has not got is not of interest, nor are compilers that Triton starts.
    options = ["--report-api-errors", "no", "--target-processes", "application-only"]
    return [program, *options, "--error-exitcode", str(FOUND), "--print-limit", str(MAX_REPORTS)]


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    """The short list alone: what fails here fails without a sanitizer, and Triton need not compile under one."""
    if torch.cuda.is_available():
        status, output = _run([], "test_short_list.py")
        assert status == 0, output


@pytest.mark.parametrize("tool", TOOLS)
def test_nothing_is_found(tool: str, sanitizer: list[str]):
    command = [*sanitizer, "--tool", tool, *TOOLS[tool]]
    status, output = _run(command, "test_short_list.py::test_answer")
    print(_reports(output))
    assert status != FOUND, f"{tool} found something"
    assert status == 0, f"exit status {status}: {' '.join(command)}\n{output[-6000:]}"
    # Also where it was not attached to the process, the status is that of the process.
    assert re.search(r"SUMMARY: 0 (errors|hazards)", output), output[-6000:]


@pytest.mark.parametrize("tool", ["memcheck", "initcheck"])
def test_a_mistake_is_found(tool: str, sanitizer: list[str]):
    """Or the tool has not looked."""
    status, output = _run([*sanitizer, "--tool", tool], f"mistakes.py::test_{tool}")
    assert status == FOUND, f"exit status {status}\n{output[-6000:]}"
    assert "_increment" in _reports(output), output[-6000:]


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
